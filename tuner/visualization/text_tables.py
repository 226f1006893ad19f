"""What a terminal shows of a run."""

from __future__ import annotations

import itertools
import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, mul
from typing import Any

from tuner.plan.compatibility import changes_configurations
from tuner.runs.feasibility import no_winner, share_feasible, why
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.schedulers.asha.first_rung import FirstRungSelector
from tuner.spec.configuration import flat
from tuner.spec.objective import have_weights
from tuner.spec.quantities import counted, format_duration
from tuner.spec.values import format_number
from tuner.visualization.by_people import HEAD, command_rows
from tuner.visualization.twins import same_curves

_WORTH_SAVING = 0.15
"""Of the time of trials: a share from which on the remedy is named."""

FRONT_LINES = 10
"""Trials of a front that a headline shows."""


def config_lines(config: Mapping[str, Any]) -> Iterator[str]:
    """One line a parameter, nested names joined by dots."""
    return (f"{name} = {json.dumps(value, default=repr)}" for name, value in flat(config))


def config_line(config: Mapping[str, Any]) -> str:
    """All parameters in one line, numbers shortened."""
    pairs = (line.split(" = ", 1) for line in config_lines(config))
    return ", ".join(f"{name} {_short(text)}" for name, text in pairs)


def _short(text: str) -> str:
    try:
        return format_number(json.loads(text))
    except ValueError:
        return text


def table(rows: Sequence[Mapping[str, Any]], width: int | None = None, fold: bool = False) -> str:
    """Aligned columns; the keys of the first row are the headings. See `aligned`."""
    head = list(rows[0])
    return format_columns([head, *([format_number(row[name]) for name in head] for row in rows)], width, fold)


def format_columns(rows: Sequence[Sequence[str]], width: int | None = None, fold: bool = False) -> str:
    """Aligned columns; a row may end early.

    If a line would be wider than ``width``, the cells of the widest columns are cut short, ``…`` at their ends;
    with ``fold`` they continue on further lines instead.
    """
    widths = [max(map(len, column)) for column in itertools.zip_longest(*rows, fillvalue="")]
    cap = max(widths, default=0)
    while width is not None and sum(min(w, cap) for w in widths) + 2 * (len(widths) - 1) > width and cap > 1:
        cap -= 1
    lines = (line for row in rows for line in (_folded(row, cap) if fold else [[shortened(c, cap) for c in row]]))
    placed = (zip(line, widths, strict=False) for line in lines)
    return "\n".join("  ".join(cell.ljust(min(w, cap)) for cell, w in line).rstrip() for line in placed)


def _folded(row: Sequence[str], width: int) -> Iterator[Sequence[str]]:
    """The lines of a row whose cells have ``width`` columns at most."""
    cells = [textwrap.wrap(cell, width, break_on_hyphens=False) or [""] for cell in row]
    yield from itertools.zip_longest(*cells, fillvalue="")


def shortened(text: str, width: int | None) -> str:
    """``text`` with ``…`` in place of what goes beyond ``width``."""
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def objectives_line(results: ResultSet, separator: str = ", ") -> str:
    """``max val_accuracy, min parameters``."""
    return separator.join(map(str, results.objectives))


@dataclass(frozen=True)
class Saved:
    """What early stopping saved."""

    spent: int
    """In units of the scheduler's ``time_attr``, as `full`."""
    full: int
    """What they would have taken, had the scheduler let those that it stopped run up to ``max_t``."""
    unit: str
    seconds: float
    """Of trial time, at the mean pace of the run."""


def saved(results: ResultSet) -> Saved | None:
    """None if no scheduler stops early, or nothing was reported."""
    scheduler = results.section("scheduler")
    reported = [trial for trial in results.trials if trial.reports]
    if not scheduler.get("max_t") or not reported or changes_configurations(scheduler["kind"]):
        return None
    unit = scheduler["time_attr"]
    begun = sum(t.origin.begins_at for t in reported if t.origin)  # trained by the trials that they are clones of
    spent = sum(int(t.reports[-1].progress(unit)) for t in reported) - begun
    full = sum(scheduler["max_t"] if t.status == "stopped" else int(t.reports[-1].progress(unit)) for t in reported)
    full -= begun
    pace = sum(t.seconds for t in reported) / max(spent, 1)
    return Saved(spent, full, unit, (full - spent) * pace)


def savings_line(results: ResultSet) -> str:
    """What early stopping saved, in units of the scheduler's ``time_attr``; empty if no scheduler stops early."""
    found = saved(results)
    if found is None or found.full <= 0:  # steps may be counted from 0
        return ""
    share = 1 - found.spent / found.full
    return f"{found.spent} of {found.full} {found.unit}s run: {share:.0%} saved by stopping early"


