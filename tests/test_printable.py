"""What run folders, trials and clusters say reaches the terminal as text, never as a command to it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.runs.test_results import new_run, trial
from tests.terminal import obeyed
from tests.tracking.made_up import made_up_run
from tuner import cli
from tuner.cli.output import echo, print_json
from tuner.display.dashboard import _text
from tuner.display.terminal import TerminalCapture
from tuner.errors import EnvironmentFailure
from tuner.printable import printable
from tuner.runs.failure import Failure
from tuner.runs.results import PROVENANCE, write_json

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\x7f\udc80\r"
SHOWN = r"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\x7f\udc80\r"


def test_what_does_not_print_is_written_as_python_writes_it() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("a\tb\nµ±é… 训练") == "a\tb\nµ±é… 训练"
    every = "".join(map(chr, range(0x3000)))
    assert obeyed(printable(every)) == set()


@pytest.mark.parametrize("verb", ["show", "list", "why"])
def test_a_run_folder_cannot_speak_to_the_terminal(tmp_path: Path, verb: str) -> None:
    hostile = HOSTILE[:-2]  # what a file in UTF-8 can hold, in one line
    results = new_run(tmp_path / "run")
    results.provenance |= {"notices": [hostile], "ended_by": hostile, "interrupted": False}
    write_json(results.folder, PROVENANCE, results.provenance)
    told = trial(results, 0.5, config={"lr": hostile})
    told.status, told.reason, told.host = "failed", hostile, hostile
    told.failures = [Failure("exception", hostile, 1)]
    trial(results, 0.6, config={"lr": 1}).host = "other"
    results.save()
    where = ["--storage", str(tmp_path)] if verb == "list" else [str(tmp_path / "run")]
    done = CliRunner().invoke(cli.cli, [verb, *where], catch_exceptions=False)
    assert done.exit_code == 0
    assert obeyed(done.stdout) | obeyed(done.stderr) == set()
    assert r"\x9b31m" in done.stdout


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({HOSTILE: [HOSTILE]})
    out = capsys.readouterr().out
    assert obeyed(out) == set()
    assert json.loads(out) == {HOSTILE: [HOSTILE]}


@pytest.mark.parametrize("error", [EnvironmentFailure(HOSTILE), click.UsageError(HOSTILE), click.BadParameter(HOSTILE)])
def test_errors_are_printable(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit):
        cli.main()
    assert obeyed(capsys.readouterr().err) == set()


def test_the_screen_and_the_live_view_are_printable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_run(tmp_path).folder.create()
    with TerminalCapture() as screen:
        screen.say(HOSTILE)
        above: list[str] = []
        screen.above = above.append
        screen.say(HOSTILE)
    assert SHOWN in capfd.readouterr().err
    assert above == [SHOWN]
    assert _text(HOSTILE).plain == SHOWN


def test_echo_writes_where_it_is_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\x1b", nl=False)
    echo("b\x1b", err=True)
    assert capsys.readouterr() == ("a\\x1b", "b\\x1b\n")
