"""Orders of people to a running search: the arguments of each command, and the orders that hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from tuner.errors import InputError, did_you_mean
from tuner.spec.model import Model
from tuner.spec.quantities import parse_duration


class Nothing(Model):
    """No arguments."""


class OfTrial(Model):
    """A trial."""

    trial: Annotated[str, Field(min_length=1)]
    """Its id or its number."""


class Addition(Model):
    """A configuration that is to run."""

    config: dict[str, Any]
    """Its parameters by name, nested as the space is; constants may be left out."""


class Clone(OfTrial):
    """A trial that is to run once more, changed."""

    changes: dict[str, Any] = Field(default_factory=dict)
    """What is other than in the trial, by name; ``model.width`` stands for a nested one too."""
    checkpoint: bool = False
    """Whether it starts from the trial's latest checkpoint."""


def added(limit: str | None, value: Any) -> float | None:
    """The 20 of ``+20``, which is added to a limit of the budget; None if ``value`` is a new total.

    Raises ValueError at ``+many``.
    """
    if not isinstance(value, str) or not value.strip().startswith("+"):
        return None
    text = value.strip()[1:]
    try:
        more = float(parse_duration(text) if limit == "wall_clock" else text)
    except ValueError:
        more = math.nan
    if not math.isfinite(more):
        example = "+30m" if limit == "wall_clock" else "+20"
        raise ValueError(f"it adds no number: write {example}")
    return more


def _or_more(value: Any, checked: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """``+20`` as it is: the search adds it to what it has when it carries the command out."""
    return checked(value) if added(info.field_name, value) is None else value


_OrMore = WrapValidator(_or_more)


class NewBudget(Model):
    """New totals of the budget, or ``+20`` for 20 more. A limit that is not named stays; null removes one."""

    trials: Annotated[Annotated[int, Field(ge=1)] | None, _OrMore] = None
    epochs: Annotated[int | None, _OrMore] = None
    wall_clock: Annotated[float | str | None, _OrMore] = None
    gpu_hours: Annotated[float | None, _OrMore] = None
    cost: Annotated[float | None, _OrMore] = None
    """The new ``max``."""


class NewSpace(Model):
    """A narrower search space."""

    search_space: Annotated[dict[str, Any], Field(min_length=1)]
    """The parameters that change, nested as the space is; the others stay."""


class Slots(Model):
    """How many trials run at once at most."""

    trials: Annotated[int, Field(ge=0)] | None
    """0: none; null: as many as the machines take."""


KINDS: dict[str, type[Model]] = {
    "stop-trial": OfTrial,
    "keep-trial": OfTrial,
    "add": Addition,
    "clone": Clone,
    "budget": NewBudget,
    "space": NewSpace,
    "pause": Nothing,
    "continue": Nothing,
    "slots": Slots,
}
"""The arguments of each kind of command."""


def arguments_of(do: str, arguments: Mapping[str, Any]) -> Model:
    """The checked arguments of a command. Raises InputError, in one line, if they are wrong or there is no such one."""
    if do not in KINDS:
        raise InputError(f"{do!r} is not a command; {did_you_mean(do, list(KINDS))}")
    named = {name: str(value) if name == "trial" and type(value) is int else value for name, value in arguments.items()}
    try:
        found = KINDS[do].model_validate(named)
    except ValidationError as error:
        raise InputError(f"{do}: {_told(do, error)}") from None
    if isinstance(found, NewBudget) and not found.model_fields_set:
        raise InputError(f"{do}: it needs a limit: one of {', '.join(NewBudget.model_fields)}")
    return found


def _told(do: str, error: ValidationError) -> str:
    """The first problem, in one line."""
    problem = error.errors(include_url=False)[0]
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        allowed = list(KINDS[do].model_fields)
        return f"{name} is not an argument of it; {did_you_mean(name, allowed) if allowed else 'it has none'}"
    if problem["type"] == "missing":
        return f"it needs {name}"
    text = problem["msg"].removeprefix("Value error, ")
    return f"{name}: {problem['input']!r}: {text[0].lower()}{text[1:]}"


@dataclass
class Orders:
    """The orders that hold. They are part of what a search knows, so that they hold after a kill too."""

    paused: bool = False
    """Whether no trial is to run."""
    limit: int | None = None
    """How many trials run at once at most; None: as many as the machines take."""
    stopped: dict[str, str] = field(default_factory=dict)
    """The trials that are to end at their next report, and who ordered it."""
    kept: set[str] = field(default_factory=set)
    """The trials that the scheduler does not stop: to it they have ended."""

    def allowed(self, slots: int) -> int:
        """How many of ``slots`` trials may run at once."""
        if self.paused:
            return 0
        return slots if self.limit is None else min(slots, self.limit)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Takes account of a command that was carried out, as the journal tells it."""
        match event["do"]:
            case "pause" | "continue":
                self.paused = event["do"] == "pause"
            case "slots":
                self.limit = event["arguments"]["trials"]
            case "keep-trial":
                self.kept.update(event["trials"])
            case "stop-trial":
                self.stopped.update(dict.fromkeys(event["trials"], event["by"]))

    def ended(self, trial_id: str) -> None:
        """The trial has ended: what was ordered of it holds no longer."""
        self.stopped.pop(trial_id, None)
        self.kept.discard(trial_id)
