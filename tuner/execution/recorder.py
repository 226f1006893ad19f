"""Turns what happens in Ray Tune into our results, and tells the listeners."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Protocol

from ray.tune import Callback
from ray.tune.experiment import Trial as RayTrial

from tuner.execution.actor_hosts import ActorHosts
from tuner.execution.command_recorder import CommandRecorder
from tuner.execution.metrics import flat_metrics
from tuner.experiment.spec import Checkpoints
from tuner.runs.consumption import Consumption
from tuner.runs.failure import Failure
from tuner.runs.history import ASIDE, INTERRUPTED, WAITS_AT_RUNG, EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.results import PROVENANCE, RAY, ResultSet, Used, write_json
from tuner.runs.trial import Origin, Report, Segment, Status, Trial
from tuner.schedulers.base import Decision, Exploit, SchedulerSpec
from tuner.search.checkpoint_retention import CheckpointRetention, copy_name
from tuner.search.control import SearchControl
from tuner.search.emitted_events import audited_rung, ending, failed_attempt, reported
from tuner.search.memory_growth import MemoryGrowth
from tuner.search.recovery import RecoveredSearch
from tuner.search.snapshot import Snapshot, write_snapshot
from tuner.search.storage_patience import probe
from tuner.search.storing import RunFolderWriter
from tuner.spec.configuration import flat
from tuner.spec.values import format_number
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import find_damage, make_durable

SAVE_EVERY_S = 5.0
"""How often a running search writes its tables and the snapshot; at most 2 % of the time goes into it."""

LONGEST_SAVE_S = 0.5
"""Processor time of a save above which a running search writes the state alone: the tables, and the trials of the
snapshot, come at the end. Both are in the journal, and the search stands still while they are written."""

RETURNED = "returned"


class Listener(Protocol):
    """Follows a run. Called between two events of the search, so it must be quick."""

    def started(self, results: ResultSet) -> None: ...
    def reported(self, trial: Trial, report: Report) -> None: ...
    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...
    def finished(self, results: ResultSet) -> None: ...


class Recorder(CommandRecorder, Callback):  # type: ignore[misc]
    """Ray Tune's callback: fills a ``ResultSet``, journals it, keeps the run folder up to date and ``keep_trials``."""

    def __init__(
        self,
        recovered: RecoveredSearch,
        journal: JournalWriter,
        scheduler: SchedulerSpec,
        checkpoints: Checkpoints,
        control: SearchControl,
        listeners: list[Listener],
    ) -> None:
        self.results = results = recovered.results
        self.state = recovered.state
        self.usage = recovered.usage
        self._history = EventApplier(results)
        self._journal = journal
        self.scheduler = scheduler
        self.storing = RunFolderWriter(results.folder, control)
        self.retention = CheckpointRetention(results, checkpoints, self.say, self.storing)
        self._control = control
        self.hosts = ActorHosts()
        self._listeners = listeners
        self._next_save = time.monotonic() + SAVE_EVERY_S
        self._whole_took = 0.0
        """Seconds of processor time for the latest save of everything."""
        self._changed = False
        self._decisions: dict[str, Decision | Exploit] = {}
        """Of each trial: what its report that is being digested leads to."""
        self._measured: dict[str, Consumption | None] = {}
        """Of each trial: what it had consumed at its report that is being digested."""
        self._growth = MemoryGrowth(results.section("scheduler").get("time_attr", ""), results.notices)
        self._segments: dict[str, Segment] = {}
        """Of each trial that is being exploited: how it continues."""

    def say(self, text: str) -> None:
        """Tells the user at once."""
        self._control.say(f"NOTICE: {text}")

    def notify(self, text: str) -> None:
        """Tells the user at once, and notes it in the run folder."""
        self.say(text)
        self.results.provenance["notices"] = [*self.results.notices, text]

    def _write(self, what: str, **fields: Any) -> None:
        self.usage.apply({"what": what, **fields})
        used = {"elapsed": round(self._control.elapsed, 3), "held": round(self.usage.held, 3)}
        self._journal.append(what, **fields, **used)
        self._changed = True

    def begin(self) -> None:
        """Takes stock, and ends the trials that the scheduler had ended when the driver was killed."""
        self.storing.insist(self.retention.scan)
        for trial_id in sorted(self.state.stopping):
            self.ended(self.results.trial(trial_id))
        self.storing.insist(lambda: self._settle(now=True))

    def added(self, ray_trial: RayTrial, micro_batch: int | None = None, origin: Origin | None = None) -> None:
        """A trial was suggested; one that is taken up again is known already.

        ``micro_batch``: with which it starts; None: with that of its configuration. ``origin``: if it was not
        suggested.
        """
        if self.results.get(ray_trial.trial_id) is None:
            more: dict[str, Any] = {} if micro_batch is None else {"micro_batch": micro_batch}
            if origin:
                more["origin"] = asdict(origin)
                self.state.adopt(ray_trial.trial_id, ray_trial.config)
            self._write("suggested", trial=ray_trial.trial_id, config=ray_trial.config, **more)
            trial = self._history.suggested(ray_trial.trial_id, ray_trial.config, micro_batch, origin)
            self.state.add(trial.id, ray_trial.config, origin.begins_at if origin else 0)
            if trial.segments:
                self.retention.exploited(trial)

    def slot_requested(self, more: bool) -> None:
        """The scheduler gave a free slot away, or learned that no trials come."""
        self._write("asked", more=more)

    def on_trial_start(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        self._control.first_trial_started()
        host = self.hosts.of(trial.temporary_state.ray_actor._actor_id.hex())
        self._write("started", trial=trial.trial_id, host=host)
        self._history.started(trial.trial_id, host)
        self._growth.started(trial.trial_id)

    def set_decision(self, trial_id: str, decision: Decision | Exploit) -> None:
        """Notes the decision on the next report of the trial."""
        self._decisions[trial_id] = decision

    def measured(self, trial_id: str, consumption: Consumption | None) -> None:
        """Notes what the trial had consumed at its next report."""
        self._measured[trial_id] = consumption

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
            consumption=ours.consumed_at(result["training_iteration"], self._measured.pop(ours.id, None)),
        )
        segment = self._segments.pop(ours.id, None)
        if ours.id not in self._decisions:  # without a scheduler of ours; or the trainable says that it is `done`
            self.set_decision(ours.id, self.state.report(ours.id, report.step, report.metrics, report.seconds))
        decision = self._decisions.pop(ours.id)
        self._write("reported", **reported(report, decision, segment))
        replaced = next((r for r in ours.reports if r.step == report.step), None) if ours.steps >= report.step else None
        self._history.reported(report, segment)
        self.retention.reported(ours, report, replaced)
        if segment is not None:
            self.retention.exploited(ours)
        self._make_room()
        if notice := self._growth.reported(ours, report):
            self.notify(notice)
        for listener in self._listeners:
            listener.reported(ours, report)

    def exploited(self, trial_id: str, exploit: Exploit, after: int, checkpoint: str, donor_step: int) -> str:
        """After report ``after`` the trial continues from its donor's checkpoint, a path on the storage.

        Returns the path of a copy, which stays until the trial has reported again.
        """
        segment = Segment(after, dict(exploit.configuration), exploit.donor, donor_step)
        self._segments[trial_id] = segment
        return self.copied(trial_id, segment, checkpoint)

    def copied(self, trial_id: str, segment: Segment, checkpoint: str) -> str:
        """Copies the checkpoint, a path on the storage, from which the ``segment`` of a trial starts; its new path."""
        folder, copied = self.results.folder, f"{RAY}/{trial_id}/{copy_name(segment)}"

        def copy() -> None:
            folder.delete(copied)
            replace(folder, path=checkpoint).copy_to(folder / copied)
            make_durable(folder / copied)  # the donor's may be deleted as soon as the disk has the event

        self.storing.insist(copy)
        return (folder / copied).path

    def lost(self, trial: Trial, checkpoint: str, problem: str, instead: str) -> None:
        """A checkpoint of ``trial``, below the run folder, is damaged; what is done instead."""
        self._write("lost", trial=trial.id, checkpoint=checkpoint)
        self._history.lost(trial.id, checkpoint)
        self.retention.lost(trial.id, checkpoint)
        self.notify(
            f"trial {trial.label}: checkpoint {self.results.folder.location}/{checkpoint}: {problem}; {instead}"
        )

    def paused(self, trial_id: str, aside: bool = False) -> None:
        """The trial waits at its rung; ``aside``: for a slot, as people limited how many run."""
        self._write("paused", trial=trial_id, **({"aside": True} if aside else {}))
        self._history.paused(trial_id, ASIDE if aside else WAITS_AT_RUNG)

    def returned(self, trial_id: str) -> None:
        """The trial's function came to its end by itself."""
        self.results.trial(trial_id).reason = RETURNED

    def on_trial_complete(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        self.ended(self.results.trial(trial.trial_id))

    def ended(self, trial: Trial) -> None:
        """The trial returned, or was stopped at its latest report."""
        audited_at = self.state.audited_at(trial.id)
        if trial.reason == RETURNED:
            self._end(trial, "completed", "", audited_rung(self.scheduler, audited_at))
        elif trial.id in self.state.orders.stopped and trial.id not in self.state.stopping:
            self._end(trial, "stopped", f"stopped by {self.state.orders.stopped[trial.id]}")
        else:
            self._end(trial, *ending(trial, self.scheduler, audited_at))

    def failed_attempt(self, trial_id: str, failure: Failure) -> None:
        """The trial raised, reported something that cannot be compared, hung, or its process died."""
        self._write("failed attempt", **failed_attempt(trial_id, failure))
        self._history.failed_attempt(trial_id, failure)
        if not failure.final:
            self.discard_unreported(self.results.trial(trial_id))
            for listener in self._listeners:
                listener.retried(self.results.trial(trial_id), failure)

    def discard_unreported(self, trial: Trial) -> None:
        """As that of `CheckpointRetention`; no trial starts before it is done."""
        self.storing.later(lambda: self.retention.discard_unreported(trial))

    def failed(self, trial_id: str, failure: Failure) -> None:
        """It is not tried again."""
        trial = self.results.trial(trial_id)
        hint = self._shape_change_hint(trial) if failure.kind == "exception" else ""
        self._end(trial, "failed", f"{failure.message}{hint}")

    def _shape_change_hint(self, trial: Trial) -> str:
        """What changed with a donor's checkpoint, where the trial has not reported since: its weights may not fit."""
        segment = trial.segments[-1] if trial.segments else None
        if segment is None or segment.donor is None or segment.after != trial.steps:
            return ""
        donor = self.results.trial(segment.donor)
        before, now = dict(flat(donor.config_at(segment.donor_step))), dict(flat(segment.config))
        changed = [name for name in now if before.get(name) != now[name]]
        changes = [f"{name} {format_number(before.get(name))} -> {format_number(now[name])}" for name in changed]
        taken = f"it had just taken over the checkpoint of trial {donor.label}, with {', '.join(changes)}"
        remedy = "what shapes the model must not change, leave it out of scheduler.mutate"
        return f" ({taken}: {remedy})" if changes else ""

    def stopped_by(self, trial_id: str, failure: Failure, rule: str) -> None:
        """It ends with what it had reported before."""
        self._end(self.results.trial(trial_id), "stopped", f"{failure.message} ({rule})")

    def _end(self, trial: Trial, status: Status, reason: str, rung: int | None = None) -> None:
        self._write("ended", trial=trial.id, status=status, reason=reason, rung=rung)
        self._history.ended(trial.id, status, reason, rung)
        self.state.end(trial.id, status == "failed")
        self._growth.ended(trial.id)
        self.retention.ended(trial)
        self._make_room()
        for listener in self._listeners:
            listener.ended(trial)

    def on_step_end(self, iteration: int, trials: list[RayTrial], **info: Any) -> None:
        self.results.used = Used(self._control.elapsed, self.usage.epochs, self.usage.held)
        for listener in self._listeners:
            listener.tick()
        self.storing.attempt(self._settle)
        if self._changed and not self.storing.fails and time.monotonic() >= self._next_save:
            began = time.monotonic()
            self.storing.attempt(self._save if self._whole_took <= LONGEST_SAVE_S else self._save_course)
            self._next_save = time.monotonic() + max(SAVE_EVERY_S, 50 * (time.monotonic() - began))

    def _settle(self, now: bool = False) -> None:
        """Brings the events to the disk, unless ``now`` where that is due; then deletes what they made superfluous."""
        self._journal.sync(now=now or self.storing.fails)
        if self._journal.is_safe:
            self.retention.clear()

    def _make_room(self) -> None:
        """Deletes what is superfluous at once where ``checkpoints.max_gib`` is reached."""
        if self.retention.is_full:
            self.storing.attempt(lambda: self._settle(now=True))

    def _save(self, snapshot: bool = True) -> None:
        self._settle(now=True)  # what is derived from events comes after them
        began = time.thread_time()
        self.results.save()
        if snapshot:
            self._write_snapshot(lambda: self.results.trials)
        self._whole_took = time.thread_time() - began
        self._changed = False

    def _save_course(self) -> None:
        self._settle(now=True)
        self._write_snapshot(None)
        self._changed = False

    def _write_snapshot(self, trials: Callable[[], list[Trial]] | None) -> None:
        write_snapshot(self.results.folder, Snapshot(self._journal.number, self._control.elapsed, self.state, trials))

    def finish(self) -> None:
        """Settles every trial's status and writes the run folder.

        Without a snapshot where Ray's loop did not return: an event may be half applied, and the journal is enough.
        """
        self.storing.insist(lambda: self._journal.sync(now=True))
        for trial in self.results.trials:
            if trial.status in ("running", "paused") and self._control.finished and self._control.stop_reason:
                self._end(trial, "stopped", self._control.stop_reason)
            elif trial.status == "running":
                self._history.paused(trial.id, INTERRUPTED)
            elif trial.status == "pending":
                trial.reason = self._control.stop_reason or "interrupted before it started"
        self._skip_damaged_checkpoints()
        self.storing.insist(lambda: self._save(snapshot=self._control.returned))
        self.storing.insist(self.results.save_best)

    def _skip_damaged_checkpoints(self) -> None:
        """Takes checkpoints that are damaged from the best trial, which may make another one the best."""
        while (trial := self.results.best) and (best := trial.best) and best.checkpoint:
            problem = self.damage_of(self.results.folder / best.checkpoint)
            if not problem:
                break
            self.lost(trial, best.checkpoint, problem, "the next best one becomes the best")

    def damage_of(self, checkpoint: RunFolder) -> str:
        """As `tuner.storage.manifest.find_damage`; a storage that fails for a while damages nothing."""
        if find_damage(checkpoint):
            self.storing.insist(lambda: probe(self.results.folder))
            return find_damage(checkpoint)
        return ""

    def close(self) -> None:
        """Says that the run folder is complete: the last that is written, so that a kill before it can be resumed."""
        self.storing.insist(lambda: self._settle(now=True))
        interrupted, reason = not self._control.finished, self._control.reason
        self.results.provenance |= {"elapsed_s": self._control.elapsed, "interrupted": interrupted}
        self.results.provenance |= {"interrupted_by": reason, "ended_by": self._control.stop_reason}
        self._write("left", interrupted=interrupted, reason=reason)
        self.storing.insist(self._journal.close)
        self.storing.insist(lambda: write_json(self.results.folder, PROVENANCE, self.results.provenance))
