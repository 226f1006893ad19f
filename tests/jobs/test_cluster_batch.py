"""kuberay.yaml is what Kubernetes and KubeRay take, slurm.sbatch what Slurm takes; their scripts do what they say.

Pods and volumes are held against Kubernetes' own schemas, strictly, from the package kubernetes-validate. The RayJob
around them: no registry has a package with KubeRay's CRD, so `RAY_JOB` is written from its public reference
(https://docs.ray.io/en/master/kuberay/references/api.html, for 1.6), and allows the fields that we use and no others.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import kubernetes_validate
import psutil
import pytest
import yaml

from tests.cluster.hosts import until
from tuner.cli import cli

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
SCRIPTS = sorted([*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")])


def strict(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT, COUNT, POD = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}, {"type": "object"}
RAY_START = {"type": "object", "additionalProperties": {"type": "string"}}  # numbers are refused by the CRD too
RAY_CLUSTER = strict(
    {
        "rayVersion": TEXT,
        "authOptions": strict({"mode": {"enum": ["token", "disabled"]}, "secretName": TEXT}, "mode"),
        "enableInTreeAutoscaling": {"type": "boolean"},
        "autoscalerOptions": strict({"version": {"enum": ["v1", "v2"]}, "idleTimeoutSeconds": COUNT}),
        "headGroupSpec": strict({"rayStartParams": RAY_START, "template": POD}, "rayStartParams", "template"),
        "workerGroupSpecs": {
            "type": "array",
            "items": strict(
                {
                    "groupName": TEXT,
                    "replicas": COUNT,
                    "minReplicas": COUNT,
                    "maxReplicas": COUNT,
                    "rayStartParams": RAY_START,
                    "template": POD,
                },
                *("groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"),
            ),
        },
    },
    "headGroupSpec",
)
RAY_JOB = strict(
    {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayJob"},
        "metadata": strict(
            {
                "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?$"},
                "labels": {"type": "object", "additionalProperties": TEXT},
            },
            "name",
        ),
        "spec": strict(
            {
                "entrypoint": TEXT,
                "backoffLimit": COUNT,
                "shutdownAfterJobFinishes": {"type": "boolean"},
                "ttlSecondsAfterFinished": COUNT,
                "rayClusterSpec": RAY_CLUSTER,
            },
            *("entrypoint", "rayClusterSpec"),
        ),
    },
    *("apiVersion", "kind", "metadata", "spec"),
)


KUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def kubernetes(edited: str | None = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The volumes of kuberay.yaml, or of an edited text of it, and its RayJob."""
    *volumes, job = yaml.safe_load_all(edited or (CLUSTER / "kuberay.yaml").read_text())
    return volumes, job


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that KubeRay makes, named as it would."""
    cluster = job["spec"]["rayClusterSpec"]
    templates = [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}} | template for template in templates]


def check_kubernetes(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_kubernetes_accepts_it() -> None:
    volumes, job = kubernetes()
    jsonschema.validate(job, RAY_JOB)
    for resource in [*volumes, *pods(job)]:
        check_kubernetes(resource)


def test_kubernetes_would_not_accept_anything() -> None:
    _, job = kubernetes()
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    with pytest.raises(jsonschema.ValidationError, match="0 is not of type 'string'"):
        jsonschema.validate(job, RAY_JOB)
    _, job = kubernetes()
    job["spec"]["rayClusterSpecs"] = job["spec"].pop("rayClusterSpec")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, RAY_JOB)
    pod = pods(job := kubernetes()[1])[0]
    pod["spec"]["containers"][0]["volumeMount"] = pod["spec"]["containers"][0].pop("volumeMounts")
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        check_kubernetes(pod)


def test_pods_mount_what_there_is() -> None:
    volumes, job = kubernetes()
    claims = {volume["metadata"]["name"] for volume in volumes}
    for pod in pods(job):
        there = {volume["name"] for volume in pod["spec"]["volumes"]}
        mounted = {mount["name"] for container in pod["spec"]["containers"] for mount in container["volumeMounts"]}
        assert mounted == there
        kinds = [v for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]
        assert {volume["persistentVolumeClaim"]["claimName"] for volume in kinds} <= claims
        assert {"name": "runs", "mountPath": "/mnt/tuner"} in pod["spec"]["containers"][0]["volumeMounts"]


def test_kubernetes_workers_come_and_go() -> None:
    cluster = kubernetes()[1]["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is True
    [group] = cluster["workerGroupSpecs"]
    assert (group["minReplicas"], group["replicas"]) == (0, 0)
    assert group["maxReplicas"] > 0
    head, worker = pods(kubernetes()[1])
    assert int(worker["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) >= 1
    assert not any("nvidia.com/gpu" in container["resources"]["limits"] for container in head["spec"]["containers"])


def test_kueue_admits_it_once_the_marked_lines_are_edited() -> None:
    """Its rules for a RayJob: https://kueue.sigs.k8s.io/docs/tasks/run/rayjobs."""
    text = (CLUSTER / "kuberay.yaml").read_text()
    for marked, edited in (
        (f"  # labels: {{{KUEUE_LABEL}:", f"  labels: {{{KUEUE_LABEL}:"),
        ("true  # KUEUE: false", "false"),
        ("replicas: 0  # KUEUE: as many as the team may have", "replicas: 4"),
        ("minReplicas: 0  # KUEUE: the same", "minReplicas: 4"),
    ):
        assert text.count(marked) == 1, marked
        text = text.replace(marked, edited)
    assert "# KUEUE" not in text
    volumes, job = kubernetes(text)
    jsonschema.validate(job, RAY_JOB)
    for resource in [*volumes, *pods(job)]:
        check_kubernetes(resource)
    check_kubernetes({"apiVersion": "v1", "kind": "ConfigMap", "metadata": job["metadata"]})
    assert KUEUE_LABEL in job["metadata"]["labels"]
    assert "clusterSelector" not in job["spec"]
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is False
    assert len(cluster["workerGroupSpecs"]) <= 7
    requests = [container["resources"]["requests"] for pod in pods(job) for container in pod["spec"]["containers"]]
    assert all("cpu" in request for request in requests)


