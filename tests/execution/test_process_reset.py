"""A process that runs trial after trial: each trial is as if it were the first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.execution.test_run import search
from tuner.runs.results import ResultSet

pytestmark = [pytest.mark.pairings, pytest.mark.timeout(300), pytest.mark.usefixtures("ray_session")]


def sequence(folder: Path, function: str, what: list[str], fresh_process: bool = False) -> ResultSet:
    file, function = function.split(":")
    return search(
        folder,
        function,
        {"what": {"grid_search": what}},
        file=file,
        search={"kind": "grid", "seed": 1},
        resources={"gpu": 0, "max_concurrent_trials": 1, "fresh_process": fresh_process},
    )


def test_a_trial_after_another_gives_bit_for_bit_what_it_gives_in_a_new_process(tmp_path: Path) -> None:
    reused = sequence(tmp_path / "reused", "torch_toys.py:mess_or_measure", ["mess", "measure"])
    new = sequence(tmp_path / "new", "torch_toys.py:mess_or_measure", ["measure"], fresh_process=True)
    after, alone = (results.trials[-1].reports[0].metrics for results in (reused, new))
    assert after["pid_"] == reused.trials[0].reports[0].metrics["pid_"]
    assert {k: v for k, v in after.items() if k != "pid_"} == {k: v for k, v in alone.items() if k != "pid_"}


@pytest.mark.faults
@pytest.mark.parametrize("what", ["thread", "memory", "files", "dies idle"])
def test_a_process_that_cannot_be_cleaned_is_replaced_and_the_next_trial_runs(tmp_path: Path, what: str) -> None:
    results = sequence(tmp_path, "toys.py:leaks", ["nothing", what, "nothing "])
    assert [trial.status for trial in results.trials] == ["completed"] * 3
    pids = [trial.reports[0].metrics["pid_"] for trial in results.trials]
    assert pids[1] != pids[2]


def test_a_clean_process_is_kept(tmp_path: Path) -> None:
    results = sequence(tmp_path, "toys.py:leaks", ["nothing", "nothing ", "nothing  "])
    assert len({trial.reports[0].metrics["pid_"] for trial in results.trials}) == 1


def test_the_switches_of_torch_are_those_of_a_new_process() -> None:
    """Guards the list in `_reset_torch`: what it sets must be what torch starts with."""
    read = """
import json, torch
b = torch.backends
print(json.dumps([str(torch.get_default_dtype()), str(torch.get_default_device()),
    torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(), torch.get_float32_matmul_precision(),
    b.cudnn.enabled, b.cudnn.benchmark, b.cudnn.deterministic, b.cudnn.allow_tf32, b.cuda.matmul.allow_tf32,
    torch.is_grad_enabled(), torch.initial_seed()]))
"""
    reset = "from tuner.execution import process_reset; import torch; process_reset._reset_torch(1);"
    reset += "torch.manual_seed(process_reset.TORCH_START_SEED)\n"
    root = Path(__file__).parents[2]
    output = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=root).stdout
        for text in (read.replace("torch.initial_seed()", "67280421310721"), reset + read)
    ]
    assert json.loads(output[0]) == json.loads(output[1])
