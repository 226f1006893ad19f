"""The experiment is valid, and one short trial trains a model whose checkpoint can be scored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tuner

PROJECT = Path(__file__).parent
SHORT: dict[str, object] = {"budget.trials": 1}


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)


def test_the_experiment_is_valid() -> None:
    """The experiment names what is there, with values that fit."""
    assert tuner.validate("search.yaml").trials > 1


def test_one_trial_trains_and_its_checkpoint_is_scored(tmp_path: Path) -> None:
    """On Ray, as in a search."""
    results = tuner.run("search.yaml", SHORT, name="test", storage=tmp_path)
    assert [trial.status for trial in results.trials] == ["completed"]
    best = tuner.restore_best(results, test=True)
    assert best.test
    assert all(math.isfinite(value) for value in best.test.values())
