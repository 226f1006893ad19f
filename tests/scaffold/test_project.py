"""A project made from a shipped experiment."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tuner import examples
from tuner.actions.run import validate
from tuner.errors import EnvironmentFailure, InputError
from tuner.scaffold import project
from tuner.scaffold.files import write_new
from tuner.scaffold.project import TEMPLATES, Template, missing, project_files
from tuner.scaffold.rewriting import helpers, moved, with_log

ROOT = Path(__file__).parents[2]
AROUND = {
    *(".github/workflows/ci.yml", ".gitignore", "README.md", "requirements.txt", "runs/.gitkeep", "test_train.py"),
    *("train.py", "search.yaml", "search_space.yaml"),
}
DIGITS = Template("quickstart", "A small network on handwritten digits.")
ALL = {**TEMPLATES, "digits": DIGITS}


def marked(*marks: pytest.MarkDecorator) -> list[Any]:
    """The names of the templates as parameters; those that need an extra are for `-m integrations` only."""
    return [
        pytest.param(name, marks=[pytest.mark.integrations] if template.extra else marks)
        for name, template in ALL.items()
    ]


def written(files: Mapping[str, bytes], folder: Path) -> Path:
    write_new(folder, {folder / path: content for path, content in files.items()})
    return folder


@pytest.mark.parametrize("name", ALL)
def test_a_project_is_complete_and_names_nothing_of_the_examples(name: str) -> None:
    written = project_files(ALL[name], "mine")
    files = {path: content.decode() for path, content in written.items() if not path.endswith(".safetensors")}
    assert set(files) >= AROUND
    for path, text in files.items():
        assert "trainables" not in text, path
        assert "experiments/" not in text, path
        assert "search_spaces" not in text, path
        assert "$" not in text or path not in AROUND - {"train.py"}, path
        if path.endswith(".py"):
            ast.parse(text)
    modules = {path.removesuffix(".py") for path in files if path.endswith(".py")}
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for path in files
        if path.endswith(".py")
        for node in ast.walk(ast.parse(files[path]))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    shipped = {file.stem for file in (examples.FOLDER / "trainables").glob("*.py")}
    assert imported & shipped <= modules
    for path in files:
        assert f"`{path}`" in files["README.md"] or path in (".gitignore", "README.md", "runs/.gitkeep")


@pytest.mark.parametrize("name", marked())
def test_its_experiment_is_valid_without_an_edit(name: str, user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(project_files(ALL[name], "mine"), Path("mine"))
    plan = validate("mine/search.yaml")
    assert (plan.spec.name, plan.spec.trainable) == ("mine", "train.py:train")
    shipped = validate(ALL[name].experiment)
    assert plan.spec.model_dump(exclude={"name", "trainable", "search_space"}) == shipped.spec.model_dump(
        exclude={"name", "trainable", "search_space"}
    )
    monkeypatch.chdir("mine")
    assert validate("search.yaml").trials == plan.trials
    assert validate("search.yaml", ALL[name].short | {"budget.trials": 1}).trials == 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", marked(pytest.mark.processes))
def test_a_project_passes_its_own_test(name: str, tmp_path: Path) -> None:
    written(project_files(ALL[name], "mine"), tmp_path / "mine")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "mine"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("name", ALL)
def test_a_trial_logs_its_configuration_and_its_reports(name: str) -> None:
    lines = project_files(ALL[name], "mine")["train.py"].decode().splitlines()
    assert "log = getLogger(__name__)" in lines
    assert '    log.info("%s", config)' in lines


def test_a_log_is_added_beside_the_lines_that_are_there() -> None:
    before = (
        "import json\nfrom typing import Any\n\nfrom ray import tune\nfrom transformers import logging\n\n\n"
        'def train(settings):\n    """Trains."""\n'
        "    for i in range(3):\n        tune.report(m, checkpoint=c)\n\n\nclass A:\n    def train(self): ...\n"
    )
    after = with_log(before)
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert added == [
        "from logging import INFO, basicConfig, getLogger",
        "log = getLogger(__name__)",
        '    basicConfig(level=INFO, format="%(asctime)s %(message)s")  # to the output.log of the trial',
        '    log.info("%s", settings)',
        '        log.info("%s", m)',
    ]
    assert [line for line in after.splitlines() if line and line not in added] == [*filter(None, before.splitlines())]
    assert after.startswith("import json\nfrom logging import INFO, basicConfig, getLogger\nfrom typing import Any\n")
    assert with_log(after) == after
    assert "logger = getLogger(__name__)" in with_log(before.replace("settings", "log").replace("m,", "log,"))


def test_names_and_paths_of_the_examples_become_those_of_the_project() -> None:
    text = (
        "# yaml-language-server: $schema=schema.json\n# tuner run experiments/a_b.yaml\n"
        "trainable: trainables.mine:train\nsearch_space: search_spaces/a.yaml\n"
        "from trainables import x, y as z\nfrom trainables.w import V\n"
        "from trainables import (\n    p,\n    q,\n)\n"
        "# python -m trainables.mine, see trainables/w.py\nmy_trainables.mine\n"
    )
    assert moved(text, "mine") == (
        "# tuner run search.yaml\ntrainable: train.py:train\n"
        "search_space: search_space.yaml\nimport x\nimport y as z\nfrom w import V\nimport p\nimport q\n"
        "# python -m train, see w.py\nmy_trainables.mine\n"
    )
    imports = "from trainables import x, y as z\nfrom trainables.w import V\nimport trainables.u as t\nimport os"
    assert helpers(imports) == {*"xywu"}


def test_a_folder_whose_name_names_no_run_keeps_the_experiment_s_name() -> None:
    assert b"\nname: quickstart\n" in project_files(DIGITS, "my project")["search.yaml"]
    assert b"\nname: my-project\n" in project_files(DIGITS, "my-project")["search.yaml"]


def test_an_extra_is_in_the_requirements_and_missed_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template("quickstart", "About.", extra="lightning")
    requirements = project_files(template, "mine")["requirements.txt"].decode().splitlines()
    assert [line.partition(">")[0] for line in requirements if line[0] != "#"] == ["tuner[lightning]", "pytest"]

    def require(extra: str) -> None:
        raise ImportError(f"tuner.integrations.{extra} needs lightning: pip install")

    monkeypatch.setattr("tuner.integrations.requirements.require", require)
    assert missing(template) == "tuner.integrations.lightning needs lightning"
    assert missing(DIGITS) == ""


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_names_what_is_shipped(name: str) -> None:
    assert TEMPLATES[name].experiment in examples.names()
    assert TEMPLATES[name].about.endswith(".")


def test_new_files_are_all_written_or_none(tmp_path: Path) -> None:
    files = {tmp_path / "a/b": b"1", tmp_path / "c": b"2"}
    (tmp_path / "a").write_text("a file")
    with pytest.raises(EnvironmentFailure, match="cannot be written"):
        write_new(tmp_path, dict(reversed(files.items())))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    (tmp_path / "a").unlink()
    (tmp_path / "c").symlink_to("nowhere")
    with pytest.raises(InputError, match="c: already there, and not overwritten"):
        write_new(tmp_path, files)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_files_around_a_trainable_are_those_of_the_folder() -> None:
    folder = ROOT / "tuner/cli/templates/project"
    kept = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path for path, _ in project._tree(folder)} == {
        str(path.relative_to(folder)).replace("dot_", ".") for path in kept
    }
