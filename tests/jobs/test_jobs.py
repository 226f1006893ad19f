"""What travels with a job, where to, and what its driver does; on real hosts: tests/cluster/test_jobs.py."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from ray._private.runtime_env.packaging import unzip_package
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient, JobType

from tests.documents import conforms
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError, NoUsableResult, TunerError
from tuner.jobs import cluster_address, code_bundle, recover
from tuner.jobs import driver as driver_module
from tuner.jobs.client import _why_failed, jobs, prepare_resume, prepare_submission, submit_job
from tuner.jobs.cluster_address import ClusterFile, jobs_api
from tuner.jobs.code_bundle import code_of
from tuner.jobs.driver import disagreements, drive
from tuner.jobs.record import SUBMITTER, Job, Submitter, list_code, recorded, stored_jobs
from tuner.jobs.recover import resubmit_all
from tuner.runs.journal import JournalWriter
from tuner.spec.document import read_yaml
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked

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
    assert set(map(str, code_of(project).files)) == {".gitignore", "train.py", "x.yaml", "lib/net.py"}
    assert "lib/net.py" not in map(str, code_of(project, ["lib/*"]).files)


SECRETS = [
    ".env",
    "sub/.env.local",
    ".git-credentials",
    ".netrc",
    "id_rsa",
    "key.pem",
    "kubeconfig",
    "credentials.json",
]
SECRETS += [".aws/credentials", "wandb/settings", "mlflow.db", "mlartifacts/1/a", "venv/bin/python", "env/bin/python"]


@pytest.mark.parametrize("is_repository", [True, False])
def test_what_looks_like_a_secret_by_its_name_stays(project: Path, is_repository: bool) -> None:
    for name in [*SECRETS, "id_of_users.py", "environment.yaml"]:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    if is_repository:
        subprocess.run(["git", "init", "-q", str(project)], check=True)
    found = code_of(project)
    plain = {".gitignore", "train.py", "x.yaml", "lib/net.py", "id_of_users.py", "environment.yaml"}
    assert set(map(str, found.files)) == plain
    assert set(found.left_out) == set(SECRETS)
    assert found.remark.startswith("left out: .aws/credentials (not in git, and no code by its name), .env ")
    assert found.remark.endswith(" and 4 more; --include GLOB sends them")
    asked_for = code_of(project, include=["*.pem", "wandb/"])
    assert set(map(str, asked_for.files)) - plain == {"key.pem", "wandb/settings"}
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "add", "key.pem", "env"], check=True)
    assert set(map(str, code_of(project).files)) - plain == {
        "key.pem",
        "env/bin/python",
    }  # who has the repository has it


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("notes.txt", f"-----BEGIN OPENSSH {'PRIVATE KEY'}-----", "a private key"),
        ("train2.py", f"KEY = '{'AKIA'}{'Q' * 16}'", "an access key of AWS"),
        ("train2.py", f"login('{'hf_'}{'a' * 34}')", "a token of Hugging Face"),
        ("x.json", f"{'ghp_'}{'a' * 36}", "a token of GitHub"),
        ("client_secret.json", "{}", "by its name"),
        ("auth_token", "x", "by its name"),
    ],
)
def test_what_holds_a_secret_is_refused(project: Path, name: str, text: str, what: str) -> None:
    (project / name).write_text(text)
    with pytest.raises(InputError) as caught:
        code_of(project)
    assert f"files that look like secrets would travel: {name} ({what}); name it in .gitignore or" in str(caught.value)
    assert Path(name) in code_of(project, include=[name]).files
    assert Path(name) not in code_of(project, [name]).files
    (project / ".tunerignore").write_text(f"# not for the cluster\n{name}\n")
    assert Path(name) not in code_of(project).files
    (project / ".tunerignore").unlink()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "add", "-f", name], check=True)
    with pytest.raises(InputError, match="look like secrets"):  # it may be there by mistake, and not pushed yet
        code_of(project)
    assert Path(name) in code_of(project, include=[name]).files


def test_this_repository_travels_as_the_tutorials_let_it() -> None:
    found = code_of(Path(__file__).parents[2])
    assert {Path("experiments/quickstart.yaml"), Path("trainables/digits.py")} <= set(found.files)
    assert not [file for file in found.files if file.parts[0] in (".venv", "runs", "build")]


def test_a_name_alone_tells_nothing_of_code(project: Path) -> None:
    for name in ("password_reset.py", "tokenizer.json", "token_embedding.py", "secret_sharing.md"):
        (project / name).write_text("x")
        assert Path(name) in code_of(project).files


def test_a_link_out_of_the_project_is_not_followed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "shadow"
    elsewhere.write_text("root:x")
    (project / ".env").write_text("KEY=1")
    for name, target in (("out.txt", elsewhere), ("to_env.txt", project / ".env"), ("net.py", project / "lib/net.py")):
        (project / name).symlink_to(target)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "add", "out.txt", "to_env.txt"], check=True)
    found = code_of(project, include=["out.txt"])
    assert found.left_out["out.txt"] == "a link out of the project"
    assert found.left_out["to_env.txt"] == "a link to what stays here"
    assert Path("net.py") in found.files


def test_without_git_nothing_hidden_travels(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".hidden").write_text("x")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert {"data.npz", "train.py"} <= set(map(str, code_of(project).files))
    assert not [file for file in code_of(project).files if str(file).startswith(".")]


def test_a_dry_run_lists_what_travels(project: Path) -> None:
    (project / ".env").write_text("KEY=1")
    done = CliRunner().invoke(cli, ["submit", "x.yaml", "--dry-run"], catch_exceptions=False)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["11", ".gitignore"],
        ["0", "lib/net.py"],
        [str((project / "train.py").stat().st_size), "train.py"],
        [str(len(EXPERIMENT)), "x.yaml"],
    ]
    assert "left out: .env (not in git, and no code by its name); --include GLOB sends them" in done.stderr
    done = CliRunner().invoke(cli, ["submit", "x.yaml", "--dry-run", "--json"], catch_exceptions=False)
    assert conforms("submit", done.stdout)["left_out"] == {".env": "not in git, and no code by its name"}
    assert set(json.loads(done.stdout)["files"]) == {".gitignore", "lib/net.py", "train.py", "x.yaml"}


def test_too_much_code_is_refused_with_the_largest_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_bundle, "MAX_BYTES", 50_000)
    for i in range(12):
        (project / f"weights{i}.pt").write_bytes(bytes(10_000 + i))
    with pytest.raises(
        InputError, match=r"more than 48\.8 KiB: is there data in it\? The largest: weights11\.pt"
    ) as caught:
        code_of(project)
    assert str(caught.value).count(".pt (") == 10
    assert ".gitignore" in str(caught.value)


def test_a_submission_knows_its_command_and_the_clusters_mlflow(project: Path) -> None:
    told = ClusterFile("c.yaml", "10.0.0.1", "ubuntu", None, "/mnt/runs", "http://127.0.0.1:5000")
    made = prepare_submission("x.yaml", ["budget.trials=3"], "a", None, cluster=told)
    assert made.job.command == (
        "python -m tuner.jobs.driver x.yaml --storage /mnt/runs --name a "
        "--set budget.trials=3 --set tracking.mlflow.uri=http://127.0.0.1:5000"
    )


@pytest.mark.parametrize(
    ("file", "storage", "exclude", "words"),
    [
        ("x.yaml", None, [], "--storage: where the cluster keeps its runs"),
        ("x.yaml", "runs", [], "--storage runs: must be an absolute path on the cluster, or a URI"),
        ("x.yaml", "/mnt", ["train.py"], "trainable train.py:train: train.py does not travel"),
        ("x.yaml", "/mnt", ["*.yaml"], "FILE: x.yaml does not travel: .gitignore, .tunerignore or --exclude names it"),
        ("../x.yaml", "/mnt", [], "whose code travels: start from the project's root"),
    ],
)
def test_what_cannot_run_there_is_said_here(
    project: Path, file: str, storage: str | None, exclude: list[str], words: str
) -> None:
    (project.parent / "x.yaml").write_text(EXPERIMENT)
    with pytest.raises(InputError) as caught:
        prepare_submission(file, [], None, storage, exclude)
    assert words in str(caught.value)


def test_a_name_that_no_folder_can_have(project: Path) -> None:
    with pytest.raises(InputError, match="--name: 'a b' cannot name a folder"):
        prepare_submission("x.yaml", [], "a b", "/mnt")
    with pytest.raises(InputError, match="JOB: 'runs/a' cannot name a folder"):
        prepare_resume(KnownJobs(), "runs/a", "/mnt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no such file"),
        ("a: 1", "provider is missing: this is not a launcher file of Ray"),
        ("provider: {type: local}\nauth: {ssh_user: me}", "provider.head_ip is missing"),
        ("provider: {type: aws}\nauth: {}", "auth.ssh_user is missing"),
        ("provider: aws\nauth: {ssh_user: me}", "provider: must be keys with values, not 'aws'"),
        ("provider: {type: aws}\nauth: {ssh_user: 3}", "auth.ssh_user: must be text, not 3"),
        ("provider: {type: aws}\nauth: {ssh_user: me}\nmetadata: s3://x", "metadata: must be keys with values, not"),
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
    with (
        pytest.raises(EnvironmentFailure, match=r"--jobs-address 127\.0\.0\.1:9: .*refused"),
        jobs_api("127.0.0.1:9", None),
    ):
        pass
    with pytest.raises(InputError, match=r"give --cluster FILE .* or --jobs-address URL"), jobs_api(None, None):
        pass


def answering(reply: Callable[[socket.socket], object]) -> str:
    """The address of a server that does this with who comes, for as long as the tests run."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            reply(server.accept()[0])

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def says(text: bytes) -> Callable[[socket.socket], None]:
    def reply(caller: socket.socket) -> None:
        with caller:
            caller.recv(4096)
            caller.sendall(text)

    return reply


