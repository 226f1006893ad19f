"""One recorded trial run again in this process, and held against what was recorded, to the last bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.actions.replay_comparison import ROUNDING, Difference, equal_as_recorded, is_process_metric
from tuner.errors import InputError, Interrupted
from tuner.execution.failure_classifier import BadReport, MissingMetric, classify, user_error
from tuner.execution.in_process import run_in_process
from tuner.execution.trial_context import TrialContext
from tuner.runs.provenance import experiment_of, surroundings
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.spec.quantities import counted


@dataclass(frozen=True)
class Replay:
    """What came of running a trial again."""

    run: str
    trial: str
    number: int
    reports: int
    """Compared reports."""
    metrics: int
    """Compared metrics, without those that measure the process."""
    differences: tuple[Difference, ...]
    """One a metric, in the order of their steps."""
    ending: str
    """In which way the trial ended otherwise here than recorded; empty if it ended alike, or was not followed."""
    failure: str
    """Why the trial fails here, in one line; empty if it does not."""
    surroundings: tuple[str, ...]
    """Conditions of the computation that have changed since: versions of packages, code, host."""
    tolerance: float = 0.0
    """Up to this relative difference numbers are equal; 0: to the last bit."""

    @property
    def agrees(self) -> bool:
        return not self.ending and all(difference.measured for difference in self.differences)

    def as_json(self) -> dict[str, Any]:
        return {"agrees": self.agrees, **asdict(self)}

    @property
    def _precision(self) -> str:
        if not self.tolerance:
            return "to the last bit"
        return f"to {self.tolerance:.1%}: it trained with others as one model, which rounds otherwise"

    def describe(self) -> list[str]:
        """The verdict, and what explains it."""
        telling = [d for d in self.differences if not d.measured]
        count = f"{counted(self.reports, 'report')}, {counted(self.metrics, 'metric')}"
        if not telling and not self.ending:
            fails = f"; fails as recorded: {self.failure}" if self.failure else ""
            lines = [f"agrees: {count}, {self._precision}{fails}"]
        elif telling:
            first = [d for d in telling if d.step == telling[0].step]
            lines = [f"differs from report {telling[0].step} on: {'; '.join(map(str, first))}"]
            lines += [f"differs from report {d.step} on: {d}" for d in telling[len(first) :]]
        else:
            lines = [f"differs after {count} that agree {self._precision}"]
        if self.ending:
            lines.append(f"ends otherwise: {self.ending}")
        lines += [
            f"measured anew, and not part of the verdict: {d}, from report {d.step} on"
            for d in self.differences
            if d.measured
        ]
        if not self.agrees:
            lines += [f"not as in the run: {text}" for text in self.surroundings]
        return lines


Show = Callable[[Report, list[Difference]], None]
"""Gets each report as it comes, with the metrics in which it is not the recorded one."""


def replay(
    results: ResultSet,
    trial: Trial,
    *,
    until: int | None = None,
    show: Show = lambda report, differences: None,
    on_error: Callable[[BaseException], None] = lambda error: None,
) -> Replay:
    """Runs ``trial`` again from its start, without Ray, and compares each report with the recorded one.

    With the configuration, prepared parameters, seed, working directory, import path and number of threads that it
    had. It ends with the last recorded report (or with report ``until``, if that comes first); a trial that failed, or
    whose function returned by itself, is followed to that end. A trial that continued from a checkpoint after an
    interruption is replayed from its start all the same: where its function keeps all its state in checkpoints, that
    makes no difference.

    ``on_error`` is called with what the function raises, while directory and environment are still the trial's.
    Floats are equal when all their bits are, or both are NaN. A trial that trained with others as one model is trained
    alone here: its floats are equal up to `ROUNDING`.

    Raises InputError when the trial cannot be replayed, Interrupted on Ctrl-C.
    """
    _check(results, trial, until)
    recorded = {report.step: report for report in trial.reports}
    comparison = _Comparison(results, trial)
    last = trial.steps if until is None else min(until, trial.steps)
    follows_to_its_end = last == trial.steps and (until is None or until > last) and _ended_by_itself(trial)

    def take(step: int, metrics: dict[str, Any]) -> bool:
        if step > last:
            comparison.ending = f"a report {step} here, {_end(trial)} recorded"
            return False
        found = comparison.compare(step, metrics, recorded[step])
        show(Report(trial.id, step, 0.0, 0.0, metrics), found)
        return step < last or follows_to_its_end

    try:
        error = run_in_process(
            _task(results),
            trial.config,
            take,
            trial_id=trial.id,
            on_error=on_error,
        )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted after {comparison.reports} of {last} reports") from None
    return comparison.result(error, followed=follows_to_its_end, last=last)


def _check(results: ResultSet, trial: Trial, until: int | None) -> None:
    if (workers := results.section("resources").get("workers", 1)) > 1:
        raise InputError(f"TRIAL: trial {trial.label} was trained by {workers} processes, and a replay is one")
    if trial.origin and trial.origin.step is not None:
        raise InputError(
            f"TRIAL: trial {trial.label} started from the checkpoint of trial {trial.origin.parent}: "
            f"it has no curve of its own to replay"
        )
    if trial.segments:
        scheduler = results.section("scheduler").get("kind", "the scheduler")
        raise InputError(
            f"TRIAL: trial {trial.label} continued from other trials' checkpoints ({scheduler} "
            f"changed its configuration {len(trial.segments) - 1} times): it has no curve of its own to replay"
        )
    if until is not None and until < 1:
        raise InputError(f"--until {until}: reports are counted from 1")
    if not trial.reports and trial.status != "failed":
        raise InputError(f"TRIAL: trial {trial.label} is {trial.status} and reported nothing: nothing to compare with")
    if missing := set(range(1, trial.steps + 1)) - {report.step for report in trial.reports}:
        raise InputError(
            f"TRIAL: the record of trial {trial.label} has no report {min(missing)}: nothing to compare with"
        )
    for key in ("seed", "roots", "working_directory", "trial_resources"):
        if key not in results.provenance:
            raise InputError(f"{results.folder.location}: provenance.json has no {key!r}: the trial cannot be replayed")


def _task(results: ResultSet) -> TrialContext:
    provenance, experiment = results.provenance, experiment_of(results)
    spec = experiment.spec
    return TrialContext(
        trainable=spec.trainable,
        roots=experiment.roots,
        working_directory=Path(provenance["working_directory"]),
        params=results.section("params"),
        required=spec.required_metrics,
        seed=provenance["seed"],
        cpu=spec.resources.cpus,
        request=provenance["trial_resources"],
        workers=1,
        objectives=spec.objectives,
        repeat=spec.repeat,
        pickles=experiment.pickles,
    )


def _ended_by_itself(trial: Trial) -> bool:
    """Whether its function came to its end: it failed, or it returned (then there is no reason besides)."""
    return trial.status == "failed" or (trial.status == "completed" and not trial.reason)


def _end(trial: Trial) -> str:
    """The recorded end in words, after the last report."""
    if trial.status == "failed":
        return f"after report {trial.steps} the failure {trial.reason!r}"
    return f"its return after report {trial.steps}"


@dataclass
class _Comparison:
    """Fills while the trial runs."""

    results: ResultSet
    trial: Trial
    reports: int = 0
    ending: str = ""
    _seen: set[str] = field(default_factory=set)
    _first: dict[str, Difference] = field(default_factory=dict)

    def compare(self, step: int, metrics: dict[str, Any], recorded: Report) -> list[Difference]:
        """The metrics that are not as in the report that was ``recorded``."""
        self.reports += 1
        here = {name: value for name, value in metrics.items() if isinstance(value, (bool, int, float, str))}
        found = []
        for name in dict.fromkeys([*here, *recorded.metrics]):
            self._seen.add(name)
            mine, theirs = here.get(name), recorded.metrics.get(name)
            if not equal_as_recorded(mine, theirs, self._tolerance):
                found.append(Difference(name, step, mine, theirs, self._measures(name)))
                self._first.setdefault(name, found[-1])
        return found

    @property
    def _tolerance(self) -> float:
        return ROUNDING if self.results.section("resources").get("fused", 1) > 1 else 0.0

    def _measures(self, name: str) -> bool:
        return name not in {o.metric for o in self.results.objectives} and is_process_metric(name)

    def result(self, error: BaseException | None, *, followed: bool, last: int) -> Replay:
        failure = "" if error is None else classify(user_error(error) if fails_by_itself(error) else error).message
        trial = self.trial
        if not self.ending:
            as_recorded = trial.status == "failed" and trial.reason == failure and self.reports == trial.steps
            if failure and not (followed and as_recorded):
                self.ending = f"fails here after report {self.reports}: {failure}; recorded: {_what(trial)}"
            elif not failure and (self.reports < last or (followed and trial.status == "failed")):
                self.ending = f"returns here after report {self.reports}; recorded: {_what(trial)}"
        changed = self._changes()
        counted = [name for name in self._seen if not (name in self._first and self._first[name].measured)]
        ordered = sorted(self._first.values(), key=lambda d: d.step)
        return Replay(
            self.results.name,
            trial.id,
            trial.number,
            self.reports,
            len(counted),
            tuple(ordered),
            self.ending,
            failure,
            changed,
            self._tolerance,
        )

    def _changes(self) -> tuple[str, ...]:
        before = self.results.provenance
        now = surroundings(Path(before["roots"][-1]))
        changed = []
        for name in ("host", "platform", "python"):
            if before.get(name) != now[name]:
                changed.append(f"{name} {now[name]} here, {before.get(name)} then")
        packages = before.get("packages") or {}
        for name in dict.fromkeys([*packages, *now["packages"]]):
            if packages.get(name) != now["packages"].get(name):
                changed.append(f"{name} {now['packages'].get(name)} here, {packages.get(name)} then")
        code, here = before.get("git") or {}, now["git"] or {}
        if code.get("commit") != here.get("commit"):
            changed.append(f"git commit {here.get('commit')} here, {code.get('commit')} then")
        elif code.get("diff_sha256") != here.get("diff_sha256"):
            changed.append("uncommitted changes of the code are others than they were then")
        if not os.path.isdir(before["working_directory"]):  # noqa: PTH112 - false for what cannot be a path too
            changed.append(f"the working directory {before['working_directory']} is gone: it ran in {Path.cwd()}")
        return tuple(changed)


def _what(trial: Trial) -> str:
    reason = f": {trial.reason}" if trial.reason else ""
    return f"{trial.status} after report {trial.steps}{reason}"


def fails_by_itself(error: BaseException) -> bool:
    """Whether the user's function raised ``error``, so that there is a traceback to look at."""
    return not isinstance(error, (BadReport, MissingMetric))
