"""Reads a whole journal at once, which no code does: a run may have a million events."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.runs.events import Event
from tuner.runs.journal import JournalReader
from tuner.storage.folder import RunFolder


@dataclass(frozen=True)
class Journal:
    """What was read of a journal."""

    events: tuple[Event, ...]
    damage: str
    """What of it is lost; empty where nothing is."""


def read_journal(folder: RunFolder) -> Journal:
    """All events that can be read."""
    reader = JournalReader(folder)
    events: list[Event] = []
    for event in reader.new():
        if event["what"] == "began":
            events.clear()
        events.append(event)
    return Journal(tuple(events), reader.damage)
