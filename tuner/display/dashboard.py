"""What one screenful says of a running search: as much as fits, the most important first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from tuner.execution.gpus import Gpu
from tuner.experiment.spec import Budget
from tuner.printable import printable
from tuner.runs.feasibility import no_winner
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat
from tuner.spec.quantities import format_duration
from tuner.spec.values import format_number, metrics_line
from tuner.visualization.text_tables import config_line, counts, failed_attempts, format_columns

if TYPE_CHECKING:
    from tuner.experiment.spec import ExperimentSpec

ROWS = 4
"""Lines that the table of running trials gets before other things do, its heading included."""

RECENT = 5
"""Reports by which a trial's speed is measured."""

INDENT = "      "

CAUSES = 3
"""Latest failures that are shown."""


@dataclass(frozen=True)
class _Part:
    """Some lines of the screen, which are shown or not."""

    rank: int
    """1 is the most important."""
    lines: Sequence[str]
    style: str = ""


def render(
    results: ResultSet,
    spec: ExperimentSpec,
    causes: Sequence[str],
    gpus: Sequence[Gpu],
    size: os.terminal_size,
    now: float,
) -> Group:
    """No line is wider, and the whole no higher, than a terminal of that ``size``.

    ``causes``: why trials failed, the latest last. ``now``: in seconds since 1970.
    """
    running = [trial for trial in results.trials if trial.status == "running"]
    best, *config = _best(results, size.columns)
    budget = Budget.model_validate(results.section("budget")) if results.commands else spec.budget  # one may change it
    used, *more_used = _fill(_budget(results, budget), size.columns)
    parts = [
        _Part(1, [f"{results.name}: {counts(results) or 'starting'}"], "bold"),
        _Part(3, [used]),
        _Part(4, more_used),
        _Part(1, [best, *config[:1]]),
        _Part(3, config[1:]),
        _Part(5, _rungs(results, spec)),
        _Part(5, _fill(map(_gpu, gpus), size.columns)),
        _Part(4, [*filter(None, [failed_attempts(results)])], "red"),
        _Part(6, causes[-CAUSES:-1], "red"),
        _Part(2, causes[-1:], "red"),
    ]
    kept = min(ROWS, size.lines // 3, len(running) + bool(running))
    room = size.lines - 1 - kept
    chosen = []
    for part in sorted(parts, key=lambda part: part.rank):
        if len(part.lines) <= room:
            chosen.append(part)
            room -= len(part.lines)
    shown = [_text(line, part.style) for part in parts if part in chosen for line in part.lines]
    table = _running(results, spec, running, room + kept - 1, now) if running else []
    return Group(*shown, *(_text(line, "" if k else "dim") for k, line in enumerate(table)))


def _text(line: str, style: str = "") -> Text:
    return Text(printable(line), style, no_wrap=True, overflow="ellipsis")


def _fill(words: Iterable[str], width: int, separator: str = " · ") -> list[str]:
    """As many of ``words`` on a line as fit."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(separator) + len(word) <= width:
            lines[-1] += separator + word
        else:
            lines.append(word)
    return lines


def _best(results: ResultSet, width: int) -> Iterator[str]:
    front = [(trial, trial.best) for trial in results.front if trial.best]
    if not front:
        yield f"best: {no_winner(results) or 'no trial has reported yet'}"
        return
    trial, best = front[0]
    values = f"{metrics_line(results.values(best))}, trial #{trial.number}, step {best.step}"
    yield f"best: {values}" if not results.has_front else f"front of {len(front)}: {values}"
    pairs = [config_line({name: value}) for name, value in flat(trial.config)]
    for line in _fill(pairs, width - len(INDENT), ", "):
        yield INDENT + line


def _budget(results: ResultSet, budget: Budget) -> Iterator[str]:
    """The used part of the budget, and the rest."""
    started, total = len(results.trials) - results.count("pending"), results.provenance["trials"]
    yield f"trials {started}, {total - started} left"
    if results.used is None:
        return
    elapsed = results.used.elapsed
    yield f"time {format_duration(elapsed)}{_left(budget.wall_clock, elapsed, format_duration)}"
    if budget.epochs is not None:
        yield f"epochs {results.used.epochs:g}{_left(budget.epochs, results.used.epochs, format_number)}"
    hours = results.provenance.get("trial_resources", {}).get("GPU", 0) * results.used.held_seconds / 3600
    if hours:
        yield f"GPU hours {hours:.2f}{_left(budget.gpu_hours, hours, '{:.2f}'.format)}"
    if budget.cost is not None:
        cost = hours * budget.cost.per_gpu_hour
        yield f"cost {cost:.2f}{_left(budget.cost.max, cost, '{:.2f}'.format)}"


def _left(limit: float | None, used: float, shown: Callable[[float], str]) -> str:
    return "" if limit is None else f", {shown(max(0.0, limit - used))} left"


def _gpu(gpu: Gpu) -> str:
    memory = f"{gpu.used_bytes / 2**30:.1f} of {gpu.total_bytes / 2**30:.1f} GiB"
    return f"GPU {gpu.number} {gpu.use} %, {memory}" + ("" if gpu.watts is None else f", {gpu.watts:.0f} W")


def _epoch(trial: Trial, spec: ExperimentSpec, back: int = 1) -> float:
    """How far the trial was at its ``back``-th last report."""
    if len(trial.reports) < back:
        return 0.0
    report = trial.reports[-back]
    name = spec.scheduler.fidelity[0] if spec.scheduler.fidelity else ""
    return report.progress(name)


def _rungs(results: ResultSet, spec: ExperimentSpec) -> list[str]:
    """How many trials have reached each rung."""
    rungs = spec.scheduler.rungs()
    if not rungs or spec.scheduler.fidelity is None:
        return []
    reached: Counter[int] = Counter()
    for trial in results.trials:
        epoch = _epoch(trial, spec)
        reached.update(rung for rung in rungs if rung <= epoch)
    population = "  ".join(f"{rung}: {reached[rung]}" for rung in rungs)
    return [f"trials at rung ({spec.scheduler.fidelity[0]}):  {population}"]


def _running(results: ResultSet, spec: ExperimentSpec, running: Sequence[Trial], rows: int, now: float) -> list[str]:
    """The table of running trials, in at most ``rows`` lines below its heading."""
    fidelity = spec.scheduler.fidelity
    head = ["trial", fidelity[0] if fidelity and fidelity[0] != "training_iteration" else "step"]
    if spec.scheduler.rungs():
        head.append("rung")
    head += [results.metric, "best", "s/report"]
    if fidelity:
        head.append("ETA")
    head.append("configuration")
    shown = running if len(running) <= rows else running[: max(0, rows - 1)]
    table = format_columns([head, *(_row(results, spec, trial, now) for trial in shown)]).splitlines()
    if len(shown) < len(running):
        table.append(f"and {len(running) - len(shown)} more")
    return table[: rows + 1]


def _row(results: ResultSet, spec: ExperimentSpec, trial: Trial, now: float) -> list[str]:
    epoch = _epoch(trial, spec)
    last = format_number(results.value(trial.reports[-1])) if trial.reports else ""
    best = format_number(results.value(trial.best)) if trial.best else ""
    pace = _seconds_a_report(trial)
    cells = [f"#{trial.number}", f"{epoch:g}"]
    if rungs := spec.scheduler.rungs():
        cells.append(str(next((rung for rung in rungs if rung > epoch), "")))
    cells += [last, best, f"{pace:.3g}" if pace else ""]
    if spec.scheduler.fidelity:
        cells.append(_eta(trial, spec, pace, now))
    return [*cells, config_line(trial.config)]


def _seconds_a_report(trial: Trial) -> float:
    """Of its latest reports; 0 before the first."""
    if len(trial.reports) < 2:
        return trial.seconds
    back = min(RECENT, len(trial.reports) - 1)
    return (trial.seconds - trial.reports[-1 - back].seconds) / back


def _eta(trial: Trial, spec: ExperimentSpec, pace: float, now: float) -> str:
    """Time to ``max_t`` at its latest speed; empty if that is not known."""
    if not trial.reports or spec.scheduler.fidelity is None:
        return ""
    back = min(RECENT, len(trial.reports) - 1)
    epochs = (_epoch(trial, spec) - _epoch(trial, spec, back + 1)) / back if back else _epoch(trial, spec)
    if epochs <= 0:  # it continued from another trial's checkpoint
        return ""
    left = (spec.scheduler.fidelity[1] - _epoch(trial, spec)) / epochs * pace
    return format_duration(max(0.0, left - (now - trial.reports[-1].timestamp)))
