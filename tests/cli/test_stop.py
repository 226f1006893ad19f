"""``stop`` of a real search, and the one document that this search then prints."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_command_line import ROOT, TOYS, tuner
from tests.documents import conforms
from tuner.runs.journal import last_event
from tuner.storage.folder import RunFolder

EXPERIMENT = f"""
trainable: {TOYS}:quadratic
params: {{epochs: 100000, seconds: 0.05}}
search_space: {{x: {{uniform: [0, 1]}}}}
objective: {{metric: score, mode: max}}
budget: {{trials: 1}}
resources: {{cpu: 1, gpu: 0}}
"""


@pytest.mark.processes
def test_a_search_is_stopped_and_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    command = [sys.executable, "-m", "tuner", "run", "e.yaml", "--name", "q", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, text=True, env=environment, **pipes) as search:
        try:
            while (event := last_event(RunFolder.at(tmp_path / "runs/q"))) is None or event["what"] != "reported":
                assert search.poll() is None
                time.sleep(0.1)
            done = tuner("stop", "q", "--json", cwd=tmp_path)
            out, err = search.communicate(timeout=60)
        finally:
            search.kill()
    assert done.returncode == 0, done.stderr
    assert conforms("stop", done.stdout) == {"run": "runs/q", "was_running": True, "state": "interrupted"}
    assert f"process {search.pid} stops" in done.stderr
    assert "runs/q: stopped; it is interrupted" in done.stderr
    assert "python -m tuner resume runs/q" in done.stderr
    assert search.returncode == 130, err
    found = conforms("error", out)
    assert (found["exit_status"], found["run"], found["best"]["number"]) == (130, "q", 1)
    assert "to continue: python -m tuner resume runs/q" in found["error"]
    again = tuner("stop", "q", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("runs/q: nothing to stop: it is interrupted")
