"""Options that come from the environment, and older spellings of options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.runs.test_listing import saved
from tuner.cli import cli, options
from tuner.cli.groups import names


@click.command("probe", context_settings={"auto_envvar_prefix": "TUNER_PROBE"})
@options.storage
@options.address
@options.option("--output-dir", "target", old=["-o", "--output"], metavar="DIR")
@options.option("--max-t")
@options.as_json
def probe(**values: Any) -> None:
    """Prints its options."""
    click.echo(json.dumps(values))


def got(*arguments: str, **environment: str) -> dict[str, Any]:
    done = CliRunner(env=environment).invoke(probe, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_command_line_then_the_command_s_variable_then_the_one_for_all() -> None:
    every = {"TUNER_STORAGE": "all", "TUNER_PROBE_STORAGE": "own"}
    assert got()["storage"] == "runs"
    assert got(TUNER_STORAGE="all")["storage"] == "all"
    assert got(**every)["storage"] == "own"
    assert got("--storage", "given", **every)["storage"] == "given"


def test_variables_have_the_names_of_the_options() -> None:
    assert got(TUNER_PROBE_OUTPUT_DIR="d")["target"] == "d"
    assert got(TUNER_PROBE_MAX_T="9")["max_t"] == "9"
    assert got(TUNER_RAY_ADDRESS="auto")["address"] == "auto"
    assert got(TUNER_JSON="1")["as_json"] is True
    assert got(TUNER_JSON="0")["as_json"] is False


@pytest.mark.parametrize("spelling", ["--output-dir", "--output", "-o"])
def test_older_spellings_work_and_are_not_shown(spelling: str) -> None:
    assert got(spelling, "d")["target"] == "d"
    text = CliRunner().invoke(probe, ["--help"]).stdout
    assert "--output-dir DIR" in text
    assert "--output " not in text
    assert got("--address", "h:1")["address"] == got("--ray-address", "h:1")["address"] == "h:1"


def test_each_command_documents_its_variables() -> None:
    context = click.Context(cli, info_name="tuner")
    for name in names():
        command = cli.get_command(context, name)
        assert command is not None
        text = CliRunner().invoke(cli, [name, "-h"], prog_name="tuner").stdout
        spellings = {spelling for param in command.params for spelling in param.opts}
        if "--storage" in spellings and name != "submit":
            assert "TUNER_STORAGE" in " ".join(text.split())
        assert "--address" not in spellings


def test_storage_from_the_environment(tmp_path: Path) -> None:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    done = CliRunner(env={"TUNER_STORAGE": str(tmp_path)}).invoke(cli, ["list", "--json"], catch_exceptions=False)
    assert [row["run"] for row in json.loads(done.stdout)] == ["q"]


def asked(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, arguments)


def test_the_command_line_s_cluster_takes_the_place_of_the_environment_s(tmp_path: Path) -> None:
    other = {"TUNER_CLUSTER": str(tmp_path / "none.yaml")}
    assert "none.yaml: there is no such file" in str(asked("jobs", **other).exception)
    assert "--jobs-address nope://x: must be" in str(asked("jobs", "--jobs-address", "nope://x", **other).exception)


def test_a_cluster_in_the_environment_makes_no_job_of_a_run_that_is_resumed(tmp_path: Path) -> None:
    done = asked("resume", "q", "--storage", str(tmp_path), TUNER_CLUSTER="x.yaml", TUNER_JOBS_ADDRESS="http://h")
    assert f"no run 'q' (looked at q, {tmp_path}/q)" in str(done.exception)


@pytest.mark.parametrize("words", [["--jobs-address", "nope://x"], ["--address", "http://"], ["--cluster", "x.yaml"]])
def test_resume_of_a_job_by_each_spelling(words: list[str], tmp_path: Path) -> None:
    done = asked("resume", "q", *words)
    assert "must be http://HEAD:8265" in str(done.exception) or "x.yaml: there is no such file" in str(done.exception)


@pytest.mark.parametrize("words", [["--top", "0"], ["--seeds", "-1"]])
def test_confirm_takes_whole_numbers_from_1(words: list[str]) -> None:
    done = asked("confirm", "q", *words)
    assert done.exit_code == 2
    assert "x>=1" in done.output


def test_one_target_of_an_export() -> None:
    for words in ([], ["--optuna", "sqlite://", "--table", "t"], ["--table", "t", "--study", "s"]):
        assert asked("export", "q", *words).exit_code == 2


def test_one_trial_of_best() -> None:
    done = asked("best", "q", "3", "--trial", "4")
    assert done.exit_code == 2
    assert "name one trial" in done.output
