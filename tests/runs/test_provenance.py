"""Where a result comes from, without running what a repository names."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tuner.runs.provenance import surroundings


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=me", "-c", "user.email=me@here"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, stdout=subprocess.DEVNULL)


def test_changes_are_told_and_no_program_of_the_repository_runs(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat $1\n")
    (tmp_path / "evil").chmod(0o755)
    (tmp_path / ".gitattributes").write_text("*.txt diff=evil\n")
    (tmp_path / "a.txt").write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "a.txt", ".gitattributes")
    git(tmp_path, "commit", "-qm", "one")
    for option in ("diff.external", "diff.evil.textconv", "core.fsmonitor"):
        git(tmp_path, "config", option, str(tmp_path / "evil"))
    assert surroundings(tmp_path)["git"]["diff_sha256"] == ""
    (tmp_path / "a.txt").write_text("2\n")
    assert len(surroundings(tmp_path)["git"]["diff_sha256"]) == 64
    assert not (tmp_path / "ran").exists()
