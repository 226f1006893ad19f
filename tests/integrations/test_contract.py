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

from tests.integrations.frameworks import FRAMEWORKS, Framework, timeless

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("default"),  # of the frameworks
]
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
every_accumulating_one = pytest.mark.parametrize(
    "framework", [f for f in FRAMEWORKS if f.accumulates], ids=lambda framework: framework.name
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
    if framework.name != "accelerate":  # whose loop, and so whose steps, are the user's
        steps = [report["step"] for report in reports]
        assert steps == sorted(set(steps))


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


@every_framework
def test_a_trial_that_came_to_its_end_continues_with_nothing(framework: Framework, trial: Trial) -> None:
    if framework.saves_always:
        whole = trial(framework)
        assert trial(framework, start=whole.folder / "4").reports == []


@every_framework
def test_a_checkpoint_is_scored_by_evaluate(framework: Framework, trial: Trial) -> None:
    whole = trial(framework)
    scores = framework.toy.evaluate({"lr": 0.05}, whole.folder / "4")
    assert list(scores) == [framework.score]


@every_framework
def test_alone_an_integration_does_nothing(framework: Framework, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    framework.toy.train({"lr": 0.05, "epochs": 2})
    assert not list(tmp_path.rglob("*checkpoint*-*")) or framework.name == "transformers"  # its Trainer saves by itself


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
        assert other.get("step") == one.get("step")


def test_a_trainer_that_never_evaluates_is_refused(trial: Trial) -> None:
    from tests.integrations.frameworks import BY_NAME

    with pytest.raises(ValueError, match="set TrainingArguments\\(eval_strategy='epoch'\\)"):
        trial(BY_NAME["transformers"], eval_strategy="no")


def test_trainers_of_trials_that_run_at_the_same_time_share_no_folder(trial: Trial) -> None:
    from tests.integrations.frameworks import BY_NAME

    trial(BY_NAME["transformers"], output_dir="shared")
    assert not Path("shared").exists() or os.listdir("shared") == []
    shutil.rmtree("shared", ignore_errors=True)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_boosting_reports_every_few_rounds_and_the_last(name: str, trial: Trial) -> None:
    from tests.integrations.frameworks import BY_NAME

    whole = trial(BY_NAME[name], every=3, epochs=8)
    assert [report["epoch"] for report in whole.reports] == [3, 6, 8]
    stopped = trial(BY_NAME[name], every=3, epochs=8, last=1)
    continued = trial(BY_NAME[name], every=3, epochs=8, start=stopped.folder / "1")
    assert continued.reports == whole.reports[1:]


def test_off_policy_agents_continue_with_their_replay_buffer(trial: Trial) -> None:
    from tests.integrations.frameworks import BY_NAME

    agent = BY_NAME["stable_baselines3"]
    whole = trial(agent, algorithm="dqn")
    stopped = trial(agent, algorithm="dqn", last=2)
    assert trial(agent, algorithm="dqn", start=stopped.folder / "2").reports == whole.reports[2:]
