"""The driver is killed, signalled, doubled, or finds its files damaged: nothing is lost."""

from __future__ import annotations

import os
import pty
import random
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.search import TRIALS, Search, check_complete, experiment, outcome
from tuner import load_run

pytestmark = pytest.mark.faults


MOMENTS: dict[str, Callable[[Search], bool]] = {
    "before the first report": lambda s: len(s.events("started")) >= 1,
    "between reports": lambda s: s.reports() >= 12,
    "while a checkpoint is written": lambda s: len(list(s.run.glob("ray/*/checkpoint_*"))) and _unreported(s),
    "after the last trial": lambda s: len(s.events("ended")) == TRIALS,
}


def _unreported(search: Search) -> bool:
    known = {event["checkpoint"] for event in search.events("reported")}
    return any(f"ray/{path.parent.name}/{path.name}" not in known for path in search.run.glob("ray/*/checkpoint_*"))


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_a_moment_it_ends_as_without(tmp_path: Path, whole: Any, moment: str) -> None:
    search = Search(tmp_path).start(experiment())
    search.until(lambda: MOMENTS[moment](search)).kill().finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


def test_killed_twice_it_ends_as_without(tmp_path: Path, whole: Any) -> None:
    search = Search(tmp_path).start(experiment("bohb"))
    for n in (8, 20):
        search.until(lambda n=n: search.reports() >= n).kill().start()
    status, said = search.wait()
    assert status == 0, said
    check_complete(search.run)
    assert outcome(search.run) == whole("bohb")


def test_two_workers_killed_lose_nothing(tmp_path: Path) -> None:
    search = Search(tmp_path).start(experiment(workers=2))
    search.until(lambda: search.reports() >= 12).kill().finish()
    check_complete(search.run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_at_the_next_checkpoint(tmp_path: Path, whole: Any, number: int) -> None:
    search = Search(tmp_path).start(experiment())
    search.until(lambda: search.reports() >= 12)
    os.kill(search.pid, number)
    status, said = search.wait()
    assert status == 130
    assert "to continue: python -m tuner resume" in said
    search.finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


def test_a_terminal_that_is_gone_stops_at_the_next_checkpoint(tmp_path: Path, whole: Any) -> None:
    """As when an ssh session drops: kernel and shell both send SIGHUP, to Ray's processes too."""
    mine, its = pty.openpty()
    search = Search(tmp_path, environment={"TERM": "xterm"}).start(experiment(), terminal=its)
    os.close(its)
    threading.Thread(target=lambda: [*iter(lambda: _read(mine), b"")], daemon=True).start()
    search.until(lambda: search.reports() >= 12)
    os.close(mine)
    os.killpg(search.pid, signal.SIGHUP)
    os.killpg(search.pid, signal.SIGHUP)
    assert search.wait()[0] == 130
    assert search.events("left")[-1]["reason"] == "SIGHUP"
    assert "Traceback" not in (search.run / "run.log").read_text()
    search.finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_two_signals_stop_at_once(tmp_path: Path, whole: Any) -> None:
    search = Search(tmp_path).start(experiment(seconds=0.3))
    search.until(lambda: search.reports() >= 6)
    os.kill(search.pid, signal.SIGINT)
    os.kill(search.pid, signal.SIGINT)
    status, said = search.wait()
    assert (status, "Traceback" in said) == (130, False)
    search.finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


FILES = {
    "what the user wrote": ["experiment.yaml"],
    "what is made of the journal": ["provenance.json", "trials.csv", "results.parquet", "state.pkl"],
    "the journal": ["journal.jsonl"],
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that was left in the middle of a search, with all its files."""
    search = Search(tmp_path_factory.mktemp("killed")).start(experiment(seconds=0.3))
    return search.until(lambda: search.reports() >= 26).kill().run


@pytest.mark.parametrize("files", FILES)
def test_files_cut_off_anywhere(tmp_path: Path, killed: Path, whole: Any, files: str) -> None:
    search = Search(tmp_path)
    shutil.copytree(killed, search.run)
    for file in FILES[files]:
        data = (killed / file).read_bytes()
        (search.run / file).write_bytes(data[: int(len(data) * random.Random(file).random())])
    search.finish()
    check_complete(search.run)
    if files != "the journal":  # without its end the last decisions are taken again, with other draws
        assert outcome(search.run) == whole("tpe")


def test_an_experiment_file_cut_off_within_a_value(tmp_path: Path, killed: Path, whole: Any) -> None:
    """It is YAML all the same, and says something else than the journal."""
    search = Search(tmp_path)
    shutil.copytree(killed, search.run)
    before, value, _ = (killed / "experiment.yaml").read_text().partition("on_nan: fail")
    (search.run / "experiment.yaml").write_text(before + value[:-1])
    search.finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


def test_the_files_that_grow_end_in_the_midst_of_a_line(tmp_path: Path, killed: Path, whole: Any) -> None:
    """As a kill in the midst of a write leaves them: that event is lost, nothing before it."""
    search = Search(tmp_path)
    shutil.copytree(killed, search.run)
    journal = (killed / "journal.jsonl").read_bytes()
    begin = journal.rstrip(b"\n").rindex(b"\n") + 1
    (search.run / "journal.jsonl").write_bytes(journal[: random.Random(1).randrange(begin + 1, len(journal))])
    written = [(event["trial"], event["step"], event["timestamp"]) for event in search.events("reported")]
    log = (killed / "run.log").read_bytes()
    (search.run / "run.log").write_bytes(log[: len(log) // 2])
    search.finish()
    check_complete(search.run)
    kept = [(r.trial_id, r.step, r.timestamp) for trial in load_run(search.run).trials for r in trial.reports]
    assert set(written) <= set(kept)
    assert len(written) >= 25
    assert outcome(search.run) == whole("tpe")


def test_the_journal_alone_is_enough(tmp_path: Path, killed: Path, whole: Any) -> None:
    search = Search(tmp_path)
    shutil.copytree(killed, search.run)
    rays = [path for path in (search.run / "ray").iterdir() if path.is_file()]
    for path in [*rays, *(search.run / file for file in FILES["what is made of the journal"])]:
        path.unlink()
    search.finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


def test_without_any_checkpoint_its_trials_begin_again(tmp_path: Path, killed: Path) -> None:
    search = Search(tmp_path)
    shutil.copytree(killed, search.run)
    shutil.rmtree(search.run / "ray")
    search.finish()
    check_complete(search.run)


def test_a_second_driver_is_refused_and_the_first_goes_on(tmp_path: Path, whole: Any) -> None:
    search = Search(tmp_path).start(experiment(seconds=0.2))
    search.until(lambda: search.reports() >= 3)
    first = search.process
    os.kill(first.pid, signal.SIGSTOP)  # else it may end before the second one comes
    try:
        status, said = search.start().wait()
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert status == 2
    assert f"process {first.pid} on " in said
    assert "Traceback" not in said
    search.process = first
    assert search.wait()[0] == 0
    assert outcome(search.run) == whole("tpe")
