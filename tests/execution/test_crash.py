"""Whatever ends a search but its end leaves a run that is interrupted, with the reason, and can be resumed.

Without Ray: trials run one after the other in this process, through the search's own recorder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from ray.exceptions import GetTimeoutError
from ray.tune.error import TuneError

from tests.journals import read_journal
from tests.raising import SEARCHER
from tuner import load_run, resume, run
from tuner.cli import cli
from tuner.errors import (
    Crashed,
    EnvironmentFailure,
    InputError,
    Interrupted,
    LockLost,
    TunerError,
    UserCodeRaised,
    blaming,
)
from tuner.execution.recorder import Listener, Recorder
from tuner.execution.session import ray_log
from tuner.plan.plan import Plan
from tuner.runs.diagnose import explain
from tuner.runs.journal import rewrite
from tuner.runs.loading import load_latest
from tuner.runs.results import LOG, ResultSet
from tuner.runs.trial import Report, Trial
from tuner.search.control import SearchControl
from tuner.search.snapshot import STATE
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, claims_of, locked

TRIALS = 6
TRAINABLE = "def train(config):\n    raise AssertionError(config['x'], 'it runs in no process here')\n"


def loop(plan: Plan, task: Any, recorder: Recorder, control: SearchControl) -> None:
    """In place of `tuner.execution.fit.fit`: what has not ended, then new trials, each with one report."""
    while True:
        trial = next((t for t in recorder.results.trials if not t.has_ended), None)
        if trial is None and len(recorder.results.trials) == plan.trials:
            return
        trial_id = trial.id if trial else f"t{len(recorder.results.trials) + 1}"
        config = trial.config if trial else recorder.state.suggest(trial_id)
        rays: Any = SimpleNamespace(trial_id=trial_id, config=config)
        recorder.added(rays)
        result = {"training_iteration": 1, "time_total_s": 1.0, "timestamp": 1, "score": config["x"]}
        recorder.on_trial_result(0, [], rays, result)
        recorder.on_trial_complete(0, [], rays)
        recorder.on_step_end(0, [])


@pytest.fixture(autouse=True)
def without_ray(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.actions.run.ray_up", lambda *arguments: contextlib.nullcontext())
    monkeypatch.setattr("tuner.execution.fit.fit", loop)
    (user_folder / "mine.py").write_text(TRAINABLE + SEARCHER)


EXPERIMENT: dict[str, Any] = {
    "trainable": "mine.py:train",
    "search_space": {"x": {"uniform": [0, 1]}},
    "objective": {"metric": "score", "mode": "max"},
    "search": {"kind": "random", "seed": 1},
    "budget": {"trials": TRIALS},
    "resources": {"gpu": 0},
}
THEIRS = {"search": {"kind": "ray", "class_path": "mine.py:Mine"}}


def quiet(text: str) -> None: ...


def begin(say: Callable[[str], None] = quiet, **keys: Any) -> ResultSet:
    return run({**EXPERIMENT, **keys}, name="r", say=say)


def tuner(*arguments: str) -> str:
    done = CliRunner().invoke(cli, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def check_interrupted(reason: str, ended: int) -> None:
    """As every verb tells it, and with the reason."""
    known = load_latest(RunFolder.at("runs/r"))
    assert known.provenance["interrupted"] is True
    assert reason in known.provenance["interrupted_by"]
    left = read_journal(known.folder).events[-1]
    assert (left["what"], left["interrupted"], left["reason"]) == ("left", True, known.provenance["interrupted_by"])
    (row,) = json.loads(tuner("list", "--json"))
    assert (row["state"], row["trials"]) == ("interrupted", f"{ended}/{TRIALS}")
    assert reason in row["note"]
    assert reason in tuner("show", "r")
    told = tuner("why", "r")
    assert told.count(reason) == 2  # of the run, and of its last event
    assert told.count("python -m tuner resume runs/r") == 1
    assert "The search was interrupted" in Path("runs/r/report.html").read_text()


def check_resumed() -> None:
    """`resume` continues to the end, and everything is as it would have been."""
    results = resume("r", say=quiet)
    assert [trial.status for trial in results.trials] == ["completed"] * TRIALS or results.count("stopped") == TRIALS
    known = load_run("r")
    assert (known.provenance["interrupted"], known.provenance["interrupted_by"]) == (False, "")
    assert explain(known).state == "finished"
    with pytest.raises(InputError, match="nothing to resume: the search came to its end"):
        resume("r", say=quiet)


def at_trial(number: int, act: Callable[[], None]) -> Callable[..., None]:
    """A loop that acts when so many trials have ended."""

    def hurt(plan: Plan, task: Any, recorder: Recorder, control: SearchControl) -> None:
        ended = recorder.ended

        def ends(trial: Trial) -> None:
            ended(trial)
            if trial.number == number:
                act()

        recorder.ended = ends  # type: ignore[method-assign]
        loop(plan, task, recorder, control)

    return hurt


def test_a_search_that_comes_to_its_end_is_finished() -> None:
    results = begin()
    assert (results.provenance["interrupted"], results.provenance["interrupted_by"]) == (False, "")
    assert read_journal(results.folder).events[-1]["interrupted"] is False
    assert results.folder.exists(STATE)


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def as_ray_does(error: Exception) -> Callable[[], None]:
    """Ray's loop makes a text of what a callback raises."""

    def act() -> None:
        try:
            raise error
        except Exception:  # noqa: BLE001 - as Ray does
            raise TuneError("Traceback (most recent call last): …")  # noqa: B904

    return act


