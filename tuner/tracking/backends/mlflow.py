"""A run in MLflow: one parent run for the search, one nested run for each trial.

Ray's ``MLflowLoggerCallback`` is not used. It sends one metric a call from the loop that drives the search
(39 ms each, docs/benchmarks/constants.md), has no parent run, and makes every run anew when a search is resumed.

Tags in MLflow describe its contents. ``tuner.run`` (`identity`) and ``tuner.trial`` identify a run for ever.
``tuner.sent`` is the number of its reports, with their `digest`. So nothing is sent twice, whichever process was killed
at whatever time, and any finished run can be sent to any server.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import tempfile
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.redaction import redacted, with_password
from tuner.runs.consumption import PREFIX, Consumption
from tuner.runs.results import BEST, EXPERIMENT, REPORT, ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat, merge
from tuner.spec.values import metrics_line
from tuner.storage.folder import RunFolder
from tuner.tracking.backends.base import TrackingBackend, digest, identity, is_over, numbers, step_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

    from tuner.experiment.tracking import MlflowTracking

RUN_TAG, TRIAL_TAG, SENT_TAG = "tuner.run", "tuner.trial", "tuner.sent"
BEST_TAG, ARTIFACTS_TAG = "tuner.best", "tuner.artifacts"
DATABASE = "mlflow.db"

_RUNNING = {"running": "RUNNING", "paused": "SCHEDULED", "pending": "SCHEDULED"}
_ENDED = {"completed": "FINISHED", "failed": "FAILED"}
"""The statuses of a trial whose search is over; all others are ``KILLED``."""

_METRICS, _PARAMS = 800, 100
"""How many go into one call; MLflow takes 100 parameters, and 1,000 of all together with at most 100 tags."""

_LONGEST_PARAM, _LONGEST_TAG = 6000, 5000


def default_uri(storage: RunFolder) -> str:
    """The database beside the run folders. Raises InputError if there is no local folder for one."""
    if not storage.is_local:
        raise InputError(
            f"tracking.mlflow.uri is required with --storage {storage.location}: a database needs a local folder"
        )
    return f"sqlite:///{storage.local_path}/{DATABASE}"


@dataclass
class _Held:
    """What MLflow holds of a trial."""

    run: str
    started: float
    """Seconds since 1970."""
    reports: int = 0
    digest: str = digest(())
    status: str = "RUNNING"
    params: set[str] = field(default_factory=set)
    """Their names: MLflow lets no value be changed."""
    tags: dict[str, str] = field(default_factory=dict)


class MlflowBackend(TrackingBackend):
    """See the module."""

    def __init__(self, options: MlflowTracking, results: ResultSet) -> None:
        self.uri = options.uri or default_uri(results.folder.parent)
        self.name = f"MLflow at {redacted(self.uri, whole=True)}"
        self._experiment = options.experiment or results.spec.get("name", results.name)
        self._register_as = options.register_as
        self._storage = results.folder.parent
        self._held: dict[str, _Held] = {}

    def open(self, results: ResultSet) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import ViewType

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of tables that it makes
        with self._reaching():
            with self._alone():
                self._client: MlflowClient = MlflowClient(with_password(self.uri))
                self._id = self._experiment_id()
            known, token = [], None
            while token != "":
                of_run = f"tags.`{RUN_TAG}` = '{identity(results)}'"
                page = self._client.search_runs(
                    [self._id], of_run, ViewType.ACTIVE_ONLY, max_results=1000, page_token=token
                )
                known += page
                token = page.token or ""
            parents = [run for run in known if TRIAL_TAG not in run.data.tags]
            self._held = {run.data.tags[TRIAL_TAG]: _held(run) for run in known if TRIAL_TAG in run.data.tags}
            self._parent = _held(parents[0]) if parents else self._new_parent(results)

    def _alone(self) -> contextlib.AbstractContextManager[object]:
        """Within: no other search makes the tables of the same file, or the same experiment."""
        if not self.uri.startswith("sqlite:///"):
            return contextlib.nullcontext()
        from filelock import FileLock

        return FileLock(self.uri.removeprefix("sqlite:///") + ".lock")

    def _experiment_id(self) -> str:
        known = self._client.get_experiment_by_name(self._experiment)
        if known is None:
            artifacts = None
            if not self.uri.startswith(("http://", "https://")) and self._storage.is_local:
                artifacts = (self._storage.local_path / "mlartifacts" / _plain(self._experiment)).as_uri()
            return str(self._client.create_experiment(self._experiment, artifacts))
        if known.lifecycle_stage != "active":
            raise EnvironmentFailure(
                f"{self.name}: the experiment {self._experiment!r} is deleted: restore it there, or name another one "
                f"with tracking.mlflow.experiment"
            )
        return str(known.experiment_id)

    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        with self._reaching():
            for trial in trials:
                self._send(results, trial, {**_RUNNING, "stopped": "KILLED", **_ENDED}[trial.status])
            self._tell_parent(results, "RUNNING")

    def close(self, results: ResultSet) -> None:
        with self._reaching():
            for trial in results.trials:
                self._send(results, trial, _ENDED.get(trial.status, "KILLED"))
            self._send_artifacts(results)
            over = "FINISHED" if results.front else "FAILED"
            self._tell_parent(results, over if is_over(results) else "KILLED")

    def _send(self, results: ResultSet, trial: Trial, status: str) -> None:
        """Sends the part of a trial that MLflow does not hold; nothing if the trial never started."""
        held = self._held.get(trial.id)
        if held is None and not trial.reports and (trial.status in ("pending", "paused") or status == "KILLED"):
            return
        if held is not None and held.digest != digest(trial.reports[: held.reports]):
            # it went back to a checkpoint and its steps came out otherwise; MLflow cannot take a metric back
            self._client.delete_run(held.run)
            held = None
        if held is None:
            held = self._held[trial.id] = self._new_child(results, trial)
        params = _params(merge(results.section("params"), trial.first_config))
        self._send_reports(results, trial, held, params)
        last = trial.reports[-1].timestamp if trial.reports else time.time()
        self._log(held, params, _trial_tags(results, trial))
        self._tell(held, status, max(last, held.started + trial.seconds))

    def _send_reports(self, results: ResultSet, trial: Trial, held: _Held, params: dict[str, str]) -> None:
        from mlflow.entities import Metric

        while held.reports < len(trial.reports):
            batch: list[Metric] = []
            upto = held.reports
            for report in trial.reports[held.reports :]:
                before = trial.reports[upto - 1].consumption if upto else None
                at, step = int(1000 * report.timestamp), step_of(results, report)
                values = numbers(report) | _changed(before, report.consumption)
                new = [Metric(_plain(name), value, at, step) for name, value in values.items()]
                if batch and len(batch) + len(new) > _METRICS:
                    break
                batch += new
                upto += 1
            told = digest(trial.reports[:upto])
            for start in range(0, len(batch) - _METRICS, _METRICS):  # one report with more than a call takes
                self._client.log_batch(held.run, metrics=batch[start : start + _METRICS])
            rest = batch[(len(batch) - 1) // _METRICS * _METRICS :]
            tags = _trial_tags(results, trial) if upto == len(trial.reports) else {}
            self._log(held, params, tags | {SENT_TAG: f"{upto} {told}"}, rest)
            held.reports, held.digest = upto, told

    def _tell_parent(self, results: ResultSet, status: str) -> None:
        from mlflow.entities import Metric

        front = [(trial, trial.best) for trial in results.front if trial.best]
        tags = {"notices": "; ".join(results.notices), "experiment": json.dumps(results.spec, default=repr)}
        best = ", ".join(trial.id for trial, _ in front)
        tags["pareto_front" if results.has_front else "best_trial"] = best
        metrics, reports = [], sum(len(trial.reports) for trial in results.trials)
        if front and self._parent.tags.get(BEST_TAG) != (told := _incumbent(results)):
            for i, objective in enumerate(results.objectives):
                point, report = max(((results.point(r)[i], r) for _, r in front), key=lambda found: found[0])
                name, at = _plain(f"best_{objective.metric}"), int(1000 * report.timestamp)
                metrics.append(Metric(name, objective.sign * point, at, reports))
            tags[BEST_TAG] = told
        plan = {name: results.provenance.get(name) for name in ("seed", "slots", "trials")}
        self._log(self._parent, _params(merge(results.section("params"), plan)), tags, metrics)
        ends = [trial.reports[-1].timestamp for trial in results.trials if trial.reports]
        self._tell(self._parent, status, max(ends, default=time.time()))

    def _log(self, held: _Held, params: dict[str, str], tags: dict[str, str], metrics: Sequence[Metric] = ()) -> None:
        """``metrics``, and what is new of ``params`` and ``tags``, in one call; in none where there is nothing."""
        from mlflow.entities import Param, RunTag

        cut = {name: value[:_LONGEST_TAG] for name, value in tags.items()}
        new = {name: value for name, value in cut.items() if held.tags.get(name, "") != value}
        entries = [Param(*pair) for pair in params.items() if pair[0] not in held.params]
        if not (entries or new or metrics):
            return
        for first in range(0, len(entries) - _PARAMS, _PARAMS):
            self._client.log_batch(held.run, params=entries[first : first + _PARAMS])
        rest = entries[(len(entries) - 1) // _PARAMS * _PARAMS :] if entries else []
        self._client.log_batch(held.run, metrics, rest, [RunTag(*pair) for pair in new.items()])
        held.params |= params.keys()
        held.tags |= new

    def _tell(self, held: _Held, status: str, end: float) -> None:
        """The status, where it is new. ``end``: seconds since 1970, where it is a last one."""
        if held.status == status:
            return
        if status in ("RUNNING", "SCHEDULED"):
            self._client.update_run(held.run, status)
        else:
            self._client.set_terminated(held.run, status, int(1000 * end))
        held.status = status

    def _new_parent(self, results: ResultSet) -> _Held:
        provenance = results.provenance
        begun = provenance.get("started")
        start = datetime.strptime(begun, "%Y-%m-%dT%H:%M:%S%z").timestamp() if begun else time.time()
        tags = {"cluster": json.dumps(provenance.get("cluster", [])), "folder": results.folder.path}
        return self._create(results, results.name, start, tags)

    def _new_child(self, results: ResultSet, trial: Trial) -> _Held:
        start = trial.reports[0].timestamp - trial.reports[0].seconds if trial.reports else time.time()
        tags = {TRIAL_TAG: trial.id, "mlflow.parentRunId": self._parent.run, "number": str(trial.number)}
        return self._create(results, f"trial {trial.number}", start, tags)

    def _create(self, results: ResultSet, name: str, start: float, tags: dict[str, str]) -> _Held:
        tags = _source(results) | {RUN_TAG: identity(results)} | tags
        tags = {name: value[:_LONGEST_TAG] for name, value in tags.items() if value}
        return _Held(self._client.create_run(self._id, int(1000 * start), tags, name).info.run_id, start, tags=tags)

    def _send_artifacts(self, results: ResultSet) -> None:
        """The best trial's checkpoint, configuration and metrics, the report and the experiment, to the parent."""
        folder, told = results.folder, _incumbent(results)
        if not results.front or self._parent.tags.get(ARTIFACTS_TAG) == told:
            return
        with tempfile.TemporaryDirectory() as scratch:
            staged = RunFolder.at(scratch)
            for name in (EXPERIMENT, REPORT):
                if folder.exists(name):
                    staged.write(name, folder.read(name))
            if folder.exists(BEST):
                (folder / BEST).copy_to(staged / BEST)
            self._client.log_artifacts(self._parent.run, scratch)
        if self._register_as:
            from tuner.tracking.backends.registry import register

            register(self._client, self._register_as, self._parent.run, results)
        self._client.set_tag(self._parent.run, ARTIFACTS_TAG, told)
        self._parent.tags[ARTIFACTS_TAG] = told

    def page(self, results: ResultSet) -> str:
        """Of the trials of this search, below the address of the MLflow UI: with charts, the best trial first."""
        view = {
            "searchFilter": f"tags.\"mlflow.parentRunId\" = '{self._parent.run}'",
            "orderByKey": f"metrics.`{_plain(results.metric)}`",
            "orderByAsc": str(results.mode == "min").lower(),
            "compareRunsMode": "CHART",
        }
        return f"#/experiments/{self._id}/runs?{urllib.parse.urlencode(view, quote_via=urllib.parse.quote)}"

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        import requests
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError, requests.RequestException, OSError) as error:
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise EnvironmentFailure(f"{self.name} cannot be used: {redacted(reason)}") from error


