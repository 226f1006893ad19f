"""Records a run in MLflow: one parent run for the search, one nested run for each trial, written when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.failure import Failure
from tuner.report.terminal import config_lines
from tuner.results import Report, ResultSet, Trial
from tuner.storage import RunFolder

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from tuner.spec.experiment import MlflowTracking

_STATUS = {"completed": "FINISHED", "stopped": "KILLED", "paused": "KILLED", "failed": "FAILED"}
_BATCH = 1000
"""Metrics that MLflow takes in one call."""


def default_uri(storage: str) -> str:
    """The database beside the run folders. Raises InputError where there is no local folder for one."""
    folder = RunFolder.at(storage)
    if not folder.is_local:
        raise InputError(f"tracking.mlflow.uri is required with --storage {storage}: a database needs a local folder")
    folder.local_path.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder.local_path}/mlflow.db"


class MlflowTracker:
    """A listener of one run."""

    def __init__(self, options: MlflowTracking, name: str, storage: str) -> None:
        self._uri = options.uri or default_uri(storage)
        self._experiment = options.experiment or name
        self._written: set[str] = set()

    def started(self, results: ResultSet) -> None:
        """Raises EnvironmentFailure where the server or database cannot be used."""
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        self._results = results
        try:
            self._client: MlflowClient = MlflowClient(self._uri)
            known = self._client.get_experiment_by_name(self._experiment)
            self._id = known.experiment_id if known else self._client.create_experiment(self._experiment)
            self._parent = self._client.create_run(self._id, run_name=results.name).info.run_id
        except MlflowException as error:
            raise EnvironmentFailure(f"MLflow at {self._uri} cannot be used: {str(error).splitlines()[0]}") from None
        self._log(self._parent, [], results.spec["params"], {"notices": "; ".join(results.notices)})

    def reported(self, trial: Trial, report: Report) -> None: ...

    def retried(self, trial: Trial, failure: Failure) -> None: ...

    def tick(self) -> None: ...

    def ended(self, trial: Trial) -> None:
        self._written.add(trial.id)
        tags = {"mlflow.parentRunId": self._parent, "trial": trial.id, "status": trial.status, "reason": trial.reason}
        run = self._client.create_run(self._id, run_name=f"trial {trial.number}", tags=tags).info.run_id
        metrics = [(name, value, report) for report in trial.reports for name, value in report.metrics.items()]
        numbers = [(name, float(value), r) for name, value, r in metrics if isinstance(value, (bool, int, float))]
        self._log(run, numbers, trial.config, {})
        self._client.set_terminated(run, _STATUS[trial.status])

    def finished(self, results: ResultSet) -> None:
        for trial in results.trials:
            if trial.id not in self._written and trial.reports:
                self.ended(trial)
        front = [(trial, trial.best) for trial in results.front if trial.best]
        if front:
            bests: list[tuple[str, float, Report]] = []
            for i, objective in enumerate(results.objectives):
                value, report = max(
                    ((results.point(report)[i], report) for _, report in front), key=lambda pair: pair[0]
                )
                bests.append((f"best_{objective.metric}", objective.sign * value, report))
            tag = "pareto_front" if results.has_front else "best_trial"
            self._log(self._parent, bests, {}, {tag: ", ".join(trial.id for trial, _ in front)})
        self._client.set_terminated(self._parent, "FINISHED" if front else "FAILED")

    def _log(
        self, run: str, metrics: list[tuple[str, float, Report]], params: dict[str, Any], tags: dict[str, str]
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        entries = [Metric(name, value, int(1000 * r.timestamp), r.step) for name, value, r in metrics]
        pairs = [Param(*line.split(" = ", 1)) for line in config_lines(params)]
        self._client.log_batch(run, params=pairs, tags=[RunTag(name, value) for name, value in tags.items()])
        for start in range(0, len(entries), _BATCH):
            self._client.log_batch(run, metrics=entries[start : start + _BATCH])
