"""The run folder: what a search found, on disk and in memory.

``ResultSet`` is the one description of a run, live or finished: `run` fills it, `load_run` reads it back.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tuner.runs.commands import Commanded
from tuner.runs.consumption import OF_TRIAL
from tuner.runs.csv_codec import encode
from tuner.runs.repetitions import limits_of
from tuner.runs.reports_frame import reports_frame
from tuner.runs.trial import Report, Segment, Status, Trial
from tuner.spec.configuration import flat, merge
from tuner.spec.objective import Objective, domination_ranks, pareto_front, read_objectives
from tuner.spec.outcome_constraints import (
    OutcomeConstraint,
    metrics_read,
    ranked_point,
    total_violation,
)
from tuner.storage.folder import RunFolder
from tuner.trainable.own_loop import REFERENCE as OWN_LOOP

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT, PROVENANCE, TRIALS, REPORTS = "experiment.yaml", "provenance.json", "trials.csv", "results.parquet"
LINEAGE, FAILURES, LIVE, BY_PEOPLE = "lineage.json", "failures.json", "live.json", "commands.json"
BEST, RAY, LOG, REPORT = "best", "ray", "run.log", "report.html"
TRIAL_LOG = "output.log"
"""What a trial printed, in its folder below ray/."""


@dataclass(frozen=True)
class Used:
    """What a search has used so far of what its budget limits."""

    elapsed: float
    """Seconds since the first trial started, without the time between an interruption and `resume`."""
    epochs: float
    """Of the scheduler's ``time_attr``, or reports, over all trials; what a trial repeats counts once."""
    held_seconds: float
    """For which processes held the resources of a trial, added over all of them."""


