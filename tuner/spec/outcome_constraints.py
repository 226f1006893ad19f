"""Limits on what trials report, such as a latency: which results may win, and how the others compare."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError, WithJsonSchema

from tuner.spec.objective import Objective, Point, have_weights
from tuner.spec.values import brief

_FORM = re.compile(r"\s*(?P<metric>\S+)\s*(?P<sense><=|>=)\s*(?P<bound>[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)\s*")

_MOST, _LONGEST = 20, 1000

_WORST = 1e29
"""Infeasible values lie between this and twice this: beyond what trials report, and within what Optuna takes."""


@dataclass(frozen=True)
class OutcomeConstraint:
    """A reported metric and its limit.

    Example:
        >>> from tuner.spec.outcome_constraints import OutcomeConstraint
        >>> limit = OutcomeConstraint.parse("latency_ms <= 10")
        >>> limit.violation(9.5), limit.violation(12.5)
        (0.0, 0.25)
    """

    metric: str
    is_upper: bool
    """Whether the limit is the largest value that is allowed; if not, the smallest."""
    bound: float

    @classmethod
    def parse(cls, text: str) -> OutcomeConstraint:
        """Reads ``METRIC <= NUMBER`` or ``METRIC >= NUMBER``. Raises ValueError if it is neither."""
        found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
        if found is None or not math.isfinite(float(found["bound"])):
            raise ValueError(
                f"{brief(text)} is not a limit on a metric: write METRIC <= NUMBER or METRIC >= NUMBER, "
                f"as in 'latency_ms <= 10'"
            )
        return cls(found["metric"], found["sense"] == "<=", float(found["bound"]))

    def margin(self, value: float) -> float:
        """By how much ``value`` keeps the limit, relative to it unless it is 0; negative if it breaks the limit."""
        distance = self.bound - value if self.is_upper else value - self.bound
        return distance / (abs(self.bound) or 1.0)

    def violation(self, value: float) -> float:
        """By how much ``value`` breaks the limit, relative to it unless it is 0; 0 if the limit is kept."""
        return max(-self.margin(value), 0.0)

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.is_upper else '>='} {repr(self.bound).removesuffix('.0')}"


def _parsed(written: Any) -> tuple[OutcomeConstraint, ...]:
    if not isinstance(written, (list, tuple)):
        raise ValueError("must be a list, such as ['latency_ms <= 10']")
    if len(written) > _MOST:
        raise ValueError(f"{len(written)} are more than {_MOST}: leave some out")
    found = []
    for one in written:
        if not isinstance(one, (str, OutcomeConstraint)):
            raise ValueError(f"{brief(one)} is not text: write METRIC <= NUMBER")
        found.append(OutcomeConstraint.parse(one) if isinstance(one, str) else one)
    return tuple(found)


OutcomeConstraints = Annotated[
    tuple[OutcomeConstraint, ...],
    BeforeValidator(_parsed),
    PlainSerializer(lambda constraints: [str(constraint) for constraint in constraints]),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": _FORM.pattern.replace("?P<", "?<")}}),
]
"""All of which must be kept."""


def read_outcome_constraints(written: Any) -> tuple[OutcomeConstraint, ...]:
    """Those that an experiment file names. Raises ValueError, in one line."""
    try:
        return TypeAdapter(OutcomeConstraints).validate_python(written)
    except ValidationError as error:
        raise ValueError(f"outcome_constraints: {error.errors()[0]['msg']}") from None


def metrics_read(objectives: Sequence[Objective], constraints: Sequence[OutcomeConstraint]) -> tuple[str, ...]:
    """The metrics of a report that count: one of each objective, then one of each constraint."""
    return (*(objective.metric for objective in objectives), *(constraint.metric for constraint in constraints))


def total_violation(constraints: Sequence[OutcomeConstraint], values: Sequence[float]) -> float:
    """Of all ``constraints`` together, with one of ``values`` for each; 0 if a result is feasible."""
    broken = sum(constraint.violation(value) for constraint, value in zip(constraints, values, strict=True))
    return min(broken, _WORST)


def ranked_values(
    objectives: Sequence[Objective], constraints: Sequence[OutcomeConstraint], values: Sequence[float]
) -> tuple[float, ...]:
    """The objectives' values, as they are where the result is feasible, and else worse than those of any feasible one.

    Of two infeasible results the one with the smaller violation is better (feasibility rules, Deb 2000). So whoever
    looks at nothing but the order of values searches under constraints.

    Args:
        objectives: Those of the search.
        constraints: Those of the search.
        values: As the user reports them: one of each objective, then one of each constraint.
    """
    count = len(objectives)
    violation = total_violation(constraints, values[count:])
    if not violation:
        return tuple(values[:count])
    worse = _WORST * (1 + violation / (1 + violation))
    if have_weights(objectives):  # their sum is to be that
        worse /= sum(objective.weight or 0 for objective in objectives)
    return tuple(-objective.sign * worse for objective in objectives)


def is_infeasible(ranked: float) -> bool:
    """Whether `ranked_values` gave this, or the weighted sum of what it gave, for a result that breaks a constraint."""
    return abs(ranked) >= _WORST * (1 - 1e-9)


def ranked_point(
    objectives: Sequence[Objective], constraints: Sequence[OutcomeConstraint], values: Sequence[float]
) -> Point:
    """The same, each to be made large."""
    ranked = ranked_values(objectives, constraints, values)
    return tuple(objective.sign * value for objective, value in zip(objectives, ranked, strict=True))
