"""The checkpoints of a run on its storage: which stay, which go, and whether there is room for more.

Ray Tune keeps the best checkpoints of each trial by itself, and nothing else: 160 trials fill a disk (ray#9865). Here
Ray deletes none, and the same rules hold for the whole search, while it runs and when it is resumed.

A checkpoint is forgotten at once and deleted later, when the disk has the events that made it superfluous: a power cut
that takes these events leaves the checkpoint. What a kill leaves of it `CheckpointRetention.read_stored_search` finds.
"""

from __future__ import annotations

import math
import posixpath
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tuner.experiment.spec import Checkpoints
from tuner.runs.results import RAY, ResultSet
from tuner.runs.trial import Report, Segment, Trial
from tuner.search.storing import RunFolderWriter
from tuner.spec.quantities import format_bytes
from tuner.storage.manifest import size_of

GIB = 2**30
CHECKPOINT, COPY = "checkpoint_", "from_"
"""How the names of a trial's own checkpoints begin, and those of copies of other trials' checkpoints."""


def free_bytes(path: str) -> int:
    """Bytes that can be written on the disk of ``path``."""
    return shutil.disk_usage(path).free


def deletable(held: Sequence[Report], results: ResultSet, keep: int, ended: bool) -> list[Report]:
    """Which of a trial's checkpoints may go; ``held``: the reports that have one, in their order.

    Its best ``keep`` stay (of equals the later), and its latest two, of which it continues from the second where the
    first is damaged; of a trial that has ``ended`` its latest.
    """
    ranked = sorted(held, key=lambda report: (results.point(report)[0], report.step))
    stay = {report.step for report in (*ranked[-keep:], *held[-1 if ended else -2 :])}
    return [report for report in held if report.step not in stay]


def copy_name(segment: Segment) -> str:
    """Name of the copy of the donor's checkpoint from which ``segment`` starts.

    No other segment of the trial has the name: after a power cut the trial may continue from an earlier copy again.
    """
    return f"{COPY}{segment.donor}_{segment.after}"


def _copy(trial: Trial) -> str:
    """The path of the copy from which the trial's latest segment starts; empty if it starts from none."""
    return f"{RAY}/{trial.id}/{copy_name(trial.segments[-1])}" if trial.segments else ""