@dataclass
class ResultSet:
    """All trials of one run, live or finished.

    Example:
        >>> import tuner
        >>> results = tuner.load_run("runs/q")
        >>> results.best_value == results.value(results.best.best), len(results.trials_frame())
        (True, 2)
    """

    folder: RunFolder
    spec: dict[str, Any]
    """The experiment as it was run (experiment.yaml)."""
    provenance: dict[str, Any]
    trials: list[Trial] = field(default_factory=list)
    used: Used | None = None
    """While it runs in this process; None for one that was read."""
    unreadable: list[str] = field(default_factory=list)
    """The files of the run folder that are missing or damaged, a line each: these results hold less than the run."""
    commands: list[Commanded] = field(default_factory=list)
    """What people commanded while it ran, in order."""
    _by_id: dict[str, Trial] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._by_id = {trial.id: trial for trial in self.trials}

    @property
    def name(self) -> str:
        return posixpath.basename(self.folder.path.rstrip("/"))

    def section(self, name: str) -> dict[str, Any]:
        """A part of the experiment, such as its ``scheduler``; empty if the run folder does not tell it."""
        found: dict[str, Any] = self.spec.get(name, {})
        return found

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        return read_objectives(self.spec["objective"])

    @cached_property
    def outcome_constraints(self) -> tuple[OutcomeConstraint, ...]:
        """Limits on what trials report, and that all repetitions ended."""
        return limits_of(self.spec)

    @property
    def metric(self) -> str:
        """Of the first objective."""
        return self.objectives[0].metric

    @property
    def mode(self) -> str:
        """Of the first objective."""
        return self.objectives[0].mode

    @property
    def has_front(self) -> bool:
        """Whether there are several objectives, so that the result is a front and not one best trial."""
        return len(self.objectives) > 1

    @property
    def notices(self) -> list[str]:
        """What the user must know of this run, such as other data than asked for."""
        return list(self.provenance.get("notices", []))

    @property
    def is_paused(self) -> bool:
        """Whether people have paused the search, and not continued it since."""
        told = [command.do for command in self.commands if command.done and command.do in ("pause", "continue")]
        return told[-1:] == ["pause"]

    @property
    def added(self) -> int:
        """Trials that people added: they come on top of those of the budget."""
        return sum(trial.origin is not None for trial in self.trials)

    @property
    def suggested(self) -> int:
        """Trials that the searcher suggested."""
        return len(self.trials) - self.added

    def get(self, trial_id: str) -> Trial | None:
        """The trial of that id; None if there is none."""
        return self._by_id.get(trial_id)

    def trial(self, trial_id: str) -> Trial:
        return self._by_id[trial_id]

    def begin_again(self, spec: dict[str, Any]) -> None:
        """Forgets all trials: what comes is another telling of the run."""
        self.spec = spec
        self.trials.clear()
        self.commands.clear()
        self._by_id.clear()
        self.__dict__.pop("objectives", None)
        self.__dict__.pop("outcome_constraints", None)

    def add(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        self._by_id[trial.id] = trial
        return trial

    def value(self, report: Report) -> float:
        """Of the first objective."""
        return report.number(self.metric)

    def values(self, report: Report) -> dict[str, float]:
        """Of all objectives and outcome constraints, by metric."""
        return {metric: report.number(metric) for metric in self.compared_metrics}

    @property
    def compared_metrics(self) -> list[str]:
        """Of the objectives, then of the outcome constraints."""
        return [*dict.fromkeys(metrics_read(self.objectives, self.outcome_constraints))]

    def is_feasible(self, report: Report) -> bool:
        """Whether it keeps all outcome constraints."""
        return not self.violation(report)

    def violation(self, report: Report) -> float:
        """By how much it breaks the outcome constraints in all, relative to their limits."""
        limited = [report.number(constraint.metric) for constraint in self.outcome_constraints]
        return total_violation(self.outcome_constraints, limited)

    def better(self, a: float, b: float) -> bool:
        """Whether ``a`` is strictly better than ``b`` in the first objective."""
        return a > b if self.mode == "max" else a < b

    def point(self, report: Report) -> tuple[float, ...]:
        """Its values, each to be made large; worse than those of all others if it breaks an outcome constraint."""
        read = [report.number(metric) for metric in metrics_read(self.objectives, self.outcome_constraints)]
        return ranked_point(self.objectives, self.outcome_constraints, read)

    def rank(self, trials: Iterable[Trial]) -> list[Trial]:
        """``trials`` that have a result, best first; of equals the earlier.

        With several objectives: those on the front of all, then those on the front of the others, and so on; on each
        the best in the first objective comes first.
        """
        found = [(self.point(trial.best), trial) for trial in trials if trial.best]
        ranks = domination_ranks([point for point, _ in found]) if self.has_front else [0] * len(found)
        keys = [(rank, -point[0], trial.number) for rank, (point, trial) in zip(ranks, found, strict=True)]
        return [found[i][1] for i in sorted(range(len(found)), key=keys.__getitem__)]

    @property
    def best(self) -> Trial | None:
        """The incumbent: the best value of the first objective ever reported with a checkpoint; of equals the earlier.

        Trials without checkpoints count only where no trial made one. None when nothing was reported, and when
        nothing that was reported keeps the outcome constraints.
        """
        return self._best(self.trials)

    @property
    def best_value(self) -> float | None:
        """Of the first objective, the best value for which a checkpoint exists; None when nothing was reported."""
        best = self.best
        return self.value(best.best) if best and best.best else None

    @property
    def best_config(self) -> dict[str, Any] | None:
        """The argument of the trainable in the best trial, with the fixed parameters; None if there is none."""
        best = self.best
        return self.full_config(best) if best else None

    @property
    def best_checkpoint(self) -> RunFolder | None:
        """The folder of the checkpoint that came with the best value; None if there is none."""
        best = self.best
        return self.folder / best.best.checkpoint if best and best.best and best.best.checkpoint else None

    def _best(self, trials: Iterable[Trial]) -> Trial | None:
        candidates = self._candidates(trials)
        _, best = max(candidates, key=lambda found: (found[0][0], -found[1].number), default=(None, None))
        return best

    @property
    def front(self) -> list[Trial]:
        """The Pareto front: the trials that no other beats, best first in the first objective; one objective: the best.

        A trial stands there with one report, the one whose checkpoint it keeps (`Trial.best`). One beats another that
        is at least as good in every objective and better in one. Trials without checkpoints count as for `best`.
        """
        return self._front(self.trials)

    def _front(self, trials: Iterable[Trial]) -> list[Trial]:
        if not self.has_front:
            best = self._best(trials)
            return [best] if best else []
        candidates = self._candidates(trials)
        return [candidates[i][1] for i in pareto_front([point for point, _ in candidates])]

    def _candidates(self, trials: Iterable[Trial]) -> list[tuple[tuple[float, ...], Trial]]:
        """Those of ``trials`` that may be the best, each with its point."""
        reported = [(trial.best, trial) for trial in trials if trial.best and self.is_feasible(trial.best)]
        restorable = [(best, trial) for best, trial in reported if best.checkpoint]
        return [(self.point(best), trial) for best, trial in restorable or reported]

    def surplus(self, holders: Collection[Trial], keep: int) -> list[Trial]:
        """The ended trials whose checkpoints may go: all but the best ``keep`` of them and those on the front.

        ``holders``: all trials that have checkpoints. No other is looked at, as this is asked whenever a trial ends.
        """
        front = {trial.id for trial in self._front(holders)}
        ended = [trial for trial in holders if trial.has_ended]
        return [trial for trial in self.rank(ended)[keep:] if trial.id not in front]

    def full_config(self, trial: Trial) -> dict[str, Any]:
        """What the trainable was called with: fixed parameters and the trial's configuration."""
        return merge(self.section("params"), trial.config)

    def schedule(self, trial: Trial) -> list[tuple[Trial, Segment, int]]:
        """The segments that led to the state of ``trial`` at its best report, over all donors.

        Each is (trial, segment, last report).

        To repeat it, train with each segment's configuration for as many reports as it lasts, each from the checkpoint
        that the one before it ended with.
        """
        found: list[tuple[Trial, Segment, int]] = []
        step = trial.best.step if trial.best else trial.steps
        while True:
            segment = next((s for s in reversed(trial.segments) if s.after < step), Segment(0, trial.config))
            found.append((trial, segment, step))
            if segment.donor is None:
                return found[::-1]
            trial, step = self.trial(segment.donor), segment.donor_step

    def count(self, status: Status) -> int:
        return sum(trial.status == status for trial in self.trials)

    def frame(self) -> pd.DataFrame:
        """One row a report: trial_id, training_iteration, time_total_s, timestamp, checkpoint, metrics, ``system/*``.

        The last are what was measured of `tuner.runs.consumption.Consumption`, over all attempts of the trial.
        """
        return reports_frame(self.trials, self.compared_metrics)

    def trials_frame(self) -> pd.DataFrame:
        """One row a trial: id, number, status, reason, ``config.*``, the best values, steps, seconds, checkpoint.

        And `OF_TRIAL`, where it was measured of any.
        """
        import pandas as pd

        rows = [self._row(trial) for trial in self.trials]
        left_out = {"rung", "log", "failures", "micro_batch", *OF_TRIAL} - {*_measured(rows)}
        return pd.DataFrame([{name: row[name] for name in row if name not in left_out} for row in rows])

    def _row(self, trial: Trial) -> dict[str, Any]:
        """What trials.csv says of a trial, as values."""
        consumed = trial.consumption
        best = self.values(trial.best) if trial.best else {}
        return {
            "id": trial.id,
            "number": trial.number,
            "status": trial.status,
            "reason": trial.reason,
            "rung": trial.rung,
            **{f"config.{name}": value for name, value in flat(trial.config)},
            **{f"best_{metric}": best.get(metric) for metric in self.compared_metrics},
            "best_step": trial.best.step if trial.best else None,
            "steps": trial.steps,
            "seconds": trial.seconds,
            "host": trial.host,
            "checkpoint": trial.best.checkpoint if trial.best else None,
            "log": f"{RAY}/{trial.id}/{TRIAL_LOG}",
            "failures": len(trial.failures),
            "micro_batch": trial.micro_batch,
            **{name: getattr(consumed, name) for name in OF_TRIAL},
        }

    def save(self) -> None:
        """Writes results.parquet, then trials.csv: a kill between them leaves no trial whose reports are missing."""
        sink = io.BytesIO()
        self.frame().to_parquet(sink, index=False)
        self.folder.write(REPORTS, sink.getvalue())
        if lineage := {t.id: [asdict(segment) for segment in t.segments] for t in self.trials if t.segments}:
            write_json(self.folder, LINEAGE, lineage)
        if failures := {t.id: [asdict(failure) for failure in t.failures] for t in self.trials if t.failures}:
            write_json(self.folder, FAILURES, failures)
        if self.commands:
            origins = {trial.id: asdict(trial.origin) for trial in self.trials if trial.origin}
            write_json(self.folder, BY_PEOPLE, {"commands": list(map(asdict, self.commands)), "origins": origins})
        self.folder.write(TRIALS, self._trials_csv().encode())

    def _trials_csv(self) -> str:
        names = list(dict.fromkeys(name for t in self.trials for name, _ in flat(t.config)))
        best = [f"best_{metric}" for metric in self.compared_metrics]
        head = ["id", "number", "status", "reason", "rung", *(f"config.{n}" for n in names)]
        text = io.StringIO()
        tail = ["best_step", "steps", "seconds", "host", "checkpoint", "log"]
        tail += ["failures"] * any(t.failures for t in self.trials)
        tail += ["micro_batch"] * any(t.micro_batch for t in self.trials)
        rows = [self._row(t) for t in self.trials]
        tail += _measured(rows)
        writer = csv.DictWriter(text, [*head, *best, *tail], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for t, row in zip(self.trials, rows, strict=True):
            row |= {name: encode(value) for name, value in row.items() if name.startswith("config.")}
            row |= {"reason": encode(t.reason) if t.reason else "", "seconds": round(t.seconds, 3)}
            writer.writerow(row)
        return text.getvalue()

    def save_best(self) -> None:
        """Writes best/ (config.json, metrics.json, checkpoint/), whole or not at all; for a front nothing.

        And schedule.json, see `schedule`, where its configuration changed on the way.
        """
        trial = self.best
        if trial is None or trial.best is None or self.has_front:
            return
        staging = self.folder / f".{BEST}.new"
        self.folder.delete(f".{BEST}.new")
        staging.filesystem.create_dir(staging.path)
        metrics = {"trial": trial.id, "step": trial.best.step, **trial.best.metrics}
        staging.write("config.json", _json(self.full_config(trial)))
        staging.write("metrics.json", _json(metrics))
        if len(schedule := self.schedule(trial)) > 1:
            told = [{"trial": t.id, "after": s.after, "until": end, "config": s.config} for t, s, end in schedule]
            staging.write("schedule.json", _json(told))
        if trial.best.checkpoint:
            (self.folder / trial.best.checkpoint).copy_to(staging / "checkpoint")
        self.folder.rename(f".{BEST}.new", BEST)


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of `OF_TRIAL` some row has."""
    return [name for name in OF_TRIAL if any(row[name] is not None for row in rows)]


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, default=repr) + "\n").encode()


def write_json(folder: RunFolder, name: str, value: Any) -> None:
    """Writes ``value`` as a JSON file; what JSON cannot hold is written as its ``repr``."""
    folder.write(name, _json(value))


def how_to_resume(folder: RunFolder) -> str:
    """The command that continues the run in ``folder``."""
    return f"python -m tuner resume {folder.quoted}"


def how_to_continue(results: ResultSet) -> str:
    """The command that continues a search; if its trials run in a loop of the user's, the call in Python, too."""
    if results.spec.get("trainable") == OWN_LOOP:
        command = f"python -m tuner ask {results.folder.quoted}"
        return f"{command}, or in Python tuner.load({results.folder.location!r}).reopen()"
    return how_to_resume(results.folder)


def why_and_remedy(results: ResultSet) -> str:
    """The text after "interrupted": the reason, if there is one, and how to continue, unless it names that."""
    why, resume = results.provenance.get("interrupted_by") or "", how_to_continue(results)
    return (f": {why}" if why else "") + ("" if resume in why else f"; to continue: {resume}")


def new_run_name(name: str) -> str:
    """``name`` with the time of day: the default name of a run folder."""
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
