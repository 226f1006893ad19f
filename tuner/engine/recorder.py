"""Turns what happens in Ray Tune into our results, and tells the listeners."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any, Protocol

from ray.exceptions import ActorDiedError, OutOfMemoryError, RayActorError, RayTaskError
from ray.tune import Callback
from ray.tune.experiment import Trial as RayTrial

from tuner.engine.control import Control
from tuner.results import PROVENANCE, RAY, Report, ResultSet, Segment, Trial, flat_metrics, write_json
from tuner.schedulers.base import Exploit, SchedulerSpec
from tuner.spec.experiment import Checkpoints

SAVE_EVERY_S = 5.0
"""How often a running search writes trials.csv and results.parquet; at most 2 % of the time goes into it."""


PAUSED_AT_RUNG = "waits at its rung"


class Listener(Protocol):
    """Follows a run. Called between two events of the search, so it must be quick."""

    def started(self, results: ResultSet) -> None: ...
    def reported(self, trial: Trial, report: Report) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...
    def finished(self, results: ResultSet) -> None: ...


class Recorder(Callback):  # type: ignore[misc]
    """Ray Tune's callback: fills a ``ResultSet``, keeps the run folder up to date, enforces ``keep_trials``."""

    def __init__(
        self,
        results: ResultSet,
        scheduler: SchedulerSpec,
        checkpoints: Checkpoints,
        control: Control,
        listeners: list[Listener],
    ) -> None:
        self.results = results
        self._scheduler = scheduler
        self._checkpoints = checkpoints
        self._control = control
        self._listeners = listeners
        self._next_save = time.monotonic() + SAVE_EVERY_S
        self._changed = False
        self._copied: dict[str, str] = {}
        """Folders, below the run folder, from which exploited trials go on and have not reported yet."""

    def added(self, ray_trial: RayTrial) -> None:
        """A configuration was suggested, or a trial is taken up again after an interruption."""
        known = self.results.get(ray_trial.trial_id)
        if known is None:
            self.results.add(Trial(ray_trial.trial_id, len(self.results.trials) + 1, dict(ray_trial.config)))
            return
        # Ray goes on from its last snapshot: what was reported after it will be reported again.
        last = ray_trial.last_result.get("training_iteration", 0)
        known.reports = [report for report in known.reports if report.step <= last]
        known.best = None
        for report in known.reports:
            if self._is_best(known.best, report):
                known.best = report

    def on_trial_start(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        self._control.first_trial_started()
        ours = self.results.trial(trial.trial_id)
        ours.status, ours.reason = "running", ""

    def on_trial_result(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, result: dict[str, Any], **info: Any
    ) -> None:
        ours = self.results.trial(trial.trial_id)
        folder = result.get("checkpoint_dir_name")
        report = Report(
            trial_id=ours.id,
            step=result["training_iteration"],
            seconds=result["time_total_s"],
            timestamp=result["timestamp"],
            metrics=flat_metrics(result),
            checkpoint=f"{RAY}/{ours.id}/{folder}" if folder else None,
        )
        ours.reports.append(report)
        if self._is_best(ours.best, report):
            ours.best = report
            ours.config = ours.config_at(report.step)
        if ours.id in self._copied and report.step > ours.segments[-1].after:
            self.results.folder.delete(self._copied.pop(ours.id))
        self._changed = True
        for listener in self._listeners:
            listener.reported(ours, report)

    def _is_best(self, best: Report | None, report: Report) -> bool:
        """Whether ``report`` replaces ``best``; of equals the later, as Ray's retention keeps the later one's files."""
        if best is None or bool(best.checkpoint) != bool(report.checkpoint):
            return best is None or report.checkpoint is not None
        return not self.results.better(self.results.value(best), self.results.value(report))

    def exploited(self, trial_id: str, exploit: Exploit, after: int, checkpoint: str, donor_step: int) -> str:
        """After report ``after`` the trial goes on from its donor's checkpoint, a path on the storage.

        Returns the path of a copy, which stays until the trial has reported again.
        """
        trial, folder = self.results.trial(trial_id), self.results.folder
        trial.segments = trial.segments or [Segment(0, trial.config)]
        trial.segments.append(Segment(after, dict(exploit.configuration), exploit.donor, donor_step))
        copied = f"{RAY}/{trial_id}/from_{exploit.donor}"
        folder.delete(copied)
        replace(folder, path=checkpoint).copy_to(folder / copied)
        self._copied[trial_id] = copied
        return (folder / copied).path

    def paused(self, trial_id: str) -> None:
        """The trial waits at its rung."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason = "paused", PAUSED_AT_RUNG

    def returned(self, trial_id: str) -> None:
        """The trial's function came to its end by itself."""
        self.results.trial(trial_id).reason = "returned"

    def on_trial_complete(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        ours = self.results.trial(trial.trial_id)
        if ours.reason == "returned":
            self._end(ours, "completed", "")
            return
        name, max_t = self._scheduler.fidelity or ("training_iteration", None)
        reached = trial.last_result.get(name, 0)
        if max_t is not None and reached >= max_t:
            self._end(ours, "completed", f"{name} reached max_t {max_t}")
        else:
            ours.rung = max((rung for rung in self._scheduler.rungs() if rung <= reached), default=None)
            self._end(
                ours,
                "stopped",
                f"stopped by the scheduler at rung {ours.rung}" if ours.rung else "stopped by the scheduler",
            )

    def failed(self, trial_id: str, error: BaseException) -> None:
        """The trial raised, reported something that cannot be compared, or its process died."""
        self._end(self.results.trial(trial_id), "failed", one_line(error))

    def _end(self, trial: Trial, status: Any, reason: str) -> None:
        trial.status, trial.reason = status, reason
        self._drop_checkpoints()
        self._changed = True
        for listener in self._listeners:
            listener.ended(trial)

    def _drop_checkpoints(self) -> None:
        """Deletes the checkpoints of ended trials that are not among the best ``keep_trials``."""
        ended = [
            t
            for t in self.results.trials
            if t.status in ("completed", "stopped", "failed") and t.best and t.best.checkpoint
        ]
        for trial in self.results.surplus(ended, self._checkpoints.keep_trials):
            for folder in {r.checkpoint for r in trial.reports if r.checkpoint}:
                self.results.folder.delete(folder)
            forget_checkpoints(trial, set())

    def on_step_end(self, iteration: int, trials: list[RayTrial], **info: Any) -> None:
        for listener in self._listeners:
            listener.tick()
        if self._changed and time.monotonic() >= self._next_save:
            begun = time.monotonic()
            self.results.save()
            self._changed = False
            self._next_save = time.monotonic() + max(SAVE_EVERY_S, 50 * (time.monotonic() - begun))

    def finish(self) -> None:
        """Settles every trial's status and writes the run folder."""
        for trial in self.results.trials:
            if trial.status in ("running", "paused") and self._control.stop_reason:
                self._end(trial, "stopped", self._control.stop_reason)
            elif trial.status == "running":
                trial.status, trial.reason = "paused", "interrupted"
            elif trial.status == "pending":
                trial.reason = self._control.stop_reason or "interrupted before it started"
        self.results.provenance |= {"elapsed_s": self._control.elapsed, "interrupted": self._control.interrupted}
        write_json(self.results.folder, PROVENANCE, self.results.provenance)
        for trial in self.results.trials:
            if any(report.checkpoint for report in trial.reports):
                present = {f"{RAY}/{trial.id}/{name}" for name in (self.results.folder / RAY / trial.id).folders()}
                forget_checkpoints(trial, present)
        self.results.save()
        self.results.save_best()


def forget_checkpoints(trial: Trial, present: set[str]) -> None:
    """Takes the checkpoints that are not ``present`` any more out of the trial's reports."""
    trial.reports = [
        r if r.checkpoint is None or r.checkpoint in present else replace(r, checkpoint=None) for r in trial.reports
    ]
    if trial.best:
        trial.best = next(r for r in trial.reports if r.step == trial.best.step)


def one_line(error: BaseException) -> str:
    """Why a trial failed, in one line."""
    if isinstance(error, OutOfMemoryError):
        return "killed by Ray: the node's memory was nearly full"
    if isinstance(error, RayActorError | ActorDiedError):
        text = " ".join(str(error).split())
        code = re.search(r"exit code[ =:]*(-?\d+)", text)
        kind = re.search(r"Worker exit type: (\w+)", text)
        if code:
            return f"its process exited with code {code[1]}"
        return "its process died (killed by a signal, out of memory, or os._exit)" + (f" [{kind[1]}]" if kind else "")
    cause = error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, BaseException) else error
    while cause.__cause__ is not None and type(cause).__name__ == "StartTraceback":
        cause = cause.__cause__
    lines = str(cause).strip().splitlines()
    text = lines[0] if lines else ""
    name = type(cause).__name__
    return text if name in ("BadReport", "MissingMetric") else f"{name}: {text}" if text else name
