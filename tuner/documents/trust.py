"""Documents of ``best``, ``confirm`` and ``replay``."""

from __future__ import annotations

from typing import Any

from tuner.documents.document import Config, Document, Metrics, Notices
from tuner.documents.runs import Goal


class RestoredTrial(Document):
    """The best trial, or another, with its model restored and scored."""

    run: str
    """Name of the run."""
    folder: str
    """The run folder."""
    trial: str
    """Id of the trial."""
    config: Config
    recorded: Metrics
    """What the trial reported with this checkpoint."""
    checkpoint: str
    """Folder of the checkpoint."""
    validation: dict[str, float] | None
    """Computed again from the restored model; null if the trainable cannot."""
    test: dict[str, float] | None
    """Metrics on the test set; null unless ``--test`` asks for them."""
    exported: str | None
    """The folder that ``--output-dir`` names; null without it."""
    notices: Notices


class Mean(Document):
    """A mean and its 95 % confidence interval."""

    mean: float
    """The mean."""
    half_width: float | None
    """Half the width of the interval; null for a single value."""
    n: int
    """Number of values."""


class ConfirmedConfiguration(Document):
    """A configuration that was trained again."""

    trial: str
    """Id of the trial of the search that had it first."""
    number: int
    """Number of that trial."""
    searched: float
    """The search's own number: the best report of that trial."""
    searched_step: int
    """The step of that report."""
    best: dict[str, float]
    """By seed: the best report that has a checkpoint."""
    last: dict[str, float]
    """By seed: the last report."""
    test: dict[str, dict[str, float]]
    """By metric and seed: that checkpoint on the test set; empty unless ``--test`` asks for it."""
    intervals: dict[str, Mean | None]
    """Means over the seeds: ``best``, ``last``, each test metric; ``optimism``: by how much the search's number was too
    good; ``behind``: by how much it is worse than the first. Null if no seed gave a result."""
    tie: bool
    """Whether it cannot be told apart from the first."""


class Confirmed(Document):
    """The best configurations of a search, trained again with fresh seeds."""

    run: str
    """Name of the search."""
    folder: str
    """Run folder of the trials that were trained again."""
    objective: Goal
    """The objective that they are compared by."""
    seeds: list[int]
    """The fresh seeds."""
    configurations: list[ConfirmedConfiguration]
    """Best mean first."""


class ReplayedMetric(Document):
    """A metric that is not what was recorded."""

    metric: str
    """Its name."""
    step: int
    """The first report at which it differs."""
    here: Any
    """The value now; null if it was not reported."""
    recorded: Any
    """The value of the record; null if there is none."""
    measured: bool
    """Whether its name shows that it measures the process, such as a time: then it does not count."""


class Replayed(Document):
    """A recorded trial that was run again."""

    agrees: bool
    """Whether it gave what was recorded."""
    run: str
    """Name of the run."""
    trial: str
    """Id of the trial."""
    number: int
    """Its number."""
    reports: int
    """Compared reports."""
    metrics: int
    """Compared metrics."""
    differences: list[ReplayedMetric]
    """One a metric, in the order of their steps."""
    ending: str
    """In which way it ended otherwise than recorded; empty if it ended alike."""
    failure: str
    """Why the trial fails here; empty if it does not."""
    surroundings: list[str]
    """What has changed since: versions of packages, code, host."""
    tolerance: float
    """Up to this relative difference numbers are equal; 0: to the last bit."""
