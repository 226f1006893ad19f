"""Trials of a run folder as Ray Tune's trials, which go on where they were."""

from __future__ import annotations

import copy
import re
from typing import Any

from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.experiment import Trial as RayTrial
from ray.tune.experiment.config_parser import _create_trial_from_spec
from ray.tune.search import SearchGenerator

from tuner.configuration import flat
from tuner.engine.retries import with_micro_batch
from tuner.results import Report, ResultSet, Trial


def revive(trial: Trial, results: ResultSet, search: SearchGenerator) -> RayTrial:
    """``trial`` as one that Ray starts from its latest checkpoint, or from the beginning where it has none.

    Folders of checkpoints that no report knows, left by a process that was killed while it wrote, are deleted.
    """
    spec = copy.deepcopy(search._experiment.spec)
    config = trial.segments[-1].config if trial.segments else trial.config
    spec["config"] = with_micro_batch(copy.deepcopy(config), trial.micro_batch)
    revived = _create_trial_from_spec(
        spec,
        search._parser,
        evaluated_params=dict(flat(config)),
        experiment_tag=str(trial.number),
        trial_id=trial.id,
    )
    folder = results.folder / revived.storage.experiment_dir_name / trial.id
    present = set(folder.folders())
    known = [report for report in trial.reports if report.checkpoint and report.checkpoint.split("/")[-1] in present]
    for name in present - {str(report.checkpoint).split("/")[-1] for report in known}:
        if name.startswith("checkpoint_"):
            folder.delete(name)
    for report in known:
        revived.on_checkpoint(_saved(report, (results.folder / str(report.checkpoint)).path, results))
    source = _exploited(trial, present)
    if source and trial.reports:
        revived.run_metadata.checkpoint_manager._latest_checkpoint_result = _saved(
            trial.reports[-1], (folder / source).path, results
        )
    numbers = [int(found[1]) for name in present if (found := re.fullmatch(r"checkpoint_(\d+)", name))]
    revived.storage.current_checkpoint_index = max(numbers, default=-1)
    if latest := revived.latest_checkpoint_result:
        revived.run_metadata.last_result = dict(latest.metrics)
    return revived


def _exploited(trial: Trial, present: set[str]) -> str | None:
    """The copy of a donor's checkpoint from which the trial goes on, if it has not reported since it got it."""
    if not trial.segments or trial.segments[-1].after != trial.steps:
        return None
    name = f"from_{trial.segments[-1].donor}"
    return name if name in present else None


def _saved(report: Report, path: str, results: ResultSet) -> _TrainingResult:
    metrics: dict[str, Any] = {
        **report.metrics,
        "training_iteration": report.step,
        "time_total_s": report.seconds,
        "timestamp": report.timestamp,
    }
    return _TrainingResult(Checkpoint(path, results.folder.filesystem), metrics)
