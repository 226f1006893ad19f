"""Preflight: each check tells a machine that is fit from one that is not, and what to do; nothing is left behind."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import shutil
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.test_command_line import tuner
from tuner.doctor import Finding, check_machine, exit_status, gpu, installation, system
from tuner.doctor import experiment as doctor_experiment
from tuner.doctor.experiment import check_experiment
from tuner.doctor.gpu import Driver, judge_gpu
from tuner.storage.folder import RunFolder

TOYS = Path(__file__).parents[1] / "execution/toys.py"
GIB = 2**30


def test_the_exit_status_is_the_machine_s_before_the_experiment_s() -> None:
    ok, warning = Finding("ok", "a", "x"), Finding("warning", "a", "x", "y")
    machine, experiment = Finding("error", "a", "x", "y"), Finding("error", "a", "x", "y", 2)
    assert exit_status([ok, warning]) == 0
    assert exit_status([ok, experiment]) == 2
    assert exit_status([experiment, machine, ok]) == 4
    assert exit_status([Finding("error", "trial", "failed", "", 3)]) == 2


def test_this_machine_is_checked_with_a_remedy_for_whatever_is_not_ok(tmp_path: Path) -> None:
    findings = list(check_machine(str(tmp_path / "runs")))
    names = [finding.check for finding in findings]
    assert {"python", "packages", "gpu", "disk", "storage", "clock", "shared memory", "open files", "ports"} <= {*names}
    assert all(finding.remedy for finding in findings if finding.level != "ok")
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_cannot_be_read_is_an_error_of_the_input() -> None:
    wrong = [finding for finding in check_machine("nope://there") if finding.level == "error"]
    assert ("storage", 2) in [(finding.check, finding.status) for finding in wrong]


SETUP = "[metadata]\nname = tuner\n[options]\npython_requires = >=3.11\ninstall_requires =\n    {}\n"


@pytest.mark.parametrize(
    ("needed", "level", "found"),
    [
        ("numpy>=2.0", "ok", "1 as required"),
        ("numpy>=2000", "error", "is not >=2000"),
        ("no-such-package-anywhere", "error", "no-such-package-anywhere is missing"),
        ('no-such-package-anywhere; python_version < "3"', "ok", "0 as required"),
    ],
)
def test_packages_are_those_that_setup_cfg_names(tmp_path: Path, needed: str, level: str, found: str) -> None:
    (tmp_path / "setup.cfg").write_text(SETUP.format(needed))
    asked = installation.needs(tmp_path)
    assert asked is not None
    finding = installation.packages(asked)
    assert finding.level == level
    assert found in finding.found


def test_python_is_one_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text(SETUP.format("numpy"))
    asked = installation.needs(tmp_path)
    assert asked is not None
    assert installation.python(asked, "3.11.2").level == "ok"
    old = installation.python(asked, "3.10.9")
    assert (old.level, old.found) == ("error", "3.10.9, but tuner needs >=3.11")


def test_without_a_checkout_the_installed_metadata_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = SimpleNamespace(
        metadata={"Requires-Python": ">=3.11"}, requires=["numpy>=2", "pytest>=8; extra == 'dev'"]
    )
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: metadata)
    asked = installation.needs(tmp_path)
    assert asked is not None
    assert [requirement.name for requirement in asked.packages] == ["numpy"], "extras are not needed"

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert installation.needs(tmp_path) is None


def torch_says(available: bool = False, cuda: str | None = "13.0", **more: Any) -> dict[str, Any]:
    return {"version": "2.15.0", "cuda": cuda, "available": available, "warnings": [], **more}


H100 = ("NVIDIA H100 80GB HBM3",)


@pytest.mark.parametrize(
    ("driver", "torch", "level", "told"),
    [
        (None, torch_says(), "ok", "none, no NVIDIA driver"),
        (Driver((), "13.0"), torch_says(), "ok", "lists no GPU"),
        (Driver(H100, "13.0"), torch_says(True, names=["H100"], free=[GIB]), "ok", "H100, 1.0 GiB free"),
        (Driver(H100, "12.2"), torch_says(), "error", "the driver runs CUDA up to 12.2; update NVIDIA's driver to"),
        (Driver(H100, "9.2"), torch_says(cuda="10.0"), "error", "the driver runs CUDA up to 9.2"),
        (Driver(H100, "13.0"), torch_says(warnings=["CUDA unknown error"]), "error", "CUDA unknown error; see `nvi"),
        (Driver(H100, "13.0"), torch_says(cuda=None), "warning", "torch 2.15.0 without CUDA; install torch with CUDA"),
        (Driver((), "", "couldn't communicate"), torch_says(), "error", "couldn't communicate; install or restart"),
        (Driver(H100, "13.0"), torch_says(True, broken="no kernel image"), "error", "cannot compute on this GPU: no k"),
    ],
)
def test_driver_and_torch_go_together(
    monkeypatch: pytest.MonkeyPatch, driver: Driver | None, torch: dict[str, Any], level: str, told: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    finding = judge_gpu(driver, torch)
    assert finding.level == level
    assert told in str(finding)


def test_hidden_gpus_are_not_taken_for_broken_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    finding = judge_gpu(Driver(H100, "13.0"), torch_says())
    assert finding.level == "warning"
    assert "hidden by CUDA_VISIBLE_DEVICES=''" in finding.found


SMI = """#!/bin/sh
if [ "$1" = -L ]; then echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1234)"; exit {status}; fi
echo "| NVIDIA-SMI 535.104    Driver Version: 535.104    CUDA Version: 12.2     |"
"""


@pytest.mark.parametrize(
    ("status", "driver"),
    [(0, Driver(H100, "12.2")), (9, Driver((), "", "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1234)"))],
)
def test_nvidia_smi_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, driver: Driver) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI.format(status=status))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpu._driver() == driver


def test_a_torch_that_cannot_be_imported_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = gpu.driver_and_torch()
    assert finding.level == "error"
    assert "libcudart.so.13: cannot open shared object file" in finding.found


@pytest.mark.parametrize(("free", "level"), [(20 * GIB, "ok"), (3 * GIB, "warning"), (GIB // 2, "error")])
def test_free_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=free, total=100 * GIB)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    finding = system.disk(RunFolder.at(tmp_path / "not/yet"))
    assert finding.level == level
    assert asked == [tmp_path], "the nearest folder that exists"
    assert bool(finding.remedy) == (level != "ok")


def test_shared_memory_of_a_container_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=64 * 2**20, total=64 * 2**20))
    finding = system.shared_memory(tmp_path)
    assert finding.level == "warning"
    assert "docker run --shm-size" in finding.remedy
    assert system.shared_memory(tmp_path / "none").level == "ok"


def test_storage_is_tried_and_nothing_stays(tmp_path: Path) -> None:
    assert system.storage_writable(RunFolder.at(tmp_path / "a/b/c")).level == "ok"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs/old").mkdir(parents=True)
    assert system.storage_writable(RunFolder.at(tmp_path / "runs")).level == "ok"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["old"]
    (tmp_path / "file").write_text("")
    finding = system.storage_writable(RunFolder.at(tmp_path / "file/runs"))
    assert finding.level == "error"
    assert finding.remedy == "choose another with --storage"
    assert f"storage '{tmp_path}/file/runs' cannot be written" in finding.found
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize(
    ("limits", "level"),
    [((1024, 4096), "warning"), ((1024, 1024), "warning"), ((4096, 4096), "ok"), ((resource.RLIM_INFINITY, -1), "ok")],
)
def test_open_files(monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], level: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    finding = system.open_files()
    assert finding.level == level
    assert ("ulimit -n" in finding.remedy) == (level == "warning")
    assert ("as root" in finding.remedy) == (limits[1] == 1024)


def test_ports_where_no_server_can_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.ports().level == "ok"

    def refuses(address: tuple[str, int]) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuses)
    finding = system.ports()
    assert finding.level == "error"
    assert "no server can be reached at 127.0.0.1" in finding.found


def test_a_clock_that_is_wrong(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    assert system.clock(folder).level == "ok"
    assert "earlier than tuner's own files" in system.clock(folder, lambda: 1e9).found
    assert "off the clock of" in system.clock(folder, lambda: time.time() + 60).found
    assert list(tmp_path.iterdir()) == []


Write = Callable[..., Path]


@pytest.fixture
def experiment(user_folder: Path) -> Write:
    """`experiment(code)` writes a trainable and an experiment that names it."""

    def write(code: str, **keys: Any) -> Path:
        (user_folder / "mine.py").write_text(code)
        whole = {
            "trainable": "mine.py:train",
            "search_space": {"x": {"uniform": [0, 1]}},
            "objective": {"metric": "score", "mode": "max"},
            "resources": {"gpu": 0},
            **keys,
        }
        (user_folder / "mine.yaml").write_text(json.dumps(whole))
        return user_folder / "mine.yaml"

    return write


def checks(file: Path, *overrides: str) -> dict[str, Finding]:
    found = list(check_experiment(file, overrides, str(file.parent / "runs")))
    assert not (file.parent / "runs").exists()
    return {finding.check: finding for finding in found}


def test_an_experiment_that_is_wrong_is_told_with_its_places(experiment: Write) -> None:
    file = experiment("def train(config): pass")
    file.write_text(file.read_text().replace('"mode": "max"', '"mode": "most"'))
    found = checks(file)
    assert [(name, finding.level, finding.status) for name, finding in found.items()] == [("experiment", "error", 2)]
    assert "mine.yaml:1:" in found["experiment"].found
    assert "objective.mode" in found["experiment"].found


def test_code_that_cannot_be_imported(experiment: Write) -> None:
    found = list(check_experiment(experiment("import nothing_of_that_name"), (), "runs"))
    assert [(f.level, f.check) for f in found] == [("ok", "experiment"), ("error", "code")]
    assert "nothing_of_that_name" in found[-1].found
    assert found[-1].status == 2


@pytest.mark.parametrize(
    ("body", "level", "told", "status"),
    [
        ("raise OSError('no such data set')", "error", "prepare: no such data set", 4),
        ("raise KeyError('colour')", "error", "prepare: KeyError: 'colour'", 2),
    ],
)
def test_data_that_cannot_be_had(experiment: Write, body: str, level: str, told: str, status: int) -> None:
    found = checks(experiment(f"def train(config): pass\ndef prepare(config): {body}"))
    assert (found["data"].level, found["data"].status) == (level, status)
    assert told in found["data"].found
    assert "trial" not in found


EPOCHS = """
import warnings
from ray import tune
def prepare(config):
    warnings.warn("training on other data")
