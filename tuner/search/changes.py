"""What a command makes of a search: configurations that people add, and other limits of its budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tuner.errors import InputError
from tuner.experiment.spec import Budget
from tuner.search.orders import NewBudget, added
from tuner.spec.configuration import Configuration, flat, merge, nested
from tuner.spec.space import Space
from tuner.spec.values import brief


def added_configuration(space: Space, config: Mapping[str, Any]) -> Configuration:
    """The point of ``space`` that somebody wrote, constants left out or not. Raises InputError if it is none."""
    whole = nested(config)
    _check_inside(space, whole, partial=True)
    return space.complete(whole)


def changed_configuration(space: Space, base: Configuration, changes: Mapping[str, Any]) -> Configuration:
    """``base`` with ``changes``, without parameters that these make inactive.

    Raises InputError if that is not in the space.
    """
    named = nested(changes)
    try:
        found = space.complete(merge(base, named))
    except KeyError as error:
        raise InputError(f"{error.args[0]}: is missing: with these changes it needs a value") from None
    _check_inside(space, found)
    has = dict(flat(found))
    for name, value in flat(named):
        if name not in has:
            known = any(parameter.name == name for parameter in space.parameters)
            raise InputError(f"{name}: is {'inactive with these changes' if known else 'no parameter of the search'}")
        if has[name] != value:
            raise InputError(f"{name}: {brief(value)}: its value is always {brief(has[name])}")
    return found


def _check_inside(space: Space, configuration: Configuration, partial: bool = False) -> None:
    for path, problem in space.violations(configuration, partial):
        raise InputError(f"{'.'.join(path)}: {problem}" if path else problem)


def changed_budget(known: Mapping[str, Any], order: NewBudget) -> Budget:
    """The budget with the limits of ``order``; ``known``: as the experiment has it. Raises InputError if it is none."""
    named = {name: _total(name, getattr(order, name), known) for name in sorted(order.model_fields_set)}
    if named.get("trials", 1) is None:
        raise InputError("budget: trials: a search has a number of trials: give another one")
    if named.get("cost") is not None:
        price = (known.get("cost") or {}).get("per_gpu_hour")
        if price is None:
            raise InputError("budget: cost: the experiment names no price of a GPU hour: limit gpu_hours")
        named["cost"] = {"per_gpu_hour": price, "max": float(named["cost"])}
    try:
        changed = Budget.model_validate({**known, **named})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        raise InputError(f"budget: {name}: {problem['input']!r}: {text[0].lower()}{text[1:]}") from None
    if changed == Budget.model_validate(dict(known)):
        raise InputError("budget: that is what it is")
    return changed


def _total(name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """The new total of one limit. Raises InputError if ``value`` adds to a limit that there is not, or too much."""
    if (more := added(name, value)) is None:
        return value
    before = known.get(name)
    before = before.get("max") if isinstance(before, Mapping) else before
    if before is None:
        raise InputError(f"budget: {name}: {value!r}: there was no limit to add to; give the whole of it")
    try:
        total = before + more
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise InputError(f"budget: {name}: {value!r}: there is no number so large")
    return int(total) if name in ("trials", "epochs") and total == int(total) else total
