"""What travels with a job, where to, and what its driver does; on real hosts: tests/cluster/test_jobs.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import EnvironmentFailure, InputError
from tuner.jobs import code
from tuner.jobs.cluster import ClusterFile, jobs_api
from tuner.jobs.code import code_of
from tuner.jobs.driver import disagreements, drive
from tuner.jobs.jobs import prepared

EXPERIMENT = """
trainable: train.py:train
search_space: {x: {uniform: [0, 1]}}
objective: {metric: score, mode: max}
tracking: {mlflow: {}}
"""


@pytest.fixture
def project(user_folder: Path) -> Path:
    (user_folder / "train.py").write_text("def train(config): ...\n")
    (user_folder / "x.yaml").write_text(EXPERIMENT)
    (user_folder / ".gitignore").write_text("*.npz\nold/\n")
    for name in ("data.npz", "old/train.py", "runs/a/best.pt", "lib/net.py", "lib/__pycache__/net.pyc"):
        (user_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (user_folder / name).write_text("")
    return user_folder


@pytest.mark.parametrize("is_repository", [True, False])
def test_code_travels_and_data_does_not(project: Path, is_repository: bool) -> None:
    if is_repository:
        subprocess.run(["git", "init", "-q", str(project)], check=True)
    assert set(map(str, code_of(project))) == {".gitignore", "train.py", "x.yaml", "lib/net.py"}
    assert "lib/net.py" not in map(str, code_of(project, ["lib/*"]))


def test_too_much_code_is_refused_with_the_largest_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_BYTES", 50_000)
    for i in range(12):
        (project / f"weights{i}.pt").write_bytes(bytes(10_000 + i))
    with pytest.raises(
        InputError, match=r"more than 48\.8 KiB: is there data in it\? The largest: weights11\.pt"
    ) as caught:
        code_of(project)
    assert str(caught.value).count(".pt (") == 10
    assert ".gitignore" in str(caught.value)


def test_a_submission_knows_its_command_and_the_clusters_mlflow(project: Path) -> None:
    cluster = ClusterFile("c.yaml", "10.0.0.1", "ubuntu", None, "/mnt/runs", "http://127.0.0.1:5000")
    made = prepared("x.yaml", ["budget.trials=3"], "a", None, cluster=cluster)
    assert made.command == (
        "python -m tuner.jobs.driver x.yaml --storage /mnt/runs --name a "
        "--set budget.trials=3 --set tracking.mlflow.uri=http://127.0.0.1:5000"
    )


@pytest.mark.parametrize(
    ("file", "storage", "exclude", "words"),
    [
        ("x.yaml", None, [], "--storage: where the cluster keeps its runs"),
        ("x.yaml", "runs", [], "--storage runs: must be an absolute path on the cluster, or a URI"),
        ("x.yaml", "/mnt", ["train.py"], "trainable train.py:train: train.py does not travel"),
        ("x.yaml", "/mnt", ["*.yaml"], "FILE: x.yaml does not travel: .gitignore or --exclude names it"),
        ("../x.yaml", "/mnt", [], "whose code travels: start from the project's root"),
    ],
)
def test_what_cannot_run_there_is_said_here(
    project: Path, file: str, storage: str | None, exclude: list[str], words: str
) -> None:
    (project.parent / "x.yaml").write_text(EXPERIMENT)
    with pytest.raises(InputError) as caught:
        prepared(file, [], None, storage, exclude)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no such file"),
        ("a: 1", "provider is missing: this is no launcher file of Ray"),
        ("provider: {type: local}\nauth: {ssh_user: me}", "provider.head_ip is missing"),
        ("provider: {type: aws}\nauth: {}", "auth.ssh_user is missing"),
    ],
)
def test_a_cluster_file_that_lacks_something(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "c.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as caught:
        ClusterFile.read(str(file))
    assert words in str(caught.value)


def test_no_cluster_at_the_address() -> None:
    with pytest.raises(EnvironmentFailure, match=r"--address 127\.0\.0\.1:9: .*refused"), jobs_api("127.0.0.1:9", None):
        pass
    with pytest.raises(InputError, match=r"give --cluster FILE .* or --address URL"), jobs_api(None, None):
        pass


def test_a_head_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("provider: {type: local, head_ip: 127.0.0.1}\nauth: {ssh_user: nobody, ssh_private_key: /none}\n")
    read = ClusterFile.read(str(file))
    with pytest.raises(EnvironmentFailure, match=r"c\.yaml: ssh nobody@127\.0\.0\.1: "), jobs_api(None, read):
        pass


def test_ray_and_python_must_agree() -> None:
    here = {"Python": "3.12", "ray": "2.60.0", "torch": "2.14.0"}
    there = {"Python": "3.11", "ray": "2.60.0", "torch": "2.15.0", "optuna": "5.0.0"}
    hard, soft = disagreements(here, there)
    assert hard == ["Python 3.12 here, 3.11 there"]
    assert soft == ["torch 2.14.0 here, 2.15.0 there", "optuna none here, 5.0.0 there"]


def test_a_search_that_dies_again_and_again_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    with pytest.raises(EnvironmentFailure, match=r"killed 11 times without going on \(signal 9\)"):
        drive("x.yaml", [], str(tmp_path), "a")