def train(config):
    for epoch in range(1, {epochs} + 1):
        if epoch == {fails}:
            print("just before the end")
            raise RuntimeError("out of luck")
        tune.report({{"epoch": epoch, "score": config["x"]}})
"""


@pytest.mark.usefixtures("ray_session")
def test_a_trial_of_three_steps_is_run_end_to_end(experiment: Write) -> None:
    file = experiment("", trainable=f"{TOYS}:quadratic", params={"epochs": 50})
    found = checks(file, "scheduler={kind: asha, time_attr: epoch, max_t: 50}")
    assert {name: finding.level for name, finding in found.items()} == dict.fromkeys(
        ["experiment", "code", "plan", "data", "trial", "checkpoint"], "ok"
    )
    assert "3 reports; Ray and the first after" in found["trial"].found
    assert "not checked" in found["data"].found
    assert found["checkpoint"].found.startswith("11 B; at most ")


BALL = """
from ray import tune
class Ball(tune.Trainable):
    def step(self): return {"score": self.config["x"], "done": self.iteration == 9}
    def save_checkpoint(self, folder): return {}
    def load_checkpoint(self, checkpoint): pass
"""


@pytest.mark.usefixtures("ray_session")
def test_a_class_is_run_for_three_steps(experiment: Write) -> None:
    found = checks(experiment(BALL, trainable="mine.py:Ball"))
    assert {finding.level for finding in found.values()} == {"ok"}
    assert "3 reports; Ray and the first after" in found["trial"].found


@pytest.mark.usefixtures("ray_session")
@pytest.mark.faults
def test_what_a_search_would_stumble_over_is_told(experiment: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks(experiment(EPOCHS.format(epochs=2, fails=0)), "scheduler={kind: median, time_attr: step, max_t: 9}")
    assert found["data"].level == "warning"
    assert "training on other data" in found["data"].found
    assert found["trial"].level == "ok"
    assert found["trial"].found.startswith("2 reports;")
    assert found["metrics"].level == "error"
    assert "scheduler.time_attr: the trainable reports no 'step'; it reports: epoch, score" in found["metrics"].found
    assert found["checkpoint"].level == "warning"

    found = checks(experiment(EPOCHS.format(epochs=5, fails=2)))
    assert (found["trial"].level, found["trial"].status) == ("error", 2)
    assert found["trial"].found == "RuntimeError: out of luck"
    assert "just before the end" in found["trial"].remedy

    found = checks(experiment(EPOCHS.format(epochs=5, fails=0)), "objective.metric=accuracy")
    assert found["trial"].level == "error"
    assert "reports no 'accuracy'" in found["trial"].found

    few = SimpleNamespace(free=GIB, total=GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: few)
    found = checks(experiment("", trainable=f"{TOYS}:quadratic"))
    assert (found["checkpoint"].level, found["checkpoint"].status) == ("error", 4)
    assert "more than there is room for" in found["checkpoint"].found


SLOW = """
import time
from ray import tune
def train(config):
    time.sleep(600)
    tune.report({"score": 1.0})
