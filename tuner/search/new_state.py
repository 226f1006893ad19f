"""What a search begins with: a searcher and a scheduler that have seen nothing yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tuner.plan.plan import Plan
from tuner.schedulers.build import build_scheduler
from tuner.schedulers.ray import RayScheduler
from tuner.search.earlier_trials import EarlierTrial
from tuner.search.state import SearchState
from tuner.searchers.build import build_searcher
from tuner.spec.objective import have_weights


def new_state(plan: Plan, earlier: Iterable[EarlierTrial], drawn: int = 0) -> SearchState:
    """A searcher that has seen ``earlier`` alone, and a scheduler that has seen nothing.

    ``drawn``: as of `StoredSearch`. A searcher in place of an earlier one must not draw what that drew.
    """
    spec, task = plan.spec, plan.task
    seed = int(np.random.SeedSequence([task.seed, drawn]).generate_state(1)[0]) if drawn else task.seed
    step_name = spec.scheduler.fidelity[0] if spec.scheduler.fidelity else "training_iteration"
    compared = replace(task, modes=task.modes[:1]) if have_weights(spec.objectives) else task
    scheduler = None if isinstance(spec.scheduler, RayScheduler) else build_scheduler(spec.scheduler, compared)
    state = SearchState(
        build_searcher(spec.search, replace(task, seed=seed)),
        scheduler,
        spec.search_space,
        spec.objectives,
        step_name,
        scalarised=plan.scalarised,
        constraints=spec.outcome_constraints,
        models_margins=spec.search.models_margins,
        ends_at=spec.scheduler.ends_at,
    )
    for trial in earlier:
        state.learn(trial.name, spec.search_space.from_unit(trial.point), trial.readings, trial.failed)
    return state
