"""What every integration promises, without Ray around it: reports, checkpoints, and an end where it is stopped."""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray import tune
from ray.train._internal import session as ray_session

from tests.integrations.frameworks import BY_NAME, FRAMEWORKS, Framework, timeless

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("default"),  # of the frameworks
]
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
every_accumulating_one = pytest.mark.parametrize(
    "framework", [f for f in FRAMEWORKS if f.accumulates], ids=lambda framework: framework.name
)

every_saving_one = pytest.mark.parametrize(
    "framework", [f for f in FRAMEWORKS if f.saves_always], ids=lambda framework: framework.name
)


@dataclass
class Session:
    """The part of Ray's session of a trial that Ray's functions use; stops the trial at its report ``last``."""

    folder: Path
    loaded_checkpoint: tune.Checkpoint | None = None
    last: int = 99
    reports: list[dict[str, Any]] = field(default_factory=list)
    world_rank: None = None

    def report(self, metrics: dict[str, Any], checkpoint: tune.Checkpoint | None = None) -> None:
        self.reports.append(metrics)
        if checkpoint is not None:
            checkpoint.to_directory(str(self.folder / str(len(self.reports))))
        if len(self.reports) >= self.last:
            raise SystemExit


Trial = Callable[..., Session]


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """`trial(framework, config, start=folder, last=n)`: a trial of its toy, in an empty working directory."""
    threads, count = torch.get_num_threads(), 0
    torch.set_num_threads(1)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def run(framework: Framework, start: Path | None = None, last: int = 99, **config: Any) -> Session:
        nonlocal count
        count += 1
        seed = 1000 + count  # each in a process with another past
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        begun = None if start is None else tune.Checkpoint.from_directory(start)
        session = Session(tmp_path / f"trial{count}", begun, last)
        monkeypatch.setattr(ray_session, "_session", session)
        try:
            framework.toy.train({"lr": 0.05, **config})
        except SystemExit:
            assert len(session.reports) == last
        finally:
            monkeypatch.setattr(ray_session, "_session", None)
        return session

    yield run
    torch.set_num_threads(threads)


@every_framework
def test_every_evaluation_is_reported_with_its_epoch_and_step(framework: Framework, trial: Trial) -> None:
    reports = trial(framework).reports
    assert [report["epoch"] for report in reports] == [1, 2, 3, 4]
    for report in reports:
        assert isinstance(report[framework.metric], float)
        assert all(isinstance(value, int | float) for value in report.values())
    steps = [report["step"] for report in reports]
    assert steps == sorted(set(steps))
    assert steps[0] > 0


@every_framework
def test_a_trial_that_continues_reports_to_the_bit_what_an_uninterrupted_one_does(
    framework: Framework, trial: Trial
) -> None:
    whole = trial(framework)
    for stopped_at in (1, 3):
        stopped = trial(framework, last=stopped_at)
        assert [timeless(r) for r in stopped.reports] == [timeless(r) for r in whole.reports[:stopped_at]]
        start = stopped.folder / str(stopped_at) if framework.saves_always else None
        continued = trial(framework, start=start)
        rest = whole.reports[stopped_at if framework.saves_always else 0 :]
        assert [timeless(r) for r in continued.reports] == [timeless(r) for r in rest]


@every_saving_one
def test_a_trial_that_came_to_its_end_continues_with_nothing(framework: Framework, trial: Trial) -> None:
    whole = trial(framework)
    assert trial(framework, start=whole.folder / "4").reports == []


@every_accumulating_one
def test_a_trial_that_continues_with_another_learning_rate_trains_with_that(framework: Framework, trial: Trial) -> None:
    """As population based training lets it; here the weights stand still."""
    stopped = trial(framework, last=2)
    continued = trial(framework, start=stopped.folder / "2", lr=1e-12)
    metric = framework.metric
    assert abs(stopped.reports[1][metric] - stopped.reports[0][metric]) > 1e-4
    assert [r[metric] for r in continued.reports] == pytest.approx([stopped.reports[1][metric]] * 2, abs=1e-5)


@every_framework
def test_a_checkpoint_is_scored_by_evaluate(framework: Framework, trial: Trial) -> None:
    whole = trial(framework)
    scores = framework.toy.evaluate({"lr": 0.05}, whole.folder / "4")
    assert list(scores) == [framework.score]


