"""Schedulers, one file each; the union below is the registry."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.schedulers.asha import Asha
from tuner.schedulers.bohb import Bohb
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.hyperband import HyperBand
from tuner.schedulers.median import Median
from tuner.schedulers.pb2 import Pb2
from tuner.schedulers.pbt import Pbt
from tuner.schedulers.ray import RayScheduler

AnyScheduler = Annotated[
    Asha | Bohb | Fifo | HyperBand | Median | Pb2 | Pbt | RayScheduler, Field(discriminator="kind")
]
