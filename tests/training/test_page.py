"""The page of the training kit: its training runs, continues to the bit, and its experiment is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune

from tests.docs.how_to import write_files
from tests.trainables.conftest import FolderCheckpoint, Stopped
from tuner import validate
from tuner.trainable.trainable import load_trainable

CONFIG = {
    **{"lr": 0.01, "weight_decay": 0.01, "max_norm": 1.0, "schedule": "one_cycle", "sampler": "balanced"},
    **{"epochs": 3, "precision": "bf16"},
}


def test_the_example_trains_and_continues_to_the_bit(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_files("use-the-training-kit.md", user_folder) == ["digits_kit.py", "digits_kit.yaml"]
    assert validate("digits_kit.yaml").trials == 12
    train = load_trainable("digits_kit.py:train", (user_folder,)).train

    def trial(folder: Path, start: Path | None = None, last: int = 99) -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = []

        def report(metrics: dict[str, Any], checkpoint: tune.Checkpoint) -> None:
            reports.append(metrics)
            checkpoint.to_directory(str(folder / str(metrics["epoch"])))
            if metrics["epoch"] == last:
                raise Stopped

        monkeypatch.setattr(tune, "report", report)
        monkeypatch.setattr(tune, "get_checkpoint", lambda: start and FolderCheckpoint(start))
        try:
            train(dict(CONFIG))
        except Stopped:
            assert last < 99
        return reports

    whole = trial(user_folder / "whole")
    assert [report["epoch"] for report in whole] == [1, 2, 3]
    assert whole[-1]["val_f1"] > 0.7
    assert trial(user_folder / "stopped", last=1) == whole[:1]
    assert trial(user_folder / "continued", start=user_folder / "stopped" / "1") == whole[1:]
