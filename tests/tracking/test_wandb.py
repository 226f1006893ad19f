"""Weights & Biases without its server: the files that ``wandb sync`` would send."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.made_up import made_up_run, made_up_trial, report
from tuner.experiment.tracking import Tracking, WandbTracking
from tuner.tracking import backends_of
from tuner.tracking.backends.base import TrackingBackend

BLOCK = 32768


def records(file: Path) -> list[Any]:
    """Of a ``.wandb`` file: a header of 7 bytes, then records as LevelDB's log keeps them, in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    data, at, found, part = file.read_bytes(), 7, [], b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            found.append(Record.FromString(part))
            part = b""
    return found


def values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture
def mirror(tmp_path: Path) -> TrackingBackend:
    (made,) = backends_of(Tracking(wandb=WandbTracking(mode="offline")), made_up_run(tmp_path))
    return made


@pytest.mark.processes
def test_a_trial_is_one_run_through_a_resume(tmp_path: Path, mirror: TrackingBackend) -> None:
    from wandb import teardown

    results = made_up_run(tmp_path)
    trial = made_up_trial(results, 0.1, 0.2)
    made_up_trial(results, 0.3, status="stopped")
    for step in (3, 4):
        mirror.open(results)  # ends what another process left open
        mirror.send(results, results.trials)
        report(trial, step, 0.1 * step)
        mirror.send(results, [trial])
    trial.status = "completed"
    mirror.close(results)
    teardown()  # its other process writes the last of the files after it has said that a run is finished
    folders = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    told = {}
    for folder in folders:
        (file,) = folder.glob("*.wandb")
        found = records(file)
        (run,) = (record.run for record in found if record.WhichOneof("record_type") == "run")
        history = [values(record.history.item) for record in found if record.WhichOneof("record_type") == "history"]
        summary: dict[str, Any] = {}
        for record in found:
            summary |= values(record.summary.update)
        told[run.display_name] = [(row["_step"], row["acc"]) for row in history]
        assert (run.project, run.run_group) == ("made_up", "run")
        assert values(run.config.update)["epochs"] == 9
        number = int(run.display_name.rpartition(" ")[2])
        assert (summary["status"], summary["best_acc"]) == [("completed", 0.4), ("stopped", 0.3)][number - 1]
    assert told == {"run 1": [(1, 0.1), (2, 0.2), (3, 0.30000000000000004), (4, 0.4)], "run 2": [(1, 0.3)]}
