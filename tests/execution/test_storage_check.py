"""What a node tries when it is asked whether it sees the storage; on hosts of its own: tests/cluster."""

from __future__ import annotations

from pathlib import Path

from tuner.execution.storage_check import _reads_and_writes
from tuner.storage.folder import RunFolder


def test_a_node_that_sees_the_storage_writes_its_name(tmp_path: Path) -> None:
    probe = RunFolder.at(tmp_path)
    probe.write("driver", b"")
    assert _reads_and_writes(probe, "node1") == ""
    assert probe.exists("node1")


def test_a_node_that_does_not_see_it_says_so(tmp_path: Path) -> None:
    assert _reads_and_writes(RunFolder.at(tmp_path / "elsewhere"), "node1") == "it does not see the driver's file there"


def test_a_node_that_cannot_write_says_why(tmp_path: Path) -> None:
    probe = RunFolder.at(tmp_path)
    probe.write("driver", b"")
    Path(tmp_path, "node1").mkdir()  # in place of a read-only mount, which root can write
    assert _reads_and_writes(probe, "node1").startswith("cannot be written: ")
