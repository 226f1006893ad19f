"""Clusters that ask for a token and that do not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pairings
ROOT = Path(__file__).parents[2]

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
EXPERIMENT = """
trainable: tests.execution.toys:returns
search_space: {x: {grid_search: [1, 2]}}
search: {kind: grid}
objective: {metric: score, mode: min}
resources: {gpu: 0}
"""


def environment(token: str | None, home: Path, **more: str) -> dict[str, str]:
    """Of a user whose home has the token, or none."""
    (home / ".ray").mkdir(parents=True, exist_ok=True)
    if token is not None:
        (home / ".ray/auth_token").write_text(token)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return kept | {"HOME": str(home)} | more


@contextlib.contextmanager
def cluster(environment: dict[str, str]) -> Iterator[str]:
    """The address of one that is up within."""
    command = [sys.executable, "-c", CLUSTER]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield next(line.strip() for line in process.stdout if line.count(":") == 1)
    finally:
        process.communicate("")


def search(folder: Path, address: str, environment: dict[str, str]) -> tuple[int, str]:
    (folder / "e.yaml").write_text(EXPERIMENT)
    command = [sys.executable, "-m", "tuner", "run", str(folder / "e.yaml"), "--address", address]
    done = subprocess.run(
        [*command, "--storage", str(folder / "runs")], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


TOKEN, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize("mode", [{}, {"RAY_AUTH_MODE": "token"}], ids=["", "asked for in the environment"])
def test_to_a_cluster_that_asks_for_no_token_none_is_shown(tmp_path: Path, mode: dict[str, str]) -> None:
    with cluster(environment(None, tmp_path / "there", RAY_AUTH_MODE="disabled")) as address:
        status, said = search(tmp_path, address, environment(TOKEN, tmp_path / "here", **mode))
    assert status == 0, said


def test_to_a_cluster_that_asks_for_a_token_ours_is_shown(tmp_path: Path) -> None:
    with cluster(environment(TOKEN, tmp_path / "there", RAY_AUTH_MODE="token")) as address:
        status, said = search(tmp_path, address, environment(TOKEN, tmp_path / "here"))
        assert status == 0, said
        for other, why in ((OTHER, "it knows another token than the one here"), (None, "there is none here")):
            begun = time.monotonic()
            status, said = search(tmp_path, address, environment(other, tmp_path / f"other{other}"))
            assert (status, time.monotonic() - begun < 60) == (4, True), said
            assert f"--ray-address {address} refuses us: " in said
            assert why in said
