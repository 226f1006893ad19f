"""All that is known of one trial, and the end of its output: what a viewer asks for."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator

from tuner.live.changes import Json, shown, text
from tuner.runs.results import RAY, TRIAL_LOG, ResultSet
from tuner.runs.trial import Trial
from tuner.search.usage import unit_of
from tuner.spec.configuration import flat
from tuner.spec.values import is_number
from tuner.storage.folder import RunFolder
from tuner.visualization.thinning import spread

MOST_REPORTS = 1000
"""Reports of a trial that are sent at most."""

MOST_METRICS = 100
"""Metrics of a trial that are sent at most."""

LOG_BYTES = 1 << 16
"""Of a trial's output at most, at once."""

_UTF8 = codecs.getincrementaldecoder("utf-8")


def detail(results: ResultSet, trial: Trial) -> Json:
    """The configuration and all metrics of a trial."""
    reports, unit = spread([*trial.reports], MOST_REPORTS), unit_of(results)  # a copy: the journal is read on
    names = [*dict.fromkeys([*results.compared_metrics, *_numeric(trial)])][:MOST_METRICS]
    return {
        "number": trial.number,
        "id": trial.id,
        "config": {text(name): shown(value) for name, value in flat(trial.config)},
        "values": {text(name): value for name, value in flat(trial.config)},
        "metrics": [text(name) for name in names],
        "x": [report.progress(unit) for report in reports],
        "y": [[_plain(report.number(name)) for report in reports] for name in names],
        "failures": [text(failure) for failure in trial.failures],
        "checkpoint": trial.best.checkpoint if trial.best else None,
    }


def _numeric(trial: Trial) -> Iterator[str]:
    """Metrics that are numbers in the latest report."""
    if trial.reports:
        yield from (name for name, value in trial.reports[-1].metrics.items() if is_number(value))


def _plain(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def output(results: ResultSet, trial: Trial, start: int | None) -> Json:
    """The output of a trial from byte ``start`` on, or its end; where that begins and ends, and if there may be more.

    Nothing if it has printed nothing yet. Raises OSError if its output cannot be read.
    """
    folder, name = results.folder, f"{RAY}/{trial.id}/{TRIAL_LOG}"
    if folder.is_local and not _lies_in(folder, name):
        raise OSError(f"{name} leads out of the run folder")
    try:
        data, begin = folder.read_part(name, start, LOG_BYTES)
    except FileNotFoundError:
        data, begin = b"", 0
    decoder = _UTF8(errors="replace")
    read = decoder.decode(data)
    end = begin + len(data) - len(decoder.getstate()[0])  # of the last character there may be only a part yet
    return {"text": read, "begin": begin, "end": end, "more": start is not None and len(data) == LOG_BYTES}


def _lies_in(folder: RunFolder, name: str) -> bool:
    """Whether no link in the run folder, which others may have written, leads to a file elsewhere."""
    here = folder.local_path.resolve()
    return (here / name).resolve().is_relative_to(here)
