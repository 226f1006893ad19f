"""The experiment file: what a user wants to search, as one frozen typed object."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator
from pydantic_core import CoreSchema, core_schema

from tuner.schedulers import AnyScheduler
from tuner.schedulers.fifo import Fifo
from tuner.searchers import AnySearch
from tuner.searchers.random import Random
from tuner.spec.failures import Failures
from tuner.spec.model import Model
from tuner.spec.objective import Objective, Objectives
from tuner.spec.quantities import Seconds
from tuner.spec.space import Space


class Budget(Model):
    """When the search ends: at the first limit that is reached. Absent limits do not limit."""

    trials: Annotated[int, Field(ge=1)] | None = None
    """Number of configurations (Ray Tune's num_samples); absent: the whole grid, or 20."""
    wall_clock: Seconds | None = None
    """Time from the first trial on, in seconds or as 20m, 1h30m."""
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """Hours of GPUs held by trials, added over all of them."""
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The search ends when the (first) objective reaches this value."""


class Resources(Model):
    """What one trial needs."""

    cpu: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1
    """CPU cores; a trial's libraries use as many threads (at least one)."""
    gpu: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """GPUs: 0.25 lets four trials share one; ``auto`` is 1 where the cluster has a GPU and 0 elsewhere."""

    @field_validator("gpu")
    @classmethod
    def _whole_above_one(cls, gpu: float | str) -> float | str:
        if isinstance(gpu, (int, float)) and gpu > 1 and gpu != int(gpu):
            raise ValueError(
                f"{gpu:g} GPUs: Ray shares one GPU between trials, but a trial gets only whole ones above 1"
            )
        return gpu

    memory_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Host memory that the scheduler sets aside for a trial, in GiB."""
    custom: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Amounts of Ray's custom resources."""
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    """Trials that run at once at most; absent: as many as fit."""
    fresh_process: bool = False
    """Start a new process for every trial instead of handing a cleaned one over (slower: torch is imported again)."""


class Checkpoints(Model):
    """Which checkpoints stay on disk."""

    keep_per_trial: Annotated[int, Field(ge=1)] = 1
    """The best of each trial (its latest is kept besides, while it runs)."""
    keep_trials: Annotated[int, Field(ge=1)] = 5
    """Only the best ended trials keep their checkpoints."""


class MlflowTracking(Model):
    """One MLflow run for the search, a nested one for each trial."""

    uri: str | None = None
    """Tracking server or database; absent: ``sqlite`` file ``mlflow.db`` in the storage folder."""
    experiment: str | None = None
    """MLflow experiment; absent: the name of this experiment."""


class Tracking(Model):
    """Where trials are recorded besides the run folder."""

    mlflow: MlflowTracking | None = None


def check_name(name: str) -> str:
    """``name``, if it can name a run folder; ValueError otherwise."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(
            f"{name!r} cannot name a folder: use letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return name


Name = Annotated[str, AfterValidator(check_name), Field(max_length=100)]


class _AlreadyRead:
    """The space is read by `tuner.spec.space`, which knows places; pydantic only checks that it is one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.is_instance_schema(Space)


class ExperimentSpec(Model):
    """One experiment file. Only ``trainable``, ``search_space`` and ``objective`` are required."""

    name: Name
    """Name of the search; absent: the name of the file."""
    trainable: Annotated[str, Field(pattern=r"^[^:]+(:[^:\\/]+)*:[A-Za-z_]\w*$")]
    """``module:function`` or ``path/to/file.py:function``."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed arguments of the trainable."""
    search_space: Annotated[Space, _AlreadyRead(), WithJsonSchema({})]
    """Domains by parameter name; or the path of a YAML file, or module:attribute of a Ray Tune param_space dict."""
    constraints: list[str] = Field(default_factory=list)
    """What every configuration satisfies, such as ``model.l1 >= model.l2``; no other is ever started."""
    objectives: Annotated[Objectives, Field(alias="objective")]
    """``{metric: NAME, mode: max}``, or a list of such: then the result is a Pareto front. Where one number is needed,
    the first objective stands for all: for schedulers (unless weights are given), ``budget.target`` and checkpoints."""
    search: AnySearch = Random()
    scheduler: AnyScheduler = Fifo()
    budget: Budget = Budget()
    resources: Resources = Resources()
    checkpoints: Checkpoints = Checkpoints()
    failures: Failures = Failures()
    tracking: Tracking = Tracking()

    @property
    def objective(self) -> Objective:
        """The first objective."""
        return self.objectives[0]
