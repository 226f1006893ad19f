"""``init`` writes a search that runs as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.test_command_line import tuner
from tests.documents import conforms
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


def test_a_project(user_folder: Path) -> None:
    done = CliRunner().invoke(
        cli, ["init", "my_project", "--from", "images"], catch_exceptions=False, prog_name="tuner"
    )
    names = done.stdout.splitlines()
    assert {"my_project/train.py", "my_project/.github/workflows/ci.yml", "my_project/runs/.gitkeep"} <= set(names)
    assert all(Path(name).is_file() for name in names)
    assert done.stderr.splitlines() == [
        "to test:   python -m pytest my_project",
        "to search: tuner run my_project/search.yaml --storage my_project/runs",
    ]
    again = CliRunner().invoke(cli, ["init", "my_project", "--from", "images"])
    assert isinstance(again.exception, InputError)
    assert "my_project/train.py" in str(again.exception)


def test_a_project_here_and_one_beside_another_train_py(user_folder: Path) -> None:
    done = CliRunner().invoke(cli, ["init", "--from", "images", "--json"], catch_exceptions=False, prog_name="tuner")
    found = conforms("init", done.stdout)
    assert "train.py" in found["files"]
    assert (found["commands"], found["install"]) == (["python -m pytest .", "tuner run search.yaml"], None)
    done = CliRunner().invoke(cli, ["init", "other", "--from", "images", "--json"], prog_name="tuner")
    commands = json.loads(done.stdout)["commands"]  # here, search.yaml would name the other train.py
    assert commands == ["cd other && python -m pytest", "cd other && tuner run search.yaml"]


def test_a_project_whose_extra_is_missing_is_written_all_the_same(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.scaffold.project.missing", lambda template: "images needs torch")
    done = CliRunner().invoke(cli, ["init", "mine", "--from", "images"], catch_exceptions=False)
    assert Path("mine/train.py").is_file()
    assert done.stderr.splitlines()[:2] == ["images needs torch", "to install: pip install -r mine/requirements.txt"]


SCRIPT = """
import argparse
import tuner

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--device", default="cpu")
parser.add_argument("--epochs", type=int, default=9)
arguments = parser.parse_args()
for epoch in range(1, arguments.epochs + 1):
    tuner.report(epoch=epoch, val_loss=(arguments.lr - 0.3) ** 2)
"""


def test_an_experiment_for_a_script(user_folder: Path) -> None:
    Path("code").mkdir()
    Path("code/my.py").write_text(SCRIPT)
    done = CliRunner().invoke(cli, ["init", "--from", "code/my.py"], catch_exceptions=False, prog_name="tuner")
    assert done.stdout == "code/search.yaml\n"
    assert done.stderr.splitlines() == [
        "code/my.py: 5 arguments of argparse",
        "  lr: {loguniform: [0.01, 1.0], default: 0.1}  (a learning rate)",
        "  hidden: {choice: [16, 32, 64, 128], default: 64}  (a size, in powers of two)",
        "  clip: {loguniform: [0.1, 10.0], default: 1.0}  in a comment: a guess from the default",
        "  fixed in params: epochs",
        "  left alone: device",
        "  objective: min val_loss  (reported in line 13)",
        "to check:  tuner validate code/search.yaml",
        "to search: tuner run code/search.yaml",
    ]
    assert validate("code/search.yaml").spec.params == {"epochs": 9}


def test_an_experiment_for_a_script_in_another_folder(user_folder: Path) -> None:
    Path("my.py").write_text(SCRIPT.replace("val_loss=", "result="))
    arguments = ["init", "--from", "my.py", "new/deep", "--json"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False, prog_name="tuner")
    found = conforms("init", done.stdout)
    assert found["files"] == ["new/deep/search.yaml"]
    assert found["trainable"] == "../../my.py"
    assert found["commands"] == ["tuner validate new/deep/search.yaml", "tuner run new/deep/search.yaml"]
    assert found["unsure"] == {"clip": {"loguniform": [0.1, 10.0], "default": 1.0}}
    assert found["objective"] is None
    with pytest.raises(InputError, match="write max if large values are good"):
        validate("new/deep/search.yaml")


@pytest.mark.parametrize(
    ("script", "present", "message"),
    [
        ("nowhere.py", "", "--from nowhere.py: there is no such file"),
        ("broken.py", "", "broken.py is not Python: "),
        ("empty.py", "", "--from empty.py: no hyperparameters found"),
        ("my.py", "new/search.yaml", "new/search.yaml: already there, and not overwritten"),
    ],
)
def test_a_script_for_which_nothing_is_written(user_folder: Path, script: str, present: str, message: str) -> None:
    for name, text in {"my.py": SCRIPT, "broken.py": "def (:", "empty.py": ""}.items():
        Path(name).write_text(text)
    if present:
        Path(present).parent.mkdir()
        Path(present).write_text("mine")
    done = CliRunner().invoke(cli, ["init", "--from", script, "new"])
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_status == 2
    assert str(done.exception).startswith(message)
    assert "\n" not in str(done.exception)
    assert [path.read_text() for path in Path().rglob("*.yaml")] == ["mine"] * bool(present)


def test_neither_a_template_nor_a_script(user_folder: Path) -> None:
    done = CliRunner().invoke(cli, ["init", "--from", "quickstrat"])
    assert done.exit_code == 2
    assert "'quickstrat' is neither a template nor a script (SCRIPT.py)" in done.stderr
    assert "did you mean 'quickstart'?" in done.stderr
    assert list(user_folder.iterdir()) == []


@pytest.mark.processes
def test_the_experiment_for_a_script_runs(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(SCRIPT)
    assert tuner("init", "--from", "my.py", cwd=tmp_path).returncode == 0
    done = tuner("run", "search.yaml", "--set", "budget.trials=3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(found["trials"].values()) == 3
    assert found["best"]["value"] == (found["best"]["config"]["lr"] - 0.3) ** 2


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