def first_rung_line(results: ResultSet) -> str:
    """The first rung that ``grace_period: auto`` chose in the end, and why; empty for other runs, and fronts."""
    scheduler, objectives = results.section("scheduler"), results.objectives
    weights = [objective.weight or 0 for objective in objectives] if have_weights(objectives) else [1.0]
    if scheduler.get("grace_period") != "auto" or len(weights) < len(objectives):
        return ""
    unit = scheduler["time_attr"]
    reports = sorted((report for trial in results.trials for report in trial.reports), key=lambda r: r.timestamp)
    known = [(r.trial_id, int(r.progress(unit)), sum(map(mul, weights, results.point(r)))) for r in reports]
    begun = {trial.id: trial.origin.begins_at for trial in results.trials if trial.origin}
    found = FirstRungSelector.after(
        (r for r in known if math.isfinite(r[2])), scheduler["reduction_factor"], scheduler["max_t"], begun
    )
    where = f"no rung before {unit}" if found.first_rung == scheduler["max_t"] else f"first rung at {unit}"
    kept = [f"{recall.share:.0%} at {unit} {recall.level}" for recall in found.recalls() if recall.elites]
    reason = f"; of the best trials a cut keeps about {', '.join(kept)}" if kept else "; nothing was measured yet"
    return f"grace_period auto: {where} {found.first_rung}{reason}"


def audit_line(results: ResultSet) -> str:
    """The audit of early stopping in one line; empty if there are none."""
    if not results.section("scheduler").get("audit"):
        return ""
    from tuner.visualization.audit import LEAST_AUDITED, audit

    found = audit(results)
    if found is None:
        return ""
    scheduler = results.section("scheduler")
    unit, max_t = scheduler["time_attr"], scheduler["max_t"]
    line = (
        f"audit: of {counted(found.to_stop, 'trial')} to be stopped {found.audited} ran on, and {found.better} of them "
        f"beat all others"
    )
    if found.audited < LEAST_AUDITED:
        line += f"; {LEAST_AUDITED} are needed to tell what stopping cost"
    if missed := found.missed:
        what = "the weighted sum" if results.has_front else results.metric
        line += f"; stopping cost about {missed.mean:.2g} of {what} (90%: {missed.low:.2g} to {missed.high:.2g})"
    if ranks := found.correlation:
        line += (
            f"; ranks at {unit} {found.rung} and {max_t} correlate by {ranks.mean:.2f} "
            f"(90%: {ranks.low:.2f} to {ranks.high:.2f})"
        )
    return line


def learned_lines(results: ResultSet) -> list[str]:
    """What the scheduler learned about early stopping."""
    return [*filter(None, [first_rung_line(results), audit_line(results)])]


def headline(results: ResultSet) -> list[str]:
    """The result of a run in a few lines: notices, best trial or front, trials by status, what was saved."""
    lines = [f"NOTICE: {notice}" for notice in (*results.notices, *results.unreadable)]
    lines += [f"NOTICE: {same}" for same in filter(None, [same_curves(results)])]
    front = results.front
    if not front:
        lines.append(no_winner(results) or "no trial has a result")
    elif not results.has_front:
        lines.append(f"best: {_reached(results, front[0])}")
    else:
        lines.append(f"Pareto front of {objectives_line(results)}: {counted(len(front), 'trial')}")
        lines += [f"  {_reached(results, trial)}" for trial in front[:FRONT_LINES]]
        if len(front) > FRONT_LINES:
            lines.append(f"  and {len(front) - FRONT_LINES} more")
    more = [share_feasible(results), failed_attempts(results), savings_line(results)]
    return [*lines, status_line(results), *filter(None, more)]


def best_command(results: ResultSet, trial: Trial) -> str:
    """The command that restores the model of ``trial``, one of the front."""
    chosen = f" {trial.id}" if results.has_front else ""
    test = " --test" if results.provenance.get("can_evaluate") else ""
    return f"python -m tuner best {results.folder.quoted}{chosen}{test}"


def status_line(results: ResultSet) -> str:
    """``trials: 8 completed, 22 stopped; 10m40s of trial time``."""
    return (
        f"trials: {counts(results) or 'none'}; {format_duration(sum(t.seconds for t in results.trials))} of trial time"
    )


def counts(results: ResultSet) -> str:
    """``4 completed, 20 stopped``: trials by status; empty if there is none."""
    found: Counter[str] = Counter(trial.status for trial in results.trials)
    order = ("completed", "stopped", "failed", "running", "paused", "pending")
    return ", ".join(f"{found[status]} {status}" for status in order if found[status])


def failed_attempts(results: ResultSet) -> str:
    """``failed attempts: 4 (3 process died, 1 hung)``; empty if there was none."""
    kinds = Counter(failure.kind for trial in results.trials for failure in trial.failures)
    if not kinds:
        return ""
    return f"failed attempts: {kinds.total()} ({', '.join(f'{n} {k}' for k, n in kinds.most_common())})"


