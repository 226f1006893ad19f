"""Text that a terminal shows and does not obey."""

from __future__ import annotations

import re

_NOT_PLAIN = re.compile(r"[^\n\t -~]")


def printable(text: str) -> str:
    """``text`` with what does not print written as Python writes it: ESC becomes ``\\x1b``.

    Names, values, reasons and answers come from run folders, trials and clusters. Control characters in them (C0, C1),
    bidirectional marks and lone surrogates could move the cursor, set the clipboard, or show another text than there
    is. Newlines and tabs stay.
    """
    return _NOT_PLAIN.sub(lambda found: _shown(found[0]), text)


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