class CheckpointRetention:
    """Decides which checkpoints may go as new ones come and trials end. `clear` deletes them."""

    def __init__(
        self, results: ResultSet, limits: Checkpoints, say: Callable[[str], None], storing: RunFolderWriter
    ) -> None:
        self._results = results
        self._limits = limits
        self._say = say
        self._storing = storing
        self._held: dict[str, list[Report]] = {}
        """Of each trial that has checkpoints: its reports whose checkpoints are on the storage."""
        self._copies: dict[str, str] = {}
        """Of each trial that continued from another's checkpoint: the copy of it, below the run folder."""
        self._bytes: dict[str, int] = {}
        """By folder below the run folder; empty without ``max_gib``."""
        self._forgotten: dict[str, None] = {}
        """Folders below the run folder that are to be deleted, in order."""
        self._told_full = False
        self._told_lack = False

    # --- what there is ---

    def scan(self) -> None:
        """Finds what is on the storage, and forgets what may go: what no event tells of, and what a kill left."""
        folders = (self._results.folder / RAY).subfolders()
        for trial in self._results.trials:
            present = {f"{RAY}/{trial.id}/{name}" for name in folders.get(trial.id, [])}
            forget_checkpoints(trial, present)
            self._set_kept(trial.id, [report for report in trial.reports if report.checkpoint])
            for report in self._held.get(trial.id, []):
                self._came(str(report.checkpoint))
            copy = _copy(trial)
            if copy in present:
                self._copies[trial.id] = copy
                self._came(copy)
            self._forget_untold(trial, present)
            self._thin_out(trial)
        for name, copies in folders.items():  # of a clone whose copy was being made when the driver was killed
            if self._results.get(name) is None and copies and all(copy.startswith(COPY) for copy in copies):
                self._forget(f"{RAY}/{name}")
        self._limit()

    def exploited(self, trial: Trial) -> None:
        """The trial's latest segment starts from a copy of another's checkpoint."""
        if trial.id in self._copies:
            self._forget(self._copies[trial.id])
        self._copies[trial.id] = copy = _copy(trial)
        self._came(copy)

    def reported(self, trial: Trial, report: Report, replaced: Report | None) -> None:
        """A report came, in place of ``replaced`` where the trial repeats what it had done."""
        if replaced is not None and replaced.checkpoint and replaced.checkpoint != report.checkpoint:
            self._delete(trial, [replaced])
        if report.checkpoint is None:
            return
        # a process that was restarted may have written into the folder of the report that it repeats
        held = [other for other in self._held.get(trial.id, []) if other.checkpoint != report.checkpoint]
        self._held[trial.id] = [*held, report]
        self._came(report.checkpoint)
        self._thin_out(trial)
        self._keep_to_limit()

    def ended(self, trial: Trial) -> None:
        """Nothing of ``trial`` will run any more."""
        self._thin_out(trial)
        self._limit()

    def discard_unreported(self, trial: Trial) -> None:
        """Forgets what the trial's process was writing when it ended. Not while another one runs."""
        folder = f"{RAY}/{trial.id}"
        self._forget_untold(trial, {f"{folder}/{name}" for name in (self._results.folder / folder).folders()})

    def lost(self, trial_id: str, checkpoint: str) -> None:
        """A checkpoint is damaged."""
        self._set_kept(trial_id, [report for report in self._held.get(trial_id, []) if report.checkpoint != checkpoint])
        if self._copies.get(trial_id) == checkpoint:
            del self._copies[trial_id]
        self._forget(checkpoint)

    # --- what a trial continues from ---

    def resumable(self, trial: Trial) -> list[Report]:
        """Its reports whose checkpoints it may continue from: those made since it last continued from another trial."""
        after = trial.segments[-1].after if trial.segments else 0
        return [report for report in self._held.get(trial.id, []) if report.step > after]

    def donor_copy(self, trial: Trial) -> str | None:
        """The copy of another trial's checkpoint that it last continued from, below the run folder while kept."""
        return self._copies.get(trial.id)

    # --- limits ---

    def disk_full_reason(self) -> str:
        """Why no trial may start: the disk is nearly full; empty if one may. Says it once, and when it is over."""
        folder, limit = self._results.folder, self._limits.min_free_gib
        found = [math.inf]
        if folder.is_local and limit and not self._storing.attempt(lambda: found.append(free_bytes(folder.path))):
            return ""  # it says so itself
        free = found[-1]
        if free >= limit * GIB:
            if self._told_lack:
                self._say(f"{folder.location}: there is room again: trials start")
                self._told_lack = False
            return ""
        reason = (
            f"{folder.location}: its disk has {format_bytes(free)} free, less than checkpoints.min_free_gib {limit:g}"
        )
        if not self._told_lack:
            self._say(f"{reason}: no trial starts until there is room; running ones continue")
            self._told_lack = True
        return reason

    def _thin_out(self, trial: Trial) -> None:
        """Forgets what ``trial`` by itself does not need."""
        if trial.id in self._copies and (trial.has_ended or len(self.resumable(trial)) > 1):
            self._forget(self._copies.pop(trial.id))  # before, it is what the trial continues from in need
        held = self._held.get(trial.id, [])
        self._delete(trial, deletable(held, self._results, self._limits.keep_per_trial, trial.has_ended))

    def _limit(self) -> None:
        """Forgets what is too much over all trials."""
        for trial in self._results.surplus(self._holders(), self._limits.keep_trials):
            self._delete(trial, self._held[trial.id])
        self._keep_to_limit()

    def _keep_to_limit(self) -> None:
        """Forgets checkpoints of ended trials, the worst first, until all are within ``max_gib``."""
        if self._limits.max_gib is None or not self._is_over():
            return
        front = {trial.id for trial in self._results.front}
        ranked = self._results.rank(trial for trial in self._holders() if trial.has_ended)[::-1]
        for trial in ranked:
            if trial.id not in front and self._is_over():
                self._delete(trial, self._held[trial.id])
        for trial in ranked:
            if trial.id in front and self._is_over():
                best = trial.best.checkpoint if trial.best else None
                self._delete(trial, [report for report in self._held[trial.id] if report.checkpoint != best])
        if self._is_over() and not self._told_full:
            self._told_full = True
            self._say(
                f"checkpoints.max_gib {self._limits.max_gib:g}: the best and the trials that run or wait hold "
                f"{format_bytes(self._held_bytes())}, and keep it: raise max_gib, or lower keep_per_trial or "
                f"resources.max_concurrent_trials"
            )

    def _is_over(self) -> bool:
        return self._held_bytes() > (self._limits.max_gib or 0) * GIB

    def _held_bytes(self) -> int:
        return sum(count for folder, count in self._bytes.items() if folder not in self._forgotten)

    def _holders(self) -> list[Trial]:
        """The trials that have checkpoints."""
        return [self._results.trial(trial_id) for trial_id in self._held]

    def _set_kept(self, trial_id: str, reports: list[Report]) -> None:
        """The checkpoints that the trial has are those of ``reports``."""
        if reports:
            self._held[trial_id] = reports
        else:
            self._held.pop(trial_id, None)

    # --- the storage ---

    @property
    def is_full(self) -> bool:
        """Whether what is to be deleted takes room that ``max_gib`` does not grant."""
        if self._limits.max_gib is None or not self._forgotten:
            return False
        return sum(self._bytes.values()) > self._limits.max_gib * GIB

    def clear(self) -> None:
        """Deletes what is forgotten. Call it when the disk has all events.

        Raises OSError if that fails: call it again.
        """
        for folder in list(self._forgotten):
            self._results.folder.delete(folder)
            self._bytes.pop(folder, None)
            del self._forgotten[folder]

    def _came(self, folder: str) -> None:
        self._forgotten.pop(folder, None)  # it was written anew

        def weigh() -> None:
            self._bytes[folder] = size_of(self._results.folder / folder)

        if self._limits.max_gib is not None:
            self._storing.later(weigh)

    def _forget_untold(self, trial: Trial, present: set[str]) -> None:
        """Forgets the checkpoints in ``present``, folders of the trial, of which no event tells."""
        told = {_copy(trial), *(report.checkpoint for report in trial.reports)}
        for folder in sorted(present - told):
            if posixpath.basename(folder).startswith((CHECKPOINT, COPY)):
                self._forget(folder)

    def _delete(self, trial: Trial, reports: Iterable[Report]) -> None:
        gone = {report.checkpoint for report in reports if report.checkpoint}
        if not gone:
            return
        for folder in gone:
            self._forget(folder)
        self._set_kept(trial.id, [report for report in self._held.get(trial.id, []) if report.checkpoint not in gone])
        _take_out(trial, gone)

    def _forget(self, folder: str) -> None:
        self._forgotten[folder] = None


def forget_checkpoints(trial: Trial, present: set[str]) -> None:
    """Takes the checkpoints that are not ``present`` any more out of the trial's reports."""
    _take_out(trial, {report.checkpoint for report in trial.reports if report.checkpoint} - present)


def _take_out(trial: Trial, gone: set[str]) -> None:
    """Its reports no longer name the checkpoints in ``gone``; the best stays the best."""
    left = len(gone)
    for index in range(len(trial.reports) - 1, -1, -1):  # from the latest, which are the likely ones
        if not left:
            break
        report = trial.reports[index]
        if report.checkpoint in gone:
            left -= 1
            trial.reports[index] = replace(report, checkpoint=None)
            if trial.best is report or (trial.best and trial.best.step == report.step):
                trial.best = trial.reports[index]