HELD: list[socket.socket] = []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (HELD.append, "timed out"),
        (socket.socket.close, "is the cluster up"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "something else than Ray's dashboard answers there"),
        (says(b"HTTP/1.0 200 OK\r\n\r\nhello"), "something else than Ray's dashboard answers there"),
        (says(b"HTTP/1.0 404 No\r\n\r\n"), "something else than Ray's dashboard answers there"),
    ],
    ids=["silence", "hangs up", "ssh", "http", "404"],
)
def test_what_answers_at_the_address_is_not_ray(
    reply: Callable[[socket.socket], object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_address, "PATIENCE_S", 2.0)
    address = answering(reply)
    with pytest.raises(EnvironmentFailure) as caught, jobs_api(address, None):
        pass
    assert str(caught.value).startswith(f"--jobs-address {address}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["head:port", "http://", "ray://head:10001", "http://[::1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError) as caught, jobs_api(address, None):
        pass
    assert (
        str(caught.value)
        == f"--jobs-address {address}: must be http://HEAD:8265, the address of the cluster's dashboard"
    )


def test_a_head_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("provider: {type: local, head_ip: 127.0.0.1}\nauth: {ssh_user: nobody, ssh_private_key: /none}\n")
    read = ClusterFile.read(str(file))
    with pytest.raises(EnvironmentFailure, match=r"c\.yaml: ssh nobody@127\.0\.0\.1: "), jobs_api(None, read):
        pass


@pytest.mark.parametrize(
    ("user", "head"), [("-oProxyCommand=x", "10.0.0.1"), ("me;x", "10.0.0.1"), ("me", "-v"), ("me", "a b")]
)
def test_a_name_that_ssh_would_take_for_an_option_is_refused(tmp_path: Path, user: str, head: str) -> None:
    (tmp_path / "c.yaml").write_text(f"provider: {{type: local, head_ip: '{head}'}}\nauth: {{ssh_user: '{user}'}}\n")
    with pytest.raises(InputError, match=r"is not a name: use letters, digits"):
        ClusterFile.read(str(tmp_path / "c.yaml"))


class Ssh:
    """A stand-in for the program ssh: Python code, which has ``words`` (its command line) and ``port``."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "ssh"
        self.words = folder / "words"

    def does(self, code: str) -> None:
        self.program.write_text(
            f"#!{sys.executable}\nimport re, socket, sys, time\nwords = ' '.join(sys.argv[1:])\n"
            f"open({str(self.words)!r}, 'w').write(words)\n"
            f"port = int(re.search(r'-L 127.0.0.1:([0-9]+):', words)[1])\n{code}\n"
        )
        self.program.chmod(0o755)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return Ssh(tmp_path / "bin")


HEAD = ClusterFile("conf/on prem.yaml", "10.0.0.1", "me", None, None, None)
TAKEN = "print('bind [127.0.0.1]: Address already in use', file=sys.stderr); sys.exit(255)"


def test_who_takes_the_port_of_the_tunnel_first_is_sent_nothing(ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the port in the command line of ssh, and answers as Ray's dashboard does; then ssh cannot bind it."""
    taken: list[socket.socket] = []
    asked: list[bytes] = []

    def answer(caller: socket.socket) -> None:
        asked.append(caller.recv(4096))
        caller.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"ray_version": "2.60.0"}')
        caller.close()

    chosen = cluster_address.free_port  # type: ignore[attr-defined]

    def watched(host: str) -> int:
        port = int(chosen(host))
        taken.append(socket.create_server(("127.0.0.1", port)))
        threading.Thread(target=lambda: answer(taken[0].accept()[0]), daemon=True).start()
        return port

    monkeypatch.setattr(cluster_address, "free_port", watched)
    ssh.does(f"time.sleep(1); {TAKEN}")
    with (
        pytest.raises(EnvironmentFailure, match=r"ssh me@10\.0\.0\.1: bind .* Address already in use"),
        jobs_api(None, HEAD),
    ):
        pass
    assert asked == []
    taken[0].close()


def test_the_tunnel_is_used_when_ssh_listens(ssh: Ssh, tmp_path: Path) -> None:
    ssh.does("server = socket.create_server(('127.0.0.1', port))\nwhile True: server.accept()[0].sendall(b'hello')")
    with contextlib.ExitStack() as within:
        url = within.enter_context(cluster_address._tunnel(HEAD, "10.0.0.1", time.monotonic() + 60))
        there = within.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))))
        assert there.recv(5) == b"hello"
    words = ssh.words.read_text()
    assert words.endswith(" -- me@10.0.0.1")
    assert "StrictHostKeyChecking=accept-new" in words
    assert f'UserKnownHostsFile="{tmp_path}/.config/tuner/known_hosts-on_prem"' in words
    assert stat.S_IMODE((tmp_path / ".config/tuner").stat().st_mode) == 0o700


