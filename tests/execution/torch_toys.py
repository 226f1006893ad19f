"""Trainables that look at what a process holds of torch and of all else that an earlier trial may have changed."""

from __future__ import annotations

import os
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from ray import tune

SEEN: list[str] = []
"""Module-level state that a trial changes: it must not reach the next trial."""


def fingerprint() -> dict:
    """Everything that an earlier trial could have changed."""
    return {
        "torch": torch.randn(4).double().sum().item(),
        "numpy": float(np.random.random()),
        "python": random.random(),
        "weight": torch.nn.Linear(3, 3).weight.double().sum().item(),
        "dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "grad": torch.is_grad_enabled(),
        "environment": os.environ.get("TOY_LEFT_BEHIND", "clean"),
        "directory": str(Path.cwd()),
        "path": "/left/behind" in sys.path,
        "module": len(SEEN),
        "division": np.geterr()["divide"],
        "filters": len(warnings.filters),
        "arguments": len(sys.argv),
    }


def mess_or_measure(config: dict) -> None:
    if config["what"] == "mess":
        SEEN.append("was here")
        torch.manual_seed(99)
        np.random.seed(99)
        random.seed(99)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.set_grad_enabled(False)
        os.environ["TOY_LEFT_BEHIND"] = "dirty"
        os.chdir("/")
        sys.path.insert(0, "/left/behind")
        np.seterr(divide="ignore")
        warnings.simplefilter("ignore")
        sys.argv.append("left")
        torch.randn(10)
        tune.report({"score": 0.0, "pid_": os.getpid()})
    else:
        tune.report({"score": 1.0, "pid_": os.getpid(), **fingerprint()})


def threads(config: dict) -> None:
    tune.report({"score": 1.0, "threads": torch.get_num_threads(), "omp": os.environ["OMP_NUM_THREADS"]})
