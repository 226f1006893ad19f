"""Which checkpoints stay on the storage, without Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.test_results import new_run
from tuner.experiment.spec import Checkpoints
from tuner.runs.history import EventApplier
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Segment, Trial
from tuner.search import checkpoint_retention as shelf_module
from tuner.search.checkpoint_retention import GIB, CheckpointRetention, copy_name, deletable
from tuner.search.control import SearchControl
from tuner.search.storing import RunFolderWriter

KIB = 1024


def storing(results: ResultSet) -> RunFolderWriter:
    return RunFolderWriter(results.folder, SearchControl())


class Run:
    """A search whose reports come with checkpoints of 1 KiB."""

    def __init__(self, folder: Path, **limits: float) -> None:
        self.said: list[str] = []
        self.results: ResultSet = new_run(folder)
        self.history = EventApplier(self.results)
        self.limits = Checkpoints.model_validate(limits)
        self.retention = CheckpointRetention(self.results, self.limits, self.said.append, storing(self.results))
        self.folder = folder

    def add(self, *values: float) -> Trial:
        trial = self.history.suggested(f"t{len(self.results.trials) + 1}", {})
        self.history.started(trial.id)
        for value in values:
            self.report(trial, value)
        return trial

    def report(self, trial: Trial, value: float, step: int | None = None) -> Report:
        step = step or trial.steps + 1
        number = len(list((self.folder / "ray" / trial.id).glob("*")))
        name = f"ray/{trial.id}/checkpoint_{step:03}_{number}"
        (self.folder / name).mkdir(parents=True)
        (self.folder / name / "model").write_bytes(b"x" * KIB)
        report = Report(trial.id, step, float(step), 1e9 + step, {"acc": value}, name)
        replaced = next((r for r in trial.reports if r.step == step), None)
        self.history.reported(report)
        self.retention.reported(trial, report, replaced)
        return report

    def again(self) -> CheckpointRetention:
        """Of the search that is resumed after a kill: its reports name all checkpoints that they came with."""
        for trial in self.results.trials:
            folders = {int(name.split("_")[1]): name for name in self.folders(trial) if name.startswith("checkpoint")}
            trial.reports = [
                replace(r, checkpoint=r.checkpoint or f"ray/{trial.id}/{folders.get(r.step)}") for r in trial.reports
            ]
        retention = CheckpointRetention(self.results, self.limits, self.said.append, storing(self.results))
        retention.scan()
        return retention

    def folders(self, trial: Trial) -> list[str]:
        return sorted(path.name for path in (self.folder / "ray" / trial.id).iterdir())

    def end(self, trial: Trial) -> None:
        self.history.ended(trial.id, "completed", "")
        self.retention.ended(trial)

    def kept(self, trial: Trial) -> list[int]:
        """Steps whose checkpoints the trial's reports name; the storage has the same ones, once it is cleared."""
        self.retention.clear()
        named = {report.checkpoint for report in trial.reports if report.checkpoint}
        assert named == {f"ray/{trial.id}/{path.name}" for path in (self.folder / "ray" / trial.id).glob("check*")}
        return [report.step for report in trial.reports if report.checkpoint]


