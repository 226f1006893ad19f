"""Documents of the tools."""

from __future__ import annotations

from typing import Any, Literal

from tuner.documents.document import Document, Notices
from tuner.documents.runs import Goal


class CheckFinding(Document):
    """What one check of ``doctor`` found."""

    level: Literal["ok", "warning", "error"]
    """How bad it is."""
    check: str
    """What was checked."""
    found: str
    """What was found."""
    remedy: str
    """What to do; empty if nothing has to be."""
    status: int
    """The exit status that an error of this kind ends with."""


class ExportedStudy(Document):
    """A run that became an Optuna study."""

    study: str
    """Its name."""
    trials: dict[str, int]
    """Number of trials by Optuna's state, such as ``COMPLETE``."""
    notices: Notices


class ExportedTable(Document):
    """Learning curves that became a table."""

    table: str
    """The parquet file."""
    configurations: int
    """Curves in it."""
    carried_on: int
    """Curves that were cut short, and carried on with their last value."""
    left_out: int
    """Trials that have no curve."""


class SentRun(Document):
    """A run that was sent to trackers."""

    run: str
    """Its name."""
    trials: int
    """Number of its trials."""
    reports: int
    """Number of their reports."""
    places: list[str]
    """Names of the trackers."""


class SimulationLimits(Document):
    """When a simulated search ends."""

    seconds: float | None
    """Virtual seconds; null: see ``trials`` and ``full_trials``."""
    trials: int | None
    """Configurations that are started at most; null: any number."""
    full_trials: int
    """So many whole trials make up the virtual time if neither of the others is given."""


class SimulationCosts(Document):
    """What a worker spends before a trial trains, in virtual seconds."""

    start: float
    """Before a new trial."""
    resume: float
    """Before a paused trial continues."""


class MeanOfSeeds(Document):
    """A mean over seeds."""

    mean: float
    """The mean."""
    standard_error: float | None
    """Its standard error; null for one seed."""


class SimulatedSearch(Document):
    """What one experiment reached with one number of workers."""

    experiment: str
    """Its name."""
    workers: int
    """Trials at once."""
    quarter: MeanOfSeeds
    """Normalised regret at a quarter of the virtual time."""
    whole: MeanOfSeeds
    """Normalised regret at its end."""
    quarter_rank: float
    """Mean rank among the experiments at a quarter of the time; 1 is the best."""
    whole_rank: float
    """Mean rank at the end."""
    trials: float
    """Configurations started, in the mean."""
    reports_per_s: float
    """Evaluations that the simulator did in a real second."""


class Simulated(Document):
    """Searches in virtual time, compared."""

    folder: str
    """Folder of the figure and the page."""
    limits: SimulationLimits
    """When each search ended."""
    costs: SimulationCosts
    """What starts cost."""
    seeds: int
    """Repetitions of each search."""
    virtual_seconds: dict[str, float]
    """The virtual time of each table and number of workers."""
    results: list[SimulatedSearch]
    """One for each experiment and number of workers."""
    notes: list[str]
    """How to read the numbers."""


class Pairing(Document):
    """A searcher with a scheduler."""

    search: str
    """The searcher."""
    scheduler: str
    """The scheduler."""
    works: bool
    """Whether they go together."""
    why_not: str | None
    """The reason; null if they do."""


class SearchOfAClass(Document):
    """A searcher whose class decides what it can do."""

    search: str
    """The searcher."""


class SearchAbilities(SearchOfAClass):
    """What a searcher can do."""

    max_objectives: int | None
    """Objectives that it searches for at once; null: any number."""
    conditions: bool
    """Whether it takes ``when``."""
    priors: bool
    """Whether it takes ``prior``."""
    limits: bool
    """Whether it models ``outcome_constraints``."""
    refused_domains: list[str]
    """Domains that it does not take."""


class Algorithms(Document):
    """Which searcher goes with which scheduler, and what each searcher can do."""

    pairings: list[Pairing]
    """Every searcher with every scheduler."""
    searches: list[SearchAbilities | SearchOfAClass]
    """All searchers."""


class WrittenFiles(Document):
    """Files that ``init`` wrote."""

    files: list[str]
    """Their paths."""


class WrittenProject(WrittenFiles):
    """A project that ``init --from TEMPLATE`` wrote."""

    commands: list[str]
    """What to run next: the test, and the search."""
    install: str | None
    """The command that installs what the project lacks; null if nothing is missing."""


class WrittenExperiment(WrittenFiles):
    """An experiment that ``init --from SCRIPT`` wrote."""

    trainable: str
    """The reference of the training code."""
    commands: list[str]
    """What to run next: the check, and the search."""
    search_space: dict[str, dict[str, Any]]
    """Hyperparameters that are searched, each with its domain."""
    unsure: dict[str, dict[str, Any]]
    """Hyperparameters in a comment of the file, each with a domain."""
    fixed: list[str]
    """Hyperparameters in ``params``."""
    left: list[str]
    """Hyperparameters that keep the script's own value."""
    objective: Goal | None
    """What the script reports; null if the script does not show it."""
