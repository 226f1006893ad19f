"""Any scheduler written for Ray Tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tuner.errors import InputError, did_you_mean
from tuner.schedulers.base import Scheduler, SchedulerSpec
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space
from tuner.spec.user_imports import import_attribute, no_exit, signature_of, text_of

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

_ELSEWHERE = {
    "metric": "objective.metric",
    "mode": "objective.mode",
    "time_attr": "scheduler.time_attr",
    "max_t": "scheduler.max_t",
}
"""Arguments that this file gives to the class, and the keys of an experiment that hold them."""


class RayScheduler(SchedulerSpec):
    """A ``ray.tune.schedulers.TrialScheduler`` subclass, with keyword ``options``.

    It acts on Ray's trials, so that a simulator cannot drive it, and it forgets its state when a run is resumed.

    Example:
        >>> import tuner
        >>> scheduler = tuner.schedulers.RayScheduler(class_path="ray.tune.schedulers:MedianStoppingRule", max_t=10)
        >>> scheduler.fidelity
        ('training_iteration', 10)
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "ray", "class_path": "ray.tune.schedulers:MedianStoppingRule", "max_t": 10}]
        }
    )

    kind: Literal["ray"] = "ray"
    """The name of this scheduler."""
    class_path: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_]\w*$")]
    """``module:Class``, or ``path/to/file.py:Class``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class, but for ``metric``, ``mode``, ``time_attr`` and ``max_t``."""
    time_attr: Annotated[str, Field(min_length=1)] = "training_iteration"
    """The reported number that counts progress; given to the class where it has an argument of this name."""
    max_t: Annotated[int, Field(ge=1)] | None = None
    """The value of ``time_attr`` at which a trial is complete, if there is one; given to the class likewise."""

    @property
    def fidelity(self) -> tuple[str, int] | None:
        return None if self.max_t is None else (self.time_attr, self.max_t)

    def needs_checkpoint_at(self, before: float, step: float) -> bool:
        """Always: what it does to a trial is not known."""
        return True

    def why_not_simulated(self) -> str:
        return "acts on trials of Ray, which a simulator has not"

    def build(self, task: SearchProblem) -> Scheduler:
        raise InputError(f"scheduler.kind: {self.class_path} {self.why_not_simulated()}")

    def build_ray(self, metric: str, mode: Mode) -> TrialScheduler:
        """The scheduler for a Ray run. Raises InputError if the class or its options are wrong."""
        scheduler_class = self._load()
        parameters = signature_of(scheduler_class, self.class_path).parameters
        ours = {"time_attr": self.time_attr, "max_t": self.max_t}
        added = {name: value for name, value in ours.items() if name in parameters and value is not None}
        try:
            with no_exit():
                scheduler = scheduler_class(**self.options, **added)
                agreed = scheduler.set_search_properties(metric, mode)
        except Exception as error:  # noqa: BLE001 - the user's class may raise anything: it is shown, not hidden
            raise InputError(
                f"{self.class_path} refuses its options: {type(error).__name__}: {text_of(error)}"
            ) from None
        if not agreed:
            raise InputError(f"{self.class_path} sets a metric or a mode itself: leave that to the objective")
        return scheduler

    def validate_space(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        try:
            parameters = signature_of(self._load(), self.class_path).parameters
        except InputError as error:
            return [(("class_path",), str(error))]
        any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        known = [name for name in parameters if name not in _ELSEWHERE]
        found: list[tuple[tuple[str, ...], str]] = []
        for name in self.options:
            if name in _ELSEWHERE:
                found.append((("options", name), f"belongs to {_ELSEWHERE[name]}: write it there"))
            elif name not in parameters and not any_name:
                guess = did_you_mean(name, known)
                found.append((("options", name), f"is not an argument of {self.class_path}; {guess}"))
        if found:
            return found
        try:
            self.build_ray("loss", "min")
        except InputError as error:
            return [(("options",), str(error))]
        return []

    def _load(self) -> type[TrialScheduler]:
        from ray.tune import schedulers
        from ray.tune.schedulers.hb_bohb import HyperBandForBOHB

        loaded = import_attribute(self.class_path, (Path.cwd(),))
        is_class = issubclass(type(loaded), type)  # where it is none, isinstance may raise
        if not (is_class and isinstance(loaded, type) and issubclass(loaded, schedulers.TrialScheduler)):
            raise InputError(f"{self.class_path} is not a subclass of ray.tune.schedulers.TrialScheduler")
        for unusable, ours in ((schedulers.PopulationBasedTraining, "pbt"), (HyperBandForBOHB, "bohb")):
            if issubclass(loaded, unusable):
                raise InputError(
                    f"{self.class_path} works with none of our searchers, as Ray's {unusable.__name__} does not: "
                    f"use scheduler.kind {ours}"
                )
        return loaded
