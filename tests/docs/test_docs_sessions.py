"""What the pages show: sessions that are the same everywhere run again here; the others are included from a record."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import tuner
from tuner.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [p for p in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if "experiment-file" not in p.parts]
REPEATABLE = {"validate", "algorithms", "schema", "--help", "-h"}
"""Commands of tuner that start no search: what they print is compared with the page, as for ``python``."""
REFUSED = "error: "
"""A search that is refused is not started, so that its message can be compared as well."""


@dataclass(frozen=True)
class Session:
    """A command of a page, and what the page says that it prints."""

    page: Path
    command: str
    output: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command, comments=True)

    @property
    def repeatable(self) -> bool:
        words = self.words
        return words[0] == "python" or words[1] in REPEATABLE or self.output.startswith(REFUSED)


def sessions(page: Path, text: str) -> list[Session]:
    """The commands of a page's ``console`` blocks that have an output."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, output = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.S).groups()  # type: ignore[union-attr]
            if output.strip():
                found.append(Session(page, re.sub(r"\s*\\\n\s*", " ", command), output.strip()))
    return found


def files(text: str) -> dict[str, str]:
    """The files that a page shows: code blocks whose first line is a comment with the name of a file."""
    blocks = re.findall(r"^```(?:yaml|python)\n(# (\S+\.(?:yaml|py))\n.*?)^```", text, re.M | re.S)
    return {name: block for block, name in blocks}


def agrees(expected: str, actual: str) -> bool:
    """Whether they are the same but for line breaks; ``…`` stands for anything."""
    pieces = [r"\s+".join(map(re.escape, piece.split())) for piece in expected.split("…")]
    return re.fullmatch(r"\s*.*?\s*".join(pieces), actual.strip(), re.S) is not None


def test_the_comparison_tells_a_difference() -> None:
    assert agrees("a …\nc", "a b\nb\nc")
    assert agrees("one long line", "one long\n   line")
    assert not agrees("a …\nc", "a b\nd")
    assert not agrees("error: 2", "error: 21")


def test_a_session_is_found_with_its_output() -> None:
    text = "```console\n$ tuner validate \\\n    a.yaml\nyes\n$ tuner list\n```\n```yaml\n# a.yaml\nx: 1\n```\n"
    (found,) = sessions(Path("page.md"), text)
    assert (found.command, found.output) == ("tuner validate a.yaml", "yes")
    assert files(text) == {"a.yaml": "# a.yaml\nx: 1\n"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_output_is_pasted_that_nothing_checks(page: Path) -> None:
    pasted = [session.command for session in sessions(page, page.read_text()) if not session.repeatable]
    assert pasted == [], "record them with docs/record.py"


CHECKED = [s for page in PAGES for s in sessions(page, page.read_text()) if s.repeatable]


@pytest.mark.parametrize("session", CHECKED, ids=lambda s: f"{s.page.stem}: {s.command[:60]}")
def test_a_page_shows_what_the_command_prints(
    session: Session, user_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("experiments", "search_spaces", "trainables"):
        (user_folder / name).symlink_to(ROOT / name)
    (user_folder / "my_train.py").write_text("def train(config): ...\n")  # of the tutorial, if the page has no other
    for name, text in files(session.page.read_text()).items():
        (user_folder / name).write_text(text)
    if session.words[0] == "python":
        command = [sys.executable, *session.words[1:]]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        monkeypatch.setattr(sys, "argv", session.words)
        with pytest.raises(SystemExit):
            main()
        printed = "".join(capsys.readouterr())
    assert agrees(session.output, printed), printed


def test_every_public_name_has_a_summary_in_the_reference() -> None:
    assert ".. public-names::" in (DOCS / "reference/python.md").read_text()
    undescribed = [name for name in tuner.__all__ if not (getattr(tuner, name).__doc__ or "").strip()]
    assert undescribed == []


def record() -> ModuleType:
    specification = importlib.util.spec_from_file_location("record", DOCS / "record.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["record"] = module  # its dataclass looks for it
    specification.loader.exec_module(module)
    return module


def included() -> set[str]:
    pattern = r"^```\{literalinclude\} \S*_sessions/(\S+)\.txt$"
    return {name for page in PAGES for name in re.findall(pattern, page.read_text(), re.M)}


def test_each_recorded_session_names_its_machine_and_is_shown() -> None:
    recorded = {file.stem: file.read_text() for file in (DOCS / "_sessions").glob("*.txt")}
    assert set(recorded) == included()
    for name, text in recorded.items():
        assert re.match(r"# Recorded by docs/record(_team)?.py on \d{4}-\d\d-\d\d: \d+ CPU cores", text), name
        assert max(map(len, text.splitlines())) <= 100, name


def test_each_recorded_session_can_be_recorded_again() -> None:
    of_team = re.findall(r'session\.end\("(\w+)"\)', (DOCS / "record_team.py").read_text())
    assert included() == set(of_team) | (included() & set(record().SESSIONS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_has_at_most_100_columns(page: Path) -> None:
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```$", page.read_text(), re.M | re.S)
    long = [line for block in blocks for line in block.splitlines() if len(line) > 100]
    assert long == []
