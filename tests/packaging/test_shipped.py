"""Every YAML in the repository says how it is used, and fits the schema that editors read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tuner.experiment.schema import experiment_schema
from tuner.spec.document import read_yaml

ROOT = Path(__file__).parents[2]
YAML = [
    path
    for path in sorted(ROOT.rglob("*.yaml"))
    if not {".venv", "runs", "build"} & set(path.relative_to(ROOT).parts) and not path.name.startswith(".")
]
EXPERIMENTS = [path for path in YAML if path.is_relative_to(ROOT / "experiments")]
NEED_AN_EXTRA = ("accelerate_fsdp", "accelerate_images", "lightning_images", "tabular", "text_lora")


def marked(experiments: Iterable[Any], *others: pytest.MarkDecorator, need_an_extra: pytest.MarkDecorator) -> list[Any]:
    """Names or files of shipped experiments as parameters."""
    return [
        pytest.param(one, marks=[need_an_extra] if Path(one).stem in NEED_AN_EXTRA else others, id=Path(one).name)
        for one in experiments
    ]


def test_there_are_some() -> None:
    assert len(EXPERIMENTS) >= 4
    assert {path.parent.name for path in YAML} >= {"experiments", "search_spaces"}


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_each_opens_with_its_command(path: Path) -> None:
    comments = [line for line in path.read_text().splitlines()[:2] if line.startswith("# python -m tuner ")]
    assert comments
    folder = path.parent if "templates" in path.parts else ROOT  # a template is used where it was copied to
    assert (folder / comments[0].split()[-1]).exists()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_each_experiment_names_its_schema(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")


def test_the_schema_on_disk_is_the_schema_of_the_code() -> None:
    assert json.loads((ROOT / "experiments/schema.json").read_text()) == experiment_schema()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_each_experiment_fits_the_schema(path: Path) -> None:
    value = read_yaml(path.read_text(), path.name).value
    assert list(jsonschema.Draft202012Validator(experiment_schema()).iter_errors(value)) == []
    wrong = value | {"schedular": {"kind": "asha"}}
    assert list(jsonschema.Draft202012Validator(experiment_schema()).iter_errors(wrong))


def test_every_search_space_is_used_by_an_experiment() -> None:
    used = [read_yaml(path.read_text(), path.name).value["search_space"] for path in EXPERIMENTS]
    spaces = {f"search_spaces/{path.name}" for path in YAML if path.parent.name == "search_spaces"}
    assert spaces <= {value for value in used if isinstance(value, str)}
