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
from ray.tune.result import TIME_TOTAL_S, TRAINING_ITERATION
from ray.tune.search import SearchGenerator

from tuner.execution.recorder import Recorder
from tuner.execution.report_interceptor import GOES_ON_FROM
from tuner.execution.retry_policy import with_micro_batch
from tuner.runs.results import RAY, ResultSet
from tuner.runs.trial import Report, Trial
from tuner.search.checkpoint_retention import copy_name
from tuner.spec.configuration import Configuration, flat
from tuner.storage.folder import RunFolder


def restore_trial(trial: Trial, results: ResultSet, search: SearchGenerator) -> RayTrial:
    """``trial`` as one that Ray starts from its latest checkpoint, or from the beginning where it has none.

    Call it after `CheckpointRetention.read_stored_search`, which finds the checkpoints that are on the storage.
    """
    config = trial.segments[-1].config if trial.segments else trial.config
    revived = rays_trial(trial.id, trial.number, config, trial.micro_batch, search)
    folder = results.folder / revived.storage.experiment_dir_name / trial.id
    present = set(folder.folders())
    known = [report for report in trial.reports if report.checkpoint and report.checkpoint.split("/")[-1] in present]
    for report in known:
        revived.on_checkpoint(_saved(report, (results.folder / str(report.checkpoint)).path, results))
    if source := _exploited(trial, present):
        path = (folder / source).path
        if trial.reports:
            manager = revived.run_metadata.checkpoint_manager
            manager._latest_checkpoint_result = _saved(trial.reports[-1], path, results)
        else:
            start_from_copy(revived, trial, path, results)
    numbers = [int(found[1]) for name in present if (found := re.match(r"checkpoint_(\d+)", name))]
    revived.storage.current_checkpoint_index = max(numbers, default=-1)
    if latest := revived.latest_checkpoint_result:
        revived.run_metadata.last_result = dict(latest.metrics)
    return revived


def rays_trial(
    trial_id: str, number: int, config: Configuration, micro_batch: int | None, search: SearchGenerator
) -> RayTrial:
    """A trial of Ray with that configuration, which waits to start."""
    spec = copy.deepcopy(search._experiment.spec)
    spec["config"] = with_micro_batch(copy.deepcopy(config), micro_batch)
    made = _create_trial_from_spec(
        spec,
        search._parser,
        evaluated_params=dict(flat(config)),
        experiment_tag=str(number),
        trial_id=trial_id,
    )
    # Ray gives its folder another name where a driver on the same cluster had the trial within the same second
    made.relative_logdir = made.storage.trial_dir_name = trial_id
    return made


def start_from_copy(ray_trial: RayTrial, trial: Trial, path: str, results: ResultSet) -> None:
    """Lets a clone that has not reported start from its copy of the parent's checkpoint, at ``path``."""
    begins_at = trial.origin.begins_at if trial.origin else 0
    metrics = {TRAINING_ITERATION: 0, TIME_TOTAL_S: 0.0, GOES_ON_FROM: begins_at}
    checkpoint = Checkpoint(path, results.folder.filesystem)
    ray_trial.run_metadata.checkpoint_manager._latest_checkpoint_result = _TrainingResult(checkpoint, metrics)


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
    elif copy and copy != name and not trial.segments[-1].after:
        start_from_copy(ray_trial, trial, (results.folder / copy).path, results)
        recorder.lost(trial, name, problem, f"the trial starts from the checkpoint of {trial.segments[-1].donor} again")
        return True
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