def test_a_host_key_that_changed_is_named_with_the_line_to_delete(ssh: Ssh) -> None:
    said = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\\nOffending ED25519 key in /home/me/a b/known:3\\n"
    ssh.does(f"print('{said}Host key verification failed.', file=sys.stderr); sys.exit(255)")
    with pytest.raises(EnvironmentFailure) as caught, jobs_api(None, HEAD):
        pass
    assert "its host key is not the one that it had" in str(caught.value)
    assert str(caught.value).endswith("delete line 3 of /home/me/a b/known")


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
    with pytest.raises(EnvironmentFailure, match=r"killed 11 times without progress \(signal 9\)"):
        drive("x.yaml", [], str(tmp_path), "a")


@pytest.mark.parametrize(
    ("logs", "status", "kind", "words"),
    [
        ("error: a\nx\nerror: --name is taken\n", 2, InputError, "--name is taken"),
        ("error: no result\n", 3, NoUsableResult, "no result"),
        ("error: the disk is full\n", 4, EnvironmentFailure, "the disk is full"),
        ("x: No module named 'tuner'", 1, EnvironmentFailure, "the cluster's Python has no tuner"),
        ("Traceback\nMemoryError\n", 1, EnvironmentFailure, "the job failed before its search began: MemoryError"),
        ("", None, EnvironmentFailure, "the job failed before its search began: setting up the runtime env"),
    ],
)
def test_why_a_job_failed(logs: str, status: int | None, kind: type[TunerError], words: str) -> None:
    error = _why_failed(logs, "setting up the runtime env", status)
    assert type(error) is kind
    assert str(error).startswith(words)


