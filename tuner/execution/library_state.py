"""Global state of other libraries, which a process would hand on from one trial to the next.

Each reset is for a library that keeps one object a process in its own module. A library is reset only if the trials
have imported it. MLflow needs none: its active run belongs to the thread, and each trial has its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType


def reset_libraries() -> None:
    """Brings the libraries that are loaded back to how a new process has them."""
    for name, reset in _RESETS.items():
        if name in sys.modules:
            reset(sys.modules[name])


def _reset_accelerate(state: ModuleType) -> None:
    """Its first `Accelerator` decides precision and devices of the process; another wish raises ValueError."""
    state.AcceleratorState._reset_state(reset_partial_state=True)
    state.GradientState._reset_state()


def _reset_wandb(wandb: ModuleType) -> None:
    """A second ``wandb.init`` returns the run of the first, with its configuration."""
    if wandb.run is not None:
        wandb.finish(quiet=True)


_RESETS: dict[str, Callable[[ModuleType], None]] = {"accelerate.state": _reset_accelerate, "wandb": _reset_wandb}
