"""Trials of a run folder as Ray Tune's trials, which continue where they were."""

from __future__ import annotations

import copy
import posixpath
import re
from typing import Any

from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.experiment import Trial as RayTrial
from ray.tune.experiment.config_parser import _create_trial_from_spec
from ray.tune.search import SearchGenerator

from tuner.execution.recorder import Recorder
from tuner.execution.retry_policy import with_micro_batch
from tuner.runs.results import RAY, ResultSet
from tuner.runs.trial import Report, Trial
from tuner.search.checkpoint_retention import copy_name
from tuner.spec.configuration import flat
from tuner.storage.folder import RunFolder


def restore_trial(trial: Trial, results: ResultSet, search: SearchGenerator) -> RayTrial:
    """``trial`` as one that Ray starts from its latest checkpoint, or from the beginning where it has none.

    Call it after `CheckpointRetention.read_stored_search`, which finds the checkpoints that are on the storage.
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
    # Ray gives its folder another name where a driver on the same cluster had the trial within the same second
    revived.relative_logdir = revived.storage.trial_dir_name = trial.id
    folder = results.folder / revived.storage.experiment_dir_name / trial.id
    present = set(folder.folders())
    known = [report for report in trial.reports if report.checkpoint and report.checkpoint.split("/")[-1] in present]
    for report in known:
        revived.on_checkpoint(_saved(report, (results.folder / str(report.checkpoint)).path, results))
    source = _exploited(trial, present)
    if source and trial.reports:
        revived.run_metadata.checkpoint_manager._latest_checkpoint_result = _saved(
            trial.reports[-1], (folder / source).path, results
        )
    numbers = [int(found[1]) for name in present if (found := re.match(r"checkpoint_(\d+)", name))]
    revived.storage.current_checkpoint_index = max(numbers, default=-1)
    if latest := revived.latest_checkpoint_result:
        revived.run_metadata.last_result = dict(latest.metrics)
    return revived


def skip_damaged_checkpoints(ray_trial: RayTrial, recorder: Recorder) -> bool:
    """Lets a trial whose process found its checkpoint damaged continue from the one before, or else from its beginning.

    A notice names the checkpoint, which is deleted. False if it is whole as seen from here: then it stays.
    """
    manager, results = ray_trial.run_metadata.checkpoint_manager, recorder.results
    trial, latest = results.trial(ray_trial.trial_id), manager.latest_checkpoint_result
    path = latest.checkpoint.path
    if not (problem := recorder.damage_of(RunFolder(latest.checkpoint.filesystem, path, path))):
        return False
    name = f"{RAY}/{trial.id}/{posixpath.basename(path)}"
    before = [report for report in recorder.retention.resumable(trial) if report.checkpoint != name]
    copy = recorder.retention.donor_copy(trial)
    if before:
        source, folder = before[-1], str(before[-1].checkpoint)
    elif copy and copy != name:
        source, folder = trial.reports[trial.segments[-1].after - 1], copy
    else:
        manager._latest_checkpoint_result = None
        recorder.lost(trial, name, problem, "the trial starts from its beginning")
        return True
    manager._latest_checkpoint_result = _saved(source, (results.folder / folder).path, results)
    recorder.lost(trial, name, problem, f"the trial continues from {posixpath.basename(folder)}, report {source.step}")
    return True


def _exploited(trial: Trial, present: set[str]) -> str | None:
    """The copy of a donor's checkpoint from which the trial continues, if it has not reported since it got it."""
    if not trial.segments or trial.segments[-1].after != trial.steps:
        return None
    name = copy_name(trial.segments[-1])
    return name if name in present else None


def _saved(report: Report, path: str, results: ResultSet) -> _TrainingResult:
    metrics: dict[str, Any] = {
        **report.metrics,
        "training_iteration": report.step,
        "time_total_s": report.seconds,
        "timestamp": report.timestamp,
    }
    return _TrainingResult(Checkpoint(path, results.folder.filesystem), metrics)
