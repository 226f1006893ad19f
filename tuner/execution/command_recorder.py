"""What people command of a search, in its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.runs.commands import Command, Commanded, discard
from tuner.runs.history import EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.results import ResultSet
from tuner.search.emitted_events import commanded
from tuner.search.state import SearchState
from tuner.search.storing import RunFolderWriter


class CommandRecorder:
    """The part of `tuner.execution.recorder.Recorder` that journals commands."""

    results: ResultSet
    state: SearchState
    storing: RunFolderWriter
    _journal: JournalWriter
    _history: EventApplier

    def say(self, text: str) -> None:
        """Tells the user at once."""
        raise NotImplementedError

    def _write(self, what: str, **fields: Any) -> None:
        """Journals an event."""
        raise NotImplementedError

    def sync(self) -> None:
        """Brings all events to the storage."""
        self.storing.insist(lambda: self._journal.sync(now=True))

    def was_answered(self, command: Command) -> bool:
        """Whether the command was carried out or refused before."""
        return any(known.id == command.id for known in self.results.commands)

    def commanded(
        self,
        command: Command,
        *,
        done: bool,
        reason: str = "",
        trials: Sequence[str] = (),
        changed: Mapping[str, Any] | None = None,
    ) -> None:
        """What comes of a command: the event from which it holds.

        ``changed``: the keys of the experiment that it replaces.
        """
        told = Commanded(**vars(command), done=done, reason=reason, trials=tuple(trials))
        event = commanded(told) | ({"changed": changed} if changed else {})
        self._write(**event)
        self._history.commanded(event)
        if done:
            self.state.commanded(event)
        self.say(f"{command.by}: {' '.join([command.do, *trials])}{'' if done else f': refused: {reason}'}")

    def take_away(self, command: Command) -> None:
        """Deletes the file of a command that was answered, once the disk has the answer."""

        def discarded() -> None:
            self._journal.sync(now=True)
            discard(self.results.folder, command)

        self.storing.later(discarded)
