"""``resources: {cpu: share}`` and ``{gpu: share}``: the levels, the choice, and real processes that are measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.actions.shared_resources import with_measured_shares
from tuner.errors import InputError
from tuner.execution.sharing import Level, Measured, applied, fastest, gpus_of, levels, measure, rate, since
from tuner.execution.trial_context import TrialContext
from tuner.experiment.reader import load_experiment
from tuner.experiment.resources import Resources
from tuner.plan.cluster import Cluster, Node, this_machine
from tuner.plan.describe import description
from tuner.plan.planner import make_plan
from tuner.runs.loading import load_run

ROOT = Path(__file__).parents[2]


def of(trials: int, per_hour: float, problem: str = "") -> Measured:
    return Measured(Level(trials, 1.0), per_hour, problem=problem)


@pytest.mark.parametrize(
    ("resources", "machine", "trials", "expected"),
    [
        ({"cpu": "share"}, {"CPU": 6}, 20, [(1, 6, None), (2, 3, None), (4, 1.5, None), (6, 1, None)]),
        ({"cpu": "share", "max_concurrent_trials": 3}, {"CPU": 6}, 20, [(1, 6, None), (2, 3, None), (3, 2, None)]),
        ({"cpu": "share"}, {"CPU": 1}, 20, [(1, 1, None)]),
        ({"gpu": "share"}, {"CPU": 16, "GPU": 1}, 20, [(1, 1, 1), (2, 1, 0.5), (4, 1, 0.25), (8, 1, 0.125)]),
        ({"gpu": "share", "cpu": 2}, {"CPU": 16, "GPU": 2}, 20, [(1, 2, 1), (2, 2, 0.5), (4, 2, 0.25)]),
        (
            {"gpu": "share", "cpu": "share"},
            {"CPU": 16, "GPU": 2},
            20,
            [(1, 8, 1), (2, 4, 0.5), (4, 2, 0.25), (8, 1, 0.125)],
        ),
        ({"gpu": "share", "cpu": "share"}, {"CPU": 1, "GPU": 1}, 20, [(1, 1, 1), (2, 0.5, 0.5), (4, 0.25, 0.25)]),
        ({"gpu": "share", "cpu": "share"}, {"CPU": 4}, 20, [(1, 4, None), (2, 2, None), (4, 1, None)]),
        ({"cpu": "share"}, {"CPU": 2}, 3, [(1, 2, None), (2, 1, None)]),
        ({"cpu": "share"}, {"CPU": 64}, 3, [(1, 64, None), (2, 32, None), (3, 21.3333, None)]),
        (
            {"cpu": "share", "max_concurrent_trials": 3},
            {"CPU": 7},
            20,
            [(1, 7, None), (2, 3.5, None), (3, 2.3333, None)],
        ),
        ({"gpu": "share"}, {"CPU": 16, "GPU": 2}, 5, [(1, 1, 1), (2, 1, 0.5), (3, 1, 0.3333)]),
        ({"gpu": "share", "cpu": 4}, {"CPU": 16, "GPU": 8}, 99, [(1, 4, 1)]),
        ({"gpu": "share", "cpu": 0.1}, {"CPU": 1, "GPU": 1}, 99, [(k, 0.1, 1 / k) for k in (1, 2, 4, 8)]),
        ({"gpu": "share", "max_concurrent_trials": 8}, {"CPU": 64, "GPU": 8}, 99, [(1, 1, 1)]),
        ({"gpu": "share", "cpu": 2}, {"CPU": 4}, 99, [(1, 2, None)]),
        ({"cpu": "share"}, {"CPU": 16, "GPU": 1}, 99, [(1, 16, None)]),
        ({"cpu": "share", "memory_gib": 4}, {"CPU": 16, "memory": 8 * 2.0**30}, 99, [(1, 16, None), (2, 8, None)]),
    ],
)
def test_levels_fill_the_machine(
    resources: dict[str, Any], machine: dict[str, float], trials: int, expected: list[Any]
) -> None:
    found = levels(Resources(**resources), machine, trials)
    assert [(level.trials, level.cpu, level.gpu) for level in found] == expected
    for level in found:
        fixed = applied(Resources(**resources), level)
        assert Cluster((Node("a", machine),)).slots(fixed.request("GPU" in machine)) >= level.trials


@pytest.mark.parametrize(
    ("given", "level", "expected"),
    [
        ({"gpu": "share"}, Level(4, 1.0, 0.25), {"gpu": 0.25, "mps": True}),
        ({"gpu": "share"}, Level(1, 1.0, 1.0), {"gpu": 1.0, "mps": False}),
        ({"gpu": "share"}, Level(1, 1.0), {"gpu": 0, "mps": False}),
        ({"gpu": 0.5, "cpu": "share"}, Level(2, 0.5), {"gpu": 0.5, "mps": True}),
    ],
)
def test_what_was_measured_can_be_read_again_and_mps_serves_shared_gpus_only(
    given: dict[str, Any], level: Level, expected: dict[str, Any]
) -> None:
    found = applied(Resources(mps=True, **given), level)
    assert {"gpu": found.gpu, "mps": found.mps} == expected
    assert Resources.model_validate(found.model_dump()) == found


@pytest.mark.processes
def test_mps_without_a_gpu_to_share_is_left_out_of_what_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def train(config):\n    raise ValueError('no')\n")
    given = experiment(f"{tmp_path}/fails.py:train", cpu=1, gpu="share", mps=True)
    plan = make_plan(load_experiment(given), Cluster((Node("a", {"CPU": 2.0, "GPU": 1.0, "memory": 1e9}),)))
    fixed, (notice,) = with_measured_shares(plan, {}, tmp_path, lambda text: None)
    assert "not measured" in notice
    assert Resources.model_validate(fixed.spec.resources.model_dump()).gpu == "auto"


def test_the_fewest_trials_that_are_about_as_fast_are_taken() -> None:
    assert fastest([of(1, 100), of(2, 180), of(4, 188), of(8, 150)]) == of(2, 180)
    assert fastest([of(1, 100), of(2, 104)]) == of(1, 100)
    assert fastest([of(1, 100), of(2, 0, "out of memory")]) == of(1, 100)
    assert fastest([of(1, 0, "no report")]) is None


def test_rates_of_processes_add_up() -> None:
    assert since([1.0, 2.0, 3.0], 2.0) == [2.0, 3.0]
    assert rate([[0.0, 1.0, 2.0], [0.5, 1.0]]) == 3600 * (1 + 2)
    assert rate([[0.0, 1.0], [3.0]]) is None


def test_a_trial_of_several_processes_cannot_be_measured() -> None:
    with pytest.raises(InputError, match=r"resources\.cpu: share measures trials of one process, .*give a number"):
        load_experiment(experiment("sleeps.py:train") | {"resources": {"cpu": "share", "workers": 2}})


def experiment(trainable: str, **resources: Any) -> dict[str, Any]:
    return {
        "trainable": trainable,
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "loss", "mode": "min"},
        "search": {"kind": "random", "seed": 1},
        "scheduler": {"kind": "fifo"},
        "budget": {"trials": 2},
        "resources": resources,
    }


def test_the_plan_says_that_it_is_not_known_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    monkeypatch.chdir(tmp_path)
    machine = Cluster((Node("a", {"CPU": 4.0, "GPU": 1.0, "memory": 2.0**33}),))
    plan = make_plan(load_experiment(experiment("sleeps.py:train", cpu="share", gpu="share")), machine)
    told = dict(description(plan))["a trial takes"]
    assert told == "1 CPU, 1 GPU, until cpu and gpu are measured when the search begins"


def test_processes_see_the_gpus_that_they_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " 2,3,GPU-a")
    assert [gpus_of(number, 0.3333) for number in range(3)] == ["2"] * 3
    assert [gpus_of(number, 0.5) for number in range(4)] == ["2", "2", "3", "3"]
    assert [gpus_of(number, 1) for number in range(3)] == ["2", "3", "GPU-a"]
    assert gpus_of(0, 2) == "2,3"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("tuner.execution.sharing.mig_slices", lambda: ("MIG-1", "MIG-2"))
    assert [gpus_of(number, 1) for number in range(2)] == ["MIG-1", "MIG-2"]
    monkeypatch.setattr("tuner.execution.sharing.mig_slices", lambda: ())
    assert [gpus_of(number, 0.5) for number in range(3)] == ["0", "0", "1"]


# --- real processes --------------------------------------------------------------------------------------------------

SLEEPS = """
import time
print("imported")
def train(config):
    while True:
        time.sleep(0.05)
        print("a step")
        yield {"loss": config["x"]}
