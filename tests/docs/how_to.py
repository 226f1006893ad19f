"""The pages of docs/how-to: their files, and their console sessions."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of ``page`` in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def write_files(page: str, folder: Path) -> list[str]:
    """Writes each block that begins with the comment of a file's name, or adds it if that is "continued".

    Returns the names of the files.
    """
    names = []
    for block in [*blocks(page, "python"), *blocks(page, "yaml")]:
        first = block.partition("\n")[0]
        if found := re.fullmatch(r"# ([\w./-]+\.(?:py|yaml))", first):
            (folder / found[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / found[1]).write_text(block)
            names.append(found[1])
        elif found := re.fullmatch(r"# ([\w.-]+), continued", first):
            (folder / found[1]).write_text((folder / found[1]).read_text() + block)
    return names


def sessions(page: str) -> list[tuple[str, str]]:
    """Each command of a console block, with what it prints."""
    return [
        (command, output)
        for block in blocks(page, "console")
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]
