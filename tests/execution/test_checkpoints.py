"""Checkpoints and limits on a real Ray session: damage, full disks, budgets, before and after an interruption."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.rungs import promotion
from tuner import load_run, restore_best, resume, run
from tuner.errors import EnvironmentFailure, InputError, Interrupted
from tuner.execution.recorder import Recorder
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.search import checkpoint_retention
from tuner.storage import manifest
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import find_damage

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("ray_session")]
HERE = Path(__file__).parent
GRID = {"search": {"kind": "grid"}, "search_space": {"x": {"grid_search": [0.1, 0.3]}}}


def experiment(function: str = "quadratic", **keys: object) -> dict:
    return {
        "trainable": f"{HERE}/toys.py:{function}",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 3},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        **keys,
    }


class At:
    """Does something at the ``n``-th report, and notes all of them as they come."""

    def __init__(self, n: int, what: object) -> None:
        self.n, self.what = n, what
        self.reports: list[tuple[int, int]] = []

    def started(self, results: ResultSet) -> None:
        self.results = results

    def reported(self, trial: Trial, report: Report) -> None:
        self.reports.append((trial.number, report.step))
        if len(self.reports) == self.n:
            self.what()

    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...
    def finished(self, results: ResultSet) -> None: ...


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def folders(trial: Trial) -> list[str]:
    return [report.checkpoint for report in trial.reports if report.checkpoint]


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_or_to_the_beginning(tmp_path: Path, damaged: int) -> None:
    made = experiment(params={"epochs": 6}, **GRID)
    with pytest.raises(Interrupted):
        run(made, storage=tmp_path, name="run", listeners=[At(4, press_ctrl_c)], say=lambda text: None)
    (trial,) = [trial for trial in load_run(tmp_path / "run").trials if trial.reports]
    steps, kept = trial.steps, folders(trial)
    assert [r.step for r in trial.reports if r.checkpoint] == [steps - 1, steps]
    for name in kept[::-1][:damaged]:
        (tmp_path / "run" / name / "state.json").write_text("{")
    said: list[str] = []
    leg = At(0, None)
    results = resume(tmp_path / "run", listeners=[leg], say=said.append)
    assert [trial.status for trial in results.trials] == ["completed"] * 2
    for number, trial in enumerate(results.trials, 1):
        assert [r.step for r in trial.reports] == [r.metrics["epoch"] for r in trial.reports] == [1, 2, 3, 4, 5, 6]
        first = next(step for n, step in leg.reports if n == number)
        assert first == (steps if number == 1 and damaged == 1 else 1)
    notices = [text for text in said if "state.json has 1 bytes" in text]
    assert len(notices) == damaged
    assert kept[1] in notices[0]
    assert f"continues from {kept[0].split('/')[-1]}, report {steps - 1}" in notices[0]
    assert damaged == 1 or "starts from its beginning" in notices[1]
    assert len([text for text in load_run(tmp_path / "run").notices if "state.json" in text]) == damaged
    for trial in results.trials:
        present = {f"ray/{trial.id}/{path.name}" for path in (tmp_path / "run/ray" / trial.id).glob("checkpoint_*")}
        assert present == set(folders(trial))
        assert all(find_damage(RunFolder.at(tmp_path / "run" / name)) == "" for name in present)


def test_the_process_that_goes_on_from_a_checkpoint_reads_it_and_not_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = experiment(params={"epochs": 6}, **GRID)
    with pytest.raises(Interrupted):
        run(made, storage=tmp_path, name="run", listeners=[At(4, press_ctrl_c)], say=lambda text: None)
    read: list[str] = []
    monkeypatch.setattr(manifest, "_crc32", lambda folder, name: read.append(folder.path))
    monkeypatch.setattr(Recorder, "_skip_damaged_checkpoints", lambda recorder: None)  # of the best, once, at the end
    results = resume(tmp_path / "run", say=lambda text: None)
    assert [trial.steps for trial in results.trials] == [6, 6]
    assert read == []


def test_a_damaged_best_falls_to_the_next_best(tmp_path: Path) -> None:
    def spoil() -> None:
        (tmp_path / "run" / leg.results.trials[1].best.checkpoint / "state.json").write_text("{")

    leg = At(7, spoil)  # the middle of the third trial: the second one has the best
    space = {"peak": {"grid_search": [0.8, 0.9, 0.7]}}
    made = experiment("rises_and_falls", search={"kind": "grid"}, search_space=space)
    said: list[str] = []
    results = run(made, storage=tmp_path, name="run", listeners=[leg], say=said.append)
    assert results.value(results.best.best) == 0.8
    assert results.best.number == 1
    assert sum("the next best one becomes the best" in text for text in said) == 1
    again = load_run(tmp_path / "run")
    assert again.best.best.metrics["score"] == 0.8
    shutil.copy(tmp_path / "run/experiment.yaml", tmp_path / "run/best/checkpoint/state.json")
    restored = restore_best(again)
    assert restored.recorded["score"] == 0.8
    assert "best/checkpoint is damaged: state.json has" in restored.notices[0]
    (tmp_path / "run" / again.best.best.checkpoint / "state.json").unlink()
    assert restore_best(again).recorded["score"] == 0.7
    for name in (tmp_path / "run/ray").glob("*/checkpoint_*/state.json"):
        name.unlink()
    with pytest.raises(EnvironmentFailure, match="no other one to restore"):
        restore_best(again)


def test_every_writes_those_that_a_pausing_scheduler_needs(tmp_path: Path) -> None:
    seen: dict[tuple[int, int], bool] = {}

    class Notes(At):
        def reported(self, trial: Trial, report: Report) -> None:
            seen[trial.number, report.step] = bool(report.checkpoint)

    made = experiment(
        params={"epochs": 9},
        scheduler=promotion(max_t=9, reduction_factor=3),
        budget={"trials": 6},
        checkpoints={"every": 100},
    )
    results = run(made, storage=tmp_path, name="run", listeners=[Notes(0, None)], say=lambda text: None)
    assert {step for (_, step), written in seen.items() if written} == {1, 3, 9}
    assert {step for (_, step), written in seen.items() if not written} == {2, 4, 5, 6, 7, 8}
    assert results.best.best.step == 9
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))


def test_max_gib_is_kept_while_the_search_runs(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Measures(At):
        def tick(self) -> None:
            names = (tmp_path / "run/ray").glob("*/checkpoint_*/state.json")
            sizes.append(sum(1 for _ in names))

    one = 11  # bytes of state.json
    made = experiment(
        params={"epochs": 3}, budget={"trials": 8}, checkpoints={"keep_trials": 99, "max_gib": 6 * one / 2**30}
    )
    results = run(made, storage=tmp_path, name="run", listeners=[Measures(0, None)], say=lambda text: None)
    assert max(sizes) <= 6 + 1  # and the one that is being reported
    assert sum(bool(folders(trial)) for trial in results.trials) < 8
    assert folders(results.best)
    ranked = [bool(folders(trial)) for trial in results.rank(results.trials)]
    assert ranked[0]


def test_a_full_disk_holds_new_trials_and_lets_them_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = itertools.chain(
        [10 * checkpoint_retention.GIB] * 2, [0] * 5, itertools.repeat(10 * checkpoint_retention.GIB)
    )
    monkeypatch.setattr(checkpoint_retention, "free_bytes", lambda path: next(free))
    said: list[str] = []
    made = experiment(params={"epochs": 2, "seconds": 0.2}, **GRID)
    results = run(made, storage=tmp_path, name="run", say=said.append)
    assert [trial.status for trial in results.trials] == ["completed"] * 2
    assert sum("no trial starts until there is room" in text for text in said) == 1
    assert sum("there is room again" in text for text in said) == 1


def test_a_disk_that_stays_full_ends_the_search_which_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill() -> None:
        monkeypatch.setattr(checkpoint_retention, "free_bytes", lambda path: checkpoint_retention.GIB // 2)

    made = experiment(params={"epochs": 2}, **GRID)
    with pytest.raises(EnvironmentFailure) as caught:
        run(made, storage=tmp_path, name="run", listeners=[At(1, fill)], say=lambda text: None)
    told = f"{tmp_path}/run: its disk has 512.0 MiB free, less than checkpoints.min_free_gib 1"
    assert told in str(caught.value)
    command = f"python -m tuner resume {tmp_path}/run"
    assert f"make room there, or lower the limit; to continue: {command}" in str(caught.value)
    assert [trial.status for trial in load_run(tmp_path / "run").trials] == ["completed"]
    with pytest.raises(EnvironmentFailure):
        resume(tmp_path / "run", say=lambda text: None)
    monkeypatch.undo()
    results = resume(tmp_path / "run", say=lambda text: None)
    assert [trial.status for trial in results.trials] == ["completed"] * 2


def test_budget_epochs_holds_over_an_interruption(tmp_path: Path) -> None:
    made = experiment(params={"epochs": 4}, budget={"trials": 50, "epochs": 10})
    with pytest.raises(Interrupted):
        run(made, storage=tmp_path, name="run", listeners=[At(6, press_ctrl_c)], say=lambda text: None)
    said: list[str] = []
    results = resume(tmp_path / "run", say=said.append)
    assert sum(trial.steps for trial in results.trials) == 10
    assert "the search ends: budget.epochs 10 is used up" in said
    assert load_run(tmp_path / "run").provenance["ended_by"] == "budget.epochs 10 is used up"


def test_budget_patience_ends_the_search(tmp_path: Path) -> None:
    made = experiment("returns", budget={"trials": 200, "patience": 5})
    results = run(made, storage=tmp_path, name="run", say=lambda text: None)
    values = [trial.best.metrics["score"] for trial in results.trials if trial.best]
    assert len(values) < 200
    assert max(values[-5:]) <= max(values[:-5])
    assert results.best.number == len(values) - 5


def test_a_search_goes_on_with_the_code_where_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job that is submitted again: its code came anew, and what came before may still lie there."""
    code = "from ray import tune\n\n\ndef train(config):\n    for score in range(3):\n        tune.report({made})\n"
    for version in (1, 2):
        (tmp_path / f"project{version}").mkdir()
        text = code.format(made=f"{{'score': score, 'version': {version}}}")
        (tmp_path / f"project{version}" / "moving_train.py").write_text(text)
    monkeypatch.chdir(tmp_path / "project1")
    written = experiment(**GRID) | {"trainable": "moving_train.py:train"}
    with pytest.raises(Interrupted):
        run(written, storage=tmp_path, name="run", listeners=[At(1, press_ctrl_c)], say=lambda text: None)
    monkeypatch.chdir(tmp_path)
    results = resume(tmp_path / "run", project="project2", say=lambda text: None)
    assert {trial.status for trial in results.trials} == {"completed"}
    assert results.trials[-1].reports[0].metrics["version"] == 2
    assert load_run(tmp_path / "run").provenance["working_directory"] == str(tmp_path / "project2")
    with pytest.raises(InputError, match=r"--project .*/nowhere: there is no such folder"):
        resume(tmp_path / "run", project="nowhere", say=lambda text: None)