"""

ALONE = """
import fcntl, time
def train(config):
    with open(config["lock"], "w") as lock:
        while True:
            fcntl.flock(lock, fcntl.LOCK_EX)
            time.sleep(0.2)  # what else a step takes is little beside it
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield {"loss": 1.0}
"""

CROWDED = """
import os
def train(config):
    place = os.open(config["lock"], os.O_CREAT | os.O_EXCL)
    try:
        while True:
            yield {"loss": 1.0}
    finally:
        os.remove(config["lock"])
"""

SEES = """
import os, time
def train(config):
    for _ in range(8):
        time.sleep(0.1)
        with open("seen", "a") as file:
            print(os.environ["CUDA_VISIBLE_DEVICES"], file=file)
        yield {"loss": config["x"], "slice": int(os.environ["CUDA_VISIBLE_DEVICES"][-1])}
"""

SILENT = """
def train(config):
    raise ValueError("no data\\nhere")
    yield
"""


def context(folder: Path, source: str) -> TrialContext:
    (folder / "code.py").write_text(source)
    return TrialContext("code.py:train", (folder,), folder, {"lock": str(folder / "lock")}, (), 0, 1.0, {"CPU": 1.0}, 1)


LEVELS = [Level(1, 2.0), Level(2, 1.0)]


@pytest.mark.processes
def test_trials_that_wait_are_faster_together(tmp_path: Path) -> None:
    found = measure(context(tmp_path, SLEEPS), {"x": 0.5}, LEVELS, memory=2.0**40)
    assert [one.problem for one in found] == ["", ""]
    assert found[1].rate > 1.25 * found[0].rate  # twice, on an idle machine
    assert found[0].memory > 2**20
    assert fastest(found) == found[1]


@pytest.mark.processes
def test_trials_that_need_one_thing_are_not(tmp_path: Path) -> None:
    one, two = measure(context(tmp_path, ALONE), {}, LEVELS, memory=2.0**40)
    assert (one.problem, two.problem) == ("", "")
    assert two.rate < 1.6 * one.rate  # the same, on an idle machine


@pytest.mark.processes
def test_a_trial_that_ends_is_trained_again(tmp_path: Path) -> None:
    once = SLEEPS.replace("while True", "for _ in range(1)")
    (found,) = measure(context(tmp_path, once), {"x": 0.5}, LEVELS[:1], memory=2.0**40)
    assert (found.problem, found.rate > 0) == ("", True)


@pytest.mark.processes
def test_what_fails_is_told_and_ends_it(tmp_path: Path) -> None:
    one, two = measure(context(tmp_path, CROWDED), {}, [*LEVELS, Level(4, 0.5)], memory=2.0**40)
    assert (one.problem, two.problem.startswith("FileExistsError: ")) == ("", True)
    (failed,) = measure(context(tmp_path, SILENT), {}, LEVELS, memory=2.0**40)
    assert failed.problem.startswith("ValueError: no data here (")


@pytest.mark.processes
def test_a_level_that_host_memory_cannot_hold_is_not_tried(tmp_path: Path) -> None:
    one, two = measure(context(tmp_path, SLEEPS), {"x": 0.5}, LEVELS, memory=2.0**20)
    assert one.problem == ""
    assert two.problem.startswith("they would need ")


@pytest.mark.processes
def test_the_processes_end_with_who_measures(tmp_path: Path) -> None:
    """kill -9, and what it has started must not stay."""
    (tmp_path / "run.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "from tests.execution.test_sharing import SLEEPS, LEVELS, context, measure\n"
        "print(measure(context(Path(sys.argv[1]), SLEEPS), {'x': 0.5}, LEVELS[1:], 2.0**40))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "run.py", str(tmp_path)], cwd=tmp_path, env=environment)
    try:
        below = until(lambda: probes(process.pid), 60)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 30)


def probes(parent: int) -> list[int]:
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return list(map(int, found)) if len(found) == 2 else []


def until(condition: Any, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.processes
def test_each_trial_sees_a_slice_of_a_split_gpu_and_share_measures_on_one(tmp_path: Path) -> None:
    """The driver's program is a script. What Ray and the probes make of its answer is real."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/nvidia-smi"
    lines = ["GPU 0: NVIDIA A100 (UUID: GPU-a)", *(f"  MIG 3g.20gb Device {n}: (UUID: MIG-{n})" for n in (0, 1))]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)
    (tmp_path / "sees.py").write_text(SEES)
    given = experiment("sees.py:train", cpu=0.25, gpu="share") | {"budget": {"trials": 8}}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(given))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-m", "tuner", "run", "x.yaml", "--name", "a"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "NOTICE: resources.gpu share: " in done.stderr
    seen = (tmp_path / "seen").read_text().split()
    assert set(seen[:3]) == {"MIG-0"}  # of the first level
    results = load_run(tmp_path / "runs/a")
    assert results.spec["resources"]["gpu"] < 1
    assert {report.metrics["slice"] for trial in results.trials for report in trial.reports} == {0, 1}


@pytest.mark.processes
def test_a_search_measures_once_and_keeps_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS.replace("while True", "for _ in range(3)"))
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(experiment("sleeps.py:train", cpu="share", gpu=0)))

    def tuner(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tuner", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = tuner("run", "x.yaml", "--name", "a")
    assert done.returncode == 0, done.stderr
    cores = int(this_machine().nodes[0].resources["CPU"])
    recorded = yaml.safe_load((tmp_path / "runs/a/experiment.yaml").read_text())["resources"]["cpu"]
    notice = next(line for line in done.stderr.splitlines() if line.startswith("NOTICE: resources.cpu share: "))
    if cores > 1:
        assert recorded == 1.0
        assert "1 at once" in notice
        assert f"{cores} at once" in notice
    more = tuner("extend", "runs/a", "--trials", "+1")
    assert more.returncode == 0, more.stderr
    assert "measuring" in done.stderr
    assert "measuring" not in more.stderr
    again = tuner("run", "x.yaml", "--name", "b", "--set", "resources.max_concurrent_trials=1")
    assert again.returncode == 0, again.stderr
    recorded = yaml.safe_load((tmp_path / "runs/b/experiment.yaml").read_text())["resources"]["cpu"]
    assert recorded == cores
