"""Commands to a search that runs, on a real Ray session: the search in a thread, the person beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journals import read_journal
from tuner import run
from tuner.runs.commands import COMMANDS, send
from tuner.runs.diagnose import live_status
from tuner.runs.loading import load_run
from tuner.runs.results import ResultSet
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
HERE = Path(__file__).parent
Start = Callable[..., "Running"]
LONG = {"epochs": 99999, "seconds": 0.1}


class Running:
    """A search in a thread of its own."""

    def __init__(self, storage: Path, function: str = "quadratic", **keys: Any) -> None:
        self.folder, self.gate = RunFolder.at(storage / "run"), storage / "gate"
        experiment = {
            "trainable": f"{HERE}/toys.py:{function}",
            "params": {"epochs": 20},
            "search_space": {"x": {"uniform": [0, 1]}},
            "objective": {"metric": "score", "mode": "max"},
            "search": {"kind": "random", "seed": 3},
            "budget": {"trials": 4},
            "resources": {"gpu": 0, "max_concurrent_trials": 2},
            "checkpoints": {"keep_trials": 99},
            **keys,
        }
        self.said: list[str] = []
        self.results: ResultSet | None = None
        self._error: BaseException | None = None
        experiment["params"] = {**experiment["params"], "gate": str(self.gate)}
        self._thread = threading.Thread(target=self._search, args=(experiment, storage))
        self._thread.start()

    def _search(self, experiment: dict[str, Any], storage: Path) -> None:
        try:
            self.results = run(experiment, storage=storage, name="run", say=self.said.append)
        except BaseException as error:  # noqa: BLE001 - of whatever kind: the test raises it
            self._error = error

    def events(self, what: str) -> list[dict[str, Any]]:
        if not self.folder.exists("journal.jsonl"):
            return []
        return [event for event in read_journal(self.folder).events if event["what"] == what]

    def until(self, holds: Callable[[], Any], timeout: float = 120) -> Any:
        deadline = time.monotonic() + timeout
        while not (found := holds()):
            assert self._thread.is_alive(), (self._error, self.said)
            assert time.monotonic() < deadline, f"it did not come to that: {self.said}"
            time.sleep(0.02)
        return found

    def command(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command, and waits for the event that answers it."""
        sent = send(self.folder, do, "ada@laptop", arguments)
        return self.until(lambda: next((e for e in self.events("commanded") if e["id"] == sent.id), None))

    def stop_all(self) -> ResultSet:
        """Ends a search whose trials would train for long."""
        self.gate.touch()
        told: set[str] = set()
        while self._thread.is_alive():
            for trial_id in {event["trial"] for event in self.events("suggested")} - told:
                told.add(trial_id)
                send(self.folder, "stop-trial", "ada@laptop", {"trial": trial_id})
            time.sleep(0.1)
        return self.end()

    def give_up(self) -> None:
        """After a test that failed: what trains on would be in the way of the next ones."""
        if self._thread.is_alive():
            send(self.folder, "slots", "ada@laptop", {"trials": None})
            send(self.folder, "continue", "ada@laptop", {})
            self.stop_all()

    def end(self) -> ResultSet:
        """Opens the gate, and waits for the end."""
        self.gate.touch()
        self._thread.join(200)
        assert not self._thread.is_alive(), self.said
        if self._error:
            raise self._error
        assert self.results is not None
        assert (self.folder / COMMANDS).files() == []
        return self.results


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Start]:
    made: list[Running] = []

    def begin(*arguments: Any, **keys: Any) -> Running:
        made.append(Running(tmp_path, *arguments, **keys))
        return made[-1]

    yield begin
    for search in made:
        search.give_up()


def test_a_stopped_trial_ends_at_its_next_report_and_keeps_its_checkpoint(running: Start, tmp_path: Path) -> None:
    search = running(params={"epochs": 20, "waits_after": 3}, budget={"trials": 2})
    first = search.until(lambda: search.events("reported"))[0]["trial"]
    answer = search.command("stop-trial", trial=first)
    assert (answer["done"], answer["by"], answer["trials"]) == (True, "ada@laptop", [first])
    results = search.end()
    stopped, other = results.trial(first), next(t for t in results.trials if t.id != first)
    assert (stopped.status, stopped.reason) == ("stopped", "stopped by ada@laptop")
    assert 0 < stopped.steps < 20
    assert stopped.best.checkpoint
    assert (tmp_path / "run" / stopped.best.checkpoint).is_dir()
    assert (other.status, other.steps) == ("completed", 20)