def consumption_lines(results: ResultSet) -> list[str]:
    """What trials needed at most, and how much GPUs computed; a line for each that was measured."""
    told = [(trial, trial.consumption) for trial in results.trials]
    lines = []
    host = max(((c.peak_host_gib, t) for t, c in told if c.peak_host_gib is not None), key=itemgetter(0), default=None)
    if host:
        lines.append(f"host memory: at most {host[0]:.3g} GiB, trial {host[1].label}")
    gpu = max(((c.peak_gpu_gib, t) for t, c in told if c.peak_gpu_gib is not None), key=itemgetter(0), default=None)
    if gpu:
        held = max(c.peak_gpu_reserved_gib or 0.0 for _, c in told)
        lines.append(
            f"GPU memory: at most {gpu[0]:.3g} GiB, trial {gpu[1].label}; with torch's cache at most {held:.3g} GiB"
        )
    uses = [(t.seconds, c.gpu_use) for t, c in told if c.gpu_use is not None]
    if time := sum(seconds for seconds, _ in uses):
        lines.append(f"GPU use: {sum(seconds * use for seconds, use in uses) / time:.0f}% of trial time")
    return [*lines, *_where_time_went(results)]


def _where_time_went(results: ResultSet) -> Iterator[str]:
    """How much time of trials went elsewhere than into training, with what shortens it."""
    told = [(trial.seconds, trial.consumption) for trial in results.trials]
    for name, text, remedy in (
        ("data_s", "waited for data", "more num_workers of the DataLoader, or data that stay in memory, save it"),
        ("checkpoint_s", "went into writing checkpoints", "fewer of them (checkpoints.every) save it"),
    ):
        known = [(seconds, value) for seconds, one in told if (value := getattr(one, name)) is not None]
        if time := sum(seconds for seconds, _ in known):
            share = sum(value for _, value in known) / time
            hint = f": {remedy}" if share >= _WORTH_SAVING else ""
            yield f"time: {share:.0%} of trial time {text}{hint}"


def _reached(results: ResultSet, trial: Trial) -> str:
    assert trial.best is not None
    values = ", ".join(f"{metric} {value:.6g}" for metric, value in results.values(trial.best).items())
    return f"trial {trial.label}, {values} at step {trial.best.step}: {config_line(trial.config)}"


def overview(
    results: ResultSet, state_line: str, width: int | None = None, fold: bool = False, brief: bool = False
) -> str:
    """``show``: how the run stands, the headline and a table of trials, best (the front) first, then the others.

    ``width``: of the terminal; lines of any length without it. ``fold``: nothing is cut or left out to fit. ``brief``:
    the headline alone.
    """
    trials = [*results.rank(results.trials), *(t for t in results.trials if t.best is None)]
    lines = [
        f"run: {results.folder.location}",
        state_line,
        *headline(results),
        *learned_lines(results),
    ]
    if width is not None:
        lines = [part for line in lines for part in _wrapped(line, width)]
    if results.commands and not brief:
        lines += ["", format_columns([HEAD, *command_rows(results)], width, fold)]
    if brief or not trials:
        return "\n".join(lines)
    rows = [_row(results, trial) for trial in trials]
    if len({trial.host for trial in trials if trial.host}) > 1:
        rows = [{**row, "host": trial.host} for row, trial in zip(rows, trials, strict=True)]
    shown = table(rows)
    if fold:
        shown = table(rows, width, fold)
    elif width is not None and max(map(len, shown.splitlines())) > width:
        shown = table(_without_the_usual(rows, trials), width)
    return "\n".join([*lines, "", shown])


def _wrapped(line: str, width: int) -> list[str]:
    """``line`` in lines that fit; what can be copied, a path or a command, stays in one piece if it can."""
    return textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)


def _without_the_usual(rows: Sequence[dict[str, Any]], trials: Sequence[Trial]) -> Sequence[dict[str, Any]]:
    """``rows`` without reasons that the status tells well enough; without their column where none is left."""
    kept = [
        t.status not in ("completed", "stopped") or bool(t.failures) or row["why"] != t.why
        for row, t in zip(rows, trials, strict=True)
    ]
    if any(kept):
        return [row if keep else row | {"why": ""} for row, keep in zip(rows, kept, strict=True)]
    return [{name: value for name, value in row.items() if name != "why"} for row in rows]


def _row(results: ResultSet, trial: Trial) -> dict[str, Any]:
    return {
        "#": trial.number,
        "trial": trial.id,
        "status": trial.status,
        **(results.values(trial.best) if trial.best else dict.fromkeys(results.compared_metrics)),
        "steps": trial.steps,
        "seconds": f"{trial.seconds:.1f}",
        "configuration": config_line(trial.config),
        "why": why(results, trial),
    }
