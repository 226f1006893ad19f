"""What the processes that Ray starts ahead of trials are told, and that trials take them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import psutil
import pytest

from tuner.execution import local_cluster
from tuner.execution.local_cluster import PRELOAD, PRESTART, _environment, _of_workers
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import Cluster, Node, this_machine
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan

ROOT = Path(__file__).parents[2]
MACHINE = Cluster((Node("a", {"CPU": 4.0, "GPU": 1.0, "memory": 8 * 2.0**30}),))


@pytest.fixture(autouse=True)
def folder(user_folder: Path) -> Path:
    (user_folder / "t_ahead.py").write_text("def train(config): raise SystemExit('a trial ran')\n")
    return user_folder


def plan(**resources: Any) -> Plan:
    written = {
        "trainable": "t_ahead.py:train",
        "search_space": {"x": {"uniform": [0.0, 1.0]}},
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"gpu": 0, **resources},
    }
    return make_plan(load_experiment(written), MACHINE)


def test_where_each_is_to_run_a_trial_they_import_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    told = _of_workers(plan(cpu=1))
    assert told[PRELOAD] == "tuner.execution.preloaded"
    assert told["OMP_NUM_THREADS"] == "1"
    assert PRESTART not in told
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert _of_workers(plan(cpu=0.5))[PRELOAD] == "tuner.execution.preloaded,torch"


@pytest.mark.parametrize("resources", [{"cpu": 2}, {"cpu": 1, "gpu": 1}, {"cpu": 1, "max_concurrent_trials": 3}])
def test_where_some_would_be_in_vain_none_is_started(resources: dict[str, Any]) -> None:
    told = _of_workers(plan(**resources))
    assert told[PRESTART] == "0"
    assert PRELOAD not in told
    assert told["OMP_NUM_THREADS"] == str(resources["cpu"])


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_KNOWN", "1")
    monkeypatch.delenv("T_NEW", raising=False)
    with _environment({"T_KNOWN": "2", "T_NEW": "3"}):
        assert (os.environ["T_KNOWN"], os.environ["T_NEW"]) == ("2", "3")
    assert os.environ["T_KNOWN"] == "1"
    assert "T_NEW" not in os.environ


def test_what_they_import_is_not_searched_for_garbage_and_a_trial_is() -> None:
    text = """
import gc, sys
import tuner.execution.preloaded
assert "tuner.execution.trial_process" in sys.modules
assert gc.isenabled()
print(gc.get_stats()[2]["collections"], gc.get_freeze_count(), *gc.get_threshold())
"""
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    full, frozen, *threshold = map(int, done.stdout.split())
    assert (full, threshold) == (0, [700, 10, 10])
    assert frozen > 100_000


def test_the_process_in_place_of_an_agent_ends_with_its_parent(tmp_path: Path) -> None:
    """Killed, as a raylet may be, so that it can end nobody itself."""
    text = f"""
import os, subprocess
told = os.environ | {{"RAY_RAYLET_PID": str(os.getpid())}}
print(subprocess.Popen({local_cluster._IDLE.split()!r}, env=told).pid, flush=True)
input()
"""
    command = [sys.executable, "-c", text]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    with parent:
        assert parent.stdout is not None
        idle = psutil.Process(int(parent.stdout.readline()))
        assert idle.is_running()
        parent.kill()
        parent.wait()
        assert psutil.wait_procs([idle], timeout=30)[0] == [idle]


@pytest.mark.processes
def test_a_search_starts_no_agent_and_trials_run_in_the_processes_that_were_started_ahead(folder: Path) -> None:
    cpus = int(this_machine().nodes[0].resources["CPU"])
    (folder / "t_workers.py").write_text("""
def train(config):
    from pathlib import Path
    import psutil
    import ray
    from ray import tune
    agents = [process for process in psutil.Process().parent().children() if "DashboardAgent" in str(process.cmdline())]
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    tune.report({"score": 1.0, "agents": len(agents), "workers": len(list(logs.glob("worker-*.out")))})
""")
    (folder / "e.yaml").write_text(f"""
name: ahead
trainable: t_workers.py:train
search_space: {{x: {{uniform: [0.0, 1.0]}}}}
objective: {{metric: score, mode: max}}
budget: {{trials: {3 * cpus}}}
resources: {{cpu: 1, gpu: 0}}
""")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tuner", "run", "e.yaml", "--name", "run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    reports = pd.read_parquet(folder / "runs/run/results.parquet")
    # on a loaded machine Ray starts one more where a process is not idle in time; a new one a trial would make 3 * cpus
    assert reports["workers"].min() >= cpus
    assert reports["workers"].max() < 3 * cpus
    assert reports["agents"].max() == 0
