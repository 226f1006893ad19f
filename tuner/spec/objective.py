"""The objective of a search: one metric or several, and which points are the best of several."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, TypeAdapter, ValidationError

from tuner.spec.model import Model

Mode = Literal["min", "max"]
"""Whether small or large values are good."""

Point = tuple[float, ...]
"""One value for each objective, each to be made large."""


class Objective(Model):
    """The goal of the search: the only place that names a metric and its direction.

    Example:
        >>> import tuner
        >>> tuner.Objective(metric="loss", mode="min").sign
        -1
    """

    metric: Annotated[str, Field(min_length=1)]
    """Name of the reported metric that is compared."""
    mode: Mode
    """Whether small or large values are good."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Of several objectives: all have a weight, or none. With weights, schedulers compare the weighted sum of the
    metrics (those of the other direction subtracted). Without, ``asha`` compares Pareto fronts, and other schedulers
    compare the first objective alone."""

    @property
    def sign(self) -> int:
        """1 or -1: the metric times this is to be made large."""
        return 1 if self.mode == "max" else -1

    def __str__(self) -> str:
        return f"{self.mode} {self.metric}"


def _listed(written: Any) -> Any:
    return tuple(written) if isinstance(written, (list, tuple)) else (written,)


def _consistent(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    if not objectives:
        raise ValueError("is empty: name at least one {metric: NAME, mode: max}")
    names = [objective.metric for objective in objectives]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the metric {twice!r} is named twice: keep one of them")
    weighted = [objective.metric for objective in objectives if objective.weight is not None]
    if weighted and len(objectives) == 1:
        raise ValueError("a single objective has nothing to be weighed against: leave its weight out")
    if 0 < len(weighted) < len(objectives):
        missing = ", ".join(name for name in names if name not in weighted)
        raise ValueError(f"{missing} has no weight: give every objective one, or none")
    return objectives


def _written(objectives: tuple[Objective, ...]) -> Any:
    plain = [objective.model_dump(exclude_none=True) for objective in objectives]
    return plain if len(plain) > 1 else plain[0]


Objectives = Annotated[
    tuple[Objective, ...],
    BeforeValidator(_listed, json_schema_input_type=Objective | list[Objective]),
    AfterValidator(_consistent),
    PlainSerializer(_written),
]
"""One objective, or a list of several; the first is the one that stands for all where one number is needed."""


def read_objectives(written: Any) -> tuple[Objective, ...]:
    """The objectives that an experiment file names. Raises ValueError, in one line."""
    try:
        return TypeAdapter(Objectives).validate_python(written)
    except ValidationError as error:
        raise ValueError(f"objective: {error.errors()[0]['msg']}") from None


def have_weights(objectives: Sequence[Objective]) -> bool:
    """Whether several objectives are compared by their weighted sum."""
    return objectives[0].weight is not None


def compared(objectives: Sequence[Objective], values: Sequence[float]) -> float:
    """The number that schedulers compare, good in the direction of the first objective.

    The first of ``values`` (one for each objective), or, where the objectives have weights w, their linear
    scalarisation Σ ±wᵢ fᵢ (Miettinen 1999, section 3.1), with minus for those of the other direction.
    """
    first = objectives[0]
    if not have_weights(objectives):
        return values[0]
    return sum((o.weight or 0) * o.sign * first.sign * v for o, v in zip(objectives, values, strict=True))


def comparison(objectives: Sequence[Objective]) -> str:
    """What `compared` gives, as a formula."""
    first = objectives[0]
    if not have_weights(objectives):
        return first.metric
    terms = [f"{'+' if o.mode == first.mode else '-'} {o.weight:g} {o.metric}" for o in objectives]
    return " ".join(terms).removeprefix("+ ")


def dominates(a: Point, b: Point) -> bool:
    """Whether ``a`` is at least as good as ``b`` everywhere, and better somewhere."""
    return a != b and all(map(ge, a, b))


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other dominates, best first in the first objective."""
    front: list[int] = []
    for i in sorted(range(len(points)), key=points.__getitem__, reverse=True):  # none is dominated by a later one
        if not any(dominates(points[other], points[i]) for other in reversed(front)):
            front.append(i)
    return front


def domination_ranks(points: Sequence[Point]) -> list[int]:
    """Of each point: 0 on the Pareto front, 1 on the front of the others, and so on (Deb et al. 2002, NSGA-II)."""
    ranks = [0] * len(points)
    left, rank = list(range(len(points))), 0
    while left:
        front = {left[i] for i in pareto_front([points[i] for i in left])}
        for i in front:
            ranks[i] = rank
        left, rank = [i for i in left if i not in front], rank + 1
    return ranks