@pytest.mark.parametrize(
    ("act", "status", "words"),
    [
        (raising(ZeroDivisionError("a bug")), 1, "unexpected ZeroDivisionError: a bug ("),
        (as_ray_does(ZeroDivisionError("a bug")), 1, "unexpected ZeroDivisionError: a bug ("),
        (raising(PermissionError(13, "Permission denied", "/x")), 4, "PermissionError: [Errno 13] Permission denied"),
        (as_ray_does(GetTimeoutError("no answer")), 4, "GetTimeoutError: no answer ("),
    ],
    ids=["bug", "bug in a callback", "storage", "Ray"],
)
def test_what_nobody_foresaw_is_one_line_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], status: int, words: str
) -> None:
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.fit.fit", at_trial(3, act))
        with pytest.raises(TunerError) as raised:
            begin(say=said.append)
    assert raised.value.exit_status == status
    assert str(raised.value).startswith(words)
    assert "test_crash.py, line " in str(raised.value)
    assert str(raised.value).endswith("; traceback: runs/r/run.log")
    assert "\n" not in str(raised.value)
    log = Path("runs/r/run.log").read_text()
    assert log.count("Traceback (most recent call last):\n") == 1
    assert "in act\n" in log
    assert said[-1].endswith("python -m tuner resume runs/r")
    assert not Path("runs/r", STATE).exists()  # an event may have been half applied
    check_interrupted(words, ended=3)
    check_resumed()


def test_a_ray_that_does_not_start_leaves_a_half_done_run_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.fit.fit", at_trial(3, raising(KeyboardInterrupt())))
        with pytest.raises(Interrupted):
            begin()
    reason = "Ray does not start on this machine: /tmp is full"

    @contextlib.contextmanager
    def no_ray(*arguments: Any) -> Iterator[None]:
        raise EnvironmentFailure(reason)
        yield

    with monkeypatch.context() as patch:
        patch.setattr("tuner.actions.run.ray_up", no_ray)
        for _ in range(2):
            with pytest.raises(EnvironmentFailure, match=reason):
                resume("r", say=quiet)
            check_interrupted(reason, ended=3)
    check_resumed()


def test_a_searcher_of_the_users_is_named_and_can_be_mended(user_folder: Path) -> None:
    with pytest.raises(Crashed) as raised:
        begin(**THEIRS)
    place = f"({user_folder}/mine.py, line 14); traceback: runs/r/run.log"
    assert str(raised.value) == f"searcher Mine (search.class_path) raised KeyError: 'the fifth' {place}"
    assert "in suggest\n" in Path("runs/r/run.log").read_text()
    check_interrupted("searcher Mine (search.class_path) raised KeyError: 'the fifth'", ended=4)
    (user_folder / "mended").touch()
    check_resumed()