def test_kubernetes_asks_for_the_token_of_a_secret_and_keeps_mlflow_to_the_pod() -> None:
    job = kubernetes()[1]
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "tuner-ray-token"}
    text = (CLUSTER / "kuberay.yaml").read_text()
    assert "kubectl create secret generic tuner-ray-token --from-file=auth_token=" in text
    [mlflow] = [c for c in pods(job)[0]["spec"]["containers"] if c["name"] == "mlflow"]
    assert mlflow["command"][:4] == ["mlflow", "server", "--host", "127.0.0.1"]
    assert "ports" not in mlflow
    assert "tracking.mlflow.uri=http://127.0.0.1:5000" in job["spec"]["entrypoint"]


def test_the_service_runs_beside_the_head_with_its_token_and_keeps_to_the_pod() -> None:
    pod = pods(kubernetes()[1])[0]
    [serve] = [container for container in pod["spec"]["containers"] if container["name"] == "serve"]
    environment = {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in serve["env"]}
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_CLUSTER_NAME"] == {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}
    at = Path(environment["RAY_AUTH_TOKEN_PATH"])
    [mount] = [mount for mount in serve["volumeMounts"] if mount["mountPath"] == str(at.parent)]
    [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "tuner-ray-token"
    assert at.name == "auth_token", "the key that the command above makes the secret with"
    assert "ports" not in serve
    assert serve["command"][:4] == ["python", "-m", "tuner", "serve"]
    cli.get_command(click.Context(cli), "serve").make_context("serve", serve["command"][4:])  # type: ignore[union-attr]


def test_kubernetes_starts_a_search_that_is_in_the_image() -> None:
    copied = (CLUSTER / "Dockerfile").read_text()
    _, script, _, experiment, storage, *_ = shlex.split(kubernetes()[1]["spec"]["entrypoint"])
    for path in (script, experiment):
        local = path.removeprefix("/home/ray/tuner/")
        assert (ROOT / local).exists()
        assert f" {local.split('/')[0]}" in copied
    assert storage.startswith("/mnt/tuner/")
    sources = [
        word for line in re.findall(r"^COPY --chown=ray (.*) \S+$", copied, re.MULTILINE) for word in line.split()
    ]
    assert [source for source in sources if not (ROOT / source).exists()] == []


# Slurm and scripts


def test_slurm_options() -> None:
    text = (CLUSTER / "slurm.sbatch").read_text()
    lines = text.splitlines()
    assert lines[0].startswith("#!")
    options = [line for line in lines if line.startswith("#SBATCH")]
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(lines.index(option) for option in options) < first_command, "Slurm stops reading at the first command"
    words = [shlex.split(option.removeprefix("#SBATCH"), comments=True) for option in options]
    assert all(len(word) == 1 for word in words), "Slurm wants one option a line, without spaces around ="
    given = dict(re.fullmatch(r"--([a-z-]+)(?:=(\S+))?", word).groups() for [word] in words)  # type: ignore[union-attr]
    assert given.pop("exclusive", "missing") is None, "`ray symmetric-run` stops every Ray of the user on a node"
    assert given.pop("requeue", "missing") is None
    assert given["ntasks-per-node"] == "1", "one Ray a node"
    assert re.fullmatch(r"\d+:\d\d:\d\d", given["time"])
    assert int(given["nodes"]) > 1
    assert int(given["gpus-per-node"]) >= 1
    assert set(given) == {
        *("partition", "account", "nodes", "gpus-per-node", "time"),
        *("job-name", "output", "ntasks-per-node"),
    }


def test_slurm_asks_for_the_token() -> None:
    text = (CLUSTER / "slurm.sbatch").read_text()
    assert text.index("umask 077 && ray get-auth-token") < text.index("export RAY_AUTH_MODE=token") < text.index("srun")
    assert "--dashboard-host=127.0.0.1" in text


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["e.yaml", "n"], ["cluster/search.sh", "n", "e.yaml", f"{ROOT}/runs"]),
        (["serve"], ["cluster/serve.sh", "--keep", f"{ROOT}/runs"]),
    ],
)
def test_slurm_runs_a_search_or_the_service_of_a_team(words: list[str], runs: list[str], tmp_path: Path) -> None:
    (tmp_path / "tuner_env/bin").mkdir(parents=True)
    for name, text in {"ray": "mkdir -p ~/.ray", "scontrol": "echo node1", "srun": 'echo "$@"'}.items():
        (tmp_path / "tuner_env/bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "tuner_env/bin" / name).chmod(0o755)
    environment = {
        **{"HOME": str(tmp_path), "USER": "ada", "PATH": os.environ["PATH"]},
        **{"SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NUM_NODES": "1"},
    }
    command = ["bash", str(CLUSTER / "slurm.sbatch"), *words]
    said = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout.split()
    assert said[said.index("--", 1) + 1 :] == ["bash", *runs]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_and_stop_at_errors(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    commands = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"


@pytest.mark.parametrize("started", [False, True])
def test_search_sh_starts_a_search_or_goes_on_with_it(started: bool, tmp_path: Path) -> None:
    (fake := tmp_path / "bin" / "python").parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    if started:
        (tmp_path / "runs/n").mkdir(parents=True)
        (tmp_path / "runs/n/experiment.yaml").touch()
    command = ["bash", str(CLUSTER / "search.sh"), "n", "e.yaml", f"{tmp_path}/runs", "--set", "a=1"]
    environment = {"PATH": f"{fake.parent}:{Path(shutil.which('bash') or '').parent}"}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
    common = ["--storage", f"{tmp_path}/runs", "--ray-address", "auto"]
    if started:
        assert said == ["-m", "tuner", "resume", "n", *common]
    else:
        assert said == ["-m", "tuner", "run", "e.yaml", "--name", "n", *common, "--set", "a=1"]


class ServeSh:
    """cluster/serve.sh in a home folder of its own, where a program of the test stands for ``tuner serve``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "tuner_serve/log"
        (folder / "bin").mkdir()
        self.ray(True)
        self._program(
            "python",
            """
            case "$1" in
              -c) exec "$REAL_PYTHON" "$@" ;;
              *) echo "$$ $*" >> ~/started; test -e ~/wrong && exit 2
                 echo http://127.0.0.1:8380; exec sleep 600 ;;
            esac""",
        )
        text: dict[str, dict[str, str]] = {"provider": {"type": "local", "head_ip": "h"}, "auth": {"ssh_user": "u"}}
        text["metadata"] = {"storage": "/s", "mlflow": "http://h:5000"}
        (folder / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(text))

    def _program(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def ray(self, runs: bool) -> None:
        self._program("pgrep", f"exit {int(not runs)}")

    def run(self) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(self.folder), "REAL_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        words = ["bash", str(CLUSTER / "serve.sh")]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def services(self) -> list[psutil.Process]:
        """Those that were started and still run."""
        found = []
        for line in (self.folder / "started").read_text().splitlines():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(line.split()[0]))
                found += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        return found


@pytest.fixture
def serve_sh(tmp_path: Path) -> Iterator[ServeSh]:
    made = ServeSh(tmp_path)
    yield made
    made.ray(False)
    until(lambda: not made.services())


@pytest.mark.processes
def test_the_service_is_started_once_and_again_if_it_dies(serve_sh: ServeSh) -> None:
    assert "http://127.0.0.1:8380 on this host" in serve_sh.run().stdout
    [first] = serve_sh.services()
    assert (serve_sh.folder / "started").read_text().split()[1:] == [
        *("-m", "tuner", "serve", "--storage", "/s", "--mlflow", "http://h:5000")
    ]
    first.kill()
    until(lambda: [one.pid for one in serve_sh.services()] not in ([], [first.pid]))
    [second] = serve_sh.services()
    assert serve_sh.run().returncode == 0
    [third] = serve_sh.services()
    assert third.pid != second.pid
    serve_sh.ray(False)
    until(lambda: not serve_sh.services())


@pytest.mark.processes
def test_a_service_that_cannot_start_is_tried_again(serve_sh: ServeSh) -> None:
    (serve_sh.folder / "wrong").touch()
    done = serve_sh.run()
    assert done.returncode == 1
    assert "tuner serve has ended with exit status 2" in done.stderr
    (serve_sh.folder / "wrong").unlink()
    until(lambda: serve_sh.services())
