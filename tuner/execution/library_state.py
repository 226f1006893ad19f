"""Global state of other libraries, which a process would hand on from one trial to the next.

Each reset is for a library that keeps one object a process in its own module. A library is reset only if the trials
have imported it. MLflow needs none: its active run belongs to the thread, and each trial has its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def reset_libraries() -> None:
    """Brings the libraries that are loaded back to how a new process has them."""
    for name, reset in _RESETS.items():
        if name in sys.modules:
            reset(sys.modules[name])


def library_in_use() -> str:
    """The library that is in use right after the import of the user's modules, if its reset would end that; else ""."""
    accelerate, hydra = sys.modules.get("accelerate.state"), sys.modules.get("hydra.core.global_hydra")
    wandb = sys.modules.get("wandb")
    if accelerate is not None and accelerate.PartialState._shared_state:
        return "accelerate"
    if hydra is not None and hydra.GlobalHydra.instance().is_initialized():
        return "hydra"
    return "wandb" if wandb is not None and getattr(wandb, "run", None) is not None else ""


def _reset_accelerate(state: ModuleType) -> None:
    """Its first `Accelerator` decides precision and devices of the process; another wish raises ValueError."""
    state.AcceleratorState._reset_state(reset_partial_state=True)
    state.GradientState._reset_state()


def _reset_wandb(wandb: ModuleType) -> None:
    """A second ``wandb.init`` returns the run of the first, with its configuration."""
    if wandb.run is not None:
        wandb.finish(quiet=True)


def _reset_hydra(hydra: ModuleType) -> None:
    """A second ``hydra.initialize`` raises ValueError, and `HydraConfig` would be that of an earlier trial."""
    hydra.GlobalHydra.instance().clear()
    sys.modules["hydra.core.hydra_config"].HydraConfig.instance().cfg = None


def _reset_omegaconf(omegaconf: ModuleType) -> None:
    """A resolver may be registered once; the user's module, which does it, is imported anew for each trial.

    Those that are there stay, as some are of installed packages, which are not imported anew.
    """
    register = getattr(
        omegaconf.OmegaConf.register_new_resolver, "__wrapped__", omegaconf.OmegaConf.register_new_resolver
    )
    earlier = set(omegaconf.basecontainer.BaseContainer._resolvers)

    @functools.wraps(register)
    def registering(name: str, resolver: Any, *, replace: bool = False, **options: Any) -> None:
        register(name, resolver, replace=replace or name in earlier, **options)
        earlier.discard(name)

    omegaconf.OmegaConf.register_new_resolver = staticmethod(registering)


_RESETS: dict[str, Callable[[ModuleType], None]] = {
    "accelerate.state": _reset_accelerate,
    "hydra.core.global_hydra": _reset_hydra,
    "omegaconf": _reset_omegaconf,
    "wandb": _reset_wandb,
}
