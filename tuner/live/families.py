"""The metrics that Prometheus gets: names, meanings, labels, and where each value comes from.

Names follow Prometheus: base units, and ``_total`` for what only grows. No metric has a label for a trial: a run with
10,000 trials has as many time series as one with ten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from tuner.live.figures import RunFigures
from tuner.live.queue_source import Entry, Status, UserStatus
from tuner.printable import printable
from tuner.runs.diagnose import RunState
from tuner.runs.trial import Status as TrialStatus

MOST_NAMED = 100
"""So many searches of a queue have series of their own: those that come first."""

_LONGEST = 200
"""Characters of a label's value at most: names come from run folders of others."""

_TOTAL = "_total"

Source = TypeVar("Source")
Rows = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, each with the value of the metric."""


@dataclass(frozen=True)
class Family(Generic[Source]):
    """A metric, and how its samples are read from a ``Source``."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    rows: Callable[[Source], Rows]

    def metric(self, sources: Iterable[Source]) -> CounterMetricFamily | GaugeMetricFamily:
        """The metric with the samples of all ``sources``."""
        kind = CounterMetricFamily if self.name.endswith(_TOTAL) else GaugeMetricFamily
        metric = kind(self.name.removesuffix(_TOTAL), self.meaning, labels=self.labels)
        for source in sources:
            for labels, value in self.rows(source):
                metric.add_metric([printable(label)[:_LONGEST] for label in labels], value)
        return metric


def _of_run(name: str, meaning: str, value: Callable[[RunFigures], float | None]) -> Family[RunFigures]:
    """A metric with one value a run; a run for which it is None has none."""

    def rows(run: RunFigures) -> Iterator[tuple[tuple[str, ...], float]]:
        if (found := value(run)) is not None:
            yield (run.run,), found

    return Family(name, meaning, ("run",), rows)


def _in_unit(name: str, meaning: str, value: Callable[[RunFigures], float]) -> Family[RunFigures]:
    """A metric in units of the scheduler's ``time_attr``, which a label names."""
    return Family(name, meaning, ("run", "unit"), lambda run: [((run.run, run.unit), value(run))])


def _counts(run: str, counts: Mapping[str, int], names: Iterable[str]) -> Rows:
    return [((run, name), counts.get(name, 0)) for name in names]


OF_RUNS: tuple[Family[RunFigures], ...] = (
    Family(
        "tuner_run_state",
        "1 for the state in which the run is, 0 for the others.",
        ("run", "state"),
        lambda run: [((run.run, state), float(state == run.state)) for state in get_args(RunState)],
    ),
    Family(
        "tuner_run_best",
        "Best value of an objective that keeps all outcome constraints; of several objectives the best on the front.",
        ("run", "metric", "mode"),
        lambda run: [((run.run, *objective), value) for objective, value in run.best.items()],
    ),
    Family(
        "tuner_run_trials",
        "Trials by status.",
        ("run", "status"),
        lambda run: _counts(run.run, run.trials, get_args(TrialStatus)),
    ),
    _of_run("tuner_run_reports", "Reports of all trials.", lambda run: run.reports),
    _of_run(
        "tuner_run_slots",
        "Trials that the cluster can run at once; 0 if the search does not run.",
        lambda run: run.slots,
    ),
    _of_run("tuner_run_busy_slots", "Slots in which a trial starts or runs.", lambda run: run.busy_slots),
    _of_run("tuner_run_slot_limit", "Slots that the run may use, if they are limited.", lambda run: run.slot_limit),
    _of_run("tuner_run_paused", "1 if somebody has paused the search, else 0.", lambda run: float(run.paused)),
    _in_unit("tuner_run_epochs_total", "Progress of all trials; repeated steps count once.", lambda run: run.epochs),
    _in_unit("tuner_run_saved_epochs", "Progress that early stopping has saved.", lambda run: run.saved_epochs),
    _of_run("tuner_run_saved_seconds", "Trial time that early stopping has saved.", lambda run: run.saved_seconds),
    _of_run(
        "tuner_run_trial_seconds_total",
        "Time for which processes held the resources of a trial, added over them.",
        lambda run: run.trial_seconds,
    ),
    _of_run("tuner_run_gpu_seconds_total", "The same, times the GPUs of a trial.", lambda run: run.gpu_seconds),
    _of_run(
        "tuner_run_wall_clock_seconds_total",
        "Time since the first trial started, without interruptions.",
        lambda run: run.wall_clock_seconds,
    ),
    Family(
        "tuner_run_failures_total",
        "Failed attempts at trials, by kind.",
        ("run", "kind"),
        lambda run: [((run.run, kind), count) for kind, count in run.failures.items()],
    ),
    _of_run(
        "tuner_run_last_event_timestamp_seconds",
        "Unix time at which the journal grew last.",
        lambda run: run.last_event,
    ),
)
"""Of each run that runs, or ended in the last hour."""


@dataclass(frozen=True)
class QueueNow:
    """A queue at the time of a scrape."""

    entries: Sequence[Entry]
    status: Status
    time: float


def _waiting(queue: QueueNow) -> list[tuple[int, Entry]]:
    waiting = [(entry.position, entry) for entry in queue.entries if entry.position is not None]
    return sorted(waiting, key=lambda one: one[0])[:MOST_NAMED]


def _searches(queue: QueueNow) -> Rows:
    counts = Counter((entry.user, entry.state) for entry in queue.entries)
    return [(labels, count) for labels, count in counts.items()]


def _gpus(queue: QueueNow) -> Rows:
    now = queue.status
    free = max(0.0, now.gpus - now.reserved - now.in_use)
    return [((now.unit, use), n) for use, n in (("used", now.in_use), ("reserved", now.reserved), ("free", free))]


def _of_user(name: str, meaning: str, value: Callable[[UserStatus], float]) -> Family[QueueNow]:
    """A metric with one value a user."""
    labels = ("unit", "user")
    return Family(
        name,
        f"{meaning} (CPUs if the unit is CPU).",
        labels,
        lambda queue: [((queue.status.unit, user), value(use)) for user, use in queue.status.users.items()],
    )


OF_QUEUE: tuple[Family[QueueNow], ...] = (
    Family("tuner_searches", "Searches of the service by user and state.", ("user", "state"), _searches),
    Family(
        "tuner_search_queue_position",
        f"Place of a search that waits, from 1; of the first {MOST_NAMED}.",
        ("search", "user"),
        lambda queue: [((entry.name, entry.user), position) for position, entry in _waiting(queue)],
    ),
    Family(
        "tuner_search_waiting_seconds",
        f"Time since a search that waits was submitted; of the first {MOST_NAMED}.",
        ("search", "user"),
        lambda queue: [((entry.name, entry.user), queue.time - entry.submitted) for _, entry in _waiting(queue)],
    ),
    Family(
        "tuner_queue_blocked",
        "1 if nothing moves, as the cluster is gone or the storage is full; else 0.",
        (),
        lambda queue: [((), float(bool(queue.status.problem)))],
    ),
    Family("tuner_cluster_gpus", "GPUs of the cluster by use (CPUs if the unit is CPU).", ("unit", "use"), _gpus),
    _of_user("tuner_user_gpus", "GPUs that the trials of a user hold", lambda use: use.gpus),
    _of_user(
        "tuner_user_owed_gpu_seconds",
        "GPU seconds that a user should have had and did not get; negative if there were more",
        lambda use: use.owed,
    ),
    _of_user("tuner_user_week_gpu_seconds", "GPU seconds of a user this week", lambda use: use.hours * 3600),
)
"""Of a service."""
