"""A search that people command is killed: what they commanded holds, once."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.faults.search import Search, check_never_taken_back, experiment, outcome
from tuner import load_run
from tuner.runs.commands import COMMANDS, Command, send
from tuner.runs.commands import _file as file_of
from tuner.storage.folder import RunFolder

pytestmark = pytest.mark.faults


def started(folder: Path, **keys: Any) -> Search:
    search = Search(folder).start(experiment(seconds=0.4, **keys))
    return search.until(lambda: search.reports() >= 1)


def sent(search: Search, do: str, **arguments: Any) -> Command:
    return send(RunFolder.at(search.run), do, "ada@laptop", arguments)


def commanded(search: Search, do: str, **arguments: Any) -> dict[str, Any]:
    """Sends a command, and waits for its answer."""
    command = sent(search, do, **arguments)
    search.until(lambda: command.id in {event["id"] for event in search.events("commanded")})
    (answer,) = [event for event in search.events("commanded") if event["id"] == command.id]
    return answer


def until_read(search: Search) -> Search:
    """Until no command waits: the disk has the answers."""
    return search.until(lambda: not list((search.run / COMMANDS).iterdir()))


def test_from_its_snapshot_and_from_its_journal_alone_it_continues_alike(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    search = started(tmp_path / "a")
    first = search.events("suggested")[0]["trial"]
    commanded(search, "pause")
    answers = [
        commanded(search, "add", config={"x": 0.25}),
        commanded(search, "clone", trial=first, changes={"x": 0.35}, checkpoint=True),
        commanded(search, "space", search_space={"x": {"uniform": [0.2, 0.5]}}),
        commanded(search, "budget", trials=10),
    ]
    assert [answer["reason"] for answer in answers] == [""] * 4
    commanded(search, "continue")
    before = search.reports()
    search.until(lambda: search.reports() >= before + 12 and (search.run / "state.pkl").exists()).kill()
    other = Search(tmp_path / "b")
    shutil.copytree(search.run, other.run)
    (other.run / "state.pkl").unlink()
    for one in (search, other):
        one.finish()
        assert "others" not in one.said
        check_never_taken_back(one)
    assert outcome(search.run) == outcome(other.run)
    results = load_run(search.run)
    assert (results.suggested, results.added) == (10, 2)
    later = [event["config"]["x"] for event in search.events("suggested") if event["n"] > answers[2]["n"]]
    assert later
    assert all(0.2 <= x <= 0.5 for x in later)
    assert not list(search.run.glob("ray/*/from_*"))


def test_a_command_that_was_journalled_is_not_carried_out_again(tmp_path: Path) -> None:
    search = started(tmp_path)
    command = sent(search, "add", config={"x": 0.25})
    content = json.dumps(asdict(command)).encode()
    until_read(search).kill()
    (search.run / COMMANDS / file_of(command)).write_bytes(content)  # as if it had been killed before it deleted it
    search.finish()
    assert [event["id"] for event in search.events("commanded")] == [command.id]
    assert load_run(search.run).added == 1
    assert not list((search.run / COMMANDS).iterdir())


def test_killed_between_a_trial_and_the_answer_it_makes_none_twice(tmp_path: Path) -> None:
    search = started(tmp_path)
    parent = search.events("suggested")[0]["trial"]
    command = sent(search, "clone", trial=parent, checkpoint=True)
    content = json.dumps(asdict(command)).encode()
    until_read(search).kill()
    lines = (search.run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    answer = next(i for i, line in enumerate(lines) if b'"commanded"' in line)
    (search.run / "journal.jsonl").write_bytes(b"".join(lines[:answer]))
    (search.run / "state.pkl").unlink(missing_ok=True)
    (search.run / COMMANDS / file_of(command)).write_bytes(content)
    search.finish()
    (told,) = search.events("commanded")
    (clone,) = [trial for trial in load_run(search.run).trials if trial.origin]
    assert (told["done"], told["trials"]) == (True, [clone.id])


def test_what_a_kill_left_of_a_copy_is_deleted(tmp_path: Path) -> None:
    search = started(tmp_path).kill()
    copy = search.run / "ray/0123abcd/from_0123abce_0"
    copy.mkdir(parents=True)
    (copy / "weights.bin").write_bytes(b"half")
    search.finish()
    assert not copy.parent.exists()


def test_a_paused_search_stays_paused_and_its_clone_starts_where_its_parent_was(tmp_path: Path) -> None:
    search = started(tmp_path)
    commanded(search, "pause")
    search.until(lambda: search.events("paused"))
    parent = search.events("paused")[0]["trial"]
    (clone,) = commanded(search, "clone", trial=parent, checkpoint=True)["trials"]
    search.kill()
    reports = search.reports()
    search.start()
    command = [sys.executable, "-m", "tuner", "control", str(search.run), "continue", "--json"]
    search.until(lambda: bool(search.events("commanded")[2:]) or _answers(command, search))
    assert search.reports() >= reports
    status, said = search.wait()
    assert status == 0, said
    assert "ada@laptop paused the search, and it stays paused; to continue it: python -m tuner control" in said
    check_never_taken_back(search)
    results = load_run(search.run)
    ours = results.trial(clone)
    begins_at = results.trial(parent).reports[ours.origin.step - 1].metrics["epoch"]
    assert ours.reports[0].metrics["epoch"] == begins_at + 1
    assert [trial.status for trial in results.trials if trial.id in (parent, clone)] != ["failed", "failed"]


def _answers(command: list[str], search: Search) -> bool:
    import subprocess

    done = subprocess.run(
        command, cwd=search.folder, env=search.environment, capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and json.loads(done.stdout)["done"]
