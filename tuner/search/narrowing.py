"""A narrower search space for a search that runs, and the searcher that continues in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.results import ResultSet
from tuner.spec.configuration import flat, nested
from tuner.spec.space import Choice, Constant, Domain, Normal, Space


def narrowed_plan(plan: Plan, results: ResultSet, search_space: Mapping[str, Any]) -> Plan:
    """The plan of a search that continues in a narrower space.

    ``search_space``: the parameters that change, as an experiment writes them. Raises InputError if the space is not a
    narrower one, or this search cannot continue in it.
    """
    if problem := _why_not(plan, results):
        raise InputError(f"space: {problem}")
    overrides = {f"search_space.{name}": value for name, value in flat(nested(search_space))}
    experiment = load_experiment(results.spec, overrides, plan.experiment.roots, plan.experiment.pickles)
    changed = make_plan(experiment, plan.cluster)
    if problem := wider(plan.spec.search_space, changed.spec.search_space):
        raise InputError(f"space: {problem}")
    return replace(changed, trials=plan.trials, seed=plan.seed, search_reason=plan.search_reason)


def _why_not(plan: Plan, results: ResultSet) -> str:
    """Why the search cannot continue in another space; empty if it can."""
    spec = plan.spec
    if not isinstance(results.spec.get("search_space"), dict):
        return "it is written in Python, where a command cannot change it: resume the search with another one"
    if spec.scheduler.changes_configurations:
        return f"cannot change under scheduler {spec.scheduler.kind}, whose trials take over configurations"
    if spec.search.from_runs:
        return "cannot change in a search that has from_runs: start a new one, which may learn from this one too"
    if plan.trials <= results.suggested:
        return f"changes nothing, as all of the {plan.trials} trials were suggested: give it more first (budget)"
    return ""


def wider(old: Space, new: Space) -> str:
    """The reason for which ``new`` is not narrower than ``old``; empty if it is."""
    before = {parameter.path: parameter for parameter in old.parameters}
    after = {parameter.path: parameter for parameter in new.parameters}
    for path in [*(after.keys() - before.keys()), *(before.keys() - after.keys())]:
        return f"{'.'.join(path)}: its parameters stay the same ones: {', '.join(p.name for p in old.parameters)}"
    for path, parameter in after.items():
        if parameter.when != before[path].when:
            return f"{parameter.name}: its conditions cannot change"
        if not _is_within(parameter.domain, before[path].domain):
            return f"{parameter.name}: {parameter.domain} is not within {before[path].domain}"
    if all(parameter == before[path] for path, parameter in after.items()):
        return "that is what it is"
    if not new.free:
        return "it leaves nothing to search: add configurations, or stop the search"
    return ""


def _is_within(new: Domain, old: Domain) -> bool:
    """Whether all values of ``new`` are values of ``old``."""
    if not all(map(old.contains, new.probes())):
        return False
    if new == old or isinstance(new, (Choice, Constant)):
        return True
    same = type(new) is type(old) or isinstance(old, Normal)
    steps = getattr(old, "q", None)
    return same and (steps in (None, 1) or getattr(new, "q", None) == steps)
