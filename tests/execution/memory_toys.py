"""Trainables that need memory, hold it, or give it back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tests.execution.toys import report, resumed_step

MIB = 2**20


def block(mib: int) -> np.ndarray:
    """So many MiB of which every page is touched."""
    return np.ones(mib * MIB, dtype=np.uint8)


def needs(config: dict) -> None:
    """Ten epochs; ``what`` says how they use memory."""
    what, kept = config["what"], []
    for epoch in range(resumed_step() + 1, 11):
        mark = Path(f"{config['mark']} {what}")
        if "fails" in what and epoch == 3 and not mark.exists():
            mark.touch()
            os._exit(1)
        made = block(300 if "peaks" in what and epoch == 1 else 32)
        if "keeps" in what:
            kept.append(made)
        del made
        report({"epoch": epoch, "score": float(epoch), "pid_": os.getpid()}, epoch)
