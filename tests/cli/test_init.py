"""``init`` writes a search that runs as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.test_command_line import tuner
from tuner.actions.run import validate
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError


def test_what_it_writes_is_valid(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(cli, ["init", "mine"], catch_exceptions=False, prog_name="tuner")
    assert done.stdout.splitlines() == ["mine/search.yaml", "mine/train.py"]
    assert done.stderr == "to search: tuner run mine/search.yaml\n"
    assert validate("mine/search.yaml").trials == 12
    monkeypatch.chdir("mine")
    assert validate("search.yaml").trials == 12
    done = CliRunner().invoke(cli, ["validate", "search.yaml", "--set", "params.epoch=3"])
    assert "did you mean 'epochs'?" in str(done.exception)  # the schema is the training's


def test_here_without_a_folder(user_folder: Path) -> None:
    done = CliRunner().invoke(cli, ["init", "--from", "quickstart", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == {"files": ["search.yaml", "train.py"]}
    assert sorted(path.name for path in user_folder.iterdir()) == ["search.yaml", "train.py"]


def test_it_overwrites_nothing(user_folder: Path) -> None:
    Path("train.py").write_text("mine")
    done = CliRunner().invoke(cli, ["init"])
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("train.py: already there")
    assert Path("train.py").read_text() == "mine"
    assert not Path("search.yaml").exists()


def test_a_folder_that_cannot_be_made(user_folder: Path) -> None:
    Path("file").touch()
    done = CliRunner().invoke(cli, ["init", "file/below"])
    assert isinstance(done.exception, EnvironmentFailure)
    assert "file/below: cannot be written: Not a directory" in str(done.exception)


@pytest.mark.processes
def test_it_runs_and_is_stopped_by_nothing(tmp_path: Path) -> None:
    """On real Ray: the search, and its best model on the test images."""
    assert tuner("init", "mine", cwd=tmp_path).returncode == 0
    done = tuner("run", "mine/search.yaml", "--name", "q", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(found["trials"].values()) == 12
    assert found["best"]["value"] > 0.9
    best = tuner("best", "q", "--test", "--json", cwd=tmp_path)
    assert json.loads(best.stdout)["test"]["test_accuracy"] > 0.85
