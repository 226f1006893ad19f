"""What one trial needs of the cluster."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tuner.spec.model import Model, OptionError

ACCELERATOR = "accelerator_type:"
"""Prefix of the resource by which Ray marks a node's kind of GPU."""

ANY_AMOUNT = 0.001
"""How much of a resource Ray's own options ask for that only says where something may run; a node has 1 of it."""

SHARE = "share"
"""In place of a number: as many trials at once as are measured to be the fastest together."""

LEAST = 0.0001
"""Of a resource that Ray counts."""

Amount = Annotated[float, Field(ge=LEAST, allow_inf_nan=False)]
"""Of a resource: Ray counts in ten-thousandths, and takes less for nothing."""


class Resources(Model):
    """What one trial needs.

    Example:
        >>> import tuner
        >>> tuner.Resources(cpu=4, gpu=0.25).request(has_gpus=True)
        {'CPU': 4.0, 'GPU': 0.25}
    """

    cpu: Amount | Literal["share"] = 1.0
    """CPU cores; a trial's libraries use as many threads (at least one). ``share``: measured before the search begins,
    so that all trials of a machine together train the fastest."""
    gpu: Amount | Literal[0, "auto", "share"] = "auto"
    """GPUs: 0.25 lets four trials share one; ``auto`` is 1 where the cluster has a GPU and 0 elsewhere. ``share``: as
    ``auto``, and if there is a GPU, its part is measured before the search begins."""

    @field_validator("gpu")
    @classmethod
    def _whole_above_one(cls, gpu: float | str) -> float | str:
        if isinstance(gpu, (int, float)) and gpu > 1 and gpu != int(gpu):
            raise ValueError(
                f"{gpu:g} GPUs: Ray shares one GPU between trials, but a trial gets only whole ones above 1"
            )
        return gpu

    accelerator: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")] | None = None
    """The kind of GPU, as Ray calls it: H100, A100, L4 (its resources ``accelerator_type:…``); absent: any."""
    memory_gib: Amount | None = None
    """Host memory that the scheduler sets aside for a trial, in GiB."""
    workers: Annotated[int, Field(ge=1)] = 1
    """Processes of one trial, each with all of the resources above, which train one model as a distributed data
    parallel group: the trainable must form it (`tuner.training.distributed`)."""
    strategy: Literal["pack", "spread"] = "pack"
    """The placement of ``workers``: on as few nodes as possible, or on as many."""
    custom: dict[str, Amount] = Field(default_factory=dict)
    """Amounts of Ray's custom resources."""
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    """Trials that run at once at most; absent: as many as fit."""
    fresh_process: bool = False
    """Start a new process for every trial instead of handing a cleaned one over (slower: torch is imported again)."""
    mps: bool = False
    """Start NVIDIA's Multi-Process Service on each node: trials that share a GPU compute on it at the same time, and
    not in turn. Each may use its part of the GPU's memory. A kernel that fails ends all trials on its GPU."""

    fused: Annotated[int, Field(ge=1, le=64)] = 1
    """Trials that train as one model, by the trainable's ``train_many``, if their configurations have one shape. They
    share the resources above. To searcher and scheduler they are separate trials."""

    @model_validator(mode="after")
    def _agrees(self) -> Resources:
        if self.accelerator and self.gpu == 0:
            raise OptionError("accelerator", f"{self.accelerator} is a kind of GPU, and gpu is 0: ask for gpu above 0")
        if "strategy" in self.model_fields_set and self.workers == 1 and self.strategy == "spread":
            raise OptionError("strategy", "spread places the workers of one trial, and workers is 1")
        if self.workers > 1 and SHARE in (self.cpu, self.gpu):
            key = "cpu" if self.cpu == SHARE else "gpu"
            raise OptionError(key, "share measures trials of one process, and workers is more: give a number")
        if self.mps and self.gpu != SHARE and not (isinstance(self.gpu, float) and self.gpu < 1):
            given = self.gpu if self.gpu == "auto" else f"{self.gpu:g}"
            raise OptionError("mps", f"it serves trials that share a GPU, and gpu is {given}: give a part, or share")
        if self.mps and self.workers > 1:
            raise OptionError("mps", f"it serves trials of one process, and workers is {self.workers}")
        if self.fused > 1:
            self._check_fused()
        return self

    def _check_fused(self) -> None:
        if self.workers > 1:
            raise OptionError("fused", f"it is for trials of one process, and workers is {self.workers}: leave out one")
        if SHARE in (self.cpu, self.gpu):
            key = "cpu" if self.cpu == SHARE else "gpu"
            raise OptionError(key, "share measures trials that train by themselves, and fused is more: give a number")
        if self.mps:
            raise OptionError(
                "mps", "it serves trials in processes of their own, and fused ones share one: leave out one"
            )
        if isinstance(self.gpu, float) and self.gpu > 1:
            raise OptionError("gpu", f"fused trials train on one GPU, and gpu is {self.gpu:g}: give 1 or a part of one")

    @property
    def cpus(self) -> float:
        """Cores of each worker; 1 until ``share`` is measured."""
        return 1.0 if self.cpu == SHARE else float(self.cpu)

    def request(self, has_gpus: bool) -> dict[str, float]:
        """What one worker needs, by Ray's names; ``has_gpus``: what gpu auto means.

        Until it is measured, ``share`` is 1 CPU, and as ``auto``. Of ``fused`` trials each needs its part.
        """
        gpu = float(has_gpus) if self.gpu in ("auto", SHARE) else float(self.gpu)
        request = {"CPU": self.cpus, **self.custom}
        if gpu:
            request["GPU"] = gpu
        if self.memory_gib:
            request["memory"] = self.memory_gib * 2**30
        if self.fused > 1:
            request = {name: _part(amount, self.fused) for name, amount in request.items()}
        if self.accelerator:
            request[ACCELERATOR + self.accelerator] = ANY_AMOUNT
        return request


def _part(amount: float, count: int) -> float:
    """One of ``count`` parts that together are not more than ``amount``, as Ray counts."""
    return max(math.floor(amount / count / LEAST + 1e-9) * LEAST, LEAST)