def test_a_paused_search_runs_nothing_and_continues_where_it_was(running: Start) -> None:
    search = running(params={"epochs": 12, "waits_after": 3})
    search.until(lambda: len(search.events("reported")) == 6)
    search.command("pause")
    search.gate.touch()
    search.until(lambda: len(search.events("paused")) == 2)

    def is_at_rest() -> bool:
        live = live_status(load_run(search.folder))
        states = {trial["state"] for trial in live.get("trials", {}).values()}
        return states == {"aside"} and live["available"].get("CPU") == 2.0

    search.until(is_at_rest)
    live = live_status(load_run(search.folder))
    assert (live["paused"], live["limit"]) == (True, None)
    before = len(search.events("reported"))
    search.command("slots", trials=2)  # takes a turn of the loop or more
    assert len(search.events("reported")) == before
    search.command("continue")
    results = search.end()
    assert [trial.status for trial in results.trials] == ["completed"] * 4
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, 13))
    reported = [(event["trial"], event["step"]) for event in search.events("reported")]
    assert len(reported) == len(set(reported))


def test_fewer_slots_let_fewer_run_and_more_let_the_paused_ones_continue_first(running: Start) -> None:
    search = running(params={"epochs": 60, "seconds": 0.1, "waits_after": 2}, budget={"trials": 3})
    search.until(lambda: len(search.events("reported")) == 4)
    search.command("slots", trials=1)
    search.gate.touch()
    (paused,) = search.until(lambda: search.events("paused"))
    search.command("slots", trials=None)
    started = search.until(lambda: [e["trial"] for e in search.events("started")][2:])
    assert started[0] == paused["trial"]
    assert [trial.status for trial in search.end().trials] == ["completed"] * 3


def test_a_trial_without_checkpoints_continues_to_its_end_in_a_paused_search(running: Start) -> None:
    search = running("without_checkpoints", params={"epochs": 9, "waits_after": 2}, budget={"trials": 3})
    search.until(lambda: len(search.events("reported")) == 4)
    search.command("pause")
    search.gate.touch()
    search.until(lambda: len(search.events("ended")) == 2)
    assert len(search.events("suggested")) == 2
    search.command("continue")
    assert [trial.steps for trial in search.end().trials] == [9] * 3


def test_what_makes_no_sense_is_refused_in_one_line(running: Start) -> None:
    search = running(params=LONG, budget={"trials": 2})
    search.until(lambda: len(search.events("suggested")) == 2)
    refused = {
        ("fly", ()): "'fly' is not a command",
        ("stop-trial", (("trial", "99"),)): "has no trial '99'",
        ("stop-trial", ()): "stop-trial: it needs trial",
        ("slots", (("trials", -1),)): "slots: trials: -1",
        ("pause", (("now", True),)): "pause: now is not an argument of it",
    }
    for (do, arguments), reason in refused.items():
        answer = search.command(do, **dict(arguments))
        assert not answer["done"]
        assert reason in answer["reason"]
        assert "\n" not in answer["reason"]
    results = search.stop_all()
    assert [trial.status for trial in results.trials] == ["stopped"] * 2
    assert [command.done for command in results.commands] == [False] * 5 + [True] * 2


ASHA = {"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": 27, "reduction_factor": 3}


def test_a_kept_trial_is_not_stopped_by_its_scheduler(running: Start, tmp_path: Path) -> None:
    search = running(
        "later_are_worse",
        params={"epochs": 27, "folder": str(tmp_path), "waits_after": 1},
        scheduler=ASHA | {"grace_period": 9},
        budget={"trials": 4},
        resources={"gpu": 0, "max_concurrent_trials": 1},
    )
    for number in (0, 2, 3):
        Path(f"{search.gate}{number}").touch()
    second = search.until(lambda: [e["trial"] for e in search.events("suggested")][1:])[0]
    assert search.command("keep-trial", trial=second)["trials"] == [second]
    assert search.command("keep-trial", trial=1)["reason"].startswith("trial #1 ")
    Path(f"{search.gate}1").touch()
    results = search.end()
    assert [trial.steps for trial in results.trials] == [27, 27, 9, 9]
    assert results.trial(second).status == "completed"


def test_a_configuration_that_somebody_adds_runs_next_and_on_top_of_the_budget(running: Start) -> None:
    search = running(params=LONG, search_space={"x": {"uniform": [0, 1]}, "n": 3})
    search.until(lambda: search.events("reported"))
    for config, problem in (
        ({}, "x: is missing"),
        ({"x": 2}, "x: 2 is outside"),
        ({"x": 0.5, "y": 1}, "y: is not a parameter"),
    ):
        assert problem in search.command("add", config=config)["reason"]
    (added,) = search.command("add", config={"x": 0.25})["trials"]
    search.command("stop-trial", trial=1)
    started = search.until(lambda: [event["trial"] for event in search.events("started")][2:])
    assert started == [added]
    results = search.stop_all()
    assert len(results.trials) == 5
    trial = results.trial(added)
    assert (trial.number, trial.config) == (3, {"x": 0.25, "n": 3})
    assert trial.origin.by == "ada@laptop"
    assert results.provenance["trials"] == 5


