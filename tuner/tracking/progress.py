"""Progress on the terminal: a live table where there is one, a line an event that matters elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.engine.recorder import Listener
from tuner.failure import Failure
from tuner.report.terminal import config_line, headline, metrics_line, trust
from tuner.results import LOG, Report, ResultSet, Trial
from tuner.spec.objective import dominates
from tuner.spec.quantities import duration
from tuner.spec.reader import Experiment

REDRAW_S = 0.25
ROWS = 12
"""Running trials that the table shows."""


class Screen:
    """Holds the user's terminal during a run: all other output, C code's too, goes to the run folder's log."""

    def __init__(self) -> None:
        self.results: ResultSet | None = None
        self.live: Live | None = None
        self._afterwards: list[Callable[[], None]] = []

    def __enter__(self) -> Screen:
        _flush()
        self._out, self._err = os.dup(1), os.dup(2)
        self.file: IO[str] = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", buffering=1)
        os.dup2(2, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        os.dup2(self._out, 1)
        for descriptor in (self._out, self._err):
            os.close(descriptor)
        self.file.close()
        for action in self._afterwards:
            action()

    def after(self, action: Callable[[], None]) -> None:
        """Calls ``action`` when the terminal is given back."""
        self._afterwards.append(action)

    def say(self, text: str) -> None:
        """One line for the user, now; above the live table where there is one."""
        if self.live is not None:
            self.live.console.print(text, markup=False, highlight=False)
        else:
            self.file.write(text + "\n")

    def progress(self, experiment: Experiment) -> Listener:
        """The listener that shows a run of ``experiment`` here."""
        return _Live(self, experiment) if self.file.isatty() else _Lines(self, experiment)

    def take(self, results: ResultSet) -> None:
        """From now on other output goes to the log of ``results``."""
        self.results = results
        _flush()
        if results.folder.is_local:
            log = os.open(results.folder.local_path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        else:
            log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def release(self) -> None:
        """Other output goes to the terminal again."""
        _flush()
        os.dup2(self._err, 1)
        os.dup2(self._err, 2)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class _Progress:
    """What both views share: the clock, the incumbent, and the last words."""

    def __init__(self, screen: Screen, experiment: Experiment) -> None:
        self._screen = screen
        self._spec = experiment.spec
        self._begun = time.monotonic()
        self._results: ResultSet | None = None
        self._front: dict[str, tuple[float, ...]] = {}
        """The points of the trials that lead: of one with one objective, of the front with several."""
        self._first_trial: float | None = None

    def started(self, results: ResultSet) -> None:
        self._results = results
        self._front = {trial.id: results.point(trial.best) for trial in results.front if trial.best}
        self._screen.take(results)

    def reported(self, trial: Trial, report: Report) -> None:
        results = self._results
        if results is None or trial.best is not report:
            return
        led, point = trial.id in self._front, results.point(report)
        others = {name: other for name, other in self._front.items() if name != trial.id}
        if any(other == point or dominates(other, point) for other in others.values()):
            self._front = others
            return
        self._front = {name: other for name, other in others.items() if not dominates(point, other)} | {trial.id: point}
        if not led:
            self.took_the_lead(trial, report)

    def took_the_lead(self, trial: Trial, report: Report) -> None: ...
    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...

    def finished(self, results: ResultSet) -> None:
        self._screen.release()
        lines = [*headline(results), *filter(None, [trust(results)])]
        for line in [*lines, f"run: {results.folder.shown} ({duration(time.monotonic() - self._begun)})"]:
            self._screen.say(line)
        kept = [trial for trial in results.front if trial.best and trial.best.checkpoint]
        if kept:
            which, choice = ("a", f" --trial {kept[0].id}") if results.has_front else ("the best", "")
            self._screen.say(f"restore {which} model: python -m tuner best {results.folder.shown}{choice} --test")

    def limits(self) -> str:
        """Budget used and left."""
        assert self._results is not None
        total = self._results.provenance["trials"]
        self._first_trial = self._first_trial or (time.monotonic() if self._results.count("running") else None)
        used = time.monotonic() - (self._first_trial or time.monotonic())
        parts = [
            f"{len(self._results.trials) - self._results.count('pending')} of {total} trials started",
            duration(used),
        ]
        if self._spec.budget.wall_clock is not None:
            parts.append(f"{duration(max(0.0, self._spec.budget.wall_clock - used))} left")
        return ", ".join(parts)


class _Lines(_Progress):
    """One line an event that matters."""

    def started(self, results: ResultSet) -> None:
        super().started(results)
        provenance = results.provenance
        counts = f"{provenance['trials']} trials, {provenance['slots']} at once, seed {provenance['seed']}"
        self._line(f"{results.folder.shown}: {counts}")

    def took_the_lead(self, trial: Trial, report: Report) -> None:
        assert self._results is not None
        lead = "joins the front" if self._results.has_front else "takes the lead"
        reached = f"{metrics_line(self._results.values(report))} at step {report.step}"
        self._line(f"trial {trial.label} {lead}, {reached}: {config_line(trial.config)}")

    def ended(self, trial: Trial) -> None:
        results = self._results
        assert results is not None
        best = f", best {metrics_line(results.values(trial.best))}" if trial.best else ""
        done = len(results.trials) - sum(results.count(status) for status in ("pending", "running", "paused"))
        why = f" ({trial.reason})" if trial.reason else ""
        count = f"[{done}/{results.provenance['trials']}]"
        steps = f"{trial.steps} step{'s' * (trial.steps != 1)}{_again(trial)}"
        self._line(f"{count} trial {trial.label} {trial.status} after {steps}{best}{why}")

    def retried(self, trial: Trial, failure: Failure) -> None:
        self._line(f"trial {trial.label} is tried again: {failure}")

    def _line(self, text: str) -> None:
        self._screen.say(f"[{time.monotonic() - self._begun:7.1f}s] {text}")


def _again(trial: Trial) -> str:
    """Why the trial may have made more steps than its scheduler's ``max_t``."""
    times = len(trial.segments) - 1
    if times < 1:
        return ""
    return f", some of them again: it went on from a better trial {'once' if times == 1 else f'{times} times'}"


class _Live(_Progress):
    """A table that redraws in place."""

    def started(self, results: ResultSet) -> None:
        super().started(results)
        self._drawn = 0.0
        self._failures: list[str] = []
        console = Console(file=self._screen.file)
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()
        self._screen.live = self._live

    def ended(self, trial: Trial) -> None:
        if trial.status == "failed":
            self._failures.append(f"trial {trial.label} failed: {trial.reason}")

    def retried(self, trial: Trial, failure: Failure) -> None:
        self._failures.append(f"trial {trial.label} is tried again: {failure}")

    def tick(self) -> None:
        if time.monotonic() - self._drawn >= REDRAW_S:
            self._drawn = time.monotonic()
            self._live.update(self._view(), refresh=True)

    def finished(self, results: ResultSet) -> None:
        self._live.stop()
        self._screen.live = None
        super().finished(results)

    def _view(self) -> Group:
        results = self._results
        assert results is not None
        lines = [Text(f"{results.name}: {self.limits()}", style="bold"), *map(Text, headline(results))]
        lines += [Text(line) for line in self._rungs(results)]
        lines += [Text(line, style="red") for line in self._failures[-3:]]
        return Group(*lines, self._running(results))

    def _rungs(self, results: ResultSet) -> list[str]:
        rungs = self._spec.scheduler.rungs()
        if not rungs:
            return []
        name = (self._spec.scheduler.fidelity or ("", 0))[0]
        reached: Counter[int] = Counter()
        for trial in results.trials:
            last = trial.reports[-1].metrics.get(name, trial.steps) if trial.reports else 0
            reached.update(rung for rung in rungs if rung <= last)
        return [f"rungs ({name}: trials): " + "  ".join(f"{rung}: {reached[rung]}" for rung in rungs)]

    def _running(self, results: ResultSet) -> Table:
        view = Table(box=None, padding=(0, 1), header_style="dim")
        for heading in ("trial", "steps", "seconds", results.metric, "best", "configuration"):
            view.add_column(heading, no_wrap=True)
        room = max(10, self._live.console.width - 45 - len(results.metric))
        running = [trial for trial in results.trials if trial.status == "running"]
        for trial in running[:ROWS]:
            last: Any = results.value(trial.reports[-1]) if trial.reports else None
            best: Any = results.value(trial.best) if trial.best else None
            values = [f"{value:.4g}" if value is not None else "" for value in (last, best)]
            counts = [f"#{trial.number}", str(trial.steps), f"{trial.seconds:.1f}"]
            view.add_row(*counts, *values, config_line(trial.config)[:room])
        if len(running) > ROWS:
            view.add_row(f"and {len(running) - ROWS} more")
        return view
