"""A search whose loop is the user's own: it asks for configurations and reports results, and everything is journalled.

Ray is not started. The searcher, the scheduler, the budget and the journal are those of every search, so that the run
folder reads the same, and a search that was killed is reopened as it was.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tuner.actions.control import sender
from tuner.actions.run import free_folder, record_start, run_name
from tuner.errors import InputError
from tuner.execution.budget import BudgetStopper
from tuner.execution.metrics import flat_metrics
from tuner.execution.recorder import SAVE_EVERY_S
from tuner.experiment.reader import Experiment
from tuner.plan.cluster import this_machine
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.events import Compared, is_checkpoint
from tuner.runs.history import INTERRUPTED, WAITS_AT_RUNG, EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_summary
from tuner.runs.provenance import experiment_of, write_experiment
from tuner.runs.results import PROVENANCE, RAY, ResultSet, Used, write_json
from tuner.runs.trial import Origin, Report, Status
from tuner.schedulers.base import Decision, Exploit, Resume
from tuner.search.changes import added_configuration
from tuner.search.control import SearchControl
from tuner.search.earlier_trials import read_stored, with_earlier_trials
from tuner.search.emitted_events import audited_rung, ending, reported
from tuner.search.new_state import new_state
from tuner.search.recovery import RecoveredSearch, read_stored_search, recover
from tuner.spec.configuration import merge
from tuner.storage.folder import RunFolder
from tuner.storage.lock import Lock, locked
from tuner.trainable.own_loop import REFERENCE
from tuner.visualization.html import write_report

Answer = Literal["continue", "pause", "stop"]
"""What becomes of a trial after a report."""


@dataclass(frozen=True)
class Suggestion:
    """A trial that is to run now.

    Example:
        >>> import tempfile
        >>> import tuner
        >>> search = tuner.Search(None, {"x": {"uniform": [0, 1]}}, objective=tuner.minimize("loss"),
        ...                       searcher=tuner.searchers.Random(seed=0), budget=tuner.Budget(trials=1))
        >>> with search.begin(storage=tempfile.mkdtemp()) as loop:
        ...     suggestion = loop.ask()
        ...     _ = loop.tell(suggestion, {"loss": suggestion.config["x"] ** 2})
        ...     loop.finish(suggestion)
        >>> suggestion.number, 0 <= suggestion.config["x"] <= 1
        (1, True)
    """

    id: str
    """Name of the trial in the run folder."""
    number: int
    """Order of suggestion, from 1."""
    config: dict[str, Any]
    """Fixed parameters and the trial's configuration."""
    step: int = 0
    """Reports that it made before; if there are some, it continues from its checkpoint after that report."""


