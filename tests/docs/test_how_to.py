"""The how-to pages hold what they show: files that are valid, and the output of commands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.how_to import blocks, sessions, write_files
from tuner import validate

ROOT = Path(__file__).parents[2]
WITH_FILES = ["bring-a-script.md", "bring-an-optuna-objective.md", "find-parameters-without-effect.md"]


@pytest.mark.parametrize("page", WITH_FILES)
def test_the_experiments_of_a_page_are_valid(user_folder: Path, page: str) -> None:
    experiments = [name for name in write_files(page, user_folder) if name.endswith(".yaml")]
    assert experiments
    for name in experiments:
        validate(name)


@pytest.mark.parametrize(
    ("page", "command", "output"),
    [(page, *session) for page in WITH_FILES for session in sessions(page)],
)
def test_a_command_prints_what_the_page_shows(user_folder: Path, page: str, command: str, output: str) -> None:
    write_files(page, user_folder)
    words = [sys.executable if word == "python" else word for word in shlex.split(command)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=user_folder, env=environment)
    assert done.stdout == output


def test_the_notice_of_a_parameter_that_is_never_read_is_the_one_that_the_page_shows(user_folder: Path) -> None:
    page = "find-parameters-without-effect.md"
    write_files(page, user_folder)
    (notice,) = validate("search.yaml").notices
    assert f"NOTICE: {notice}\n" == blocks(page, "text")[0]
