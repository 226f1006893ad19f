"""AGENTS.md, and the page on driving tuner with a program: their commands run, and their lists are complete."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest

from tests.docs.how_to import blocks, write_files
from tests.documents import conforms
from tuner.cli import cli
from tuner.mcp.tools import PENDING
from tuner.mcp.verbs import VERBS, Effect

ROOT = Path(__file__).parents[2]
PAGE = "drive-tuner-with-a-program.md"
AGENTS = "../../AGENTS.md"


def commands(page: str) -> list[list[str]]:
    """The words of each command of tuner in the ``bash`` and ``console`` blocks of ``page``."""
    text = "".join([*blocks(page, "bash"), *blocks(page, "console")]).replace("\\\n", " ")
    lines = re.findall(r"^(?:\$ )?(tuner (?:'[^']*'|[^'\n])*)$", text, re.M)
    assert len(lines) == len(re.findall(r"^(?:\$ )?tuner ", text, re.M))
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture
def folder(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files of the page, and ``tuner`` on the PATH."""
    write_files(PAGE, user_folder)
    program = user_folder / "bin" / "tuner"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tuner "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return user_folder


@pytest.mark.parametrize("page", [AGENTS, PAGE])
def test_every_command_parses(page: str) -> None:
    assert len(commands(page)) > 5
    for _, name, *words in commands(page):
        command = cli.get_command(click.Context(cli, info_name="tuner"), name)
        assert command is not None
        command.make_context(name, list(words))


def test_the_page_lists_every_tool_where_it_belongs() -> None:
    rows = re.findall(r"^\| (that [^|]+|for [^|]+) \| (.+) \|$", (ROOT / "docs/how-to" / PAGE).read_text(), re.M)
    listed = [set(re.findall(r"`(\w+)`", tools)) for _, tools in rows]
    by_effect = [{name for name, verb in VERBS.items() if verb.effect == kind} for kind in get_args(Effect)]
    assert listed == [*by_effect, set(PENDING)]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("drive.py", r"2 \[\{'at': 1, .*\nexit status 2: .*budget\.trials.*'many'.*\n"),
        ("client.py", "2\nTrue 2\n"),
    ],
)
def test_the_programs_of_the_page_run(folder: Path, program: str, output: str) -> None:
    done = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, text=True, check=True)
    assert re.fullmatch(output, done.stdout), done.stdout


@pytest.mark.processes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [AGENTS, PAGE])
def test_the_commands_run(page: str, folder: Path) -> None:
    for words in commands(page):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        if "--json" in words:
            conforms(words[1], done.stdout)
