"""TensorBoard's files: a folder for each trial, with its metrics and, for the hparams plugin, its configuration."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat
from tuner.tracking.backends.base import TrackingBackend, digest, numbers, step_of

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

FOLDER = "tensorboard"

_STATUS = {"completed": "STATUS_SUCCESS", "stopped": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}


@dataclass
class _Written:
    writer: EventsWriter
    reports: int
    digest: str
    ended: bool = False


class TensorboardBackend(TrackingBackend):
    """Event files cannot be read back cheaply nor altered: what another process wrote of a trial is written anew."""

    def __init__(self, results: ResultSet) -> None:
        if not results.folder.is_local:
            raise InputError(f"tracking.tensorboard: {results.folder.location} is not a local folder, which it needs")
        self.name = f"TensorBoard's files in {results.folder.location}/{FOLDER}"
        self._root = results.folder / FOLDER
        self._written: dict[str, _Written] = {}

    def open(self, results: ResultSet) -> None:
        for written in self._written.values():
            written.writer.close()
        self._written = {}

    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        with self._writing():
            for trial in trials:
                self._send(results, trial, trial.has_ended)

    def close(self, results: ResultSet) -> None:
        with self._writing():
            for trial in results.trials:
                self._send(results, trial, ends=True)

    def _send(self, results: ResultSet, trial: Trial, ends: bool) -> None:
        """What the trial's file lacks. ``ends``: no more will come, unless it is reopened."""
        from tensorboardX.proto.summary_pb2 import Summary

        written = self._written.get(trial.id)
        if not trial.reports or (written and written.ended and written.digest == digest(trial.reports)):
            return
        if written is None or written.ended or written.digest != digest(trial.reports[: written.reports]):
            written = self._begin(results, trial, written)
        for report in trial.reports[written.reports :]:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers(report).items()]
            self._write(written, Summary(value=values), report.timestamp, step_of(results, report))
        written.reports, written.digest = len(trial.reports), digest(trial.reports)
        if ends:
            self._end(results, trial, written)
        else:
            written.writer.flush()

    def _begin(self, results: ResultSet, trial: Trial, before: _Written | None) -> _Written:
        from tensorboardX.event_file_writer import EventsWriter

        if before is not None:
            before.writer.close()
        name = f"trial_{trial.number:04}_{trial.id}"
        self._root.delete(name)
        folder = (self._root / name).local_path
        folder.mkdir(parents=True)
        # not its SummaryWriter, whose thread leaves what was flushed unwritten for two minutes
        written = self._written[trial.id] = _Written(EventsWriter(str(folder / "events")), 0, digest(()))
        self._write(written, self._hparams(results, trial, "STATUS_RUNNING")[0], trial.reports[0].timestamp)
        return written

    def _end(self, results: ResultSet, trial: Trial, written: _Written) -> None:
        status = _STATUS.get(trial.status, "STATUS_UNKNOWN")
        self._write(written, self._hparams(results, trial, status)[1], trial.reports[-1].timestamp)
        written.writer.close()
        written.ended = True

    @staticmethod
    def _write(written: _Written, summary: Any, at: float, step: int = 0) -> None:
        from tensorboardX.proto.event_pb2 import Event

        written.writer.write_event(Event(wall_time=at, step=step, summary=summary))

    def _hparams(self, results: ResultSet, trial: Trial, status: str) -> tuple[Any, Any]:
        """The plugin's summaries of the trial's beginning and of its end.

        None of the experiment: without it the plugin shows the parameters of all trials, conditional ones too.
        """
        from tensorboardX.proto import api_pb2, plugin_hparams_pb2
        from tensorboardX.summary import hparams

        values = {name: value if isinstance(value, (bool, int, float, str)) else json.dumps(value, default=repr)
                  for name, value in flat(trial.config)}  # fmt: skip
        metrics = {objective.metric: 0.0 for objective in results.objectives}
        _, begins, ends = hparams(values, metrics)
        told = plugin_hparams_pb2.HParamsPluginData.FromString(ends.value[0].metadata.plugin_data.content)
        told.session_end_info.status = api_pb2.Status.Value(status)
        ends.value[0].metadata.plugin_data.content = told.SerializeToString()
        return begins, ends

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EnvironmentFailure(f"{self.name} cannot be written: {error}") from error
