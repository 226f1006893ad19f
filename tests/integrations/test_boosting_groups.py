"""One boosted model in two processes, as under torchrun: without a trial, and without Ray."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
RANK = """
import importlib, json, sys
import numpy
from sklearn.datasets import load_breast_cancer
from tuner.training import distributed

toy, params = sys.argv[1], json.loads(sys.argv[2])
toy = importlib.import_module(f"tests.integrations.{toy}_toy")
x = load_breast_cancer().data[400:]
with distributed.group() as group:
    if toy.__name__.endswith("xgboost_toy"):
        import xgboost
        with toy.collective(group):
            model = toy.fit({"lr": 0.3, "epochs": 8, "params": params}, group)
        x = xgboost.DMatrix(x)
        weight = model.trees_to_dataframe()["Cover"][0]  # n p (1 - p)
    else:
        model = toy.fit({"lr": 0.3, "epochs": 8, "params": params}, group)
        weight = float(model.trees_to_dataframe()["count"][0])
print(json.dumps([weight, *model.predict(x).tolist()]))
"""
ALL_OF_THE_DATA = {
    "xgboost": {"subsample": 1.0, "colsample_bytree": 1.0, "colsample_bynode": 1.0},
    "lightgbm": {
        "bagging_freq": 0,
        "feature_fraction": 1.0,
        "feature_fraction_bynode": 1.0,
        "extra_trees": False,
    },
}


def models(framework: str, size: int) -> list[list[float]]:
    """Of each process's model: the weight of the rows at its first root, and predictions for rows that are new."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", RANK, framework, json.dumps(ALL_OF_THE_DATA[framework])]
    ranks: list[subprocess.Popen[str]] = [
        subprocess.Popen(
            command,
            env={**os.environ, **group, "RANK": str(rank), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    answers: list[Any] = [json.loads(rank.communicate(timeout=100)[0].splitlines()[-1]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size
    return answers


@pytest.mark.parametrize("framework", ALL_OF_THE_DATA)
def test_two_processes_with_half_of_the_rows_build_the_model_of_all_rows(framework: str) -> None:
    (whole,) = models(framework, 1)
    first, second = models(framework, 2)
    assert first == second
    assert first[0] == pytest.approx(whole[0], rel=1e-3)
    agree = [(a > 0.5) == (b > 0.5) for a, b in zip(first[1:], whole[1:], strict=True)]
    assert sum(agree) > 0.95 * len(agree)  # bins differ: each process proposes them from its rows
