"""The trainable of a search whose trials the user runs, by `tuner.Search.ask` and ``tell`` or by commands."""

from __future__ import annotations

from typing import Any

_REASON = (
    "this search has no trainable, as its trials run in a loop of your own: begin it with tuner begin FILE or "
    "tuner.Search(...).begin(). To continue it: tuner ask RUN, or tuner.load(RUN).reopen()"
)

REFERENCE = f"{__name__}:train"


def train(config: dict[str, Any]) -> None:
    """Trains nothing. Raises RuntimeError."""
    raise RuntimeError(_REASON)


def prepare(config: dict[str, Any]) -> dict[str, Any]:
    """Ends `tuner run` and `resume` before anything starts. Raises RuntimeError."""
    raise RuntimeError(_REASON)
