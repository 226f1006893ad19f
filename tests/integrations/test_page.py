"""The page of the integrations: its trainables run, and its experiments are valid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.docs.how_to import write_files
from tests.one_trial import run_trial
from tuner import validate

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
PAGE = "train-with-a-framework.md"
NAMES = [
    "lightning_digits",
    "transformers_tokens",
    "accelerate_digits",
    "xgboost_cancer",
    "lightgbm_cancer",
    "sklearn_cancer",
    "cartpole",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_trains(name: str, user_folder: Path) -> None:
    assert set(write_files(PAGE, user_folder)) == {f"{name}.{kind}" for name in NAMES for kind in ("py", "yaml")}
    plan = validate(f"{name}.yaml")
    metric = plan.spec.objective.metric
    config = plan.spec.search_space.sample(np.random.default_rng(0))
    reports, error = run_trial(user_folder, f"{name}.py:train", config, (metric,), params=dict(plan.spec.params))
    assert error == ""
    assert len(reports) >= 4
