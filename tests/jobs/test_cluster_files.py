"""The files of cluster/ are what Ray's launcher and a careful reader take them for.

Launcher files are held against Ray's own defaults, preparation and schema, as `ray up` applies them before it talks to
a cloud. `tests/jobs/test_cluster_batch.py` does the same with Kubernetes and Slurm.
"""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

from tuner.cli import cli

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
FILES = sorted(CLUSTER.iterdir())
LAUNCHERS = [path for path in FILES if path.suffix == ".yaml" and "\nprovider:\n" in path.read_text()]
CLOUDS = [path for path in LAUNCHERS if path.name != "on_prem.yaml"]
PLACES = [path for path in FILES if path.suffix in (".yaml", ".sbatch")]  # where a search runs; the rest helps them


def by_name(path: Path) -> str:
    return path.name


each_file = pytest.mark.parametrize("path", FILES, ids=by_name)
each_place = pytest.mark.parametrize("path", PLACES, ids=by_name)
each_launcher = pytest.mark.parametrize("path", LAUNCHERS, ids=by_name)
each_cloud = pytest.mark.parametrize("path", CLOUDS, ids=by_name)


def test_all_are_there() -> None:
    assert [path.name for path in PLACES] == [
        "aws_gpu.yaml",
        "gcp_gpu.yaml",
        "kuberay.yaml",
        "on_prem.yaml",
        "slurm.sbatch",
    ]
    assert [path.name for path in LAUNCHERS] == ["aws_gpu.yaml", "gcp_gpu.yaml", "on_prem.yaml"]
    assert {path.name for path in FILES} - {path.name for path in PLACES} == {
        "Dockerfile",
        "grafana.json",
        "mlflow.sh",
        "search.sh",
        "serve.sh",
    }


# What a person reads first


def header(path: Path) -> list[str]:
    """The comment that a file opens with, without its hash signs."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#!")]
    return [line[1:].strip() for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]]


@each_place
def test_opens_with_the_commands_from_bringing_up_to_tearing_down(path: Path) -> None:
    text = "\n".join(header(path))
    steps = re.findall(r"^(once|bring up|run|watch|fetch|tear down|bring up, run):", text, re.MULTILINE)
    assert [step for step in ", ".join(steps).split(", ") if step != "run"] == [
        "once",
        "bring up",
        "watch",
        "fetch",
        "tear down",
    ]
    assert "run" in ", ".join(steps)
    assert f"cluster/{path.name}" in text
    assert "python -m tuner submit" in text
    assert "python -m tuner fetch JOB" in text
    addresses = [line for line in text.splitlines() if "tuner submit" in line and "--jobs-address" in line]
    assert all("--storage" in line for line in addresses), "who names no launcher file names the storage"
    assert "8265" in text, "Ray's dashboard"
    assert "ssh" in text, "the way in from outside"
    assert "ray get-auth-token --generate" in text or "ray get-auth-token --generate" in path.read_text()


@each_file
def test_names_only_files_that_exist(path: Path) -> None:
    named = re.findall(r"\b((?:cluster|experiments)/[\w.]+\w)", path.read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@each_launcher
def test_the_commands_name_the_file_itself(path: Path) -> None:
    commands = [
        line.partition(": ")[2] or line
        for line in header(path)
        if re.search(r"\bray (up|down|attach)|tuner (submit|fetch)", line)
    ]
    assert len(commands) >= 5
    assert [c for c in commands if "cluster/" in c and f"cluster/{path.name}" not in c] == []


# What a person must edit

PLACEHOLDER = re.compile(r"example|192\.0\.2\.|123456789012")
MUST_EDIT = {
    "on_prem.yaml": ["head_ip", "worker_ips", "ssh_user", "ssh_private_key", "storage"],
    "aws_gpu.yaml": ["region", "availability_zone", "storage", "Arn", "Arn"],
    "gcp_gpu.yaml": ["region", "availability_zone", "project_id", "storage", "- email"],
    "kuberay.yaml": ["storageClassName", "image"],
    "slurm.sbatch": ["partition", "account", "nodes", "gpus-per-node", "time"],
}


def marked(path: Path) -> list[str]:
    return [
        line.strip() for line in path.read_text().splitlines() if re.search(r"\S.*# EDIT\b", line) and line[:2] != "# "
    ]


@each_place
def test_what_must_be_edited_is_marked(path: Path) -> None:
    keys = [re.sub(r"^#SBATCH --([\w-]+)=.*|^([\w -]+):.*", r"\1\2", line) for line in marked(path)]
    assert keys == MUST_EDIT[path.name]
    assert "lines marked EDIT" in " ".join(header(path)).replace("the lines", "lines")
    unmarked = [line for line in path.read_text().splitlines() if PLACEHOLDER.search(line) and "# EDIT" not in line]
    assert unmarked == []


# Launcher files


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def prepared(config: dict[str, Any]) -> dict[str, Any]:
    """As `ray up` prepares and checks it: defaults filled in, local hosts made a node type, Ray's schema."""
    config = prepare_config(copy.deepcopy(config))
    validate_config(config)
    return config