@every_framework
def test_alone_an_integration_does_nothing(framework: Framework, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    framework.toy.train({"lr": 0.05, "epochs": 2})
    if framework.name in ("transformers", "trl"):  # their Trainer saves by itself
        shutil.rmtree("out")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@every_framework
def test_a_trial_leaves_no_files_behind(framework: Framework, trial: Trial, monkeypatch: Any, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    trial(framework, last=2)
    trial(framework)
    gc.collect()  # as after each trial
    left = [path for path in temporary.iterdir() if path.name.startswith("tuner-")]
    assert left == []
    assert [path.name for path in Path.cwd().iterdir() if any(path.iterdir())] == []


@every_accumulating_one
def test_a_micro_batch_changes_nothing_but_the_memory(framework: Framework, trial: Trial) -> None:
    whole = trial(framework, dropout=0.0, epochs=2)
    parts = trial(framework, dropout=0.0, epochs=2, micro_batch=9)
    for one, other in zip(whole.reports, parts.reports, strict=True):
        assert other[framework.metric] == pytest.approx(one[framework.metric], rel=1e-3)
        assert other["step"] == one["step"]


def test_a_trainer_that_never_evaluates_is_refused(trial: Trial) -> None:
    with pytest.raises(ValueError, match="set TrainingArguments\\(eval_strategy='epoch'\\)"):
        trial(BY_NAME["transformers"], eval_strategy="no")


def test_trainers_of_trials_that_run_at_the_same_time_share_no_folder(trial: Trial) -> None:
    trial(BY_NAME["transformers"], output_dir="shared")
    assert not Path("shared").exists() or os.listdir("shared") == []
    shutil.rmtree("shared", ignore_errors=True)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_boosting_reports_every_few_rounds_and_the_last(name: str, trial: Trial) -> None:
    whole = trial(BY_NAME[name], every=3, epochs=8)
    assert [report["epoch"] for report in whole.reports] == [3, 6, 8]
    stopped = trial(BY_NAME[name], every=3, epochs=8, last=1)
    continued = trial(BY_NAME[name], every=3, epochs=8, start=stopped.folder / "1")
    assert continued.reports == whole.reports[1:]


def test_off_policy_agents_continue_with_their_replay_buffer(trial: Trial) -> None:
    agent = BY_NAME["stable_baselines3"]
    whole = trial(agent, algorithm="dqn")
    stopped = trial(agent, algorithm="dqn", last=2)
    assert trial(agent, algorithm="dqn", start=stopped.folder / "2").reports == whole.reports[2:]


def test_several_sets_to_evaluate_on_are_reported_together(trial: Trial) -> None:
    reports = trial(BY_NAME["transformers"], eval_sets=True, epochs=2).reports
    assert [report["epoch"] for report in reports] == [1, 2]
    assert {"eval_a_loss", "eval_b_loss", "eval_a_accuracy"} <= reports[0].keys()


def test_the_best_model_is_left_to_the_search(trial: Trial) -> None:
    with pytest.raises(ValueError, match="load_best_model_at_end: a trial continues from its last checkpoint"):
        trial(BY_NAME["transformers"], load_best=True)


def test_lightning_continues_beside_its_other_callbacks(trial: Trial) -> None:
    """The report comes after them: the checkpoint holds what they know of the epoch."""
    from lightning.pytorch.callbacks import EarlyStopping

    def stopping() -> list[Any]:
        return [EarlyStopping("val_loss", patience=1, min_delta=0.2)]

    lightning = BY_NAME["lightning"]
    whole = trial(lightning, epochs=20, callbacks=stopping())
    assert 2 < len(whole.reports) < 20
    assert "train_loss" in whole.reports[0]
    stopped = trial(lightning, epochs=20, callbacks=stopping(), last=2)
    assert trial(lightning, epochs=20, callbacks=stopping(), start=stopped.folder / "2").reports == whole.reports[2:]


NO_SAMPLING = {"feature_fraction": 1.0, "feature_fraction_bynode": 1.0, "extra_trees": False}


def test_bagging_of_all_rows_is_none(trial: Trial) -> None:
    lightgbm = BY_NAME["lightgbm"]
    all_rows = trial(lightgbm, params={**NO_SAMPLING, "bagging_fraction": 1.0, "bagging_freq": 1})
    none = trial(lightgbm, params={**NO_SAMPLING, "bagging_freq": 0})
    assert all_rows.reports == none.reports


def test_rounds_that_find_no_split_count(trial: Trial) -> None:
    lightgbm, params = BY_NAME["lightgbm"], {**NO_SAMPLING, "bagging_freq": 0, "min_gain_to_split": 25.0}
    whole = trial(lightgbm, params=params, epochs=12, lr=0.5)
    assert [report["epoch"] for report in whole.reports] == list(range(1, 13))
    stopped = trial(lightgbm, params=params, epochs=12, lr=0.5, last=11)
    assert trial(lightgbm, params=params, epochs=12, lr=0.5, start=stopped.folder / "11").reports == whole.reports[11:]


def test_the_round_at_which_early_stopping_ends_is_reported(trial: Trial) -> None:
    import lightgbm

    callbacks = [lightgbm.early_stopping(2, min_delta=10.0, verbose=False)]
    assert [r["epoch"] for r in trial(BY_NAME["lightgbm"], epochs=50, every=20, callbacks=callbacks).reports] == [3]


@pytest.mark.parametrize("options", [{"seedable": True}, {"counted": True}])
def test_accelerate_continues_with_its_options(options: dict[str, bool], trial: Trial) -> None:
    accelerate = BY_NAME["accelerate"]
    whole = trial(accelerate, **options)
    stopped = trial(accelerate, last=2, **options)
    assert trial(accelerate, start=stopped.folder / "2", **options).reports == whole.reports[2:]


def test_normalized_environments_continue_with_their_statistics(trial: Trial) -> None:
    agent = BY_NAME["stable_baselines3"]
    whole = trial(agent, wrapper="normalize")
    stopped = trial(agent, wrapper="normalize", last=2)
    assert trial(agent, wrapper="normalize", start=stopped.folder / "2").reports == whole.reports[2:]


def test_environments_that_cannot_be_pickled_begin_a_new_episode(trial: Trial) -> None:
    agent = BY_NAME["stable_baselines3"]
    stopped = trial(agent, wrapper="subprocess", last=2)
    assert not (stopped.folder / "2" / "environments.pkl").exists()
    continued = trial(agent, wrapper="subprocess", start=stopped.folder / "2")
    assert [report["epoch"] for report in continued.reports] == [3, 4]
