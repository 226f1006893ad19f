"""Documents of the commands of a search whose trials people or programs run by themselves."""

from __future__ import annotations

from typing import Literal

from tuner.documents.document import Config, Document


class BegunLoop(Document):
    """A search that was begun."""

    run: str
    """Its name."""
    folder: str
    """The run folder: a path or a URI."""
    trials: int
    """Configurations that the budget allows."""


class AskedTrial(Document):
    """The next trial of a search, or that there is none."""

    run: str
    """Its name."""
    trial: str | None
    """Id of the trial that is to run now; null if none can start."""
    number: int | None
    """Order of suggestion, from 1; null without a trial."""
    config: Config | None
    """What to train with: fixed parameters and the trial's configuration; null without a trial."""
    step: int
    """Reports that the trial made before: it continues from its checkpoint after the last of them."""
    ended: bool
    """Whether the search has come to its end; if not, and there is no trial, others must report first."""


class ToldTrial(Document):
    """What becomes of a trial after a report."""

    run: str
    """Name of the search."""
    trial: str
    """Id of the trial."""
    number: int
    """Its order of suggestion, from 1."""
    answer: Literal["continue", "pause", "stop", "finished", "failed"]
    """``continue``: train further, and report again; ``pause``: give the place to another, until ``ask`` returns this
    trial again; ``stop``: the scheduler ended it; ``finished`` and ``failed``: it ended by itself."""
