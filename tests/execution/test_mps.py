"""NVIDIA's Multi-Process Service, with a script in place of its daemon; processes, locks and Ray are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.execution.failure_classifier import classify
from tuner.experiment.reader import load_experiment
from tuner.experiment.resources import Resources
from tuner.plan.cluster import Cluster, Node
from tuner.plan.describe import description
from tuner.plan.planner import make_plan
from tuner.runs.loading import load_run
from tuner.spec.model import OptionError

ROOT = Path(__file__).parents[2]

DAEMON = """\
import os, sys, time
from pathlib import Path

place = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
control = place / "control"
if sys.argv[1:] == ["-f"]:
    with (place / "history").open("a") as history:
        print("started", file=history, flush=True)
        control.write_text("")
        while not (place / "quit").exists():
            time.sleep(0.05)
        (place / "quit").unlink()
        control.unlink()
        print("ended", file=history, flush=True)
elif not control.exists():
    sys.exit(1)
elif sys.stdin.read().strip() == "quit":
    (place / "quit").touch()
"""
"""What this module needs of nvidia-cuda-mps-control; it writes down when it starts and ends."""

CLIENT = """\
import os, sys, time
from types import SimpleNamespace
from tuner.execution import mps

mps.join(SimpleNamespace(mps=True, request={"GPU": 0.25}))
print(os.environ["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
time.sleep(600)
"""

SEES = """\
import os, time
import tuner

def train(config: dict[str, float]) -> None:
    time.sleep(0.2)
    tuner.report({"score": config["x"], "pipe": os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")})
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With the daemon on PATH, and a folder for temporary files of its own."""
    for folder in ("bin", "tmp"):
        (tmp_path / folder).mkdir()
    program = tmp_path / "bin/nvidia-cuda-mps-control"
    program.write_text(f"#!{sys.executable}\n{DAEMON}")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    found = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "TMPDIR": str(tmp_path / "tmp")}
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"):
        found.pop(name, None)
    return found


def history(tmp_path: Path) -> list[str]:
    file = tmp_path / f"tmp/tuner-mps-{os.getuid()}/history"
    return file.read_text().split() if file.exists() else []


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.processes
def test_the_daemon_lives_as_long_as_a_client_and_ends_with_a_kill_of_the_last(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        told = [client.stdout.readline().strip() for client in clients if client.stdout]
        assert told == [str(tmp_path / f"tmp/tuner-mps-{os.getuid()}")] * 2
        assert history(tmp_path) == ["started"]
        clients[0].send_signal(signal.SIGKILL)
        clients[0].wait()
        time.sleep(5)  # the watcher has looked twice
        assert history(tmp_path) == ["started"]
    finally:
        for client in clients:
            with client:  # closes its pipe
                client.kill()
    until(lambda: history(tmp_path) == ["started", "ended"])
    with subprocess.Popen([sys.executable, "-c", CLIENT], env=environment, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        assert history(tmp_path) == ["started", "ended", "started"]
        client.kill()
    until(lambda: history(tmp_path) == ["started", "ended"] * 2)


@pytest.mark.processes
def test_trials_that_share_a_gpu_are_clients_until_the_search_ends(tmp_path: Path, environment: dict[str, str]) -> None:
    driver = tmp_path / "bin/nvidia-smi"
    lines = ["GPU 0: NVIDIA A100 (UUID: GPU-a)", "  MIG 3g.20gb Device 0: (UUID: MIG-0)"]
    driver.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    driver.chmod(0o755)
    (tmp_path / "sees.py").write_text(SEES)
    given: dict[str, Any] = {
        "trainable": "sees.py:train",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random"},
        "scheduler": {"kind": "fifo"},
        "budget": {"trials": 3},
        "resources": {"cpu": 0.5, "gpu": 0.5, "mps": True},
    }
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(given))
    command = [sys.executable, "-m", "tuner", "run", "x.yaml", "--name", "a"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pipes = {report.metrics["pipe"] for trial in load_run(tmp_path / "runs/a").trials for report in trial.reports}
    assert pipes == {str(tmp_path / f"tmp/tuner-mps-{os.getuid()}")}
    until(lambda: history(tmp_path) == ["started", "ended"])


def test_a_machine_without_the_daemon_says_what_to_do(environment: dict[str, str]) -> None:
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run([sys.executable, "-c", CLIENT], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert "resources.mps: nvidia-cuda-mps-control is not installed on this machine" in last


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpu": 1}, "gpu is 1"),
        ({"gpu": 2.0}, "gpu is 2"),
        ({"gpu": 0}, "gpu is 0"),
        ({}, "gpu is auto"),
        ({"gpu": 0.5, "workers": 2}, "workers is 2"),
    ],
)
def test_it_is_for_trials_of_one_process_that_share_a_gpu(given: dict[str, Any], words: str) -> None:
    with pytest.raises((OptionError, ValueError), match=words):
        Resources(mps=True, **given)
    assert Resources(mps=True, gpu="share").mps


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        "CUDA error: the remote procedural call between the MPS server and the MPS client failed",
        "CUDA error: the hardware resources required to support MPS client have been exhausted",
    ],
)
def test_a_lost_service_is_a_failure_of_the_gpu(message: str) -> None:
    assert classify(RuntimeError(message)).kind == "GPU"


def test_a_plan_says_it(tmp_path: Path) -> None:
    (tmp_path / "sees.py").write_text(SEES)
    given = {
        "trainable": f"{tmp_path}/sees.py:train",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"cpu": 1, "gpu": 0.25, "mps": True},
    }
    cluster = Cluster((Node("a", {"CPU": 4.0, "GPU": 1.0, "memory": 1e9}),))
    told = dict(description(make_plan(load_experiment(given), cluster)))
    assert told["a trial takes"] == "1 CPU, 0.25 GPU, by MPS"
