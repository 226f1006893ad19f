"""What trainables and their helpers may import of tuner: people copy them, and run them with plain Ray Tune."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELPERS = ("tuner.training.", "tuner.integrations.")
REPLAYS_TABLES = "trainables/tabulated.py"
"""It trains nothing: it replays a table of tuner's own, and so needs `tuner.Table`."""

FILES = [
    str(file.relative_to(ROOT)) for folder in ("trainables", "tuner/training") for file in (ROOT / folder).glob("*.py")
]


def imported(source: str) -> Iterator[str]:
    """The modules of tuner that ``source`` imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [
                f"{node.module}.{alias.name}" if node.module == "tuner" else f"{node.module}" for alias in node.names
            ]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "tuner")


@pytest.mark.parametrize("file", FILES)
def test_only_the_helpers_are_imported(file: str) -> None:
    others = {name for name in imported((ROOT / file).read_text()) if not f"{name}.".startswith(HELPERS)}
    assert others == ({"tuner.Table"} if file == REPLAYS_TABLES else set())


def test_an_import_of_something_else_is_found() -> None:
    found = imported("import tuner\nfrom tuner import run\nfrom tuner.trainingcamp import x\nimport torch")
    assert list(found) == ["tuner", "tuner.run", "tuner.trainingcamp"]
