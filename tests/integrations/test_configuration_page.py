"""The page of Hydra and LightningCLI: its experiments are valid, and their trials run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.docs.how_to import write_files
from tests.one_trial import run_trial
from tuner import validate

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
PAGE = "use-hydra-or-lightningcli.md"


@pytest.mark.parametrize(("name", "count"), [("search.yaml", 9), ("both.yaml", 3), ("lightning_search.yaml", 9)])
def test_an_experiment_of_the_page_is_valid_and_trains(name: str, count: int, user_folder: Path) -> None:
    write_files(PAGE, user_folder)
    spec = validate(name).spec
    config = spec.search_space.sample(np.random.default_rng(0))
    metrics = (spec.objective.metric,)
    reports, error = run_trial(user_folder, spec.trainable, config, metrics, params=dict(spec.params))
    assert error == ""
    assert len(reports) == count
