"""A plan in words, as ``validate`` prints it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tuner.errors import shortened
from tuner.experiment.resources import SHARE
from tuner.plan.cluster import format_resources
from tuner.plan.plan import Plan
from tuner.spec.objective import comparison, have_weights
from tuner.spec.quantities import counted, format_bytes
from tuner.spec.space import Space
from tuner.spec.space.enumeration import MAX_STATES, UNCOUNTED
from tuner.spec.values import brief, format_number

_LARGE = 10**12
"""From here on a number of configurations is a power of 10."""

_RARE = 0.01
"""Below such a share of allowed draws the plan says so."""

_LONGEST = 1000
"""Characters of the line of a parameter."""

WHERE = {"pack": "as few", "spread": "as many"}


def description(plan: Plan) -> list[tuple[str, str]]:
    """The plan as (heading, text) lines."""
    spec = plan.spec
    lines = [("experiment", spec.name), ("trainable", spec.trainable)]
    lines += [("", note) for note in plan.notes]
    lines.append(("search space", f"{counted(len(spec.search_space.parameters), 'parameter')}, {_size(plan)}"))
    lines += [("", line) for line in _space_lines(spec.search_space)]
    if plan.acceptance < _RARE:
        lines.append(("", f"about 1 of {1 / plan.acceptance:,.0f} random draws satisfies the constraints"))
    lines.append(("objective", ", ".join(map(str, spec.objectives))))
    if len(spec.objectives) > 1:
        lines.append(("", _compared(plan)))
    if spec.outcome_constraints:
        limits = " and ".join(map(str, spec.outcome_constraints))
        lines.append(("subject to", f"{limits}: a result that breaks one is worse than any that does not"))
    seed = "drawn when the search starts" if spec.search.seed is None else spec.search.seed
    lines.append(("search", f"{_options(spec.search.for_trials(plan.trials))}, seed {seed}"))
    if plan.search_reason:
        lines.append(("", f"chosen by auto: {plan.search_reason}"))
    lines += [("", line) for line in _model_lines(plan)]
    lines.append(("scheduler", _options(spec.scheduler)))
    note = _note_on_trials(plan)
    lines.append(("trials", f"{plan.trials}, {note}" if note else f"{plan.trials}"))
    lines += list(_rung_lines(plan))
    if spec.repeat:
        when = "at each report of all, which train as one model" if spec.repeat.at_once else "after each repetition"
        told = f"{spec.repeat.over} from 0 to {spec.repeat.times - 1}; a trial reports the means {when}"
        lines.append(("repeated", f"{spec.repeat.times} times, {told}"))
    if spec.resources.fused > 1:
        lines.append(
            ("fused", f"up to {spec.resources.fused} trials of one shape train as one model, and share what it takes")
        )
    words = list(spec.budget.limits(holds_gpus=bool(plan.request.get("GPU"))))
    unlimited = "ends early", "no: the budget has no limit but the number of trials"
    lines.append(("ends early at", ", ".join(words)) if words else unlimited)
    lines.append(("failures", spec.failures.described(plan.reducible)))
    lines.append(("a trial takes", _takes(plan)))
    lines.append(("at once", f"{counted(plan.slots, 'trial')} on {plan.cluster}"))
    if plan.cluster.autoscaler:
        lines.append(("", f"{plan.cluster.autoscaler}; until they are there as many as fit"))
    lines.append(("checkpoints", _disk(plan)))
    lines += [("NOTICE", notice) for notice in plan.notices]
    return lines


def _compared(plan: Plan) -> str:
    """What of several objectives decides."""
    who = "the search and schedulers" if plan.scalarised else "schedulers"
    objectives = plan.spec.objectives
    if _by_fronts(plan):
        return f"{plan.spec.scheduler.kind} compares fronts of all {len(objectives)}"
    return f"{who} compare {comparison(objectives)}"


def _by_fronts(plan: Plan) -> bool:
    """Whether the scheduler compares trials by several objectives at once."""
    objectives = plan.spec.objectives
    return plan.spec.scheduler.compares_fronts and len(objectives) > 1 and not have_weights(objectives)


def _size(plan: Plan) -> str:
    space = plan.spec.search_space
    if any(parameter.domain.count is None for parameter in space.parameters):
        return "infinitely many configurations"
    if space.size == UNCOUNTED:
        return f"more than {MAX_STATES:,} configurations"
    if space.size >= _LARGE:
        return f"about 10^{math.log10(space.size):.0f} configurations"
    return counted(space.size, "configuration")


def _model_lines(plan: Plan) -> Iterator[str]:
    """What the searcher learns from."""
    count, scheduler = plan.modelled, plan.spec.scheduler
    if count is None:
        yield "its class decides how many suggestions are modelled from results"
    else:
        about = "about " if count > 0 else ""
        yield f"{about}{count:.0f} of {counted(plan.trials, 'suggestion')} modelled from results"
    ends_early = scheduler.fidelity is not None and not scheduler.changes_configurations
    if ends_early and plan.spec.search.mixes_fidelities(plan.task):
        yield "which compares the last values of trials that stopped or pause at different steps as they are"


def _note_on_trials(plan: Plan) -> str:
    count = plan.spec.search_space.size
    if count >= plan.trials:
        return ""
    repeats = plan.spec.search.repeats(plan.spec.search_space)
    what = "some run twice" if repeats else "the search ends after them"
    there = f"{counted(count, 'configuration')} there {'is' if count == 1 else 'are'}"
    return f"more than the {there}: {what}"


def _rung_lines(plan: Plan) -> Iterator[tuple[str, str]]:
    rungs, name = plan.spec.scheduler.rungs(), (plan.spec.scheduler.fidelity or ("", 0))[0]
    if not rungs:
        return
    reach = plan.spec.scheduler.expected_at_rungs(plan.trials)
    for k, (rung, count) in enumerate(zip(rungs, reach, strict=True)):
        reach_it = f"{counted(round(count), 'trial')} reach{'es' * (round(count) == 1)} it"
        yield ("rungs" if k == 0 else "", f"{name} {rung:>4}: about {reach_it}")
    if plan.spec.scheduler.adapts_first_rung and not _by_fronts(plan):
        yield "", "as if the first rung stayed where it begins; any of these may become it, as early ranks deserve"
    total = plan.trials * rungs[-1]
    spent = sum(count * (rung - before) for rung, before, count in zip(rungs, (0, *rungs), reach, strict=False))
    yield "", f"about {spent:.0f} of {total} {name}s in all: {1 - spent / total:.0%} saved by stopping early"


def _takes(plan: Plan) -> str:
    workers, strategy = plan.spec.resources.workers, plan.spec.resources.strategy
    one = format_resources(plan.request) + (", by MPS" if plan.spec.resources.mps else "")
    if shared := [key for key in ("cpu", "gpu") if getattr(plan.spec.resources, key) == SHARE]:
        are = "is" if len(shared) == 1 else "are"
        return f"{one}, until {' and '.join(shared)} {are} measured when the search begins"
    return one if workers == 1 else f"{workers} workers on {WHERE[strategy]} nodes as can be, each {one}"


def _disk(plan: Plan) -> str:
    keep = plan.spec.checkpoints
    options = [f"keep_per_trial {keep.keep_per_trial}", f"keep_trials {keep.keep_trials}"]
    if keep.every > 1:
        options.append(f"every {keep.every}")
    if keep.max_gib is not None:
        options.append(f"max_gib {keep.max_gib:g}")
    most = f"at most {plan.checkpoints} on disk ({', '.join(options)})"
    if plan.checkpoint_bytes is None:
        return f"{most}; their size is known at the first report (the trainable has no checkpoint_bytes)"
    each, total = format_bytes(plan.checkpoint_bytes), format_bytes(plan.checkpoints * plan.checkpoint_bytes)
    return f"{most}, up to {each} each: {total}"


def _options(spec: Any) -> str:
    values = spec.model_dump(exclude={"kind", "seed", "points_to_evaluate", "from_runs"})
    points = len(getattr(spec, "points_to_evaluate", ()))
    first = [f"{counted(points, 'point')} to evaluate first"] if points else []
    given = [
        f"{name} {format_number(value) if isinstance(value, str | float) else brief(value)}"
        for name, value in values.items()
        if value not in (None, {})
    ]
    return ", ".join([spec.kind, *given, *first])


def _space_lines(space: Space) -> Iterator[str]:
    for parameter in space.parameters:
        known = "".join(f", {given}" for given in (parameter.default, parameter.prior) if given)
        yield shortened(f"{parameter.name}: {parameter.domain}{known}{parameter.condition()}", _LONGEST)
    for constraint in space.constraints:
        yield f"only where {constraint}"
