"""Trials with different configurations whose learning curves are equal to the last bit.

Two trainings that differ in a parameter and agree in every bit say that this parameter does not reach the model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat
from tuner.spec.quantities import counted

LEAST = 3
"""Reports of a curve at least: two shorter ones may agree by chance."""

_ABSENT = object()


def same_curves(results: ResultSet) -> str:
    """One line on the pair of such trials that differs in the fewest parameters; empty if there is no pair.

    A trial that ended early is compared by the part that both have. Takes time in proportion to the reports.
    """
    pairs = [(a, b, names) for a, b in _pairs(results) if (names := _differences(a, b))]
    if not pairs:
        return ""
    first, second, names = min(pairs, key=lambda pair: len(pair[2]))
    more = len(pairs) - 1
    others = f" ({counted(more, 'more pair')} of trials like these)" if more else ""
    found = f"trials {first.label} and {second.label} differ in {_listed(names)} only and have the same curve"
    remedy = f"check that {'it reaches' if len(names) == 1 else 'they reach'} the training"
    return f"{found} of {results.metric}, to the last bit: {remedy}{others}"


def _pairs(results: ResultSet) -> Iterator[tuple[Trial, Trial]]:
    """Neighbours among the trials that begin alike, longest curve first."""
    groups: dict[bytes, list[tuple[Trial, bytes]]] = {}
    for trial in results.trials:
        if len(trial.reports) >= LEAST and not trial.segments:
            curve = _bits(results.value(report) for report in trial.reports)
            groups.setdefault(curve[: LEAST * 8], []).append((trial, curve))
    for group in groups.values():
        group.sort(key=lambda member: -len(member[1]))
        for (a, longer), (b, shorter) in pairwise(group):
            if longer.startswith(shorter) and _moves(shorter):
                yield (a, b) if a.number < b.number else (b, a)


def _bits(values: Iterable[float]) -> bytes:
    return b"".join(struct.pack("<d", value) for value in values)


def _moves(curve: bytes) -> bool:
    """Whether it is neither constant nor without numbers."""
    values = [value for (value,) in struct.iter_unpack("<d", curve)]
    return all(map(math.isfinite, values)) and min(values) < max(values)


def _differences(a: Trial, b: Trial) -> list[str]:
    """Dotted names of the parameters in which the configurations differ."""
    one, other = dict(flat(a.config)), dict(flat(b.config))
    return [name for name in {**one, **other} if one.get(name, _ABSENT) != other.get(name, _ABSENT)]


def _listed(names: list[str], most: int = 6) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
