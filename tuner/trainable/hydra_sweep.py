"""The search space that ``hydra.sweeper.params`` writes in Hydra's grammar of sweeps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, QuotedString, RangeSweep
from hydra.errors import HydraException

from tuner.errors import InputError
from tuner.trainable.hydra_overrides import DEFAULTS

_LOG = "log"
"""The tag of a logarithmic interval, as in Hydra's sweeper for Optuna."""

_DOMAINS = {"choice", "uniform", "loguniform", "randint", "lograndint"}

_MOST = 10_000
"""Values of a range that is written as a choice at most."""


def space_of_sweep(params: Mapping[str, Any], groups: Iterable[str], whose: str) -> dict[str, Any]:
    """Domains by parameter name, as in ``search_space`` of an experiment; ``groups``: the config groups among them.

    A group whose keys are parameters too goes below ``defaults``, and so does one with a slash. ``whose``: the text
    before each message. Raises InputError with the first parameter that has no domain.
    """
    space: dict[str, Any] = {}
    for key, value in params.items():
        place = f"{whose}hydra.sweeper.params.{key}"
        path = tuple(key.split("."))
        holds_keys = any(name.startswith(f"{key}.") for name in params)
        if key in groups and (holds_keys or "/" in key):
            path = (DEFAULTS, *key.split("/"))
        _set(space, path, _domain(f"{key}={value}", place), place)
    return space


def _set(space: dict[str, Any], path: tuple[str, ...], domain: Any, place: str) -> None:
    inner = space
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
    if path[-1] in inner or not inner.keys().isdisjoint(_DOMAINS):
        raise InputError(f"{place}: another parameter stands at its place; write search_space in the experiment")
    inner[path[-1]] = domain


def _domain(text: str, place: str) -> Any:
    """The domain, or the constant, that an override stands for."""
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise InputError(f"{place}: {' '.join(str(error).split())}") from None
    if not override.is_sweep_override():
        return override.value()
    sweep: Any = override.value()
    log = _LOG if _LOG in getattr(sweep, "tags", ()) else ""
    match sweep:
        case Glob():
            raise InputError(f"{place}: glob(...) is not read here: list the choices, as in choice(a, b)")
        case IntervalSweep(start=int(start), end=int(end)):
            return {f"{log}randint": [start, end + 1]}
        case IntervalSweep(start=start, end=end):
            return {f"{log}uniform": [start, end]}
        case RangeSweep(start=int(start), stop=int(stop), step=1):
            return {f"{log}randint": [start, stop]}
        case RangeSweep():
            return {"choice": _values(sweep, place)}
        case ChoiceSweep(list=values):
            return {"choice": [_plain(override, value) for value in values]}
    raise AssertionError(f"Hydra has another kind of sweep: {sweep!r}")


def _values(sweep: RangeSweep, place: str) -> list[Any]:
    found = list(itertools.islice(sweep.range(), _MOST + 1))
    if len(found) > _MOST:
        raise InputError(f"{place}: a range of more than {_MOST:,} values; write search_space in the experiment")
    return found


def _plain(override: Override, value: Any) -> Any:
    return value.text if isinstance(value, QuotedString) else override._convert_value(value)