def _held(run: Run) -> _Held:
    sent, _, told = run.data.tags.get(SENT_TAG, f"0 {digest(())}").partition(" ")
    started, data = run.info.start_time / 1000, run.data
    return _Held(run.info.run_id, started, int(sent), told, run.info.status, set(data.params), dict(data.tags))


def _incumbent(results: ResultSet) -> str:
    """Changes with the trials that lead, and with their values."""
    return "; ".join(f"{t.id} {t.best.step} {metrics_line(results.values(t.best))}" for t in results.front if t.best)


def _source(results: ResultSet) -> dict[str, str]:
    """Whose run it is and of what code, by MLflow's names."""
    provenance = results.provenance
    return {
        "mlflow.user": str(provenance.get("user", "")),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(provenance.get("experiment_file") or results.spec.get("trainable", "")),
        "mlflow.source.git.commit": (provenance.get("git") or {}).get("commit", ""),
        "host": str(provenance.get("host", "")),
    }


def _trial_tags(results: ResultSet, trial: Trial) -> dict[str, str]:
    """Why the trial is as it is."""
    tags = {
        "status": trial.status,
        "reason": trial.why,
        "rung": "" if trial.rung is None else str(trial.rung),
        "seconds": f"{trial.seconds:.3f}",
        "failures": str(len(trial.failures) or ""),
        "micro_batch": str(trial.micro_batch or ""),
    }
    if trial.host:  # in place of the driver's
        tags["host"] = trial.host
    if trial.best:
        tags |= {f"best_{metric}": f"{value:.6g}" for metric, value in results.values(trial.best).items()}
        tags["best_step"] = str(trial.best.step)
    if len(schedule := results.schedule(trial)) > 1:
        told = [{"trial": t.id, "after": s.after, "until": end, "config": s.config} for t, s, end in schedule]
        tags["schedule"] = json.dumps(told, default=repr)
    return tags


def _changed(before: Consumption | None, now: Consumption | None) -> dict[str, float]:
    """The consumption that differs from that at the report before; MLflow has a tab for metrics of these names."""
    known, told = before.named() if before else {}, now.named() if now else {}
    return {f"{PREFIX}{name}": value for name, value in told.items() if known.get(name) != value}


def _params(config: dict[str, Any]) -> dict[str, str]:
    return {_plain(name): _text(value)[:_LONGEST_PARAM] for name, value in flat(config)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=repr)


def _plain(name: str) -> str:
    """``name`` with the characters that MLflow allows in names of metrics and parameters."""
    return re.sub(r"[^\w\-. :/]", "_", name).strip("/")[:250] or "_"
