"""The checkpoint file: what is in it, and what is refused."""

import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.training import checkpointing
from tuner.training.checkpointing import CheckpointError


def parts() -> dict[str, Any]:
    model = nn.Linear(3, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)}


def saved(folder: Path, **more: Any) -> Path:
    return checkpointing.save(folder, epoch=1, metrics={"loss": 0.5}, **parts(), **more)


def test_one_file_with_the_promised_keys(tmp_path: Path) -> None:
    assert saved(tmp_path) == tmp_path / "checkpoint.pt"
    assert os.listdir(tmp_path) == ["checkpoint.pt"]
    content = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    keys = {"model", "optimizer", "schedule", "scaler", "epoch", "rng", "metrics", "others"}
    assert content.keys() == keys
    assert content["model"].keys() == {"weight", "bias"}
    assert content["metrics"] == {"loss": 0.5}


def test_every_generator_continues_where_it_was(tmp_path: Path) -> None:
    own = {"own": torch.Generator().manual_seed(5)}
    random.gauss(0, 1)  # leaves a second value for the next call, part of the state
    np.random.standard_normal()
    checkpointing.save(tmp_path, epoch=1, metrics={}, generators=own, **parts())

    def draw() -> list[float]:
        return [
            random.gauss(0, 1),
            random.random(),
            float(np.random.standard_normal()),
            float(np.random.random()),
            torch.rand(()).item(),
            torch.rand((), generator=own["own"]).item(),
        ]

    expected = draw()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    own["own"].manual_seed(1)
    assert draw() != expected
    assert checkpointing.restore(tmp_path, generators=own, **parts()) == 1
    assert draw() == expected


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "owned"),))

    torch.save({"model": Evil()}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="refused"):
        checkpointing.read(tmp_path)
    assert not (tmp_path / "owned").exists()


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        record = next(i for i in archive.infolist() if "/data/" in i.filename)
        with archive.open(record) as file:
            first = file.read()
    content = bytearray(path.read_bytes())
    content[content.index(first)] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        checkpointing.read(tmp_path)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_cut_file_is_noticed(tmp_path: Path, keep: int) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="cut short"):
        checkpointing.read(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: no such"):
        checkpointing.read(tmp_path)


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    torch.save({"weights": torch.zeros(1)}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="no key 'model'"):
        checkpointing.read(tmp_path)


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved(tmp_path).read_bytes()

    def full(content: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        saved(tmp_path)
    assert os.listdir(tmp_path) == ["checkpoint.pt"]
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_schedule_and_scaler_come_back(tmp_path: Path) -> None:
    class Counter:
        def __init__(self, n: int) -> None:
            self.n = n

        def state_dict(self) -> dict[str, Any]:
            return {"n": self.n}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.n = state["n"]

    saved(tmp_path, schedule=Counter(3), scaler=Counter(4))
    schedule, scaler = Counter(0), Counter(0)
    checkpointing.restore(tmp_path, schedule=schedule, scaler=scaler, **parts())
    assert (schedule.n, scaler.n) == (3, 4)


@pytest.mark.parametrize("durable", [True, False])
def test_only_a_durable_checkpoint_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpointing.save(tmp_path, model=model, optimizer=optimizer, epoch=1, metrics={}, durable=durable)
    assert len(synced) == (2 if durable else 0)  # the file and its folder
    assert checkpointing.read(tmp_path)["epoch"] == 1
