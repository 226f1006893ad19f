"""What help shows: groups, names, examples that can be pasted, exit statuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tuner.cli import cli
from tuner.cli.groups import GROUPS, HIDDEN, names

ROOT = Path(__file__).parents[2]


def said(*arguments: str, program: str = "tuner") -> str:
    done = CliRunner().invoke(cli, arguments, prog_name=program, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli, info_name="tuner"), name)
    assert found is not None
    return found


def test_help_shows_the_commands_in_groups_and_no_older_names() -> None:
    lines = said("-h").splitlines()
    assert [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")] == ["Options", *GROUPS]
    shown = [line.split()[0] for line in lines[lines.index("Search:") :] if line.startswith("  ") and line[2] != " "]
    assert [name for name in shown if name in names()] == names()
    assert not {"why", "track", "table"} & set(shown)


@pytest.mark.parametrize("name", [*names(), *HIDDEN])
def test_each_command_has_an_example_that_can_be_pasted(name: str) -> None:
    found = command(name)
    assert found.hidden == (name in HIDDEN)
    text = said(name, "-h")
    if not found.hidden:
        assert any(line.startswith("  Example:") for line in text.splitlines())
    written = [line.strip() for line in (found.help or "").splitlines() if line.strip().startswith("tuner ")]
    for example in written:
        assert example in [line.strip() for line in text.splitlines()]
        words = example.split("#")[0].split()
        assert not found.hidden or words[1] != name


@pytest.mark.parametrize("name", names())
def test_the_examples_parse(name: str) -> None:
    """Every option of an example is one of the command's."""
    found = command(name)
    options = {spelling for option in found.params for spelling in option.opts} | {"recover"}
    for line in (found.help or "").splitlines():
        if line.strip().startswith(f"tuner {name} "):
            assert {word for word in line.split() if word.startswith("-")} <= options, line


def test_usage_and_examples_have_the_name_that_the_program_was_called_by() -> None:
    assert said("run", "-h").startswith("Usage: tuner run [OPTIONS] FILE")
    assert "\n    tuner run quickstart" in said("run", "-h")
    text = said("run", "-h", program="python -m tuner")
    assert text.startswith("Usage: python -m tuner run ")
    assert "\n    python -m tuner run quickstart" in text
    assert said("help", "run") == said("run", "-h")


def test_both_names_of_the_program() -> None:
    script = Path(sys.executable).with_name("tuner")
    for words, name in (([str(script)], "tuner"), ([sys.executable, "-m", "tuner"], "python -m tuner")):
        done = subprocess.run([*words, "show", "-h"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(f"Usage: {name} show [OPTIONS] RUN")


def test_topics() -> None:
    assert said("help") == said("-h")
    for status in ("0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "130 "):
        assert any(line.startswith(status) for line in said("help", "exit-status").splitlines())
    assert "TUNER_STORAGE" in said("help", "environment")
    done = CliRunner().invoke(cli, ["help", "exit-statsu"])
    assert done.exit_code == 2
    assert "no such command 'exit-statsu'" in done.output


def test_an_unknown_command_names_the_nearest() -> None:
    done = CliRunner().invoke(cli, ["stauts"])
    assert done.exit_code == 2
    assert "no such command 'stauts'" in done.output
    assert "did you mean 'status'?" in done.output


@pytest.mark.parametrize(("old", "new"), [("why", "status"), ("track", "sync")])
def test_an_older_name_is_the_same_command(old: str, new: str) -> None:
    assert command(old).callback is command(new).callback
