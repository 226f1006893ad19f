"""``resources: {cpu: share}`` and ``{gpu: share}``: measured before the search begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.experiment.resources import SHARE, Resources
from tuner.plan.cluster import Cluster, format_resources
from tuner.plan.plan import Plan

if TYPE_CHECKING:
    from tuner.execution.sharing import Level, Measured

FREE_S = 60.0
"""How long a cluster may take to give a whole node for it."""


def with_measured_shares(
    plan: Plan, params: dict[str, Any], working_directory: Path, say: Callable[[str], None]
) -> tuple[Plan, list[str]]:
    """``plan`` with numbers in place of ``share``, and a notice of what was measured.

    If nothing can be measured, a trial takes 1 CPU, and GPUs as with ``auto``. ``params``: as the trainable's
    ``prepare`` left them.
    """
    resources = plan.spec.resources
    shared = [key for key in ("cpu", "gpu") if getattr(resources, key) == SHARE]
    if not shared:
        return plan, []
    names = " and ".join(f"resources.{key}" for key in shared)
    fixed, why = _chosen(plan, params, working_directory, lambda told: say(f"{names}: {told}"))
    spec = plan.spec.model_copy(update={"resources": fixed})
    request = fixed.request(has_gpus=plan.cluster.has_gpus)
    plan = replace(plan, experiment=replace(plan.experiment, spec=spec), request=request)
    return plan, [f"{names} share: {why}"]


def _chosen(
    plan: Plan, params: dict[str, Any], working_directory: Path, say: Callable[[str], None]
) -> tuple[Resources, str]:
    """The resources with numbers, and why."""
    from tuner.execution.sharing import applied, fastest, levels

    resources = plan.spec.resources
    gpu = "auto" if resources.gpu == SHARE else resources.gpu
    no_mps = {"mps": False} if gpu == "auto" else {}  # then each trial has a whole GPU, or none
    default = resources.model_copy(update={"cpu": resources.cpus, "gpu": gpu, **no_mps})
    usual = f"{resources.cpus:g} CPU and gpu {gpu}"
    fitting = [node for node in plan.cluster.nodes if Cluster((node,)).slots(plan.request)]
    if not fitting:
        return default, f"{usual}: not measured, as no node that is there has room for a trial"
    node = min(fitting, key=lambda node: node.resources["CPU"])  # where one trial fits, it fits on larger ones too
    to_measure = levels(resources, node.resources, plan.trials)
    if len(to_measure) == 1:
        return applied(resources, to_measure[0]), f"{to_measure[0]}: there is nothing to choose"
    say(f"measuring up to {to_measure[-1].trials} trials at once, before the search begins")
    measured = _measured(plan, params, working_directory, to_measure, node.resources)
    best = fastest(measured)
    if best is None:
        return default, f"{usual}: {_reason(measured)}"
    return applied(resources, best.level), f"{best.level}: {_reason(measured)}"


def _reason(measured: Sequence[Measured]) -> str:
    """What was measured, in words."""
    known = [one for one in measured if not one.problem]
    told = [f"{one.level.trials} at once {one.rate:,.0f} reports an hour" for one in known]
    told += [f"{one.level.trials} at once not measured ({one.problem})" for one in measured if one.problem]
    return "; ".join(told) if told else "the search has no first trial"


def _measured(
    plan: Plan,
    params: dict[str, Any],
    working_directory: Path,
    to_measure: Sequence[Level],
    machine: Mapping[str, float],
) -> list[Measured]:
    """What came out of each level, here or on a node of the cluster that has nothing else to do meanwhile."""
    from tuner.execution.fit import task_of
    from tuner.execution.sharing import Measured, measure
    from tuner.search.new_state import new_state

    config = new_state(plan, ()).suggest("share")
    if config is None:
        return []
    task, memory = task_of(plan, params, working_directory), machine.get("memory", 0)
    if plan.cluster.address is None:
        return measure(task, config, to_measure, memory)
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    gpus = 1.0 if to_measure[0].gpu else machine.get("GPU", 0.0) if plan.request.get("GPU") else 0.0
    whole = {"CPU": machine["CPU"]} | ({"GPU": gpus} if gpus else {})
    group = placement_group([whole], strategy="STRICT_PACK")
    try:
        if not group.wait(FREE_S):
            return [Measured(to_measure[0], 0, problem=f"no node had {format_resources(whole)} free in {FREE_S:.0f} s")]
        there = ray.remote(measure).options(
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