"""


@pytest.mark.usefixtures("ray_session")
@pytest.mark.faults
def test_a_trial_that_takes_too_long_is_ended(experiment: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = next(text for text in doctor_experiment._AS_A_TEST if text.startswith("scheduler"))
    monkeypatch.setattr(doctor_experiment, "_AS_A_TEST", (scheduler, "budget={trials: 1, wall_clock: 2}"))
    begun = time.monotonic()
    found = checks(experiment(SLOW))
    assert found["trial"].level == "warning"
    assert found["trial"].found.startswith("no report within")
    assert time.monotonic() - begun < 150


@pytest.mark.processes
def test_the_command_line_checks_the_machine_and_an_experiment(tmp_path: Path) -> None:
    done = tuner("doctor", "experiments/quickstart.yaml", "--json", "--storage", str(tmp_path / "runs"))
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    for name in ("experiment", "code", "plan", "data", "tracking", "trial", "checkpoint"):
        assert found[name]["level"] == "ok", found[name]
    assert done.returncode == (4 if any(finding["level"] == "error" for finding in found.values()) else 0)
    assert list(tmp_path.iterdir()) == []

    away = ("--set", "tracking.mlflow.uri=http://127.0.0.1:9")
    silent = tuner("doctor", "experiments/quickstart.yaml", *away, "--storage", str(tmp_path))
    assert "error    tracking       MLflow at http://127.0.0.1:9: nothing answers there" in silent.stdout
    assert silent.returncode == 4

    deaf = ("--set", "notify={command: exit 3}")
    silent = tuner("doctor", "experiments/quickstart.yaml", *deaf, "--storage", str(tmp_path))
    assert "error    notify         notify.command: it ended with status 3" in silent.stdout
    lost = ("--set", "notify={url: $NO_HOOK}")
    silent = tuner("doctor", "experiments/quickstart.yaml", *lost, "--storage", str(tmp_path))
    assert "error    notify         notify.url: the environment has no variable NO_HOOK" in silent.stdout
    assert "validate" not in silent.stdout

    wrong = tuner("doctor", "nowhere.yaml", "--storage", str(tmp_path))
    assert "error    experiment     nowhere.yaml: no such file" in wrong.stdout
    assert wrong.returncode in (2, 4)
    assert "Traceback" not in wrong.stderr