# What a job leaves for a cluster that knows nothing of it


def jobs_kept(storage: str) -> list[Job]:
    """The jobs of which there are records."""
    return [stored_jobs(storage, name) for name in recorded(storage)]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Whose code is in the working directory, beside what an earlier job left there."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("the code\n")
    (tmp_path / "code/train.py").chmod(0o755)
    (tmp_path / "code/data.npz").write_text("what an earlier job brought\n")
    list_code(tmp_path / "code", ["train.py"])
    monkeypatch.chdir(tmp_path / "code")
    storage = str(tmp_path / "runs")
    command = f"python -m tuner.jobs.driver x.yaml --storage {storage} --name a --set 'b=c d'"
    return Job("a", storage, command, Submitter("me@laptop", {"ray": "1.0"}))


def test_a_record_is_what_it_takes_to_start_the_job_again(job: Job, tmp_path: Path) -> None:
    assert jobs_kept(job.storage) == []
    job.keep(Path.cwd())
    assert jobs_kept(job.storage) == [job]
    (tmp_path / "again").mkdir()
    job.unpack(tmp_path / "again")
    assert (tmp_path / "again/train.py").read_text() == "the code\n"
    assert os.access(tmp_path / "again/train.py", os.X_OK)
    kept_files = Path(job.storage, ".jobs/a").iterdir()
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept_files} == {0o600}  # code, and the command of a job
    assert not (tmp_path / "again/data.npz").exists()
    (tmp_path / "thrice").mkdir()
    for path in (tmp_path / "again").iterdir():  # what travels a second time knows what is code in it
        path.rename(tmp_path / "thrice" / path.name)
    job.keep(tmp_path / "thrice")
    assert jobs_kept(job.storage) == [job]
    job.delete()
    assert jobs_kept(job.storage) == []


