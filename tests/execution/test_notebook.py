"""A search in a real notebook kernel: the function of a cell, progress below it, and runs that show themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.pairings

CELLS = [
    """
import tuner
from ray import tune

def train(config):
    for epoch in range(1, 6):
        tune.report({"val_accuracy": 1 - (config["lr"] - 0.1) ** 2 - 1 / (9 * epoch)})
""",
    """
search = tuner.Search(
    train, {"lr": tune.loguniform(1e-4, 1e-1)}, objective=tuner.maximize("val_accuracy"),
    scheduler=tuner.schedulers.Asha(max_t=5), budget=tuner.Budget(trials=6), resources=tuner.Resources(gpu=0),
)
search.plan()
""",
    """
run = search.run(name="q")
run
""",
    """
trials = run.trials_dataframe()
print(run.best_value, trials["best_val_accuracy"].max(), len(trials))
""",
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells of a notebook that was run."""
    folder = tmp_path_factory.mktemp("notebook")
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1"}
    client = NotebookClient(made, timeout=100, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment)
    cells: list[Any] = made.cells
    return cells


def shown(cell: Any) -> list[str]:
    """The HTML of a cell's outputs."""
    return [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def test_a_plan_is_a_table(notebook: list[Any]) -> None:
    (plan,) = shown(notebook[1])
    assert "val_accuracy" in plan


def test_a_search_shows_one_output_and_its_run(notebook: list[Any]) -> None:
    progress, run = shown(notebook[2])
    assert "6 of 6 trials begun" in progress
    assert "best: trial" in progress
    assert "<svg" in run
    assert run.count("<tr>") == 7


def test_nothing_else_is_printed(notebook: list[Any]) -> None:
    texts = [output.text for output in notebook[2].outputs if output.output_type == "stream"]
    assert texts == []


def test_the_run_tells_its_best(notebook: list[Any]) -> None:
    value, highest, trials = notebook[3].outputs[0].text.split()
    assert (value, trials) == (highest, "6")
