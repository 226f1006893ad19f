"""Searches of a team, as its queue tells them."""

from __future__ import annotations

from tuner.service.interface import Submission
from tuner.service.records import Record, State


def entry(
    name: str, user: str, state: State, position: int | None = None, submitted: float = 0.0, reason: str = ""
) -> Record:
    """A search in that state."""
    return Record(Submission(user, name, request=name), submitted, state, reason, position=position)
