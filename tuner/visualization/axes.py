"""The parameters of a run's trials as the axes of figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import Problem
from tuner.runs.results import EXPERIMENT, ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat
from tuner.spec.document import Document
from tuner.spec.space import Choice, Computed, Domain, Float, Integer, Space, at, read_space
from tuner.visualization.style import is_number, label

_MANY = 30
"""Different texts of one parameter above which it makes no axis."""

_DECADES = 1000.0
"""If the space cannot be read, a parameter whose values span this ratio is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Axis:
    """One parameter."""

    name: str
    positions: tuple[float | None, ...]
    """Of each trial: its value, of a category the index; None if the parameter is absent (its ``when`` failed)."""
    low: float
    high: float
    log: bool = False
    categories: tuple[str, ...] = ()
    """The values as texts, of a parameter that has no range."""

    def unit(self, position: float) -> float:
        """The place of a position on the axis, from 0 at its low end to 1."""
        if self.low == self.high:
            return 0.5
        if self.log:
            return math.log(position / self.low) / math.log(self.high / self.low)
        return (position - self.low) / (self.high - self.low)

    def at(self, unit: float) -> float:
        """The inverse of `unit`."""
        if self.log:
            return float(self.low * (self.high / self.low) ** unit)
        return self.low + unit * (self.high - self.low)

    def plotly(self) -> dict[str, Any]:
        """A Plotly axis for its positions."""
        title = {"title": {"text": f"{label(self.name)}{' (log)' * self.log}"}}
        if self.categories:
            texts = [label(text, 14) for text in self.categories]
            ticks = {"tickmode": "array", "tickvals": list(range(len(texts))), "ticktext": texts}
            return title | ticks | {"automargin": True, "range": [-0.5, len(texts) - 0.5]}
        if self.log:
            pad = 0.03 * math.log10(self.high / self.low)
            ends = [math.log10(self.low) - pad, math.log10(self.high) + pad]
            return title | {"type": "log", "range": ends, "dtick": 1 if ends[1] - ends[0] > 1.5 else "D2"}
        pad = 0.03 * (self.high - self.low)
        return title | {"type": "linear", "range": [self.low - pad, self.high + pad], "nticks": 6}


def axes_of(results: ResultSet, trials: Sequence[Trial]) -> list[Axis]:
    """An axis for each parameter in which ``trials`` differ, in the order of the search space."""
    known: list[tuple[str, Domain | None, list[Any]]]
    if (space := _space(results)) is not None:
        known = [
            (p.name, p.domain if p.free else None, [_lookup(trial, p.path) for trial in trials])
            for p in space.parameters
            if not isinstance(p.domain, Computed)
        ]
    else:  # from Python, or damaged: the values tell what they can
        flats = [dict(flat(trial.config)) for trial in trials]
        names = dict.fromkeys(name for values in flats for name in values)
        known = [(name, None, [values.get(name) for values in flats]) for name in names]
    axes = (_axis(name, domain, values) for name, domain, values in known)
    return [axis for axis in axes if axis is not None]


def _space(results: ResultSet) -> Space | None:
    if not isinstance(results.spec.get("search_space"), dict):
        return None
    problems: list[Problem] = []
    return read_space(Document(results.spec, EXPERIMENT), ("search_space",), problems)


def _lookup(trial: Trial, path: tuple[str, ...]) -> Any:
    try:
        return at(trial.config, path)
    except KeyError:
        return None


def _axis(name: str, domain: Domain | None, values: list[Any]) -> Axis | None:
    present = [value for value in values if value is not None]
    if isinstance(domain, Choice) or not all(map(is_number, present)):
        return _category_axis(name, domain, values)
    if len(set(present)) < 2:
        return None
    ends = [*present, *(domain.probes() if isinstance(domain, (Float, Integer)) else ())]
    low, high = float(min(ends)), float(max(ends))
    log = domain.log if isinstance(domain, (Float, Integer)) else low > 0 and high / low >= _DECADES
    positions = tuple(None if value is None else float(value) for value in values)
    return Axis(name, positions, low, high, log and low > 0)


def _category_axis(name: str, domain: Domain | None, values: list[Any]) -> Axis | None:
    texts = [None if value is None else _text(value) for value in values]
    known = [_text(value) for value in domain.categories] if isinstance(domain, Choice) else []
    categories = tuple(dict.fromkeys([*known, *(text for text in texts if text is not None)]))
    if len(set(texts) - {None}) < 2 or len(categories) > _MANY:
        return None
    index = {text: float(i) for i, text in enumerate(categories)}
    positions = tuple(None if text is None else index[text] for text in texts)
    return Axis(name, positions, 0.0, float(len(categories) - 1), categories=categories)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=repr)
