"""The document of a command that a program called, and that has not ended."""

from __future__ import annotations

from tuner.documents.document import Document


class PendingCall(Document):
    """A command that continues in the background, as ``tuner mcp`` started it."""

    call: str
    """Its id, for the tools ``result`` and ``cancel``."""
    command: str
    """What was called."""
    run: str | None
    """The run that it works on, for ``status``, ``show`` and ``stop``; null if it has none."""
    said: list[str]
    """The last lines that it wrote for people."""