class AskTell:
    """A search in progress, driven by `ask` and `tell`; made by `tuner.Search.begin` or `tuner.Run.reopen`.

    Use it as a context manager, so that its run folder is completed. One process at a time can hold a run; calls come
    from one thread. Several trials may be open at once.

    Example:
        >>> import tempfile, tuner
        >>> search = tuner.Search(None, {"x": {"uniform": [0, 1]}}, objective=tuner.minimize("loss"),
        ...                       budget=tuner.Budget(trials=3))
        >>> with tempfile.TemporaryDirectory() as folder, search.begin(storage=folder) as loop:
        ...     while (trial := loop.ask()) is not None:
        ...         answer = loop.tell(trial, {"loss": (trial.config["x"] - 0.3) ** 2})
        ...         loop.finish(trial)
        ...     len(loop.results.trials)
        3
    """

    def __init__(self, plan: Plan, recovered: RecoveredSearch, lock: Lock, held: contextlib.ExitStack) -> None:
        self.results = recovered.results
        self._plan, self._held = plan, held
        self._state, self._usage = recovered.state, recovered.usage
        self._history = EventApplier(self.results)
        self._journal = JournalWriter(self.results.folder, lock)
        self._control = SearchControl(elapsed_before=recovered.elapsed)
        self._compared = Compared.by(self.results.spec)
        spec = plan.spec
        self._budget = BudgetStopper(spec.budget, spec.scheduler, 0, self.results, self._usage, self._control)
        self._began: dict[str, tuple[float, float]] = {}
        """Of each running trial: when it began here, and the seconds that it had run before."""
        self._left = [t.id for t in self.results.trials if not t.has_ended and t.id not in self._state.paused]
        """Trials that ran when the search was left, to be asked for first."""
        self._next_save = time.monotonic() + SAVE_EVERY_S
        self._is_closed = False

    def __enter__(self) -> AskTell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, *, new: bool = False) -> Suggestion | None:
        """The trial that a free worker runs next.

        Args:
            new: Trials that were open when the search was left stay with their workers, and are not returned.

        Returns:
            A new trial, or one that was paused and continues; None if none can start now. If no trial is open then, the
            search has come to its end.
        """
        self._check_open()
        if self._left and not new:
            return self._start(self._left.pop(0))
        more = self._may_suggest()
        while not self._control.stop_reason and self._state.scheduler is not None:
            could_come, action = self._state.more, self._state.next_action(more)
            if action is not None or more != could_come:
                self._write("asked", more=more)
            if action is None:
                break
            if isinstance(action, Resume):
                return self._start(action.trial_id)
            self._end(action.trial_id)
        config = self._state.suggest(trial_id := uuid.uuid4().hex[:8]) if more else None
        if config is None:
            if not self._began and not self._left:
                self._finish_paused()
            return None
        self._write("suggested", trial=trial_id, config=config)
        self._history.suggested(trial_id, config)
        self._state.add(trial_id, config)
        return self._start(trial_id)

    def propose(self, config: Mapping[str, Any], *, by: str | None = None) -> Suggestion:
        """Makes a trial of a configuration that comes from elsewhere: a person, a program, a language model.

        It comes on top of the trials of the budget, and the searcher learns from it as from its own.

        Args:
            config: Its parameters by name, nested as the search space is; constants may be left out.
            by: Who proposes it, for the record. Default: this user on this host.

        Returns:
            The trial, which is to run now.

        Raises:
            InputError: If it is not in the search space, or a limit of the budget has ended the search.
        """
        self._check_open()
        if self._budget.stop_all():
            raise InputError(f"propose: the search has ended: {self._control.stop_reason}")
        try:
            found = added_configuration(self._plan.spec.search_space, config)
        except InputError as error:
            raise InputError(f"propose: {error}") from None
        trial_id, origin = uuid.uuid4().hex[:8], Origin(by or sender())
        self._write("suggested", trial=trial_id, config=found, origin=asdict(origin))
        self._history.suggested(trial_id, found, origin=origin)
        self._state.adopt(trial_id, found)
        self._state.add(trial_id, found)
        return self._start(trial_id)

    def tell(self, trial: Suggestion | str, metrics: Mapping[str, Any], *, checkpoint: str | None = None) -> Answer:
        """Reports metrics of an open trial, also if it was open when the search was left.

        Args:
            trial: The trial, or its id.
            metrics: Numbers by name; the objective is among them, and the scheduler's ``time_attr`` if it has one.
            checkpoint: Folder of a checkpoint, if one was made: ``ray/ID/NAME`` below the run folder, with the trial's
                id.

        Returns:
            ``continue``; ``pause`` if the trial gives its place to another one, and continues from its checkpoint if
            `ask` returns it again; ``stop`` if it has ended.

        Raises:
            InputError: If the trial is not open, a number that trials are compared by is missing or not finite, or the
                checkpoint lies elsewhere.
        """
        ours = self.results.trial(self._open_id(trial))
        found = flat_metrics(dict(metrics))
        if name := self._compared.wrong(found):
            is_what = f"is {found[name]!r}" if name in found else f"is not among the metrics ({', '.join(found)})"
            raise InputError(
                f"tell: trial {ours.label}: {name} {is_what}: a finite number is needed; "
                f"a trial that has none has failed: fail(trial, reason), or tell --fail REASON"
            )
        if checkpoint is not None and not (is_checkpoint(checkpoint) and checkpoint.startswith(f"{RAY}/{ours.id}/")):
            raise InputError(
                f"tell: trial {ours.label}: checkpoint {checkpoint!r}: it must lie in {RAY}/{ours.id} of the run "
                f"folder: give {RAY}/{ours.id}/NAME"
            )
        began, before = self._began[ours.id]
        report = Report(ours.id, ours.steps + 1, before + time.monotonic() - began, time.time(), found, checkpoint)
        decision = self._state.report(ours.id, report.step, found, report.seconds)
        if isinstance(decision, Exploit):  # `begin` refuses schedulers that say so
            raise AssertionError(f"{self._plan.spec.scheduler.kind} lets a trial continue from another one")
        self._write("reported", **reported(report, decision, None))
        self._history.reported(report)
        if decision is Decision.PAUSE:
            self._write("paused", trial=ours.id)
            self._history.paused(ours.id, WAITS_AT_RUNG)
            self._leave_worker(ours.id)
        elif decision is Decision.STOP:
            self._end(ours.id)
        answer: Answer = decision.value
        return answer

    def finish(self, trial: Suggestion | str) -> None:
        """An open trial has come to its end by itself.

        Args:
            trial: The trial, or its id.

        Raises:
            InputError: It is not open, or reported nothing.
        """
        trial_id = self._open_id(trial)
        if not self.results.trial(trial_id).reports:
            raise InputError(f"finish: trial {self.results.trial(trial_id).label} reported nothing: call fail instead")
        rung = audited_rung(self._plan.spec.scheduler, self._state.audited_at(trial_id))
        self._settle(trial_id, "completed", "", rung)

    def fail(self, trial: Suggestion | str, reason: str) -> None:
        """An open trial has failed. It is not tried again.

        Args:
            trial: The trial, or its id.
            reason: Why, for the record.

        Raises:
            InputError: It is not open.
        """
        self._settle(self._open_id(trial), "failed", " ".join(reason.split()))

    @property
    def open_ids(self) -> list[str]:
        """Ids of the trials that have not ended: here, and where the search was left."""
        return [*self._began, *self._left, *self._state.paused]

    def close(self) -> ResultSet:
        """Completes the run folder. Open trials stay open, for `tuner.Run.reopen`."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._complete()
            finally:
                self._held.close()
        return self.results

    def _complete(self) -> None:
        unfinished = bool(self._began or self._left or self._state.paused) or self._may_suggest()
        for trial in self.results.trials:
            if trial.status == "running":
                self._history.paused(trial.id, INTERRUPTED)
        self._save()
        self.results.save_best()
        reason = "" if not unfinished else "its loop left it"
        self.results.provenance |= {"elapsed_s": self._control.elapsed, "interrupted": unfinished}
        self.results.provenance |= {"interrupted_by": reason, "ended_by": self._control.stop_reason}
        self.results.provenance["trials"] = self._plan.trials + self.results.added
        self._write("left", interrupted=unfinished, reason=reason)
        self._journal.close()
        write_json(self.results.folder, PROVENANCE, self.results.provenance)
        write_report(self.results)

    def _may_suggest(self) -> bool:
        return not self._budget.stop_all() and self.results.suggested < self._plan.trials

    def _finish_paused(self) -> None:
        """Ends the trials that wait for others which cannot come any more."""
        for trial_id in sorted(self._state.paused):
            self._end(trial_id)

    def _start(self, trial_id: str) -> Suggestion:
        trial = self.results.trial(trial_id)
        self._control.first_trial_started()
        self._write("started", trial=trial_id, host="")
        self._history.started(trial_id)
        self._began[trial_id] = time.monotonic(), trial.seconds
        config = merge(self._plan.spec.params, trial.first_config)
        return Suggestion(trial_id, trial.number, config, trial.steps)

    def _end(self, trial_id: str) -> None:
        """The scheduler ended it."""
        trial, audited_at = self.results.trial(trial_id), self._state.audited_at(trial_id)
        self._settle(trial_id, *ending(trial, self._plan.spec.scheduler, audited_at))

    def _settle(self, trial_id: str, status: Status, reason: str, rung: int | None = None) -> None:
        self._write("ended", trial=trial_id, status=status, reason=reason, rung=rung)
        self._history.ended(trial_id, status, reason, rung)
        self._state.end(trial_id, status == "failed")
        self._leave_worker(trial_id)

    def _leave_worker(self, trial_id: str) -> None:
        began, _ = self._began.pop(trial_id, (time.monotonic(), 0.0))
        self._usage.hold(time.monotonic() - began)

    def _open_id(self, trial: Suggestion | str) -> str:
        self._check_open()
        trial_id = trial if isinstance(trial, str) else trial.id
        if trial_id in self._left:
            self._left.remove(trial_id)
            self._start(trial_id)
        if trial_id not in self._began:
            running = ", ".join([*self._began, *self._left]) or "none"
            raise InputError(f"trial {trial_id!r} does not run; running: {running}")
        return trial_id

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError(f"{self.results.folder.location} is closed: reopen it with tuner.load(RUN).reopen()")

    def _write(self, what: str, **fields: Any) -> None:
        self._usage.apply({"what": what, **fields})
        used = {"elapsed": round(self._control.elapsed, 3), "held": round(self._usage.held, 3)}
        self._journal.append(what, **fields, **used)
        self._journal.sync()
        self.results.used = Used(self._control.elapsed, self._usage.epochs, self._usage.held)
        if time.monotonic() >= self._next_save:
            begun = time.monotonic()
            self._save()
            self._next_save = time.monotonic() + max(SAVE_EVERY_S, 50 * (time.monotonic() - begun))

    def _save(self) -> None:
        self._journal.sync(now=True)
        self.results.save()


def begin(experiment: Experiment, *, name: str | None, storage: str | Path) -> AskTell:
    """A new search in a loop of the user's. Raises InputError, and EnvironmentFailure if the storage fails."""
    plan, earlier = with_earlier_trials(make_plan(experiment, this_machine()))
    kind = plan.spec.scheduler.kind
    if kind == "ray" or plan.spec.scheduler.changes_configurations:
        raise InputError(
            f"scheduler.kind: {kind} acts on trials of Ray in mid-trial, which a loop of your own cannot follow: "
            f"choose asha, hyperband, median or fifo"
        )
    if plan.spec.repeat:
        raise InputError("repeat: a loop of your own trains by itself: repeat there, and tell the mean after each time")
    folder = free_folder(storage, run_name(name, plan.spec.name))
    with contextlib.ExitStack() as held:
        with folder.created():
            lock = held.enter_context(locked(folder))
            recovered = record_start(plan, plan.spec.params, [], folder, earlier)
        return AskTell(plan, recovered, lock, held.pop_all())


