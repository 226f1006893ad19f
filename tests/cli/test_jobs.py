"""``jobs recover``: what it passes on to the recovery of jobs, and what it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tuner.cli import cli
from tuner.errors import InputError

LAUNCHER = """
provider: {type: local, head_ip: h}
auth: {ssh_user: me}
metadata: {storage: /mnt/runs}
available_node_types: {worker: {min_workers: 3}}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """What `tuner.jobs.recover.resubmit_all` is called with; it continues all jobs but those of ``/mnt/bad``."""
    calls: list[tuple[str, int, str]] = []

    def revive(storage: str, nodes: int, address: str) -> bool:
        calls.append((storage, nodes, address))
        return storage != "/mnt/bad"

    monkeypatch.setattr("tuner.jobs.recover.resubmit_all", revive)
    return calls


def test_of_a_launcher_file(asked: list[tuple[str, int, str]], tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(LAUNCHER)
    done = CliRunner().invoke(cli, ["jobs", "recover", "--cluster", str(file)], catch_exceptions=False)
    assert done.exit_code == 0
    assert asked == [("/mnt/runs", 4, "http://127.0.0.1:8265")]


@pytest.mark.parametrize(("storage", "status"), [("/mnt/good", 0), ("/mnt/bad", 4)])
def test_of_a_storage(asked: list[tuple[str, int, str]], storage: str, status: int) -> None:
    words = ["jobs", "recover", "--storage", storage, "--jobs-address", "http://h:1"]
    assert CliRunner().invoke(cli, words, catch_exceptions=False).exit_code == status
    assert asked == [(storage, 1, "http://h:1")]


def test_without_a_storage(asked: list[tuple[str, int, str]]) -> None:
    with pytest.raises(InputError, match="--storage: where the jobs ran whose cluster lost its head"):
        CliRunner().invoke(cli, ["jobs", "recover"], catch_exceptions=False)
    assert asked == []
