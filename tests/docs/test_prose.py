"""The language of the documentation: the rules of scripts/prose."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    loader = SourceFileLoader("prose", str(ROOT / "scripts/prose"))
    specification = spec_from_loader("prose", loader)
    assert specification is not None
    module = module_from_spec(specification)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        "The search goes on from there.",
        "A wrong token is said within seconds.",
        "What travels is the code.",
        "It is sent again. Who has no token is refused.",
        "It names the size of one that is too large.",
        "This is no stop.",
        "It travels as far as git lets it.",
        "Where nothing runs, it ends.",
        "word " * 36 + "end.",
    ],
)
def test_a_rule_finds_it(prose: ModuleType, text: str) -> None:
    assert list(prose.findings(text))


@pytest.mark.parametrize(
    "text",
    [
        "The search continues from there.",
        "What is a rung?",
        "Where to go next",
        "Run `it goes on` again.",
        "The name is no longer used.",
        "There is no agent to start.",
        "Word " * 30 + "end. " + "Word " * 30 + "end.",
    ],
)
def test_plain_english_passes(prose: ModuleType, text: str) -> None:
    assert not list(prose.findings(text))


def test_code_and_tables_are_left_out(prose: ModuleType) -> None:
    page = "First line.\n\n```text\nit goes on\n```\n\n| it goes on |\n\n- an item\n- it goes on\n"
    assert list(prose.prose_of_markdown(page)) == [(1, "First line."), (9, "an item"), (10, "it goes on")]


def test_docstrings_are_read(prose: ModuleType) -> None:
    assert list(prose.prose_of_python('"""What goes on here."""\nX = 1\n')) == [(1, "What goes on here.")]


def test_the_documentation_is_plain(prose: ModuleType) -> None:
    top = {page.name for page in prose.pages() if page.parent == ROOT}
    assert top == {"AGENTS.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert prose.check(prose.pages()) == []