class SentCode(JobSubmissionClient):
    """Ray's own client, whose server takes everything."""

    def __init__(self) -> None:
        self.package, self._default_metadata = b"", {}

    def _do_request(self, method: str, endpoint: str, *, data: bytes | None = None, **_: Any) -> requests.Response:
        answer = requests.Response()
        answer.status_code = 404 if method == "GET" else 200
        answer._content = b'{"job_id": "1", "submission_id": "a"}'
        self.package = data or self.package
        return answer


def test_all_code_travels_whatever_ray_leaves_out_of_a_folder(job: Job, tmp_path: Path) -> None:
    for name in (".gitignore", ".rayignore", "lib/net.py", "venv/net.py", "train.py", ".tuner-code"):
        (tmp_path / "sent" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sent" / name).write_text("*" if name.endswith("ignore") else name)
    (tmp_path / "sent/train.py").chmod(0o755)
    client = SentCode()
    assert submit_job(client, job, str(tmp_path / "sent"))
    first = client.package
    os.utime(tmp_path / "sent/train.py", (0, 0))
    assert submit_job(client, job, str(tmp_path / "sent"), 2)
    assert client.package == first, "by its bytes Ray knows what it has"
    (tmp_path / "package.zip").write_bytes(client.package)
    unzip_package(str(tmp_path / "package.zip"), str(tmp_path / "there"), False, False)
    there = {str(path.relative_to(tmp_path / "there")) for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert there == {".gitignore", ".rayignore", "lib/net.py", "venv/net.py", "train.py", ".tuner-code"}
    assert os.access(tmp_path / "there/train.py", os.X_OK)


def test_a_record_that_is_not_whole_is_none_and_a_broken_one_is_named(job: Job) -> None:
    job.keep(Path.cwd())
    record = Path(job.storage, ".jobs/a/job.json")
    record.rename(record.with_name(".job.json.0123456789abcdef"))
    assert jobs_kept(job.storage) == []
    record.write_text("{")
    with pytest.raises(EnvironmentFailure, match=r"/\.jobs/a/job\.json cannot be read: Expecting"):
        jobs_kept(job.storage)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "it is nested deeper than 100 levels"),
        ("[]", "Input should be a valid dictionary"),
        ({"name": 5}, "name: Input should be a valid string"),
        ({"name": "../a"}, "it is of a job '../a'"),
        ({"command": ["python"]}, "command: Input should be a valid string"),
        (
            {"submitter": {"who": "me", "versions": {"ray": 2}}},
            "submitter.versions.ray: Input should be a valid s",
        ),
    ],
)
def test_after_a_damaged_record_the_other_jobs_go_on(
    job: Job, content: Any, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    later = dataclasses.replace(job, name="b")
    begun: list[str] = []
    for each in (job, later):
        each.keep(Path.cwd())
    record = Path(job.storage, ".jobs/a/job.json")
    known = json.loads(record.read_text())
    record.write_text(content if isinstance(content, str) else json.dumps(known | content))
    monkeypatch.setattr(recover, "jobs_api", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(recover, "submit_job", lambda _client, again, _code: begun.append(again.name) is None)
    assert not resubmit_all(job.storage, 1, "http://head:8265")
    assert begun == ["b"]
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("keep", [0, 5, 100])
def test_code_that_is_damaged_is_named(job: Job, tmp_path: Path, keep: int) -> None:
    job.keep(Path.cwd())
    code = Path(job.storage, ".jobs/a/code.tar.gz")
    code.write_bytes(code.read_bytes()[:keep])
    with pytest.raises(EnvironmentFailure, match=r"\.jobs/a/code\.tar\.gz cannot be read: "):
        job.unpack(tmp_path)


@pytest.mark.parametrize(("kind", "target"), [(tarfile.LNKTYPE, "nope"), (tarfile.LNKTYPE, "a"), (tarfile.REGTYPE, "")])
def test_code_with_a_link_that_leads_nowhere_is_named(job: Job, tmp_path: Path, kind: bytes, target: str) -> None:
    job.keep(Path.cwd())
    member = tarfile.TarInfo("a" if target else "../a")
    member.type, member.linkname = kind, target
    with tarfile.open(Path(job.storage, ".jobs/a/code.tar.gz"), "w:gz") as archive:
        archive.addfile(member)
    with pytest.raises(EnvironmentFailure, match=r"\.jobs/a/code\.tar\.gz cannot be read: "):
        job.unpack(tmp_path / "again")


def driver(
    job: Job, search: str, tmp_path: Path, *words: str, ray: str = "auto", before: str = "pass"
) -> subprocess.Popen[str]:
    """The job's driver; its search is ``search``, a script of the shell. ``before``: Python code that goes before."""
    (tmp_path / "python").write_text(f"#!/bin/sh\n{search}\n")
    (tmp_path / "python").chmod(0o755)
    code = f"""if True:
        import sys
        sys.executable = {str(tmp_path / "python")!r}
        {before}
        from tuner.jobs.driver import main
        main()"""
    told = {SUBMITTER: json.dumps({"who": "me@laptop", "versions": {}}), "RAY_ADDRESS": ray}
    return subprocess.Popen(
        [sys.executable, "-c", code, *shlex.split(job.command)[3:], *words],
        env={**os.environ, **told, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("search", "status", "goes_on"),
    [("exit 0", 0, False), ("exit 2", 2, False), ("exit 3", 3, False), ("exit 4", 4, False), ("kill $$", 130, True)],
)
def test_a_job_that_ended_leaves_no_record(job: Job, tmp_path: Path, search: str, status: int, goes_on: bool) -> None:
    process = driver(job, f"ls {job.storage}/.jobs > {tmp_path}/seen; {search}", tmp_path)
    assert "error" not in process.communicate(timeout=60)[1]
    assert process.returncode == status
    assert (tmp_path / "seen").read_text() == "a\n"
    assert [found.name for found in jobs_kept(job.storage)] == ["a"] * goes_on


def test_a_job_whose_ray_is_gone_is_not_over(job: Job, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ray:
        port = ray.getsockname()[1]
        said = driver(job, "exit 4", tmp_path, ray=f"127.0.0.1:{port}").communicate(timeout=60)[1]
        assert "python -m tuner resume a --cluster FILE" in said
        assert jobs_kept(job.storage) == []
    said = driver(job, "exit 4", tmp_path, ray=f"127.0.0.1:{port}").communicate(timeout=60)[1]
    assert "resume" not in said  # the next `ray up` does it
    (found,) = jobs_kept(job.storage)
    assert (found.command, found.submitter.who) == (job.command, "me@laptop")


def test_a_search_that_crashes_is_continued_once_and_is_not_over(job: Job, tmp_path: Path) -> None:
    process = driver(job, f"echo >> {tmp_path}/calls; exit 1", tmp_path)
    said = process.communicate(timeout=60)[1]
    assert "the search crashed; it continues from its journal, once" in said
    assert "python -m tuner resume a --cluster FILE" in said
    assert process.returncode == 1
    assert (tmp_path / "calls").read_text() == "\n\n"
    assert [found.name for found in jobs_kept(job.storage)] == ["a"]


def test_a_search_that_ray_ended_without_a_word_is_not_over(job: Job, tmp_path: Path) -> None:
    """Its control store (GCS) died alone: after a minute without it Ray ends the process with status 1."""
    with socket.create_server(("127.0.0.1", 0)) as ray:
        port = ray.getsockname()[1]
    process = driver(job, f"echo >> {tmp_path}/calls; exit 1", tmp_path, ray=f"127.0.0.1:{port}")
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert (tmp_path / "calls").read_text() == "\n"
    assert [found.name for found in jobs_kept(job.storage)] == ["a"]


def test_a_job_whose_storage_fails_is_not_over(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: RunFolder, name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job.keep(Path.cwd())
    monkeypatch.setattr(RunFolder, "write", full)
    assert not driver_module._is_over(EnvironmentFailure.exit_status, job, ray_is_gone=False)


def test_a_job_whose_search_another_process_has_taken_over_is_that_ones(job: Job) -> None:
    job.keep(Path.cwd())
    (RunFolder.at(job.storage) / "a").create()
    with locked(RunFolder.at(job.storage) / "a"):
        assert not driver_module._is_over(EnvironmentFailure.exit_status, job, ray_is_gone=False)
    assert driver_module._is_over(EnvironmentFailure.exit_status, job, ray_is_gone=False)


@pytest.mark.parametrize(
    ("number", "goes_on"), [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGKILL, True)]
)
def test_only_its_user_stops_a_job_for_good(job: Job, tmp_path: Path, number: signal.Signals, goes_on: bool) -> None:
    """With SIGINT, as a job is told to be stopped; SIGTERM comes when a machine is shut down."""
    search = f"trap 'exit 130' INT TERM; echo > {tmp_path}/runs/begun; for i in $(seq 25); do sleep 0.2; done"
    with driver(job, search, tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "runs/begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(60)
    assert [found.name for found in jobs_kept(job.storage)] == ["a"] * goes_on


def test_a_name_that_is_taken_in_the_storage_stays_whose_it_is(job: Job, tmp_path: Path) -> None:
    job.keep(Path.cwd())
    process = driver(job, "exit 0", tmp_path)
    assert "error: --name 'a' is taken: there is a run" in process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert jobs_kept(job.storage) == [job]


# A job that ended before its search did


def resuming(job: Job) -> Job:
    return dataclasses.replace(job, command=f"python -m tuner.jobs.driver --resume --storage {job.storage} --name a")


def begun_run(job: Job, project: Path, provenance: dict[str, bool]) -> RunFolder:
    """A run of the job's name."""
    run = RunFolder.at(job.storage) / "a"
    run.create()
    journal = JournalWriter(run)
    journal.append("began", spec=read_yaml((project / "x.yaml").read_text(), "x.yaml").value, provenance={})
    if provenance:
        journal.append("left", **provenance)
    journal.close()
    return run


def test_a_job_goes_on_with_the_run_that_is_there(project: Path, job: Job, tmp_path: Path) -> None:
    begun_run(job, project, {})
    search = f'echo "$@" > {tmp_path}/words; ls {job.storage}/.jobs >> {tmp_path}/words'
    process = driver(resuming(job), search, tmp_path)
    assert "error" not in process.communicate(timeout=60)[1]
    words, kept_meanwhile = (tmp_path / "words").read_text().splitlines()
    assert words == f"-m tuner resume a --project . --trust --storage {job.storage} --address auto"
    assert kept_meanwhile == "a"
    assert jobs_kept(job.storage) == []


@pytest.mark.parametrize(
    ("ended", "words"),
    [(None, "there is no run {run} to resume"), (True, "{run}: nothing to resume: the search came to its end")],
)
def test_there_is_nothing_to_go_on_with(
    project: Path, job: Job, tmp_path: Path, ended: bool | None, words: str
) -> None:
    shutil.rmtree(Path(job.storage, "a"))
    if ended:
        begun_run(job, project, {"interrupted": False})
    process = driver(resuming(job), "exit 0", tmp_path)
    assert f"error: {words.format(run=f'{job.storage}/a')}" in process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert jobs_kept(job.storage) == []


def test_a_run_that_is_worked_on_keeps_the_record_of_its_job(project: Path, job: Job, tmp_path: Path) -> None:
    run = begun_run(job, project, {})
    job.keep(Path.cwd())
    with locked(run):
        code = "from tuner.jobs import driver; driver.LOCK_S = 0.5"
        said = driver(resuming(job), "exit 0", tmp_path, before=code).communicate(timeout=60)[1]
    assert "error: " in said
    assert jobs_kept(job.storage) == [job]


class KnownJobs:
    """A Jobs API that knows of these jobs."""

    def __init__(self, **status: str) -> None:
        self.known = [
            JobDetails(
                type=JobType.SUBMISSION,
                submission_id=name,
                status=JobStatus(value),
                entrypoint="",
                metadata={"tuner_storage": f"/mnt/{name}"},
                start_time=number,
            )
            for number, (name, value) in enumerate(status.items())
        ]

    def list_jobs(self) -> list[JobDetails]:
        return self.known


@pytest.mark.parametrize("status", ["STOPPED", "FAILED"])
def test_a_job_that_ended_is_submitted_again(project: Path, status: str) -> None:
    told = ClusterFile("c.yaml", "10.0.0.1", "ubuntu", None, "/mnt/of-the-cluster", None)
    found = prepare_resume(KnownJobs(a=status), "a", exclude=["lib/*"], cluster=told)
    assert found.job.command == "python -m tuner.jobs.driver --resume --storage /mnt/a --name a"
    assert found.attempt == 2
    assert Path("train.py") in found.code.files
    assert Path("lib/net.py") not in found.code.files
    assert prepare_resume(KnownJobs(a=status), "a", "/mnt/given", cluster=told).storage == "/mnt/given"
    assert prepare_resume(KnownJobs(), "a", cluster=told).storage == "/mnt/of-the-cluster"
    with pytest.raises(InputError, match="--storage runs: must be an absolute path"):
        prepare_resume(KnownJobs(a=status), "a", "runs")


def test_of_several_attempts_the_last_one_counts(project: Path) -> None:
    client = KnownJobs(**{"a": "FAILED", "b": "RUNNING", "a~2": "FAILED"})
    assert prepare_resume(client, "a", None).attempt == 3
    assert [(job["job"], job["storage"]) for job in jobs(client)] == [("a", "/mnt/a~2"), ("b", "/mnt/b")]


def test_a_job_that_the_cluster_has_forgotten_goes_on(project: Path) -> None:
    found = prepare_resume(KnownJobs(), "a", "/mnt/runs")
    assert (found.storage, found.attempt) == ("/mnt/runs", 1)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"a": "SUCCEEDED"}, "job 'a': nothing to resume: its search came to its end"),
        ({"a": "RUNNING"}, "job 'a' has not ended (it is running): follow it with logs, or stop it first"),
        ({"b": "FAILED"}, "this cluster knows no job 'a': say with --storage where its run is"),
    ],
)
def test_a_job_that_cannot_go_on(project: Path, status: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        prepare_resume(KnownJobs(**status), "a", None)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--project", ".", "--trust", "--address", "http://head:8265"],
            "--project: the code below the working directory travels",
        ),
        (["--exclude", "data/*"], "--exclude: nothing travels without --cluster FILE"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(cli, ["resume", "a", *words], catch_exceptions=False)


@pytest.mark.parametrize(
    ("told", "seen"), [("port 40343: timed out", "no Jobs API"), ("HTTP 403: no", "does not know the token")]
)
def test_a_port_with_the_digits_of_a_refusal_is_none(told: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ConnectionError(told)

    monkeypatch.setattr(cluster_address, "_check_answers", lambda *_: None)
    monkeypatch.setattr("ray.job_submission.JobSubmissionClient.__init__", fails)
    with pytest.raises(EnvironmentFailure, match=seen), cluster_address.jobs_api("http://h:1", None):
        pass
