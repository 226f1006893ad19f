"""Documents of the commands that search and that look at runs."""

from __future__ import annotations

from typing import Any, Literal

from tuner.documents.document import Config, Document, Metrics, Notices
from tuner.runs.failure import FailureKind
from tuner.runs.trial import Status
from tuner.spec.objective import Mode

RunState = Literal["running", "silent", "dead", "interrupted", "finished"]
"""How a run stands. ``silent``: its process lives and does not answer; ``dead``: its process is gone."""


class Goal(Document):
    """What is made small or large."""

    metric: str
    """Name of the metric."""
    mode: Mode
    """``min`` or ``max``."""


class Standing(Document):
    """A trial with its best report."""

    trial: str
    """Its id."""
    number: int
    """Order of suggestion, from 1."""
    value: float
    """Of the first objective."""
    step: int
    """The report that has this value, from 1."""
    metrics: Metrics
    config: Config
    checkpoint: str | None
    """Folder of its checkpoint, below the run folder; null if there is none."""


class TrialCounts(Document):
    """Numbers of trials by their status."""

    completed: int
    """They came to their end."""
    stopped: int
    """The scheduler stopped them."""
    failed: int
    """Their last attempt failed."""
    paused: int
    """They wait with a checkpoint."""
    pending: int
    """They have not started."""
    running: int
    """They train."""


class Summary(Document):
    """A search that has ended, and its best trial."""

    run: str
    """Its name."""
    folder: str
    """The run folder: a path or a URI."""
    metric: str
    """Of the first objective."""
    mode: Mode
    """Of the first objective."""
    objectives: list[Goal]
    """All objectives."""
    best: Standing | None
    """The best trial; null if there is no usable result, and for a search with several objectives."""
    front: list[Standing]
    """The Pareto front of several objectives; of one objective the best trial alone."""
    trials: TrialCounts
    """How many trials came to what."""
    steps: int
    """Reports of all trials."""
    notices: Notices


class FailedAttempt(Document):
    """An attempt at a trial that failed."""

    kind: FailureKind
    """What failed."""
    message: str
    """The reason, in one line."""
    step: int
    """The last report before it; 0 if there was none."""
    micro_batch: int | None
    """The smaller micro-batch with which the trial continues; null if nothing changes."""
    final: bool
    """Whether the trial is not tried again."""


class AddedTrial(Document):
    """The source of a trial that somebody added."""

    by: str
    """Who added it."""
    parent: str | None
    """The trial that it is a clone of; null if it is none."""
    step: int | None
    """The parent's report that came with the checkpoint from which it starts; null if it starts from none."""
    begins_at: int
    """The fidelity of that checkpoint; 0 if it starts from none."""


class GivenCommand(Document):
    """A command to the search while it ran."""

    id: str
    """By which the journal names it."""
    do: str
    """Its kind, such as ``stop-trial``."""
    by: str
    """Who sent it."""
    sent: float
    """When, in seconds since 1970."""
    arguments: dict[str, Any]
    """Those of its kind."""
    done: bool
    """Whether it was carried out."""
    reason: str
    """Why it was refused; empty if it was carried out."""
    trials: list[str]
    """Ids of the trials that it made or touched."""


class TrialRow(Document):
    """A trial."""

    id: str
    """Its id."""
    number: int
    """Order of suggestion, from 1."""
    status: Status
    """How it stands."""
    reason: str
    """Why it ended, or has not; empty if there is nothing to say."""
    steps: int
    """Number of its reports."""
    host: str
    """The node on which it ran last; empty if it never started."""
    failures: list[FailedAttempt]
    """Its failed attempts, in order."""
    micro_batch: int | None
    """The micro-batch to which it was reduced for lack of memory; null if it was not."""
    consumption: dict[str, float]
    """What was measured of its processes, such as ``peak_host_gib``."""
    config: Config
    origin: AddedTrial | None
    """Its source, if somebody added it; null if the searcher suggested it."""


class Shown(Summary):
    """A run, how it stands, and all its trials."""

    state: RunState
    """How it stands."""
    unreadable: list[str]
    """Damaged parts of the run folder, each with the reason; empty unless it is damaged."""
    commands: list[GivenCommand]
    """What people commanded while it ran, in order."""
    all: list[TrialRow]
    """Its trials, in the order in which they were suggested; none with ``--brief``."""