def test_a_running_trial_keeps_its_best_and_its_latest_two(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", keep_per_trial=2)
    trial = run.add(0.1, 0.9, 0.2, 0.8, 0.3, 0.4, 0.5)
    assert run.kept(trial) == [2, 4, 6, 7]
    assert trial.best is trial.reports[1]
    run.end(trial)
    assert run.kept(trial) == [2, 4, 7]


def test_of_equals_the_later_stays(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    trial = run.add(0.5, 0.5, 0.1, 0.1)
    assert run.kept(trial) == [2, 3, 4]
    assert trial.best is trial.reports[1]


def test_superfluous_knows_the_mode(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r", "min")
    held = [Report("t", step, 0.0, 0.0, {"acc": value}, f"c{step}") for step, value in enumerate([3, 1, 4, 2, 5], 1)]
    assert [r.step for r in deletable(held, results, 1, ended=False)] == [1, 3]
    assert [r.step for r in deletable(held, results, 1, ended=True)] == [1, 3, 4]


def test_only_the_best_ended_trials_keep_theirs(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", keep_trials=2)
    trials = [run.add(value) for value in (0.1, 0.4, 0.3, 0.2)]
    for trial in trials[:3]:
        run.end(trial)
    assert [run.kept(trial) for trial in trials] == [[], [1], [1], [1]]


def test_a_repeated_report_replaces_its_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", keep_per_trial=9)
    trial = run.add(0.1, 0.2, 0.3)
    run.report(trial, 0.25, step=2)
    assert run.kept(trial) == [1, 2, 3]


def test_a_repeated_report_may_have_the_same_folder(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    trial = run.add(0.1, 0.2)
    again = replace(trial.reports[1], metrics={"acc": 0.3})
    before = trial.reports[1]
    run.history.reported(again)
    run.retention.reported(trial, again, before)
    assert run.kept(trial) == [1, 2]
    run.report(trial, 0.1)
    run.report(trial, 0.1)
    assert run.kept(trial) == [2, 3, 4]


def test_max_gib_takes_from_the_worst_ended_trials_first(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", keep_trials=99, max_gib=6 * KIB / GIB)
    ended = [run.add(value, value / 2) for value in (0.5, 0.9, 0.7)]
    for trial in ended:
        run.end(trial)
    assert [run.kept(trial) for trial in ended] == [[1, 2]] * 3  # 6 KiB
    running = run.add(0.1)
    assert [run.kept(trial) for trial in ended] == [[], [1, 2], [1, 2]]
    run.report(running, 0.2)
    run.report(running, 0.3)
    assert [run.kept(trial) for trial in ended] == [[], [1, 2], [1, 2]]  # and two of the running one
    waiting = run.add(0.1, 0.2)
    assert [run.kept(trial) for trial in ended] == [[], [1, 2], []]
    run.history.paused(waiting.id)
    assert run.said == []
    more = run.add(0.1)
    assert run.kept(ended[1]) == [1]  # of the best what it needs
    assert run.said == []
    run.report(more, 0.2)
    run.report(more, 0.3)
    assert (run.kept(running), run.kept(waiting), run.kept(more)) == ([2, 3], [1, 2], [2, 3])
    assert len(run.said) == 1
    told = "the best and the trials that run or wait hold 7.0 KiB, and keep it: raise max_gib"
    assert run.said[0].startswith(f"checkpoints.max_gib {6 * KIB / GIB:g}: {told}")


def test_a_resumed_search_finds_what_is_there(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", max_gib=2 * KIB / GIB, keep_trials=99)
    ended, going = run.add(0.5), run.add(0.1, 0.2)
    run.history.ended(ended.id, "completed", "")
    for name in (f"{going.id}/from_t1_2", f"{going.id}/from_t1_1", f"{ended.id}/from_t2_1"):
        (tmp_path / "r/ray" / name).mkdir()
    going.reports[0] = Report(going.id, 1, 1.0, 0.0, {"acc": 0.1}, f"ray/{going.id}/checkpoint_gone")
    going.segments = [Segment(0, {}), Segment(1, {}, "t1", 1)]
    again = run.again()
    assert going.reports[0].checkpoint is None
    assert [report.step for report in again.resumable(going)] == [2]
    assert again.donor_copy(going) == f"ray/{going.id}/from_t1_1"
    assert again.donor_copy(ended) is None
    again.clear()
    assert run.folders(going) == ["checkpoint_002_1", "from_t1_1"]
    assert run.folders(ended) == ["checkpoint_001_0"]


def test_a_resumed_search_deletes_what_a_kill_left(tmp_path: Path) -> None:
    """A report's checkpoint that was superfluous and not yet deleted, and folders that no report names."""
    run = Run(tmp_path / "r", keep_trials=2)
    ended, better, worst, going = run.add(0.5, 0.1, 0.2), run.add(0.9), run.add(0.1), run.add(0.3, 0.2, 0.1, 0.1)
    for trial in (ended, better, worst):
        run.end(trial)
    for trial in (ended, going):
        (tmp_path / "r/ray" / trial.id / "checkpoint_009_torn").mkdir()
    again = run.again()  # nothing was deleted
    assert sum(len(run.folders(trial)) for trial in run.results.trials) == 11
    again.clear()
    assert [len(run.folders(trial)) for trial in (ended, better, worst, going)] == [2, 1, 0, 3]
    assert [report.step for report in ended.reports if report.checkpoint] == [1, 3]
    assert [report.step for report in going.reports if report.checkpoint] == [1, 3, 4]


def test_nothing_is_deleted_before_it_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    trial = run.add(*[0.1] * 9)
    assert len(run.folders(trial)) == 9
    assert [report.step for report in trial.reports if report.checkpoint] == [8, 9]
    run.retention.clear()
    assert len(run.folders(trial)) == 2


def test_what_a_process_was_writing_when_it_ended_goes(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    trial = run.add(0.1, 0.2, 0.3)
    (tmp_path / "r/ray" / trial.id / "checkpoint_004_torn").mkdir()
    run.retention.discard_unreported(trial)
    assert len(run.folders(trial)) == 4  # also of the first report's checkpoint the disk may not have the reason yet
    assert run.kept(trial) == [2, 3]


def exploit(run: Run, trial: Trial, donor: str) -> Path:
    """Lets ``trial`` continue from a copy; where that lies."""
    trial.segments = [*(trial.segments or [Segment(0, {})]), Segment(trial.steps, {}, donor, 1)]
    copy = run.folder / "ray" / trial.id / copy_name(trial.segments[-1])
    copy.mkdir(exist_ok=True)
    run.retention.exploited(trial)
    return copy


def test_the_copy_of_a_donors_checkpoint_stays_until_there_are_two_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    trial = run.add(0.1, 0.2)
    copy = exploit(run, trial, "t9")
    run.report(trial, 0.3)
    assert run.retention.donor_copy(trial) == str(copy.relative_to(run.folder))
    run.report(trial, 0.4)
    assert run.retention.donor_copy(trial) is None
    run.retention.clear()
    assert not copy.exists()


def test_a_second_copy_takes_the_place_of_the_first_beside_it(tmp_path: Path) -> None:
    """A power cut may take the trial back to the first one."""
    run = Run(tmp_path / "r")
    trial = run.add(0.1, 0.2)
    first = exploit(run, trial, "t9")
    run.report(trial, 0.3)
    second = exploit(run, trial, "t9")
    assert first.exists()
    run.retention.clear()
    assert (first.exists(), second.exists()) == (False, True)
    run.end(trial)
    run.retention.clear()
    assert not second.exists()


def test_a_folder_that_was_to_be_deleted_and_is_written_anew_stays(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    trial = run.add(0.1, 0.2)
    damaged = trial.reports[1]
    run.retention.lost(trial.id, str(damaged.checkpoint))
    run.history.reported(damaged)
    run.retention.reported(trial, damaged, damaged)
    assert run.kept(trial) == [1, 2]


def test_what_is_to_be_deleted_counts_until_it_is(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", max_gib=3 * KIB / GIB)
    trial = run.add(0.1, 0.2, 0.3)
    assert not run.retention.is_full
    run.report(trial, 0.4)
    assert run.retention.is_full
    assert run.kept(trial) == [3, 4]
    assert not run.retention.is_full
    assert run.said == []
    unlimited = Run(tmp_path / "s")
    unlimited.add(0.1, 0.2, 0.3, 0.4)
    assert not unlimited.retention.is_full


def test_a_full_disk_is_said_once_and_so_is_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [2 * GIB]
    monkeypatch.setattr(shelf_module, "free_bytes", lambda path: free[0])
    run = Run(tmp_path / "r", min_free_gib=1.5)
    assert run.retention.disk_full_reason() == ""
    free[0] = GIB
    for _ in range(3):
        assert "has 1.0 GiB free, less than checkpoints.min_free_gib 1.5" in run.retention.disk_full_reason()
    free[0] = 3 * GIB
    assert [run.retention.disk_full_reason(), run.retention.disk_full_reason()] == ["", ""]
    assert [("no trial starts" in text, "there is room again" in text) for text in run.said] == [
        (True, False),
        (False, True),
    ]
    assert (
        CheckpointRetention(run.results, Checkpoints(min_free_gib=0), print, storing(run.results)).disk_full_reason()
        == ""
    )


def test_what_an_end_costs_does_not_grow_with_the_trials_that_ended_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def counted(results: ResultSet, report: Report) -> tuple[float, ...]:
        nonlocal looked
        looked += 1
        return point(results, report)

    point = ResultSet.point
    monkeypatch.setattr(ResultSet, "point", counted)
    run = Run(tmp_path / "r", keep_trials=2)
    costs = []
    for number in range(40):
        trial = run.add()
        run.history.reported(Report(trial.id, 1, 1.0, 1e9, {"acc": number / 40}))
        looked = 0
        run.end(trial)
        costs.append(looked)
    assert max(costs[20:]) == max(costs[:20])
