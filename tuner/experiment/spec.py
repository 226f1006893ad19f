"""The experiment file: what a user wants to search, as one frozen typed object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from tuner.experiment.failures import Failures
from tuner.experiment.notify import Notify
from tuner.experiment.repeat import Repeat
from tuner.experiment.resources import Resources
from tuner.experiment.tracking import Tracking
from tuner.schedulers import AnyScheduler
from tuner.schedulers.fifo import Fifo
from tuner.searchers import AnySearch
from tuner.searchers.auto import Auto
from tuner.spec.model import Model
from tuner.spec.objective import Objective, Objectives
from tuner.spec.outcome_constraints import OutcomeConstraints
from tuner.spec.quantities import Seconds, format_duration
from tuner.spec.space import Space


class Cost(Model):
    """What the search may cost.

    Example:
        >>> import tuner
        >>> tuner.Budget(cost=tuner.Cost(per_gpu_hour=2.5, max=100)).cost.max
        100.0
    """

    per_gpu_hour: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Price of one GPU for one hour, in any currency."""
    max: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The search ends when its GPU hours have cost that much."""


class Budget(Model):
    """When the search ends: at the first limit that is reached. Absent limits do not limit.

    Limits count over all workers, and continue to count when a search is resumed.

    Example:
        >>> import tuner
        >>> tuner.Budget(trials=60, wall_clock="2h").wall_clock
        7200.0
    """

    trials: Annotated[int, Field(ge=1)] | None = None
    """Number of configurations (Ray Tune's num_samples); absent: the whole grid, or 20."""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """The scheduler's ``time_attr`` (reports, where it has none) added over all trials; what a trial repeats after a
    restart counts once."""
    wall_clock: Seconds | None = None
    """Time from the first trial on, in seconds or as 20m, 1h30m."""
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """Hours of GPUs held by processes of trials, from their start to their end, added over all of them."""
    cost: Cost | None = None
    """A limit on the price of the GPU hours."""
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The search ends when the (first) objective reaches this value."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """The search ends when that many trials in a row ended without a new best (with several objectives: without a new
    point on the front)."""

    def limits(self, holds_gpus: bool) -> Iterator[str]:
        """The limits other than the number of trials, in words."""
        idle = "" if holds_gpus else " (never: a trial holds no GPU)"
        for name, value in self.model_dump(exclude_none=True, exclude={"trials"}).items():
            match name:
                case "wall_clock":
                    yield f"{name} {format_duration(value)}"
                case "cost":
                    yield f"{name} {value['max']:g} at {value['per_gpu_hour']:g} a GPU hour{idle}"
                case "gpu_hours":
                    yield f"{name} {value:g}{idle}"
                case _:
                    yield f"{name} {value:g}"


class Checkpoints(Model):
    """Which checkpoints are written, and which stay.

    Example:
        >>> import tuner
        >>> tuner.Checkpoints(keep_per_trial=2, max_gib=50).keep_trials
        5
    """

    keep_per_trial: Annotated[int, Field(ge=1)] = 1
    """The best of each trial. Besides, its latest two while it runs or waits, so that it can continue if one of them is
    damaged, and its latest when it has ended."""
    keep_trials: Annotated[int, Field(ge=1)] = 5
    """Only the best ended trials keep their checkpoints."""
    max_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """All checkpoints together, in GiB, but for the copy in best/. Beyond it those of ended trials go, of the worst
    first; the best trial (with several objectives, the front) and trials that run or wait keep what they need."""
    min_free_gib: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1
    """While the storage folder's disk has less free, no trial starts; local storage only."""
    every: Annotated[int, Field(ge=1)] = 1
    """Of the checkpoints that a trial reports, every that many is written, and those at which its scheduler may pause
    or end it. The others never reach the storage; best is the best one that was written."""


def check_name(name: str) -> str:
    """``name``, if it can name a run folder; ValueError otherwise."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(
            f"{name!r} cannot name a folder: use letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return name


Name = Annotated[str, AfterValidator(check_name), Field(max_length=100)]


_TRAINABLE = (
    r"^[^:]+(:[^:\\/]+)*:[A-Za-z_]\w*$|^[^:]+\.py$"
    r"|^hydra:[^:]+\.ya?ml(:[^:]+:[A-Za-z_]\w*)?$|^lightning:[^:]+\.ya?ml$"
)


class _AlreadyRead:
    """The space is read by `tuner.spec.space`, which knows places; pydantic only checks that it is one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.is_instance_schema(Space)


class ExperimentSpec(Model):
    """One experiment file. Only ``trainable``, ``search_space`` and ``objective`` are required."""

    name: Name
    """Name of the search; absent: the name of the file."""
    trainable: Annotated[str, Field(pattern=_TRAINABLE)]
    """``module:function``, ``path/to/file.py:function``, or a script ``path/to/file.py``, which gets the parameters as
    its arguments; or ``hydra:path/to/config.yaml``, with ``:file.py:function`` if Hydra's function is not the only one,
    or ``lightning:path/to/config.yaml`` of LightningCLI, which get them as overrides."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed arguments of the trainable."""
    search_space: Annotated[Space, _AlreadyRead(), WithJsonSchema({})]
    """Domains by parameter name; or the path of a YAML file, or module:attribute of a Ray Tune param_space dict or of
    an Optuna objective."""
    constraints: list[str] = Field(default_factory=list)
    """Conditions on every configuration, such as ``model.l1 >= model.l2``; no other configuration is ever started."""
    outcome_constraints: OutcomeConstraints = ()
    """Limits on reported metrics, such as ``latency_ms <= 10``. Only results that keep all of them can be the best;
    a trial that breaks one is worse than any that keeps them, whatever its objective is."""
    objectives: Annotated[Objectives, Field(alias="objective")]
    """``{metric: NAME, mode: max}``, or a list of such: then the result is a Pareto front. If one number is needed,
    the first objective stands for all: for ``budget.target``, for checkpoints, and, unless there are weights, for
    schedulers that compare no fronts."""
    search: AnySearch = Auto()
    """The search algorithm, which suggests configurations."""
    scheduler: AnyScheduler = Fifo()
    """The scheduler, which stops or pauses trials early."""
    budget: Budget = Budget()
    """When the search ends."""
    repeat: Repeat | None = None
    """Several trainings of one configuration as one trial, over seeds or folds."""
    resources: Resources = Resources()
    """What one trial takes of the machines."""
    checkpoints: Checkpoints = Checkpoints()
    """Which checkpoints are written, and which are kept."""
    failures: Failures = Failures()
    """What becomes of a trial that fails."""
    tracking: Tracking = Tracking()
    """The services that record the trials besides the run folder."""
    notify: Notify | None = None
    """Messages to people while the search runs, and at its end."""

    @property
    def objective(self) -> Objective:
        """The first objective."""
        return self.objectives[0]

    @property
    def is_followed(self) -> bool:
        """Whether a process beside the search reads its journal."""
        return self.tracking.anywhere or self.notify is not None

    @property
    def required_metrics(self) -> tuple[tuple[str, str], ...]:
        """What every report must hold, each with the key of the experiment file that asks for it."""
        several = len(self.objectives) > 1
        required = [
            (objective.metric, f"objective[{i}].metric" if several else "objective.metric")
            for i, objective in enumerate(self.objectives)
        ]
        required += [
            (constraint.metric, f"outcome_constraints[{i}]") for i, constraint in enumerate(self.outcome_constraints)
        ]
        if self.scheduler.fidelity:
            required.append((self.scheduler.fidelity[0], "scheduler.time_attr"))
        return tuple(required)