def test_a_clone_continues_from_the_checkpoint_of_its_parent(running: Start, tmp_path: Path) -> None:
    search = running(
        "adds_up",
        params={"epochs": 30, "waits_after": 3},
        scheduler=ASHA | {"max_t": 30, "grace_period": 30},
        budget={"trials": 2},
    )
    parent = search.until(lambda: [e for e in search.events("reported") if e["step"] == 3])[0]["trial"]
    (plain,) = search.command("clone", trial=parent, changes={"x": 0.5})["trials"]
    (clone,) = search.command("clone", trial=parent, changes={"x": 0.75}, checkpoint=True)["trials"]
    results = search.end()
    ours, origin = results.trial(clone), results.trial(clone).origin
    assert (origin.parent, origin.by) == (parent, "ada@laptop")
    taken = next(report for report in results.trial(parent).reports if report.step == origin.step)
    assert ours.reports[0].step == 1
    assert ours.reports[0].metrics["epoch"] == taken.metrics["epoch"] + 1
    assert ours.reports[0].metrics["score"] == pytest.approx(taken.metrics["score"] + 0.75)
    assert results.trial(plain).reports[0].metrics == pytest.approx({"epoch": 1, "score": 0.5})
    assert [trial.status for trial in results.trials] == ["completed"] * 4
    assert results.used.epochs == 3 * 30 + 30 - taken.metrics["epoch"]
    assert not list((tmp_path / "run/ray").glob("*/from_*"))
    again = load_run(tmp_path / "run")
    assert again.trial(clone).segments == ours.segments


def test_another_budget_ends_the_search_there(running: Start, tmp_path: Path) -> None:
    search = running(params=LONG, budget={"trials": 3})
    search.until(lambda: search.events("reported"))
    for arguments, problem in (
        ({"trials": 0}, "budget: trials: 0"),
        ({"wall_clock": "soon"}, "budget: wall_clock: 'soon'"),
        ({"cost": 5}, "the experiment names no price"),
        ({"trials": 3}, "that is what it is"),
        ({}, "it needs a limit"),
    ):
        assert problem in search.command("budget", **arguments)["reason"]
    search.command("budget", trials="+2", wall_clock="1h")
    results = search.stop_all()
    assert len(results.trials) == 5
    assert results.section("budget") == {"trials": 5, "wall_clock": 3600.0}
    assert load_run(tmp_path / "run").section("budget")["trials"] == 5


def test_a_narrower_space_is_that_of_later_suggestions(running: Start) -> None:
    search = running(
        params={"epochs": 4, "waits_after": 1},
        budget={"trials": 8},
        search={"kind": "optuna", "seed": 3, "n_startup_trials": 2},
        scheduler=ASHA | {"max_t": 4},
    )
    search.until(lambda: search.events("reported"))
    search.command("pause")
    for space, problem in (
        ({"x": {"uniform": [0, 2]}}, "x: uniform [0, 2] is not within uniform [0, 1]"),
        ({"x": {"uniform": [0, 1]}}, "that is what it is"),
        ({"y": {"uniform": [0, 1]}}, "its parameters stay the same ones"),
        ({"x": 0.5}, "leaves nothing to search"),
        ({"x": {"unifrom": [0, 1]}}, "unifrom"),
    ):
        answer = search.command("space", search_space=space)
        assert problem in answer["reason"]
        assert "\n" not in answer["reason"]
    answer = search.command("space", search_space={"x": {"uniform": [0.25, 0.3]}})
    assert answer["done"]
    search.command("continue")
    results = search.end()
    later = [event["config"]["x"] for event in search.events("suggested") if event["n"] > answer["n"]]
    assert len(results.trials) == 8
    assert later
    assert all(0.25 <= x <= 0.3 for x in later)
    assert results.section("search_space") == {"x": {"uniform": [0.25, 0.3]}}


def test_a_population_keeps_its_space_and_its_trials(running: Start) -> None:
    search = running(
        scheduler={"kind": "pbt", "time_attr": "epoch", "max_t": 99999, "perturbation_interval": 5},
        params=LONG,
        budget={"trials": 2},
    )
    search.until(lambda: len(search.events("suggested")) == 2)
    assert "pbt" in search.command("space", search_space={"x": {"uniform": [0, 0.5]}})["reason"]
    assert "pbt" in search.command("keep-trial", trial=1)["reason"]
    search.stop_all()
