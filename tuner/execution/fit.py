"""The plan of a search as Ray Tune's: the only module that calls ``Tuner.fit``. Imported when a search starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSystem
from ray import tune

from tuner.execution.budget import BudgetStopper
from tuner.execution.controller import replaces_rays
from tuner.execution.recorder import Recorder
from tuner.execution.scheduler_adapter import SchedulerAdapter
from tuner.execution.searcher_adapter import SearcherAdapter
from tuner.execution.trial_context import TrialContext
from tuner.execution.trial_process import trainable_class
from tuner.plan.plan import Plan
from tuner.runs.results import RAY
from tuner.schedulers.ray import RayScheduler
from tuner.search.control import SearchControl
from tuner.search.state import SearchState
from tuner.storage.folder import RunFolder


def task_of(plan: Plan, params: dict[str, Any], working_directory: Path) -> TrialContext:
    """What the trials of the plan have in common; ``params`` as the trainable's ``prepare`` left them."""
    return TrialContext(
        trainable=plan.spec.trainable,
        roots=plan.experiment.roots,
        working_directory=working_directory,
        params=params,
        required=plan.required_metrics,
        seed=plan.seed,
        cpu=plan.spec.resources.cpus,
        request=plan.request,
        workers=plan.spec.resources.workers,
        mps=plan.spec.resources.mps,
        fused=plan.spec.resources.fused,
        objectives=plan.spec.objectives,
        repeat=plan.spec.repeat,
        # this process has opened them: the node of a trial may have another key
        pickles=tuple(replace(pickled, trusted=True) for pickled in plan.experiment.pickles),
    )


def fit(plan: Plan, task: TrialContext, recorder: Recorder, control: SearchControl) -> None:
    """Hands the plan to Ray Tune, every option explicit, and returns when the search has ended."""
    resources = plan.spec.resources
    gpus = plan.request.get("GPU", 0) * resources.workers
    budget = BudgetStopper(plan.spec.budget, plan.spec.scheduler, gpus, recorder.results, recorder.usage, control)
    bundles = tune.PlacementGroupFactory([dict(plan.request)] * resources.workers, strategy=resources.strategy.upper())
    process = trainable_class(
        task, plan.spec.checkpoints.every, plan.spec.scheduler, plan.spec.failures.storage_patience
    )
    trainable = tune.with_resources(process, bundles)
    folder = recorder.results.folder
    filesystem = None if folder.is_local else folder.filesystem
    tuner = tune.Tuner(
        trainable,
        tune_config=_tune_config(plan, recorder.state),
        run_config=_run_config(folder, filesystem),
    )
    with replaces_rays(recorder, control, budget, plan):
        tuner.fit()


def _tune_config(plan: Plan, state: SearchState) -> tune.TuneConfig:
    spec = plan.spec
    rays = spec.scheduler if isinstance(spec.scheduler, RayScheduler) else None
    return tune.TuneConfig(
        search_alg=SearcherAdapter(state),
        scheduler=rays.build_ray(spec.objective.metric, plan.task.mode) if rays else SchedulerAdapter(),
        num_samples=plan.trials,
        max_concurrent_trials=None,  # the controller counts
        reuse_actors=not spec.resources.fresh_process,
        trial_dirname_creator=lambda trial: trial.trial_id,
    )


def _run_config(folder: RunFolder, filesystem: FileSystem | None) -> tune.RunConfig:
    return tune.RunConfig(
        name=RAY,
        storage_path=folder.path,
        storage_filesystem=filesystem,
        checkpoint_config=tune.CheckpointConfig(
            num_to_keep=None,  # `tuner.search.checkpoint_retention` deletes what may go
            checkpoint_score_attribute=None,
            checkpoint_at_end=False,
        ),
        failure_config=tune.FailureConfig(max_failures=0),
        verbose=0,
        progress_reporter=tune.CLIReporter(),  # Ray's own choice in a notebook clears the cell's output
    )