@each_launcher
def test_ray_accepts_it(path: Path) -> None:
    config = prepared(load(path))
    AutoscalingConfig(config, skip_content_hash=True)  # as the autoscaler on the head reads it
    assert config["cluster_name"] == "tuner"


@each_launcher
def test_ray_would_not_accept_anything(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        prepared(load(path) | {"setup_command": ["true"]})
    with pytest.raises(jsonschema.ValidationError):
        prepared(load(path) | {"auth": {"user": "ubuntu"}})


@each_launcher
def test_hands_out_code_and_token_and_nothing_else(path: Path) -> None:
    mounts = load(path)["file_mounts"]
    assert mounts.pop("~/.ray/auth_token") == "~/.ray/auth_token"
    assert mounts == {f"~/tuner/{local}": local for local in mounts.values()}
    assert [local for local in mounts.values() if not (ROOT / local).exists()] == []
    assert {"tuner", "trainables", "setup.cfg", "constraints.txt", "cluster/mlflow.sh", "cluster/serve.sh"} <= set(
        mounts.values()
    )


INSTALL = "pip install -q --no-compile -c ~/tuner/constraints.txt"


@each_cloud
def test_one_command_installs_the_pinned_environment(path: Path) -> None:
    (installing,) = [command for command in load(path)["setup_commands"] if "pip install" in command]
    assert "python3 -m venv ~/tuner_env" in installing
    assert installing.count(f"{INSTALL} -e") == installing.count("pip install") == 1


def test_workers_of_ones_own_install_while_the_head_does() -> None:
    """The head starts them as soon as its own Ray runs, for which Ray alone is installed."""
    config = load(CLUSTER / "on_prem.yaml")
    (first,) = [command for command in config["setup_commands"] if "pip install" in command]
    assert "python3 -m venv ~/tuner_env" in first
    assert f"{INSTALL} $(test" in first
    (rest,) = config["worker_setup_commands"]
    assert f"{INSTALL} -e ~/tuner" in rest
    starting = config["head_start_ray_commands"]
    (start,) = [number for number, command in enumerate(starting) if "ray start" in command]
    assert starting[start + 1] == rest
    assert "mlflow.sh" in starting[start + 2]


def test_what_ones_own_hosts_install(tmp_path: Path) -> None:
    """Of a new host Ray before it starts; of one with other pins all, as its Ray and its jobs are about to stop."""
    config = load(CLUSTER / "on_prem.yaml")
    (first,) = [command for command in config["setup_commands"] if "pip install" in command]
    (tmp_path / "bin").mkdir()
    (tmp_path / "tuner").mkdir()
    (tmp_path / "tuner_env/bin").mkdir(parents=True)
    for program in ("bin/python3", "tuner_env/bin/pip"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho "{Path(program).name}" "$@"\n')
        (tmp_path / program).chmod(0o755)
    (tmp_path / "tuner/constraints.txt").write_text("ray==2\n")
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    def installed(command: str) -> list[str]:
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=True)
        return [line.split("constraints.txt ")[1] for line in done.stdout.splitlines() if line.startswith("pip ")]

    assert installed(first) == ["ray[default]"]
    assert installed(config["worker_setup_commands"][0]) == [f"-e {tmp_path}/tuner"]
    assert installed(first) == installed(config["worker_setup_commands"][0]) == []
    (tmp_path / "tuner/constraints.txt").write_text("ray==3\n")
    assert installed(first) == [f"--editable={tmp_path}/tuner"]


@each_launcher
def test_every_command_is_bash(path: Path) -> None:
    config = prepared(load(path))
    kinds = [key for key in config if key.endswith("_commands")]
    script = "\n".join(command for kind in kinds for command in config[kind])
    assert "ray start --head" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def starts(path: Path) -> list[str]:
    """The commands that start Ray, on the head and on a worker."""
    config = load(path)
    return [c for kind in ("head", "worker") for c in config[f"{kind}_start_ray_commands"] if "ray start" in c]


@each_launcher
def test_ray_asks_for_the_token_everywhere(path: Path) -> None:
    assert len(starts(path)) == 2
    for command in starts(path):
        assert "export " in command.split("ray start")[0]
        assert re.search(r"\bRAY_AUTH_MODE=token\b", command.split("ray start")[0])
    assert any("RAY_AUTH_MODE=token" in command and ".bashrc" in command for command in load(path)["setup_commands"])


@each_launcher
def test_dashboard_and_mlflow_are_on_loopback(path: Path) -> None:
    head, worker = starts(path)
    assert "--dashboard-host=127.0.0.1" in head
    assert "dashboard" not in worker
    assert "bash ~/tuner/cluster/mlflow.sh" in load(path)["head_start_ray_commands"]
    assert load(path)["metadata"]["mlflow"] == "http://127.0.0.1:5000"
    assert "attach" in path.read_text()
    assert "-p 8265 -p 5000 -p 8380" in path.read_text()


@each_launcher
def test_jobs_are_taken_up_when_all_that_they_need_is_up_and_then_the_service_starts(path: Path) -> None:
    *before, recover, serve = load(path)["head_start_ray_commands"]
    assert any("mlflow.sh" in command for command in before)
    assert "python -m tuner.jobs.recover --cluster ~/ray_bootstrap_config.yaml || echo" in recover
    assert serve.startswith("bash ~/tuner/cluster/serve.sh || echo")


def test_the_service_listens_on_loopback_alone() -> None:
    """All start it without ``--host``."""
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    assert command.make_context("serve", []).params["host"] == "127.0.0.1"
    starting = [
        line for path in FILES for line in path.read_text().splitlines() if re.search(r"tuner,? serve,? --", line)
    ]
    assert len(starting) == 2
    assert not [line for line in starting if "--host" in line]


@each_launcher
def test_storage_is_one_that_all_nodes_see(path: Path) -> None:
    storage = load(path)["metadata"]["storage"]
    assert storage.startswith({"aws_gpu.yaml": "s3://", "gcp_gpu.yaml": "gs://", "on_prem.yaml": "/mnt/"}[path.name])


@each_cloud
def test_gpu_workers_come_and_go(path: Path) -> None:
    config = prepared(load(path))
    types = config["available_node_types"]
    assert config["head_node_type"] == "head"
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["head"]["max_workers"] == 0
    for name in ("gpu_spot", "gpu_on_demand"):
        assert types[name]["min_workers"] == 0
        assert 0 < types[name]["max_workers"] <= config["max_workers"]
        assert types[name]["resources"]["GPU"] >= 1
    assert types["gpu_spot"]["priority"] > types["gpu_on_demand"].get("priority", 0)
    assert 0 < config["idle_timeout_minutes"] <= 30
    assert "idle_timeout_minutes" in load(path)


def test_aws_spot_ssh_and_profiles() -> None:
    config = load(CLUSTER / "aws_gpu.yaml")
    types = {name: kind["node_config"] for name, kind in config["available_node_types"].items()}
    assert types["gpu_spot"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in types["gpu_on_demand"]
    assert config["provider"]["cache_stopped_nodes"] is False
    # Ray's own rules let in ssh and the nodes themselves; IpPermissions would be added to them.
    assert config["provider"]["security_group"] == {"GroupName": "tuner-ssh-only"}
    assert not any("SecurityGroupIds" in kind for kind in types.values())
    assert types["head"]["IamInstanceProfile"] != types["gpu_spot"]["IamInstanceProfile"]


def test_gcp_spot_and_accounts() -> None:
    types = {n: k["node_config"] for n, k in load(CLUSTER / "gcp_gpu.yaml")["available_node_types"].items()}
    assert types["gpu_spot"]["scheduling"]["provisioningModel"] == "SPOT"
    assert "provisioningModel" not in types["gpu_on_demand"]["scheduling"]
    for name in ("gpu_spot", "gpu_on_demand"):  # an instance with a GPU is refused otherwise
        assert types[name]["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert "serviceAccounts" not in types["head"], "Ray makes the head's"


def test_hosts_user_and_key_can_be_put_in() -> None:
    config = load(CLUSTER / "on_prem.yaml")
    config["provider"] |= {"head_ip": "10.77.0.10", "worker_ips": ["10.77.0.11", "10.77.0.12", "10.77.0.13"]}
    config["auth"] = {"ssh_user": "root", "ssh_private_key": "/keys/id"}
    config = prepared(config)
    [kind] = config["available_node_types"].values()
    assert (kind["min_workers"], kind["max_workers"], config["max_workers"]) == (3, 3, 3)
    assert "192.0.2." not in yaml.safe_dump(config)
    assert "ubuntu" not in yaml.safe_dump(config)


def test_on_prem_takes_the_first_autoscaler() -> None:
    """`tests/execution/test_autoscaler_v2.py` shows why."""
    head = starts(CLUSTER / "on_prem.yaml")[0]
    assert head.index("RAY_enable_autoscaler_v2=0") < head.index("ray start")


# Secrets and versions


@each_file
def test_holds_no_secret(path: Path) -> None:
    text = path.read_text()
    commands = "\n".join(line for line in text.splitlines() if not line.startswith("# "))
    assert not re.search(r"(?i)\b(password|passwd|secret_key|access_key|private_key_id)\w*\s*[:=]\s*\S", commands)
    assert not re.search(r"\bRAY_AUTH_TOKEN\b(?!_PATH)", text), "it would be in the environment or on a command line"
    assert not re.search(r"\b[0-9a-fA-F]{32,}\b|AKIA[0-9A-Z]{12}|-----BEGIN|--from-literal", text)


@each_file
def test_nothing_listens_beyond_loopback_without_authentication(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"0\.0\.0\.0|\[?::\]?:\d|--host[= ,]+['\"]?(?!127\.0\.0\.1)\S", text)
    if re.search(r"\bray (start|symmetric-run) ", "\n".join(x for x in text.splitlines() if not x.startswith("#"))):
        assert "RAY_AUTH_MODE=token" in text
    if "mlflow server" in text or "mlflow, server" in text:
        assert re.search(r"--host,? 127\.0\.0\.1", text)


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


@each_file
def test_versions_are_those_of_constraints(path: Path) -> None:
    text = path.read_text()
    pinned = re.findall(r"\b([A-Za-z][\w.-]*)==([\w.]+)", text) + [
        ("ray", v) for v in re.findall(r"rayproject/ray:([\d.]+)", text)
    ]
    pinned += [("ray", version) for version in re.findall(r"rayVersion: (\S+)", text)]
    assert [(name, version) for name, version in pinned if pins()[name] != version] == []
    assert not re.search(r":latest\b|\bnightly\b", text)


def test_the_image_has_the_python_that_was_tested() -> None:
    [python] = re.findall(
        r"^FROM rayproject/ray:[\d.]+-py(\d)(\d+)$", (CLUSTER / "Dockerfile").read_text(), re.MULTILINE
    )
    assert f"Python {'.'.join(python)}" in (ROOT / "constraints.txt").read_text().splitlines()[0]


@pytest.mark.parametrize(("extra", "package"), [("aws", "boto3"), ("gcp", "google-api-python-client")])
def test_what_a_cloud_needs_is_pinned(extra: str, package: str) -> None:
    assert package in pins()
    setup = (ROOT / "setup.cfg").read_text()
    assert re.search(rf"^{extra} =\n    {package}>=", setup, re.MULTILINE)
    text = (CLUSTER / f"{extra}_gpu.yaml").read_text()
    assert f"tuner[{extra}]" in text
    assert f"'.[{extra}]'" in text
