"""The run folder: what a search found, on disk and in memory.

``ResultSet`` is the one description of a run, live or finished: `run` fills it, `load_run` reads it back.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tuner.configuration import flat, merge
from tuner.storage import RunFolder

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["completed", "stopped", "failed", "pending", "running", "paused"]

EXPERIMENT, PROVENANCE, TRIALS, REPORTS = "experiment.yaml", "provenance.json", "trials.csv", "results.parquet"
BEST, RAY, LOG, REPORT = "best", "ray", "run.log", "report.html"
TRIAL_LOG = "output.log"
"""What a trial printed, in its folder below ray/."""

_RAY_KEYS = frozenset(
    [
        "training_iteration",
        "time_this_iter_s",
        "time_total_s",
        "time_since_restore",
        "iterations_since_restore",
        "timesteps_since_restore",
        "timesteps_this_iter",
        "timesteps_total",
        "episodes_this_iter",
        "episodes_total",
        "timestamp",
        "date",
        "pid",
        "hostname",
        "node_ip",
        "config",
        "done",
        "trial_id",
        "experiment_id",
        "experiment_tag",
        "should_checkpoint",
        "checkpoint_dir_name",
        "__duplicate__",
        "trial_log_path",
    ]
)


def flat_metrics(result: dict[str, Any]) -> dict[str, Any]:
    """What the trainable itself reported, without what Ray adds; nested names joined by ``/`` as Ray does."""
    return dict(_flat({name: value for name, value in result.items() if name not in _RAY_KEYS}, ""))


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


@dataclass(frozen=True)
class Report:
    """One call of ``ray.tune.report``."""

    trial_id: str
    step: int
    """Number of the trial's report, from 1, counted over restarts (Ray's ``training_iteration``)."""
    seconds: float
    """The trial's own running time so far."""
    timestamp: float
    """Seconds since 1970."""
    metrics: dict[str, Any]
    checkpoint: str | None = None
    """Folder of the checkpoint reported with it, below the run folder; None if there was none."""


@dataclass
class Trial:
    """One configuration and what became of it."""

    id: str
    number: int
    """Order of suggestion, from 1."""
    config: dict[str, Any]
    status: Status = "pending"
    reason: str = ""
    """Why it ended (or has not)."""
    rung: int | None = None
    """The rung at which the scheduler stopped it."""
    reports: list[Report] = field(default_factory=list)
    best: Report | None = None
    """Its best report that has a checkpoint (its best report where it never made one)."""

    @property
    def steps(self) -> int:
        return self.reports[-1].step if self.reports else 0

    @property
    def seconds(self) -> float:
        return self.reports[-1].seconds if self.reports else 0.0

    @property
    def label(self) -> str:
        return f"#{self.number} ({self.id})"


