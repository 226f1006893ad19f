"""``--json``: one document on stdout, also when a command fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.hostile.run_folders import asked
from tests.runs.test_listing import saved
from tests.runs.test_results import new_run, trial
from tuner import cli
from tuner.cli.groups import names
from tuner.errors import Interrupted

HEAD = "trainable: t.py:train\nobjective: {metric: loss, mode: min}\n"
SPACE = "search_space: {lr: {loguniform: [1e-4, 1e-1]}}\n"

TEXT_ONLY = ("schema", "mcp", "completion", "help")
"""Commands without ``--json``: what they print is no result of a search; the schema and mcp speak JSON as they are."""


def document(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """(exit status, stdout) of the program; stdout is one document."""
    before, sys.argv = sys.argv, ["tuner", *words]
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        sys.argv = before
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert isinstance(end.value.code, int)
    return end.value.code, found


def test_problems_with_their_places(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.py").write_text("def train(config): ...\n")
    Path("e.yaml").write_text(HEAD + SPACE + "budgett: {trials: 3}\nbudget: {trials: many}\n")
    status, found = document("validate", "e.yaml", "--json", capsys=capsys)
    assert (status, found["exit_status"]) == (2, 2)
    places = [[problem[name] for name in ("file", "line", "column", "key")] for problem in found["problems"]]
    assert places == [["e.yaml", 4, 1, "budgett"], ["e.yaml", 5, 10, "budget.trials"]]
    assert "did you mean 'budget'?" in found["problems"][0]["message"]
    assert found["error"].startswith("e.yaml:4:1: budgett: unknown key")


def test_an_option_has_no_line(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.py").write_text("def train(config): ...\n")
    Path("e.yaml").write_text(HEAD + SPACE)
    _, found = document("validate", "e.yaml", "--json", "--set", "budget.trial=3", capsys=capsys)
    (problem,) = found["problems"]
    assert problem["file"] == "--set budget.trial"
    assert (problem["line"], problem["column"], problem["key"]) == (None, None, "budget.trial")


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["run", "e.yaml", "--json", "--nmae", "x"], 2, "No such option"),
        (["run", "--json"], 2, "Missing argument 'FILE'"),
        (["rnu", "--json"], 2, "no such command 'rnu'"),
        (["show", "nothing", "--json"], 2, "no run 'nothing'"),
        (["list", "--storage", "/etc/hostname", "--json"], 4, "cannot be listed"),
    ],
)
def test_any_error(words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended, found = document(*words, capsys=capsys)
    assert ended == found["exit_status"] == status
    assert text in found["error"]


def test_without_it_stdout_stays_empty() -> None:
    status, said = asked(["show", "nothing"])
    assert (status, said.startswith("error: no run 'nothing'")) == (2, True)
    assert "{" not in said


def test_json_by_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TUNER_JSON", "1")
    assert document("show", "nothing", capsys=capsys)[1]["exit_status"] == 2


def test_what_was_found_before_the_error_is_in_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = new_run(tmp_path / "q")
    trial(results, 0.5)

    def fail(**options: object) -> None:
        error = Interrupted("interrupted: 3 trials ended")
        error.results = results
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    status, found = document("run", "e.yaml", "--json", capsys=capsys)
    assert status == 130
    assert (found["run"], found["best"]["value"], found["trials"]["completed"]) == ("q", 0.5, 1)
    assert (found["error"], found["exit_status"], found["problems"]) == ("interrupted: 3 trials ended", 130, [])


@pytest.mark.parametrize("name", [name for name in names() if name not in TEXT_ONLY])
def test_every_command_has_it(name: str) -> None:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    assert "--json" in {spelling for param in command.params for spelling in param.opts}


def test_a_table_and_its_counts(tmp_path: Path) -> None:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    for words in (["export", "--table"], ["table", "-o"]):
        target = tmp_path / f"{words[0]}.parquet"
        done = CliRunner().invoke(
            cli.cli, [words[0], str(tmp_path / "q"), words[1], str(target), "--json"], catch_exceptions=False
        )
        assert json.loads(done.stdout)["table"] == str(target)
        assert target.exists()
