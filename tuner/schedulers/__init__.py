"""Schedulers, one file each; the union below is the registry of the built-in ones.

Your own scheduler derives from `SchedulerSpec`, and builds a `Scheduler`; see docs/how-to/add-a-scheduler.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, SerializeAsAny, WrapValidator

from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, SchedulerSpec, Stop, StoppingSpec, TimedSpec
from tuner.schedulers.bohb import Bohb
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.hyperband import HyperBand
from tuner.schedulers.median import Median
from tuner.schedulers.population.pb2 import Pb2
from tuner.schedulers.population.pbt import Pbt
from tuner.schedulers.ray import RayScheduler
from tuner.spec.algorithm import as_built, spec_as_mapping
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

__all__ = [
    "AnyScheduler",
    "Asha",
    "Bohb",
    "Configuration",
    "Decision",
    "Exploit",
    "Fifo",
    "HyperBand",
    "Median",
    "Pb2",
    "Pbt",
    "RayScheduler",
    "Resume",
    "Scheduler",
    "SchedulerSpec",
    "SearchProblem",
    "Space",
    "Stop",
    "StoppingSpec",
    "TimedSpec",
    "spec_as_mapping",
]

if TYPE_CHECKING:
    AnyScheduler = SchedulerSpec
else:
    AnyScheduler = Annotated[
        Asha | Bohb | Fifo | HyperBand | Median | Pb2 | Pbt | RayScheduler,
        Field(discriminator="kind"),
        WrapValidator(as_built),  # a third party's was validated by its own class
        SerializeAsAny(),
    ]
