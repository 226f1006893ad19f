"""Several trainings of one configuration as one trial: over seeds, or over the folds of a cross-validation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.spec.configuration import Configuration
from tuner.spec.model import Model

REPETITION = "repetition"
"""The reported number that counts the repetitions of a trial which have ended."""


class Repeat(Model):
    """How often each configuration is trained, and what tells the trainings apart.

    Example:
        >>> import tuner
        >>> tuner.Repeat(over="data.fold", times=5).values(4)
        {'data': {'fold': 4}}
    """

    over: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
    """The parameter that gets 0 in the first repetition, 1 in the second, and so forth: such as ``seed``, or ``fold``.
    All trials get the same values, so that they are compared on the same folds."""
    times: Annotated[int, Field(ge=2, le=1000)]
    """How many repetitions a complete trial has."""
    at_once: bool = False
    """Train all repetitions as one model, by the trainable's ``train_many``. The trial reports the means at each of
    their reports, so that a scheduler may stop it at any epoch."""

    def values(self, number: int) -> Configuration:
        """The parameter ``over`` in repetition ``number``, from 0, as nested as its name says."""
        nested: Configuration = {}
        inner = nested
        *groups, name = self.path
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = number
        return nested

    @property
    def path(self) -> tuple[str, ...]:
        """``over``, part by part."""
        return tuple(self.over.split("."))