def test_a_run_whose_seed_is_nowhere_is_resumed(user_folder: Path) -> None:
    with pytest.raises(Crashed):
        begin(**THEIRS)
    folder = RunFolder.at("runs/r")
    file = Path("runs/r/provenance.json")
    lost = {"seed", "slots"}
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k not in lost}))
    events = read_journal(folder).events
    for event in events:
        for name in lost & event.get("provenance", {}).keys():
            del event["provenance"][name]
    rewrite(folder, len(events) + 1, events)
    (user_folder / "mended").touch()
    assert lost <= resume("r", say=quiet).provenance.keys()  # which progress tells at the start


def test_the_users_code_that_leaves_the_process_is_named_as_one_that_raises() -> None:
    with pytest.raises(UserCodeRaised, match=r"^searcher S raised") as raised, blaming("searcher S"):
        raise SystemExit(7)
    assert str(raised.value.__cause__) == "7"


def test_a_searcher_that_raises_while_the_journal_is_played_is_named_too(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was mended badly."""
    with pytest.raises(Crashed):
        begin(**THEIRS)
    mine = user_folder / "mine.py"
    mine.write_text(mine.read_text().replace("        pass\n", "        raise OSError('no licence')\n"))
    monkeypatch.delitem(sys.modules, "mine")
    with pytest.raises(Crashed, match=r"^searcher Mine \(search.class_path\) raised OSError: no licence .*mine\.py"):
        resume("r", say=quiet)
    check_interrupted("searcher Mine (search.class_path) raised KeyError: 'the fifth'", ended=4)


def test_a_searcher_with_state_outside_of_its_snapshot_can_be_resumed(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It suggests something else after its snapshot: the whole journal is played instead."""
    shared = SEARCHER.replace("count = 0", "count = [0]").replace("self.count", "self.count[0]")
    (user_folder / "mine.py").write_text(TRAINABLE + shared)
    save, saved = Recorder._save, []

    def save_once(recorder: Recorder, *arguments: Any, **options: Any) -> None:
        if not saved:
            save(recorder, *arguments, **options)
        saved.append(recorder)

    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.recorder.SAVE_EVERY_S", 0.0)
        patch.setattr(Recorder, "_save", save_once)
        patch.setattr("tuner.actions.run._leave", lambda *arguments: None)  # it is killed
        with pytest.raises(Crashed):
            begin(**THEIRS)
    assert (user_folder / "runs/r" / STATE).exists()
    monkeypatch.delitem(sys.modules, "mine")
    (user_folder / "mended").touch()
    results = resume("r", say=quiet)
    assert [trial.config["x"] for trial in results.trials] == [number / 10 for number in range(1, TRIALS + 1)]
    assert all(trial.has_ended for trial in results.trials)


class Broken:
    """A listener of the user's that raises in one of its methods, at the third trial where that knows one."""

    def __init__(self, method: str) -> None:
        self.method = method

    def _raise_in(self, method: str, trial: Trial | None = None) -> None:
        if method == self.method and (trial is None or trial.number == 3):
            raise ValueError("no display")

    def started(self, results: ResultSet) -> None:
        self._raise_in("started")

    def reported(self, trial: Trial, report: Report) -> None:
        self._raise_in("reported", trial)

    def retried(self, trial: Trial, failure: Any) -> None: ...

    def ended(self, trial: Trial) -> None:
        self._raise_in("ended", trial)

    def tick(self) -> None:
        self._raise_in("tick")

    def finished(self, results: ResultSet) -> None:
        self._raise_in("finished")


@pytest.mark.parametrize(("method", "ended"), [("started", 0), ("reported", 2), ("ended", 3), ("tick", 1)])
def test_a_listener_of_the_users_is_named(method: str, ended: int) -> None:
    broken: Listener = Broken(method)
    with pytest.raises(Crashed, match=r"^listener Broken raised ValueError: no display \(.*test_crash\.py, line"):
        run(EXPERIMENT, name="r", listeners=[broken], say=quiet)
    check_interrupted("listener Broken raised ValueError: no display", ended)
    check_resumed()


def test_a_listener_that_raises_after_the_end_does_not_undo_it() -> None:
    said: list[str] = []
    with pytest.raises(Crashed, match=r"^listener Broken raised"):
        run(EXPERIMENT, name="r", listeners=[Broken("finished")], say=said.append)
    assert said == []
    assert explain(load_run("r")).state == "finished"


def test_a_run_folder_that_cannot_be_completed_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ResultSet, "save_best", lambda results: 1 / 0)
        with pytest.raises(Crashed, match=r"^unexpected ZeroDivisionError"):
            begin()
    check_interrupted("unexpected ZeroDivisionError", ended=TRIALS)
    check_resumed()