def has_ended(folder: RunFolder) -> bool:
    """Whether it is a search that `begin` began, and that came to its end."""
    known = load_summary(folder)
    return bool(known.spec.get("trainable") == REFERENCE and known.provenance.get("interrupted") is False)


PATIENCE_S = 60.0
"""How long a command waits for another one on the same run, each of which takes a few seconds."""


def reopen(folder: RunFolder, *, trust: bool = False, patience: float = 0.0) -> AskTell:
    """Continues a search that `begin` began.

    ``patience``: seconds to wait for another process that has the run. Raises InputError if one still has it then, or
    if the search came to its end, or was begun otherwise.
    """
    with contextlib.ExitStack() as held:
        lock = held.enter_context(locked(folder, patience=patience))
        stock = read_stored_search(load_summary(folder), trust)
        known = stock.results
        if known.spec.get("trainable") != REFERENCE:
            raise InputError(f"{folder.location} has a trainable: continue it with resume()")
        if known.provenance.get("interrupted") is False:
            raise InputError(f"{folder.location}: nothing to reopen: the search came to its end")
        plan = make_plan(experiment_of(known, trust), this_machine())
        recovered = recover(stock, lambda: new_state(plan, read_stored(folder, plan), stock.drawn))
        known.provenance |= {"interrupted": None, "interrupted_by": ""}
        write_experiment(known)
        return AskTell(plan, recovered, lock, held.pop_all())
