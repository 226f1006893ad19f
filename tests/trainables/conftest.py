"""A trial without Ray: `trial` calls a trainable's train() and collects what it reports."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from ray import tune

from trainables import shapes10
from tuner.execution.stand_in_session import StandInSession, in_place_of_rays


class Stopped(Exception):
    """Raised from tune.report, as a killed trial would stop after an epoch."""


class FolderCheckpoint:
    """The part of ray.tune.Checkpoint that a trainable uses to resume."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def as_directory(self) -> contextlib.AbstractContextManager[str]:
        return contextlib.nullcontext(str(self.path))


Trial = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """`trial(module, config, resume=folder, stop_after=epoch)` gives the reports in order.

    Each report is the metrics plus `folder`, where its checkpoint was copied to.
    """
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)  # a GPU sums in any order otherwise
    count = 0

    def run(module: ModuleType, config: Any, resume: Path | None = None, stop_after: int = 0) -> list[dict[str, Any]]:
        nonlocal count
        count += 1
        reports: list[dict[str, Any]] = []

        def report(metrics: dict[str, Any], checkpoint: tune.Checkpoint) -> None:
            folder = tmp_path / f"trial{count}" / str(metrics["epoch"])
            shutil.copytree(checkpoint.path, folder)
            reports.append({**metrics, "folder": folder})
            if metrics["epoch"] == stop_after:
                raise Stopped

        start = None if resume is None else FolderCheckpoint(resume)
        session = StandInSession(f"trial{count}", None, str(tmp_path), loaded_checkpoint=start)
        monkeypatch.setattr(session, "report", report)
        with in_place_of_rays(session), contextlib.suppress(Stopped):
            module.train(config)
        return reports

    return run


@pytest.fixture(scope="session")
def shapes() -> dict[str, np.ndarray]:
    """The generated data set, drawn once for all tests."""
    return shapes10.generate()


@pytest.fixture(scope="session")
def small_npz(shapes: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An .npz of 240 training and 60 test images."""
    path = tmp_path_factory.mktemp("npz") / "small.npz"
    sizes = {"x_train": 240, "y_train": 240, "x_test": 60, "y_test": 60}
    np.savez(path, **{name: shapes[name][:n] for name, n in sizes.items()})
    return path


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """As tuner gives a trial on one core; also keeps the sums' order the same in every test."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