@dataclass
class ResultSet:
    """All trials of one run, live or finished."""

    folder: RunFolder
    spec: dict[str, Any]
    """The experiment as it was run (experiment.yaml)."""
    provenance: dict[str, Any]
    trials: list[Trial] = field(default_factory=list)
    _by_id: dict[str, Trial] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._by_id = {trial.id: trial for trial in self.trials}

    @property
    def name(self) -> str:
        return posixpath.basename(self.folder.path.rstrip("/"))

    @property
    def metric(self) -> str:
        return str(self.spec["objective"]["metric"])

    @property
    def mode(self) -> str:
        return str(self.spec["objective"]["mode"])

    @property
    def notices(self) -> list[str]:
        """What the user must know of this run, such as other data than asked for."""
        return list(self.provenance.get("notices", []))

    def get(self, trial_id: str) -> Trial | None:
        """The trial of that id; None where there is none."""
        return self._by_id.get(trial_id)

    def trial(self, trial_id: str) -> Trial:
        return self._by_id[trial_id]

    def add(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        self._by_id[trial.id] = trial
        return trial

    def value(self, report: Report) -> float:
        return float(report.metrics[self.metric])

    def better(self, a: float, b: float) -> bool:
        """Whether ``a`` is strictly better than ``b``."""
        return a > b if self.mode == "max" else a < b

    def rank(self, trials: Iterable[Trial]) -> list[Trial]:
        """``trials`` that have a result, best first; of equals the earlier."""
        sign = -1 if self.mode == "max" else 1
        return sorted((t for t in trials if t.best), key=lambda t: (sign * self.value(t.best), t.number))  # type: ignore[arg-type]

    @property
    def best(self) -> Trial | None:
        """The incumbent: the best value ever reported with a checkpoint.

        Trials without checkpoints count only where no trial made one. None when nothing was reported.
        """
        ranked = self.rank(self.trials)
        return next((t for t in ranked if t.best and t.best.checkpoint), ranked[0] if ranked else None)

    def full_config(self, trial: Trial) -> dict[str, Any]:
        """What the trainable was called with: fixed parameters and the trial's configuration."""
        return merge(self.spec.get("params", {}), trial.config)

    def count(self, status: Status) -> int:
        return sum(trial.status == status for trial in self.trials)

    def frame(self) -> pd.DataFrame:
        """One row a report: trial_id, training_iteration, time_total_s, timestamp, checkpoint and the metrics."""
        import pandas as pd

        rows = [
            {
                "trial_id": r.trial_id,
                "training_iteration": r.step,
                "time_total_s": r.seconds,
                "timestamp": r.timestamp,
                "checkpoint": r.checkpoint,
                **{k: v for k, v in r.metrics.items() if isinstance(v, (bool, int, float, str)) or v is None},
            }
            for trial in self.trials
            for r in trial.reports
        ]
        fixed = ["trial_id", "training_iteration", "time_total_s", "timestamp", "checkpoint", self.metric]
        names = list(dict.fromkeys([*fixed, *(name for row in rows for name in row)]))
        return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})

    def save(self) -> None:
        """Writes results.parquet, then trials.csv: a kill between them leaves no trial whose reports are missing."""
        sink = io.BytesIO()
        self.frame().to_parquet(sink, index=False)
        self.folder.write(REPORTS, sink.getvalue())
        self.folder.write(TRIALS, self._trials_csv().encode())

    def _trials_csv(self) -> str:
        names = list(dict.fromkeys(name for t in self.trials for name, _ in flat(t.config)))
        best = f"best_{self.metric}"
        head = ["id", "number", "status", "reason", "rung", *(f"config.{n}" for n in names)]
        text = io.StringIO()
        writer = csv.DictWriter(
            text, [*head, best, "best_step", "steps", "seconds", "checkpoint", "log"], lineterminator="\n"
        )
        writer.writeheader()
        for t in self.trials:
            row = {
                "id": t.id,
                "number": t.number,
                "status": t.status,
                "reason": _cell(t.reason) if t.reason else "",
                "rung": t.rung,
            }
            row |= {f"config.{name}": _cell(value) for name, value in flat(t.config)}
            if t.best:
                row |= {best: self.value(t.best), "best_step": t.best.step, "checkpoint": t.best.checkpoint}
            writer.writerow(
                row | {"steps": t.steps, "seconds": round(t.seconds, 3), "log": f"{RAY}/{t.id}/{TRIAL_LOG}"}
            )
        return text.getvalue()

    def save_best(self) -> None:
        """Writes best/ (config.json, metrics.json, checkpoint/), whole or not at all."""
        trial = self.best
        if trial is None or trial.best is None:
            return
        staging = self.folder / f".{BEST}.new"
        self.folder.delete(f".{BEST}.new")
        staging.filesystem.create_dir(staging.path)
        metrics = {"trial": trial.id, "step": trial.best.step, **trial.best.metrics}
        staging.write("config.json", _json(self.full_config(trial)))
        staging.write("metrics.json", _json(metrics))
        if trial.best.checkpoint:
            (self.folder / trial.best.checkpoint).copy_to(staging / "checkpoint")
        self.folder.delete(BEST)
        self.folder.filesystem.move(staging.path, (self.folder / BEST).path)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, default=repr) + "\n").encode()


def write_json(folder: RunFolder, name: str, value: Any) -> None:
    """Writes ``value`` as a JSON file; what JSON cannot hold is written as its ``repr``."""
    folder.write(name, _json(value))


def _cell(value: Any) -> str:
    """Text of a configuration value, from which `cell_value` reads the same value again."""
    if isinstance(value, str):
        return value if value and cell_value(value) == value and value.isprintable() else json.dumps(value)
    return json.dumps(value, default=repr)


def cell_value(cell: str) -> Any:
    """The configuration value that a cell of trials.csv holds."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def new_run_name(name: str) -> str:
    """``name`` with the time of day: the default name of a run folder."""
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _column(values: list[Any]) -> pd.Series[Any]:
    """A column that keeps whole numbers whole where some are missing, and is text where kinds are mixed."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return pd.Series(values, dtype="str")
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean" if None in values else "bool")
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return pd.Series(values, dtype="Int64" if None in values else "int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series([None if value is None else str(value) for value in values], dtype="str")
