"""Schedulers, one file each; the union below is the registry."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.schedulers.asha import Asha
from tuner.schedulers.fifo import Fifo

AnyScheduler = Annotated[Asha | Fifo, Field(discriminator="kind")]
