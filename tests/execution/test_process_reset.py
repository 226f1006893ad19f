"""A process that runs trial after trial: each trial is as if it were the first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.execution.test_run import search
from tuner.runs.results import TRIAL_LOG, ResultSet

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]


@pytest.fixture(autouse=True)
def _process_of_the_tests_stays_as_it_is() -> Iterator[None]:
    """A search imports the file of its trainable in this process too, and `keeps.py` changes switches at import."""
    dtype, division = torch.get_default_dtype(), np.geterr()
    yield
    torch.set_default_dtype(dtype)
    np.seterr(**division)


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


@pytest.mark.parametrize("what", ["thread", "memory", "files", "dies idle"])
def test_a_process_that_cannot_be_cleaned_is_replaced_and_the_next_trial_runs(tmp_path: Path, what: str) -> None:
    results = sequence(tmp_path, "toys.py:leaks", ["nothing", what, "nothing "])
    assert [trial.status for trial in results.trials] == ["completed"] * 3
    pids = [trial.reports[0].metrics["pid_"] for trial in results.trials]
    assert pids[1] != pids[2]


def test_a_clean_process_is_kept(tmp_path: Path) -> None:
    results = sequence(tmp_path, "toys.py:leaks", ["nothing", "nothing ", "nothing  "])
    assert len({trial.reports[0].metrics["pid_"] for trial in results.trials}) == 1


def kept(folder: Path, function: str, space: dict, fresh_process: bool = False, file: str = "keeps.py") -> list[dict]:
    """The metrics of trials that run one after the other."""
    results = search(
        folder,
        function,
        {name: {"grid_search": values} for name, values in space.items()},
        file=file,
        search={"kind": "grid", "seed": 1},
        resources={"gpu": 0, "max_concurrent_trials": 1, "fresh_process": fresh_process},
    )
    assert [trial.status for trial in results.trials] == ["completed"] * len(results.trials)
    return [trial.reports[0].metrics for trial in results.trials]


def test_trials_that_keep_give_bit_for_bit_what_they_give_in_new_processes(tmp_path: Path) -> None:
    rates = {"lr": [0.1, 0.2, 0.3]}
    reused = kept(tmp_path / "reused", "learns", rates)
    new = kept(tmp_path / "new", "learns", rates, fresh_process=True)
    assert len({metrics["pid_"] for metrics in reused}) == len({metrics["module"] for metrics in reused}) == 1
    assert [metrics["made"] for metrics in reused] == [1, 0, 0]
    ours = ("pid_", "module", "made")
    for before, after in zip(new, reused, strict=True):
        assert {k: v for k, v in before.items() if k not in ours} == {k: v for k, v in after.items() if k not in ours}


def test_nothing_is_kept_for_a_trial_that_would_see_what_another_left(tmp_path: Path) -> None:
    found = kept(tmp_path, "changes", {"x": [0, 1, 2]})
    assert [(metrics["made"], metrics["calls"]) for metrics in found] == [(1, 1)] * 3
    assert len({metrics["pid_"] for metrics in found}) == 1
    logs = [log.read_text() for log in tmp_path.rglob(TRIAL_LOG)]
    assert sum("NOTICE: a trial changed keeps.CALLS" in log for log in logs) == 1


def test_what_is_kept_is_no_leak_and_leaves_room_for_others(tmp_path: Path) -> None:
    found = kept(tmp_path, "holds_memory", {"key": ["a", "b", "a "]})
    assert [metrics["made"] for metrics in found] == [1, 1, 0]
    assert len({metrics["pid_"] for metrics in found}) == 1


def test_code_that_is_edited_during_a_search_is_imported_anew(user_folder: Path) -> None:
    file = user_folder / "keeps_edited.py"
    file.write_text((Path(__file__).parent / "keeps.py").read_text())
    found = kept(user_folder, "is_edited", {"x": [0, 1]}, file=str(file))
    assert [(metrics["made"], metrics["score"]) for metrics in found] == [(1, 1.0), (1, 2.0)]


def test_the_switches_of_torch_are_those_of_a_new_process() -> None:
    """Guards `TORCH_START`: what it sets must be what torch starts with."""
    read = """
import json, torch
from tuner.execution.process_globals import TORCH_START, torch_switches
switches = torch_switches()
del switches["threads"]
print(json.dumps([repr(switches), repr(TORCH_START)]))
"""
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)
    found, expected = json.loads(done.stdout)
    assert found == expected


def test_torchs_switches_are_put_back() -> None:
    mess = """
import torch
from tuner.execution.process_globals import set_torch_switches, torch_switches
before = torch_switches()
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.use_deterministic_algorithms(True, warn_only=True)
torch.autograd.set_detect_anomaly(True, check_nan=False)
torch.set_float32_matmul_precision("medium")
cudnn = torch.backends.cudnn
cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = False, True, True, False
torch.set_grad_enabled(False)
torch.set_num_threads(before["threads"] + 1)
messed = torch_switches()
assert all(before[name] != messed[name] for name in before if name != "flush_denormal"), (before, messed)
set_torch_switches(before)
assert torch_switches() == before, torch_switches()
set_torch_switches(messed)
assert torch_switches() == messed, torch_switches()
"""
    subprocess.run([sys.executable, "-c", mess], check=True)
