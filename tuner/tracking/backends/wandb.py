"""Weights & Biases: one run for each trial, all of a search in one group.

A run's id is made of the run's `identity` and the trial's, so that a resumed search continues with the same runs. What
W&B holds of a step it keeps: where a trial went back to a checkpoint and its steps came out otherwise, the first stay.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import merge
from tuner.tracking.backends.base import TrackingBackend, identity, numbers

if TYPE_CHECKING:
    from tuner.experiment.tracking import WandbTracking

FOLDER = "wandb"


class WandbBackend(TrackingBackend):
    """See the module."""

    def __init__(self, options: WandbTracking, results: ResultSet) -> None:
        if not results.folder.is_local:
            raise InputError(f"tracking.wandb: {results.folder.location} is not a local folder, which it needs")
        self._options = options
        self._project = options.project or results.spec.get("name", results.name)
        self.name = f"Weights & Biases, project {self._project}"
        self._open: dict[str, Any] = {}
        """The W&B run of each trial that runs."""
        self._sent: dict[str, int] = {}
        """Of each trial: the step of the latest report that was sent."""

    def open(self, results: ResultSet) -> None:
        with self._reaching():
            for run in self._open.values():
                run.finish()
        self._open, self._sent = {}, {}

    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        with self._reaching():
            for trial in trials:
                self._send(results, trial, trial.has_ended)

    def close(self, results: ResultSet) -> None:
        with self._reaching():
            for trial in results.trials:
                self._send(results, trial, ends=True)

    def _send(self, results: ResultSet, trial: Trial, ends: bool) -> None:
        sent = self._sent.get(trial.id, 0)
        if not trial.reports or (sent == trial.steps and trial.id not in self._open):
            return
        run = self._open.get(trial.id) or self._begin(results, trial)
        for report in trial.reports:
            if report.step > max(sent, run.step - 1):  # what W&B holds is not taken again
                run.log({**numbers(report), "seconds": report.seconds}, step=report.step)
        self._sent[trial.id] = trial.steps
        if ends:
            run.summary.update({"status": trial.status, "why": trial.why, "rung": trial.rung})
            if trial.best:
                best = results.values(trial.best).items()
                run.summary.update({f"best_{name}": value for name, value in best} | {"best_step": trial.best.step})
            run.finish(exit_code=int(trial.status == "failed"))
            del self._open[trial.id]

    def _begin(self, results: ResultSet, trial: Trial) -> Any:
        import wandb

        name = hashlib.sha256(f"{identity(results)} {trial.id}".encode()).hexdigest()[:16]
        root = results.folder.local_path / FOLDER
        if self._options.mode == "offline" and root.is_dir():  # a file of another process would be a second run
            for folder in root.glob(f"offline-run-*-{name}"):
                (results.folder / FOLDER).delete(folder.name)
        self._open[trial.id] = wandb.init(
            id=name,
            name=f"{results.name} {trial.number}",
            project=self._project,
            entity=self._options.entity,
            group=results.name,
            config=merge(results.section("params"), trial.first_config),
            mode=self._options.mode,
            dir=str(results.folder.local_path),
            resume="allow" if self._options.mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        return self._open[trial.id]

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        from wandb.errors import Error

        try:
            yield
        except (Error, OSError) as error:
            raise EnvironmentFailure(f"{self.name}: {error}") from error