class ListedRun(Document):
    """A run in a storage folder."""

    run: str
    """Its name."""
    state: RunState | Literal["damaged"]
    """How it stands."""
    trials: str
    """Ended trials of all that the budget allows: ``12/30``."""
    best: float | str | None
    """Best value of the objective; with several objectives a text such as ``front of 5``; null or empty without one."""
    metric: str
    """The objectives, such as ``max val_accuracy``."""
    started: str
    """Local time of the driver: ``2026-01-01 10:00``."""
    note: str
    """What cannot be read, why the search ended, and notices; often empty."""


class WaitingTrial(Document):
    """A trial that has not ended."""

    trial: str
    """Its id."""
    number: int
    """Order of suggestion, from 1."""
    why: str
    """The reason why it waits; or that it runs."""


class RunStatus(Document):
    """What a run waits for."""

    state: RunState
    """How it stands."""
    run: str
    """That in words, with what would help."""
    last_event: str
    """The last event of its journal, in words."""
    trials: list[WaitingTrial]
    """Each trial that has not ended."""


class ReportPage(Document):
    """The page of a run."""

    run: str
    """Its name."""
    page: str
    """The HTML file that was written."""
    verdict: list[str]
    """The findings, the most important first, a sentence each."""
    unreadable: list[str]
    """Damaged parts of the run folder, each with the reason; empty unless it is damaged."""
    notices: Notices


class ComparedRun(Document):
    """A run of a comparison."""

    run: str
    """Its name."""
    best: float | None
    """Of the first objective, at any fidelity; null if nothing was reported."""
    seconds_to_best: float | None
    """Seconds of search until the best value was reported."""
    seconds_to_target: float | None
    """Seconds of search until the target was reached; null if it was not."""
    epochs_to_target: float | None
    """Epochs that all trials had spent by then; null if the target was not reached."""
    seconds: float | None
    """Seconds of search in all; null, as all times and epochs, if the reports are lost."""
    epochs: float | None
    """Epochs that all trials spent."""
    trials: int
    """Number of trials."""
    failed: int
    """Number of trials that failed."""


class Comparison(Document):
    """Runs with the same objective, side by side."""

    objective: Goal
    """The objective that they are compared by."""
    target: float | None
    """The value that they are timed to; null if no run has a result."""
    unit: str
    """The unit of epochs, such as ``epoch`` or ``reports``."""
    runs: list[ComparedRun]
    """In the order in which they were named."""


class StoppedRun(Document):
    """A search that was stopped."""

    run: str
    """The run folder."""
    was_running: bool
    """Whether there was something to stop."""
    state: RunState
    """How it stands now."""


class ControlledRun(Document):
    """A command that a running search carried out."""

    run: str
    """The run folder, or the name of a search of a service."""
    id: str
    """Of the command, by which the journal names it."""
    do: str
    """Its kind, such as ``stop-trial``."""
    done: bool
    """True: a command that is refused is an error."""
    reason: str
    """Why it was refused: empty."""
    trials: list[str]
    """Ids of the trials that it made or touched."""


class Rung(Document):
    """A rung of the scheduler."""

    at: float
    """The fidelity, in units of the scheduler's ``time_attr``."""
    expected_trials: float
    """How many trials reach it, in the mean."""


class PlannedSearch(Document):
    """What a search would do."""

    experiment: str
    """Its name."""
    configurations: int | None
    """Size of the search space; null if it is not finite, or too large to write."""
    trials: int
    """Configurations that the budget allows."""
    search: str
    """Kind of the searcher."""
    search_reason: str
    """Why ``search: {kind: auto}`` chose it; empty if the file names it."""
    seed: int | None
    """Of the searcher; null if each search draws its own."""
    modelled: float | None
    """About how many suggestions come from a model of results; null if that is not known."""
    rungs: list[Rung]
    """Of the scheduler, ascending; empty if it has none."""
    trial_resources: dict[str, float]
    """What a trial takes, by Ray's names of resources."""
    slots: int
    """Trials that run at once."""
    checkpoints: int
    """Checkpoints that are on disk at once, at most."""
    checkpoint_bytes: int | None
    """Estimated size of a checkpoint; null if it is not known."""
    notices: Notices


class Address(Document):
    """A server that runs until Ctrl-C."""

    address: str
    """URL of its page."""
