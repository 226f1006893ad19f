"""TensorBoard's files, read back record by record."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from tests.tracking.made_up import made_up_run, made_up_trial, report
from tuner.errors import InputError
from tuner.experiment.tracking import TensorboardTracking, Tracking
from tuner.runs.results import ResultSet
from tuner.storage.folder import RunFolder
from tuner.tracking import backends_of


@pytest.fixture
def results(tmp_path: Path) -> ResultSet:
    return made_up_run(tmp_path)


def records(folder: Path) -> list[event_pb2.Event]:
    """Of the one event file of ``folder``: length, its checksum, an event, its checksum."""
    (file,) = folder.iterdir()
    data, found = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    plain = [(event.step, value) for event in records(folder) for value in event.summary.value]
    return [(step, v.tag, round(v.simple_value, 6)) for step, v in plain if not v.metadata.plugin_data.plugin_name]


def plugin(folder: Path, what: str) -> list:
    found = []
    for value in (value for event in records(folder) for value in event.summary.value):
        if value.metadata.plugin_data.plugin_name == "hparams":
            told = plugin_hparams_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
            found += [getattr(told, what)] * told.HasField(what)
    return found


def test_a_trial_has_one_file_whatever_process_wrote_it(results: ResultSet, tmp_path: Path) -> None:
    trial = made_up_trial(results, 0.1, 0.2)
    made_up_trial(results, status="pending")
    folder = tmp_path / "run" / "tensorboard" / "trial_0001_id1"
    for more in (3, 4):
        (mirror,) = backends_of(Tracking(tensorboard=TensorboardTracking()), results)
        mirror.open(results)
        mirror.send(results, results.trials)
        report(trial, more, 0.1 * more)
        mirror.send(results, [trial])
        expected = [(r.step, name, round(v, 6)) for r in trial.reports for name, v in r.metrics.items()]
        assert scalars(folder) == expected
        if more == 3:
            mirror.open(results)  # closes its files, as the end of a process does
    report(trial, 3, 0.35)
    mirror.send(results, [trial])
    assert (3, "acc", 0.35) in scalars(folder)
    assert len(scalars(folder)) == 8
    assert [child.name for child in folder.parent.iterdir()] == [folder.name]
    mirror.open(results)


@pytest.mark.parametrize(("status", "told"), [("completed", 1), ("stopped", 1), ("failed", 2), ("paused", 0)])
def test_the_hparams_plugin_has_configuration_and_status(
    results: ResultSet, tmp_path: Path, status: str, told: int
) -> None:
    made_up_trial(results, 0.1, 0.2, status=status)
    (mirror,) = backends_of(Tracking(tensorboard=TensorboardTracking()), results)
    mirror.open(results)
    mirror.send(results, results.trials)
    mirror.close(results)
    mirror.close(results)
    folder = tmp_path / "run" / "tensorboard" / "trial_0001_id1"
    (begins,), (ends,) = (plugin(folder, what) for what in ("session_start_info", "session_end_info"))
    assert plugin(folder, "experiment") == []
    assert {name: value.number_value for name, value in begins.hparams.items()} == {"lr": 0.1, "model.width": 8.0}
    assert ends.status == told


def test_an_object_store_is_refused(results: ResultSet) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    folder = RunFolder(SubTreeFileSystem("/tmp", LocalFileSystem()), "x", "s3://x")
    with pytest.raises(InputError, match=r"tracking.tensorboard: s3://x is not a local folder"):
        backends_of(Tracking(tensorboard=TensorboardTracking()), ResultSet(folder, results.spec, {}))
