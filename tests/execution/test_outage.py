"""The real recorder on a run folder that cannot be used for a while: nothing is lost, and nothing is written early."""

from __future__ import annotations

import errno
import functools
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from ray.exceptions import RayTaskError
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.execution.tune_controller import TuneController

from tests.journals import read_journal
from tests.runs.test_results import new_run
from tests.search.test_storing import Clock
from tests.tables import space
from tuner.errors import EnvironmentFailure
from tuner.execution import recorder as recorder_module
from tuner.execution.controller import Controller
from tuner.execution.failure_classifier import StorageFails, StorageUnseen, classify
from tuner.execution.recorder import Recorder
from tuner.execution.scheduler_adapter import SchedulerAdapter
from tuner.experiment.failures import Failures
from tuner.experiment.spec import Checkpoints
from tuner.runs.failure import Failure
from tuner.runs.journal import JournalWriter
from tuner.runs.results import REPORTS, TRIALS, ResultSet
from tuner.schedulers.base import Decision, Exploit
from tuner.schedulers.fifo import Fifo
from tuner.search.control import SearchControl
from tuner.search.node_health import NodeHealth
from tuner.search.orders import Orders
from tuner.search.recovery import RecoveredSearch
from tuner.search.snapshot import read_snapshot
from tuner.search.state import SearchState
from tuner.search.storage_patience import StoragePatience
from tuner.search.storing import RunFolderWriter
from tuner.search.usage import usage_of
from tuner.searchers.build import build_searcher
from tuner.searchers.random import Random
from tuner.spec.problem import SearchProblem
from tuner.storage.folder import RunFolder