def test_of_several_errors_the_first_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.fit.fit", at_trial(3, raising(RuntimeError("the first"))))
        patch.setattr(ResultSet, "save_best", lambda results: 1 / 0)
        with pytest.raises(Crashed, match="the first"):
            begin()
    check_interrupted("unexpected RuntimeError: the first", ended=3)


def test_a_library_that_leaves_the_process_leaves_no_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.fit.fit", at_trial(3, raising(SystemExit(0))))
        with pytest.raises(SystemExit):
            begin()
    assert explain(load_run("r")).state == "interrupted"
    check_resumed()


def test_prepare_that_raises_is_named_with_its_line(user_folder: Path) -> None:
    (user_folder / "mine.py").write_text(TRAINABLE + "def prepare(config):\n    return config['data']\n")
    with pytest.raises(InputError, match=r"^mine.py:train: prepare: KeyError: 'data' \(.*/mine.py, line 4\)$"):
        begin()
    assert not Path("runs/r").exists()


def test_killed_after_its_last_event_it_is_known_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException): ...

    def kill(*arguments: Any) -> None:
        raise Killed

    monkeypatch.setattr("tuner.execution.recorder.write_json", kill)  # provenance.json
    with pytest.raises(Killed):
        begin()
    known = load_latest(RunFolder.at("runs/r"))
    assert known.provenance["interrupted"] is False
    assert explain(known).state == "finished"
    (row,) = json.loads(CliRunner().invoke(cli, ["list", "--json"]).stdout)
    assert row["state"] == "finished"
    with pytest.raises(InputError, match="nothing to resume"):
        resume("r", say=quiet)


class TakeOver:
    """After the third trial another process has the run, and writes its log."""

    def __init__(self, method: str = "") -> None:
        self.method = method
        """In which it raises afterwards."""

    def reported(self, trial: Trial, report: Report) -> None:
        if trial.number == 3:
            Path("runs/r/run.lock").write_text('{"owner": "b"}')
            Path("runs/r/run.log").write_text("another's\n")
            self._raise_in("reported")

    def finished(self, results: ResultSet) -> None:
        self._raise_in("finished")

    def _raise_in(self, method: str) -> None:
        if method == self.method:
            raise ValueError("no display")

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def test_a_search_whose_run_was_taken_over_writes_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.lock.CHECK_EVERY_S", 0.0)
    with pytest.raises(LockLost):
        run(EXPERIMENT, name="r", say=quiet, listeners=[TakeOver()])
    assert not Path("runs/r/report.html").exists()


@pytest.mark.parametrize("method", ["finished", "reported"], ids=["known", "not yet noticed"])
def test_a_crash_after_the_run_was_taken_over_leaves_the_log_of_the_other_alone(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.storage.lock.CHECK_EVERY_S", 0.0)
    with pytest.raises(LockLost):
        run(EXPERIMENT, name="r", say=quiet, listeners=[TakeOver(method)])
    assert Path("runs/r/run.log").read_text() == "another's\n"


def test_the_log_of_an_object_store_is_not_written_over_after_a_takeover(tmp_path: Path) -> None:
    folder = RunFolder(SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "run", "test://run")
    folder.create()
    with locked(folder) as lock:
        with ray_log(folder, lock):
            logging.getLogger("ray").warning("ours")
        assert b"ours" in folder.read(LOG)
        with ray_log(folder, lock):
            (claim,) = tmp_path.joinpath("run", claims_of(LOCK)).iterdir()
            claim.unlink()
            folder.write(LOG, b"another's")
        assert folder.read(LOG) == b"another's"
