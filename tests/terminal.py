"""What a terminal makes of text."""

from __future__ import annotations


def obeyed(text: str) -> set[str]:
    """The characters of ``text`` that a terminal obeys instead of showing them."""
    return {c for c in text if not c.isprintable() and c not in "\n\t"}