class Outage:
    """While it is `on`, nothing of a run folder can be used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        for name in ("write", "delete", "exists", "folders", "read", "copy_to"):
            monkeypatch.setattr(RunFolder, name, self._failing(getattr(RunFolder, name)))

    def _failing(self, real: Any) -> Any:
        def method(folder: RunFolder, *arguments: Any) -> Any:
            if self.on:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return real(folder, *arguments)

        return method


class Search:
    """A recorder that is told what Ray would tell it, on a file system that cannot append."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float = 600.0) -> None:
        self.place = tmp_path / "run"
        self.said: list[str] = []
        self.clock = Clock()
        self.control = SearchControl(say=self.said.append, storage_patience=patience)
        results = new_run(self.place)
        results.folder = RunFolder(SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "run", "test://run")
        state = SearchState(
            build_searcher(Random(), SearchProblem(space(), ("max",), 9, None, 1)),
            None,
            space(),
            results.objectives,
            "training_iteration",
        )
        self.limits = Checkpoints(keep_per_trial=1, keep_trials=1)
        waiting = StoragePatience(patience, clock=self.clock, sleep=self.clock.sleep)
        monkeypatch.setattr(recorder_module, "RunFolderWriter", functools.partial(RunFolderWriter, patience=waiting))
        begun = RecoveredSearch(results, state, usage_of(results), 0.0)
        self.recorder = Recorder(begun, JournalWriter(results.folder), Fifo(), self.limits, self.control, [])
        self.outage = Outage(monkeypatch)
        self.reports = 0

    def start(self, trial_id: str = "t1") -> Search:
        self.recorder.added(SimpleNamespace(trial_id=trial_id, config={"x": 0.5}))
        return self

    def successor(self) -> Recorder:
        """Another driver's, after a kill."""
        old = self.recorder
        begun = RecoveredSearch(old.results, old.state, old.usage, 0.0)
        return Recorder(begun, JournalWriter(old.results.folder), Fifo(), self.limits, SearchControl(), [])

    def trained(self, size: int = 0, trial_id: str = "t1") -> dict[str, Any]:
        """What a trial reports, with a checkpoint of ``size`` bytes."""
        self.reports += 1
        name = f"checkpoint_{self.reports:06}_a"
        (self.place / "ray" / trial_id / name).mkdir(parents=True)
        (self.place / "ray" / trial_id / name / "model").write_bytes(bytes(size))
        return {
            "training_iteration": self.reports,
            "time_total_s": float(self.reports),
            "timestamp": 0,
            "acc": float(self.reports),
            "checkpoint_dir_name": name,
        }

    def report(self, size: int = 0, trial_id: str = "t1") -> Path:
        """With a checkpoint, of which the retention keeps two at most."""
        result = self.trained(size, trial_id)
        self.recorder.set_decision(trial_id, Decision.CONTINUE)
        self.recorder.on_trial_result(0, [], SimpleNamespace(trial_id=trial_id), result)
        self.step()
        return self.place / "ray" / trial_id / result["checkpoint_dir_name"]

    def step(self, seconds: float = 1.0) -> None:
        self.recorder.on_step_end(0, [])
        self.clock.now += seconds

    def events(self) -> list[str]:
        return [event["what"] for event in read_journal(self.recorder.results.folder).events]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    monkeypatch.setattr(recorder_module, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr("tuner.runs.journal.writer.SYNC_EVERY_S", 0.0)
    return Search(tmp_path, monkeypatch)


@pytest.fixture
def unsynced(search: Search, monkeypatch: pytest.MonkeyPatch) -> Search:
    """A search whose events are in memory until somebody asks for them to be stored now."""
    monkeypatch.setattr("tuner.runs.journal.writer.SYNC_EVERY_S", 1e9)
    search.recorder._next_save = float("inf")
    return search


def test_events_and_deletions_wait_for_the_storage(search: Search) -> None:
    search.start()
    checkpoints = [search.report() for _ in range(3)]
    assert [path.exists() for path in checkpoints] == [False, True, True]
    search.outage.on = True
    checkpoints += [search.report() for _ in range(30)]
    assert sum(path.exists() for path in checkpoints) > 30
    assert len(search.recorder.results.trial("t1").reports) == 33  # the search knows them all
    assert search.recorder.storing.fails
    search.outage.on = False
    search.step(20)
    search.step()
    assert not search.recorder.storing.fails
    assert search.events() == ["suggested", *["reported"] * 33]
    assert [path.exists() for path in checkpoints] == [False] * 31 + [True] * 2
    assert len(search.said) == 2, search.said
    assert search.control.fatal is None


def test_no_checkpoint_is_deleted_before_what_follows_it_is_on_the_disk(
    unsynced: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = unsynced.start()
    checkpoints = [search.report() for _ in range(5)]
    torn = search.place / "ray/t1/checkpoint_000006_a"
    torn.mkdir()
    search.recorder.failed_attempt("t1", Failure("exception", "boom", 5))
    assert search.events() == []
    assert all(path.exists() for path in (*checkpoints, torn))
    monkeypatch.setattr("tuner.runs.journal.writer.SYNC_EVERY_S", 0.0)
    search.step()
    assert search.events() == ["suggested", *["reported"] * 5, "failed attempt"]
    assert [path.exists() for path in (*checkpoints, torn)] == [False] * 3 + [True] * 2 + [False]


def test_max_gib_does_not_wait(unsynced: Search) -> None:
    """Neither for the next time at which events are stored; and each report by itself stores none."""
    unsynced.recorder.retention._limits = Checkpoints(keep_per_trial=1, max_gib=3 * 1024 / 2**30)
    unsynced.start()
    checkpoints = [unsynced.report(1024) for _ in range(3)]
    assert (sum(path.exists() for path in checkpoints), unsynced.events()) == (3, [])
    checkpoints.append(unsynced.report(1024))
    assert [path.exists() for path in checkpoints] == [False] * 2 + [True] * 2
    assert unsynced.events() == ["suggested", *["reported"] * 4]
    checkpoints.append(unsynced.report(1024))
    assert (sum(path.exists() for path in checkpoints), len(unsynced.events())) == (3, 5)


def test_the_end_leaves_nothing_superfluous(unsynced: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsynced.recorder.results, "save_best", lambda: None)
    checkpoints = [unsynced.start().report(), *(unsynced.report() for _ in range(4))]
    unsynced.recorder.finish()
    unsynced.recorder.close()
    assert [path.exists() for path in checkpoints] == [False] * 3 + [True] * 2


def test_a_search_that_is_taken_up_deletes_what_a_kill_left(unsynced: Search) -> None:
    checkpoints = [unsynced.start().report(), *(unsynced.report() for _ in range(4))]
    torn = unsynced.place / "ray/t1/checkpoint_000006_a"
    torn.mkdir()
    again = unsynced.successor()
    again.begin()
    assert [path.exists() for path in (*checkpoints, torn)] == [False] * 3 + [True] * 2 + [False]


def test_tables_are_left_out_meanwhile_and_never_run_ahead_of_the_journal(search: Search) -> None:
    search.start().report()
    tables = [search.place / TRIALS, search.place / REPORTS]
    before = [path.read_bytes() for path in tables]
    search.outage.on = True
    for _ in range(5):
        search.report()
    assert [path.read_bytes() for path in tables] == before
    search.outage.on = False
    search.step(20)
    search.recorder._next_save = 0.0
    search.step()
    assert [path.read_bytes() for path in tables] != before
    assert len(search.events()) == 7


def test_after_its_patience_the_search_ends_and_can_be_resumed(search: Search) -> None:
    search.start().report()
    search.outage.on = True

    def wait() -> None:
        for _ in range(1000):
            search.report()

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert isinstance(search.control.fatal, EnvironmentFailure)
    assert "python -m tuner resume" in str(search.control.fatal)
    assert 600 <= search.clock.now - 1000 <= 610


def test_a_search_that_ends_meanwhile_waits_with_its_last_words(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.start().report()
    search.outage.on = True
    search.report()
    monkeypatch.setattr(search.recorder.results, "save_best", lambda: None)
    real, slept = search.clock.sleep, [0]

    def sleep(seconds: float) -> None:
        real(seconds)
        slept[0] += 1
        search.outage.on = slept[0] < 5

    search.recorder.storing._patience._sleep = sleep
    search.recorder.finish()
    search.recorder.close()
    assert slept == [5]
    assert search.events()[-1] == "left"
    assert len(search.events()) == 4


def test_a_storage_that_fails_damages_no_checkpoint(search: Search) -> None:
    """It cannot be read for a while: that must not delete it."""
    checkpoint = search.start().report()
    folder = search.recorder.results.folder / f"ray/t1/{checkpoint.name}"
    search.outage.on = True

    def sleep(seconds: float) -> None:
        search.clock.now += seconds
        search.outage.on = False

    search.recorder.storing._patience._sleep = sleep
    assert search.recorder.damage_of(folder) == ""
    (checkpoint / ".manifest.json").write_text("{")
    assert search.recorder.damage_of(folder) == ".manifest.json cannot be read"


def exploit(search: Search, donors: Path) -> tuple[str, list[str]]:
    """Lets trial t1, which reports, continue from ``donors``, a checkpoint of t2; from where, and what is told."""
    folder = search.recorder.results.folder

    def trial(name: str, checkpoint: str) -> Any:
        latest = _TrainingResult(Checkpoint(checkpoint, folder.filesystem), {"training_iteration": 1})
        storage = SimpleNamespace(trial_fs_path=f"run/ray/{name}", storage_filesystem=folder.filesystem)
        made = SimpleNamespace(trial_id=name, is_saving=False, latest_checkpoint_result=latest, storage=storage)
        made.run_metadata = SimpleNamespace(checkpoint_manager=SimpleNamespace())
        made.on_checkpoint, made.set_config = lambda saved: None, lambda config: None
        return made

    trials = {"t1": trial("t1", ""), "t2": trial("t2", f"run/ray/t2/{donors.name}")}
    decisions = SchedulerAdapter()
    decisions.state = SimpleNamespace(  # type: ignore[assignment]
        report=lambda trial_id, step, result, seconds: Exploit("t2", {"x": 0.7}),
        fidelity=lambda number, metrics: number,
    )
    decisions.recorder = search.recorder
    decisions.controller = SimpleNamespace(  # type: ignore[assignment]
        get_trial=trials.get,
        pause_trial=lambda trial, should_checkpoint: None,
        _set_trial_status=lambda trial, status: None,
    )
    result = search.trained()
    decisions.on_trial_result(None, trials["t1"], result)
    search.recorder.on_trial_result(0, [], trials["t1"], result)
    latest = trials["t1"].run_metadata.checkpoint_manager._latest_checkpoint_result
    assert (search.place.parent / latest.checkpoint.path).is_dir()
    return latest.checkpoint.path, search.said


def test_a_trial_takes_over_what_its_donor_has(search: Search) -> None:
    donors = search.start("t2").report(trial_id="t2")
    assert exploit(search.start(), donors) == ("run/ray/t1/from_t2_2", [])


def test_a_donors_checkpoint_that_is_gone_is_not_waited_for(search: Search) -> None:
    donors = search.start("t2").report(trial_id="t2")
    shutil.rmtree(donors)
    before = search.clock.now
    source, said = exploit(search.start(), donors)
    assert source == "run/ray/t1/from_t1_2"
    assert search.clock.now == before
    (told,) = said
    assert f"checkpoint test://run/ray/t2/{donors.name}: it is gone; the trial that was to take it over" in told
    assert search.recorder.results.trial("t2").reports[0].checkpoint is None


def test_a_donors_checkpoint_is_waited_for_while_the_storage_is_away(search: Search) -> None:
    donors = search.start("t2").report(trial_id="t2")
    search.start().report()
    storing, folder = search.recorder.storing, search.recorder.results.folder / f"ray/t2/{donors.name}"
    hidden = search.place.rename(search.place.with_name("away"))  # a mount that is not there
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        search.clock.now += seconds
        slept.append(seconds)
        if len(slept) == 3:
            hidden.rename(search.place)

    storing._patience._sleep = sleep
    assert storing.has(folder)
    assert len(slept) == 3
    assert not storing.has(folder / "none")


# --- the control loop ---


def loop(storing: Any, results: ResultSet, said: list[str]) -> Controller:
    """Ray's control loop as ours, of which nothing runs; what it would do it says."""
    made: Any = object.__new__(Controller)

    def failed_attempt(trial_id: str, failure: Failure) -> None:
        results.trial(trial_id).failures.append(failure)
        said.append(f"{failure.kind}: {failure.message}")

    made.control = SearchControl()
    made.recorder = SimpleNamespace(
        storing=storing,
        results=results,
        failed_attempt=failed_attempt,
        discard_unreported=lambda trial: said.append("discarded"),
        state=SimpleNamespace(orders=Orders()),
    )
    made._running_trials = set()
    made._disk_full_reason = ""
    made._cached_trial_decisions = {}
    made._is_examined = lambda trial, exception: False
    made._is_disk_full = lambda: False
    made._try_again = lambda trial, exception, micro_batch, after=0.0: said.append("tried again")
    made._attempts, made._place_of, made._nodes = {}, {}, NodeHealth()
    made._storage_lost = lambda trial, why: said.append(f"the search ends: {why}")
    made._failure = lambda trial, exception: classify(exception)
    made._micro_batch = lambda trial: None
    made._memory_ran_out = False
    nodes = SimpleNamespace(nodes=("a", "b"))
    made.plan = SimpleNamespace(spec=SimpleNamespace(failures=Failures()), cluster=nodes)
    made._room = SimpleNamespace(slots=2)
    return made  # type: ignore[no-any-return]


def test_no_trial_starts_meanwhile(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(TuneController, "_maybe_add_actors", lambda controller: started.append("a queued one"))
    made = loop(SimpleNamespace(fails=True), search.recorder.results, [])
    made._maybe_update_trial_queue()  # it would ask for the trials that run
    made._maybe_add_actors()
    assert not started
    made.recorder.storing.fails = False
    made._maybe_add_actors()
    assert started == ["a queued one"]
    with pytest.raises(AttributeError):
        made._maybe_update_trial_queue()


@pytest.mark.parametrize(
    ("error", "answers", "expected"),
    [
        (StorageFails("node a cannot"), False, ["discarded", "tried again"]),
        (StorageFails("node a cannot"), True, ["data: node a cannot", "tried again"]),
        (StorageUnseen("node a does not see it"), False, ["discarded", "tried again"]),
        (StorageUnseen("node a does not see it"), True, ["the search ends: node a does not see it"]),
    ],
)
def test_a_node_that_cannot_write_is_to_blame_only_if_the_driver_can(
    search: Search, error: Exception, answers: bool, expected: list[str]
) -> None:
    search.start()
    said: list[str] = []
    made = loop(SimpleNamespace(answers=lambda: answers), search.recorder.results, said)
    trial = SimpleNamespace(trial_id="t1", status="RUNNING", is_saving=False)
    made._process_trial_failure(trial, RayTaskError("next_reports", "traceback", error))
    assert said == expected


def test_a_large_search_writes_its_tables_at_the_end(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "LONGEST_SAVE_S", -1.0)
    search.start().report()
    assert not (search.place / REPORTS).exists()
    snapshot, _ = read_snapshot(search.recorder.results.folder)
    assert snapshot is not None
    assert (snapshot.number, snapshot.trials) == (2, None)  # what the searcher learned, which no journal tells
    search.recorder._control.returned = True
    search.recorder.finish()
    assert (search.place / REPORTS).exists()
    snapshot, _ = read_snapshot(search.recorder.results.folder)
    assert snapshot is not None
    assert snapshot.trials is not None
    assert [trial.steps for trial in snapshot.trials()] == [1]
