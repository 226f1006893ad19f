"""The tables of the migration guides: what stands for a call of another library can be written so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ray import tune

import tuner
from tuner.errors import InputError
from tuner.spec.experiment import ExperimentSpec
from tuner.spec.param_space import space_from_param_space
from tuner.spec.reader import load_experiment

GUIDES = sorted((Path(__file__).parents[1] / "docs/how-to").glob("migrate-from-*.md"))
BLOCKS = set(ExperimentSpec.model_fields) - {"trainable", "params", "search_space", "objectives"}


def codes(column: int | None = None) -> list[str]:
    """The code of all tables, without what an ellipsis makes incomplete."""
    rows = [line for guide in GUIDES for line in guide.read_text().splitlines() if line.startswith("| ")]
    cells = [row.strip("| ").split(" | ") for row in rows]
    chosen = [cell for row in cells for cell in (row[1:] if column is None else row[column : column + 1])]
    return sorted({code for cell in chosen for code in re.findall(r"`([^`]+)`", cell) if "…" not in code})


def test_there_are_three_guides() -> None:
    assert [guide.stem.removeprefix("migrate-from-") for guide in GUIDES] == ["optuna", "ray-tune", "wandb-sweeps"]


@pytest.mark.parametrize("code", [c for c in codes() if re.match(r"(\w+=)?\[?tuner\.[\w.]+\(", c)])
def test_a_call_in_python_is_one(code: str) -> None:
    expression = re.sub(r"^\w+=(?=\[?tuner)", "", code)
    if "load(" in expression or "Search(" in expression:
        name = re.match(r"tuner\.load\(RUN\)\.(\w+)", expression)
        assert name is not None
        assert callable(getattr(tuner.Run, name[1]))
    else:
        assert eval(expression, {"tuner": tuner}) is not None


@pytest.mark.parametrize("code", [c for c in codes() if re.match(r'"\w+": tune\.', c)])
def test_a_domain_in_python_is_one(code: str) -> None:
    assert space_from_param_space(eval(f"{{{code}}}", {"tune": tune})) is not None


def accepted(folder: Path, block: str) -> None:
    """Reads an experiment file with the block, and with the least that a file needs besides."""
    least = {
        "trainable": "m:f",
        "search_space": "{lr: {uniform: [0, 1]}}",
        "objective": "{metric: acc, mode: max}",
    }
    lines = [f"{key}: {value}" for key, value in least.items() if not block.startswith(f"{key}:")]
    (folder / "search.yaml").write_text("\n".join([*lines, block]))
    load_experiment(folder / "search.yaml")


@pytest.mark.parametrize("code", [c for c in codes() if c.split(":")[0] in BLOCKS and ": " in c])
def test_a_block_of_the_experiment_file_is_one(code: str, tmp_path: Path) -> None:
    accepted(tmp_path, code)


def test_a_block_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_tt"):
        accepted(tmp_path, "scheduler: {kind: asha, max_tt: 27}")


@pytest.mark.parametrize("code", [c for c in codes(1) + codes(2) if re.match(r"\w: \{|\w+: \{(log|rand|choice)", c)])
def test_a_domain_of_the_experiment_file_is_one(code: str, tmp_path: Path) -> None:
    accepted(tmp_path, f"search_space: {{{code}}}")
