"""The migration guides: what their tables give for a call of another library is accepted, and their examples run."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from ray import tune

import tuner
from tests.docs.how_to import write_files
from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.experiment.spec import ExperimentSpec
from tuner.spec.space.from_ray import space_from_param_space

GUIDES = sorted((Path(__file__).parents[2] / "docs/how-to").glob("migrate-from-*.md"))
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


def example(guide: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes the files of a guide's example into the folder, and lets Python import them."""
    assert write_files(f"migrate-from-{guide}.md", folder) == ["before.py", "after.py", "after.yaml"]
    monkeypatch.syspath_prepend(str(folder))


def printed(file: str, capsys: pytest.CaptureFixture[str]) -> tuple[float, dict[str, Any]]:
    """Runs a file as a script: the best value and the best configuration, which it prints last."""
    runpy.run_path(file, run_name="__main__")
    value, _, config = capsys.readouterr().out.splitlines()[-1].partition(" ")
    return float(value), ast.literal_eval(config)


def plausible(best: tuple[float | None, dict[str, Any] | None]) -> bool:
    value, config = best
    return value is not None and 0 < value < 1 and set(config or {}) == {"lr", "width"}


@pytest.mark.parametrize("guide", ["optuna", "ray-tune"])
def test_an_example_is_the_same_search_in_python_and_in_a_file(
    guide: str, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example(guide, user_folder, monkeypatch)
    python = runpy.run_path("after.py")["search"].experiment.spec
    file = load_experiment("after.yaml").spec
    assert python.model_dump(exclude={"name", "trainable"}) == file.model_dump(exclude={"name", "trainable"})


def test_the_example_for_optuna_runs_there(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example("optuna", user_folder, monkeypatch)
    assert plausible(printed("before.py", capsys))


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_the_example_for_ray_tune_runs_there(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example("ray-tune", user_folder, monkeypatch)
    monkeypatch.setattr("ray.train.constants.DEFAULT_STORAGE_PATH", str(user_folder / "ray_results"))
    assert plausible(printed("before.py", capsys))
    assert (user_folder / "ray_results").is_dir()


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("guide", ["optuna", "ray-tune"])
def test_the_example_in_python_runs(
    guide: str, user_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example(guide, user_folder, monkeypatch)
    best = printed("after.py", capsys)
    assert plausible(best)
    run = tuner.load("runs/after")
    assert best == (run.best_value, run.best_config)
    assert len(run.trials) == 8


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("guide", ["optuna", "ray-tune", "wandb-sweeps"])
def test_the_example_in_a_file_runs(guide: str, user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(guide, user_folder, monkeypatch)
    run = tuner.Search.from_yaml("after.yaml").run(progress="none")
    assert plausible((run.best_value, run.best_config))
    assert len(run.trials) == 8
