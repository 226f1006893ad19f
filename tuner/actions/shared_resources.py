"""``resources: {cpu: share}`` and ``{gpu: share}``: measured before the search begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.experiment.resources import SHARE
from tuner.plan.cluster import format_resources
from tuner.plan.plan import Plan

if TYPE_CHECKING:
    from tuner.execution.sharing import Level, Measured
    from tuner.execution.trial_context import TrialContext

FREE_S = 60.0
"""How long a cluster may take to give a whole node for it."""


def with_measured_shares(plan: Plan, params: dict[str, Any], say: Callable[[str], None]) -> tuple[Plan, list[str]]:
    """``plan`` with numbers in place of ``share``, and a notice of what was measured.

    ``params``: as the trainable's ``prepare`` left them.
    """
    from tuner.execution.sharing import applied, fastest, levels

    resources = plan.spec.resources
    shared = [key for key in ("cpu", "gpu") if getattr(resources, key) == SHARE]
    if not shared:
        return plan, []
    node = max(plan.cluster.nodes, key=lambda node: (node.resources.get("GPU", 0), node.resources.get("CPU", 0)))
    to_measure = levels(resources, node.resources, plan.trials)
    names = " and ".join(f"resources.{key}" for key in shared)
    if len(to_measure) > 1:
        say(f"{names}: measuring up to {to_measure[-1].trials} trials at once, before the search begins")
    measured = _measured(plan, params, to_measure, node.resources)
    found = fastest(measured)
    level = found.level if found else to_measure[0]
    fixed = applied(resources, level)
    spec = plan.spec.model_copy(update={"resources": fixed})
    request = fixed.request(has_gpus=plan.cluster.has_gpus)
    plan = replace(plan, experiment=replace(plan.experiment, spec=spec), request=request)
    return plan, [f"{names} share: {level}: {_reason(measured)}"]


def _reason(measured: Sequence[Measured]) -> str:
    """What was measured, in words."""
    known = [one for one in measured if not one.problem]
    told = [f"{one.level.trials} at once {one.rate:,.0f} reports an hour" for one in known]
    told += [f"{one.level.trials} at once not measured ({one.problem})" for one in measured if one.problem]
    return "; ".join(told) if told else "nothing to measure"


def _measured(
    plan: Plan, params: dict[str, Any], to_measure: Sequence[Level], machine: Mapping[str, float]
) -> list[Measured]:
    """What came out of each level, here or on a node of the cluster that has nothing else to do meanwhile."""
    from tuner.execution.fit import new_state, task_of
    from tuner.execution.sharing import Measured, measure

    config = new_state(plan, ()).suggest("share")
    if config is None or len(to_measure) < 2:
        return []
    task, memory = task_of(plan, params, Path.cwd()), machine.get("memory", 0)
    if plan.cluster.address is None:
        return list(measure(task, config, to_measure, memory))
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    whole = {"CPU": machine["CPU"]} | ({"GPU": 1.0} if to_measure[0].gpu else {})
    group = placement_group([whole], strategy="STRICT_PACK")
    try:
        if not group.wait(FREE_S):
            return [Measured(to_measure[0], 0, problem=f"no node had {format_resources(whole)} free in {FREE_S:.0f} s")]
        there = ray.remote(_all).options(
            num_cpus=whole["CPU"],
            num_gpus=whole.get("GPU", 0),
            max_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
        )
        found: list[Measured] = ray.get(there.remote(task, config, to_measure, memory))
    except ray.exceptions.RayError as error:
        return [Measured(to_measure[0], 0, problem=str(error).strip().splitlines()[-1])]
    finally:
        remove_placement_group(group)
    return found


def _all(task: TrialContext, config: dict[str, Any], to_measure: Sequence[Level], memory: float) -> list[Measured]:
    """Run on a node."""
    from tuner.execution.sharing import measure

    return list(measure(task, config, to_measure, memory))
