"""The page of the integrations: its trainables run, and its experiments are valid."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

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


def test_the_loss_of_a_batch_is_the_sum_of_its_parts(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    import torch

    write_files(PAGE, user_folder)
    monkeypatch.syspath_prepend(str(user_folder))
    loss = importlib.import_module("transformers_tokens").loss
    draws = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(12, 2, generator=draws), torch.randint(0, 2, (12,), generator=draws)
    whole = loss(SimpleNamespace(logits=logits), labels)
    parts = zip(logits.split(3), labels.split(3), strict=True)
    assert sum(loss(SimpleNamespace(logits=x), y, num_items_in_batch=12) for x, y in parts) == pytest.approx(whole)
