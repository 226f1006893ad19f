"""What people install: the wheel, built from the sdist, used in an empty folder without a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tuner import examples

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


class Built(NamedTuple):
    """The two files of a release."""

    sdist: Path
    wheel: Path


def python(*arguments: str | Path, folder: Path, path: Path | None = None) -> str:
    """The stdout of Python in ``folder``, with ``path`` on its path and nothing else."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built in a copy of the checkout, as git has it: the wheel from what is in the sdist."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    python("-m", "build", "--no-isolation", "--outdir", target, source, folder=target)
    return Built(*target.glob("*.tar.gz"), *target.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's packages."""
    folder = tmp_path_factory.mktemp("installed")
    python("-m", "pip", "install", "-q", "--no-deps", "--target", folder, built.wheel, folder=folder)
    return folder


def test_the_wheel_has_the_examples_and_only_one_package(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"tuner"}
    tracked = [
        file
        for kind in ("cluster", "experiments", "search_spaces", "trainables")
        for file in (ROOT / kind).iterdir()
        if file.is_file()
    ]
    assert {f"tuner/examples/{file.relative_to(ROOT)}" for file in tracked} <= names
    templates = [path for path in (ROOT / "tuner/cli/templates").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {str(path.relative_to(ROOT)) for path in templates} <= names
    sources = {str(file.relative_to(ROOT)) for file in (ROOT / "tuner").rglob("*.py")}
    assert sources | {"tuner/py.typed", "tuner/visualization/page.css", "tuner/visualization/page.js"} <= names


def test_the_sdist_has_what_the_wheel_is_built_of(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "constraints.txt"} <= names


def test_a_search_by_name_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "trainables").mkdir()  # the user's own, which knows nothing of ours
    (tmp_path / "trainables" / "__init__.py").write_text("")

    def tuner(*arguments: str) -> str:
        return python("-m", "tuner", *arguments, folder=tmp_path, path=installed)

    where = python("-c", "import tuner; print(tuner.__file__)", folder=tmp_path, path=installed)
    assert where.strip() == str(installed / "tuner" / "__init__.py")

    run = json.loads(tuner("run", "quickstart", "--set", "budget.trials=4", "--name", "q", "--json"))
    assert run["trials"]["completed"] + run["trials"]["stopped"] == 4
    known = json.loads((tmp_path / "runs/q/provenance.json").read_text())
    assert known["roots"] == [str(installed / "tuner" / "examples"), str(tmp_path)]

    tuner("extend", "runs/q", "--trials", "+1")
    assert "test_accuracy" in tuner("best", "runs/q", "--test")
    tuner("report", "runs/q")
    assert (tmp_path / "runs/q/report.html").is_file()


def test_the_list_of_shipped_names_is_that_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = "from tuner import examples; print(*examples.names())"
    assert python("-c", code, folder=tmp_path, path=installed).split() == examples.names()
