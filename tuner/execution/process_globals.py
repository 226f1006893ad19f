"""What a process has once and a trial can change: environment, directories, warnings, logging, numpy's and torch's
switches. Read, and put back.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class ProcessGlobals:
    """As they are when this object is made."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: str = field(default_factory=os.getcwd)
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    arguments: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    filters: list[Any] = field(default_factory=lambda: list(warnings.filters))
    log_level: int = field(default_factory=lambda: logging.getLogger().level)
    log_handlers: tuple[logging.Handler, ...] = field(default_factory=lambda: tuple(logging.getLogger().handlers))
    division: dict[str, Any] = field(default_factory=lambda: dict(np.geterr()))

    def put_back(self) -> None:
        """Sets them all."""
        for name in set(os.environ) - set(self.environment):
            del os.environ[name]
        os.environ.update(self.environment)
        os.chdir(self.directory)
        sys.path[:] = self.path
        sys.argv[:] = self.arguments
        warnings.filters[:] = self.filters  # type: ignore[index]
        root = logging.getLogger()
        root.setLevel(self.log_level)
        root.handlers[:] = self.log_handlers
        np.seterr(**self.division)


TORCH_START = {
    "dtype": "torch.float32",
    "device": "cpu",
    "deterministic": (False, False),
    "anomaly": (False, True),
    "flush_denormal": False,
    "precision": "highest",
    "cudnn": (True, False, False, True),
    "matmul": False,
    "grad": True,
}
"""The switches in a process that has just imported torch, but for ``threads`` (a test compares them)."""


def torch_switches() -> dict[str, Any]:
    """As they are. Raises RuntimeError if torch itself calls them a mixture that it cannot tell."""
    torch: Any = sys.modules["torch"]
    cudnn = torch.backends.cudnn
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "flush_denormal": bool(torch.full((), 1e-310, dtype=torch.float64, device="cpu") * 1 == 0),
        "precision": torch.get_float32_matmul_precision(),
        "cudnn": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
        "matmul": torch.backends.cuda.matmul.allow_tf32,
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


def set_torch_switches(switches: dict[str, Any]) -> None:
    """Sets what `torch_switches` gives."""
    torch: Any = sys.modules["torch"]
    torch.set_default_dtype(getattr(torch, switches["dtype"].removeprefix("torch.")))
    torch.set_default_device(None if switches["device"] == "cpu" else switches["device"])
    enabled, warn_only = switches["deterministic"]
    if enabled or torch.are_deterministic_algorithms_enabled():  # the setter imports torch's compiler, half a second
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    enabled, check_nan = switches["anomaly"]
    torch.autograd.set_detect_anomaly(enabled, check_nan=check_nan)
    torch.set_flush_denormal(switches["flush_denormal"])
    torch.set_float32_matmul_precision(switches["precision"])
    cudnn = torch.backends.cudnn
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = switches["cudnn"]
    matmul = torch.backends.cuda.matmul
    if matmul.allow_tf32 != switches["matmul"]:  # else it follows from the precision, and torch refuses a mixture
        matmul.allow_tf32 = switches["matmul"]
    torch.set_grad_enabled(switches["grad"])
    torch.set_num_threads(switches["threads"])
