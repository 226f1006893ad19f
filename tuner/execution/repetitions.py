"""The repetitions of a trial: the user's function runs once for each, and the trial reports the means.

While a repetition runs, its function finds no checkpoint, and its reports go nowhere but here. Of each repetition the
best report counts, as of a trial without repetitions, and its checkpoint. After each repetition the trial reports. The
checkpoint of that report holds those of all repetitions so far, each in a folder with the repetition's number. So a
trial that was paused or has died continues with the next repetition.

With ``at_once`` the trainable trains all repetitions as one model. Once all of them have made a report, the trial makes
one: the means, with a checkpoint that holds all of theirs.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from ray.train._internal.session import get_session
from ray.tune import Checkpoint

from tuner.execution.failure_classifier import BadReport
from tuner.execution.metrics import flat_metrics
from tuner.experiment.repeat import REPETITION, Repeat
from tuner.runs.repetitions import DONE
from tuner.spec.objective import Objective

Report = Callable[..., None]
"""As ``ray.tune.report``."""


@dataclass
class _Repetition:
    """Takes the reports of one training, and keeps the best of them."""

    objective: Objective
    folder: Path
    """Its checkpoint goes there."""
    check: Callable[[], None]
    metrics: dict[str, float] = field(default_factory=dict)
    """The numbers of the best report."""
    came: bool = False
    """Whether there was a report."""
    _best: tuple[bool, float] = (False, -math.inf)
    """Whether the kept report has a checkpoint, and its quality."""

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """As ``ray.tune.report``."""
        if not self.came:
            self.check()
        named = flat_metrics(dict(metrics))
        value = named.get(self.objective.metric)
        known = isinstance(value, Real) and math.isfinite(value)
        quality = self.objective.sign * float(value) if known else -math.inf  # type: ignore[arg-type]
        if self.came and (checkpoint is not None, quality) < self._best:
            return
        self.came = True
        self._best, self.metrics = (checkpoint is not None, quality), {k: v for k, v in named.items() if _is_number(v)}
        if checkpoint is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            checkpoint.to_directory(str(self.folder))


def run_repeated(
    repeat: Repeat,
    objectives: tuple[Objective, ...],
    train: Callable[[int, Report], None],
    reports: bool,
    check: Callable[[], None],
) -> None:
    """Calls ``train`` for each repetition that has not ended yet, and reports after each.

    Args:
        repeat: How many there are.
        objectives: Of the search; by the first one the best report of a repetition is chosen.
        train: Gets the number of a repetition, from 0, and where what it returns is to be reported.
        reports: Whether this process reports: the first of a trial's workers does.
        check: Called at the first report of each repetition; it raises if the workers do not train together.
    """
    session = get_session()
    with tempfile.TemporaryDirectory(prefix="tuner-repetitions-") as scratch:
        folder = Path(scratch)
        done: list[dict[str, float]] = []
        if session.loaded_checkpoint is not None:
            session.loaded_checkpoint.to_directory(str(folder))
            done = json.loads((folder / DONE).read_text())
        for number in range(len(done), repeat.times):
            repetition = _Repetition(objectives[0], folder / str(number), check)
            with _in_place_of(session, repetition):
                train(number, repetition.report)
            if not reports:
                done.append({})
                continue
            if not repetition.came:
                raise BadReport(f"repetition {number} ended without a report: report at least once in each")
            done.append(repetition.metrics)
            (folder / DONE).write_text(json.dumps(done))
            session.report(summary(done, objectives), checkpoint=Checkpoint.from_directory(str(folder)))


@dataclass
class _Round:
    """Takes one report of each repetition after the other, and then reports for the trial."""

    repeat: Repeat
    objectives: tuple[Objective, ...]
    folder: Path
    """Of the checkpoints of a round."""
    _taken: dict[int, dict[str, float]] = field(default_factory=dict)

    def report(self, number: int, metrics: Mapping[str, Any], save: Callable[[str], Any] | None = None) -> bool:
        """Takes a report of repetition ``number``, from 0, which continues; ``save`` writes its checkpoint."""
        if not 0 <= number < self.repeat.times:
            raise BadReport(f"train_many reported number {number}, and there are {self.repeat.times} configurations")
        if number in self._taken:
            missing = next(k for k in range(self.repeat.times) if k not in self._taken)
            raise BadReport(f"train_many reported number {number} again before number {missing}: report each in turn")
        self._taken[number] = {k: v for k, v in flat_metrics(dict(metrics)).items() if _is_number(v)}
        if save is not None:
            folder = self.folder / str(number)
            folder.mkdir(parents=True)
            save(str(folder))
        if len(self._taken) == self.repeat.times:
            self._pass_on()
        return True

    def _pass_on(self) -> None:
        done = [self._taken[number] for number in range(self.repeat.times)]
        self._taken = {}
        saved = sum((self.folder / str(number)).is_dir() for number in range(self.repeat.times))
        if saved not in (0, self.repeat.times):
            raise BadReport(f"train_many gave a checkpoint for {saved} of {self.repeat.times} configurations: give all")
        checkpoint = None
        if saved:
            (self.folder / DONE).write_text(json.dumps(done))
            checkpoint = Checkpoint.from_directory(str(self.folder))
        get_session().report(summary(done, self.objectives), checkpoint=checkpoint)
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Raises BadReport if some repetitions made more reports than others."""
        if self._taken:
            missing = next(k for k in range(self.repeat.times) if k not in self._taken)
            raise BadReport(f"train_many ended without the last report of number {missing}: report each in turn")


def run_at_once(
    repeat: Repeat,
    objectives: tuple[Objective, ...],
    train_many: Callable[[Callable[..., bool], list[Path] | None], None],
) -> None:
    """Trains all repetitions as one model, and reports when all have reported.

    Args:
        repeat: How many there are.
        objectives: Of the search; their standard deviations are reported too.
        train_many: Gets where each repetition reports, and the folders from which they continue, if any.
    """
    session = get_session()
    with tempfile.TemporaryDirectory(prefix="tuner-repetitions-") as scratch:
        starts = None
        if session.loaded_checkpoint is not None:
            session.loaded_checkpoint.to_directory(f"{scratch}/start")
            starts = [Path(scratch, "start", str(number)) for number in range(repeat.times)]
        reports = _Round(repeat, objectives, Path(scratch, "reported"))
        train_many(reports.report, starts)
        reports.end()


def summary(done: list[dict[str, float]], objectives: tuple[Objective, ...]) -> dict[str, Any]:
    """The means of what all repetitions so far reported, and for each objective its standard deviation over them."""
    shared = [name for name in done[-1] if all(name in one for one in done)]
    found: dict[str, Any] = {name: statistics.fmean(one[name] for one in done) for name in shared}
    for objective in objectives:
        if objective.metric in shared and len(done) > 1:
            found[f"{objective.metric}_std"] = statistics.stdev(one[objective.metric] for one in done)
    return found | {REPETITION: len(done)}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@contextlib.contextmanager
def _in_place_of(session: Any, repetition: _Repetition) -> Iterator[None]:
    """Within: the function's reports go to ``repetition``, and it finds no checkpoint."""
    report, loaded = session.report, session.loaded_checkpoint
    session.report, session.loaded_checkpoint = repetition.report, None
    try:
        yield
    finally:
        session.report, session.loaded_checkpoint = report, loaded
