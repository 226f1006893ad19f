"""A table from the reports of a finished run, so that its trials can be replayed under other schedulers.

A trial that was stopped early never told how it would have continued. Its curve is carried on with its last value, at
its mean seconds a step, and these rows are marked (``measured`` is false): a guess, and for a stopped trial a low one.
A run without early stopping needs none. A metric that counts with the steps, such as ``epoch`` beside
``training_iteration``, continues to count: it may be the fidelity of another experiment.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.plan.compatibility import changes_configurations
from tuner.runs.csv_codec import encode, to_series
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.simulator.table import MEASURED, SECONDS
from tuner.spec.configuration import Configuration, flat
from tuner.spec.values import is_number

if TYPE_CHECKING:
    import pandas as pd

_Curve = dict[int, dict[str, Any]]
"""By fidelity, ascending: the metrics, `SECONDS` and `MEASURED`."""


@dataclass(frozen=True)
class Recording:
    """A table, and what became of the run's trials in it."""

    frame: pd.DataFrame
    curves: int
    carried_on: int
    """Curves that end with rows that were not measured."""
    left_out: int
    """Trials without a usable report, with other steps than the rest, with another trial's configuration, or that
    started from another trial's checkpoint."""

    def parquet(self) -> bytes:
        """The table as a parquet file."""
        sink = io.BytesIO()
        self.frame.to_parquet(sink, index=False)
        return sink.getvalue()


def record(results: ResultSet) -> Recording:
    """The table of a run. Raises InputError if it has no usable report, or a name that the format takes."""
    import pandas as pd

    scheduler = results.section("scheduler")
    if changes_configurations(scheduler.get("kind", "")):
        raise InputError(
            f"{results.folder.location}: {scheduler['kind']} changed its configurations: no curve is of one"
        )
    fidelity = scheduler.get("time_attr", "training_iteration")
    curves: dict[str, tuple[Configuration, _Curve]] = {}
    for trial in results.trials:
        if trial.origin and trial.origin.step is not None:  # the first part of its curve is its parent's
            continue
        curve, key = _curve(results, trial, fidelity), json.dumps(trial.config, sort_keys=True, default=repr)
        if curve and (key not in curves or len(curve) > len(curves[key][1])):
            curves[key] = dict(flat(trial.config)), curve
    steps = sorted({step for _, curve in curves.values() for step in curve})
    # what reports in other rhythms than the rest has no value at some of the steps
    whole = [(config, curve) for config, curve in curves.values() if list(curve) == steps[: len(curve)]]
    if not whole:
        raise InputError(
            f"{results.folder.location}: no trial has a finite {results.metric} at a {fidelity} above 0: no table"
        )
    names = list(dict.fromkeys(name for config, _ in whole for name in config))
    metrics = [name for name in _common(whole) if name != fidelity and name not in names]
    taken = {fidelity, SECONDS, MEASURED, results.metric} & set(names)
    if taken:
        raise InputError(f"the parameter {min(taken)!r} has the name of another column of a table: rename it")
    counters = _counters([curve for _, curve in whole], set(metrics) - {results.metric})
    rows = [
        {**config, fidelity: step, **{name: row[name] for name in (*metrics, SECONDS, MEASURED)}}
        for config, curve in whole
        for step, row in _carried_on(curve, steps, counters).items()
    ]
    frame = pd.DataFrame({name: _cells([row.get(name) for row in rows]) for name in [*names, *list(rows[0])]})
    carried_on = sum(len(curve) < len(steps) for _, curve in whole)
    return Recording(frame, len(whole), carried_on, len(results.trials) - len(whole))


def _curve(results: ResultSet, trial: Trial, fidelity: str) -> _Curve:
    """What the trial reported at each fidelity, up to the first report that has no finite metric or fidelity."""
    curve: _Curve = {}
    seconds = 0.0
    for report in trial.reports:
        finite = {name: v for name, v in report.metrics.items() if is_number(v) and math.isfinite(v)}
        step = finite.get(fidelity, report.step if fidelity == "training_iteration" else 0)
        if step < 1 or results.metric not in finite:
            break
        seconds = max(seconds, report.seconds)
        curve[int(step)] = {**finite, SECONDS: seconds, MEASURED: True}
    return dict(sorted(curve.items()))


def _common(curves: list[tuple[Configuration, _Curve]]) -> list[str]:
    """The metrics that every report has."""
    reports = [row for _, curve in curves for row in curve.values()]
    return [name for name in reports[0] if all(name in row for row in reports) and name not in (SECONDS, MEASURED)]


def _counters(curves: list[_Curve], metrics: set[str]) -> dict[int, dict[str, float]]:
    """By step: those of ``metrics`` that are whole numbers, rise with the step, and are the same in all ``curves``."""
    longest = max(curves, key=len)

    def counts(name: str) -> bool:
        values = [row[name] for row in longest.values()]
        return (
            all(float(value).is_integer() for value in values)
            and all(earlier < later for earlier, later in itertools.pairwise(values))
            and all(row[name] == longest[step][name] for curve in curves for step, row in curve.items())
        )

    names = [name for name in metrics if counts(name)]
    return {step: {name: row[name] for name in names} for step, row in longest.items()}


def _carried_on(curve: _Curve, steps: list[int], counters: dict[int, dict[str, float]]) -> _Curve:
    """``curve`` over all ``steps``: what was not measured is the last report, at the trial's mean seconds a step."""
    last, row = max(curve.items())
    pace = row[SECONDS] / last
    rest = {
        step: {**row, **counters[step], SECONDS: row[SECONDS] + pace * (step - last), MEASURED: False} for step in steps
    }
    return rest | curve


def _cells(values: list[Any]) -> pd.Series[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return to_series(values)
    return to_series([None if value is None else encode(value) for value in values])
