"""A checkout on the path that nobody installed, as on a node to which the code was copied."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tests.tables import space
from tuner.errors import InputError
from tuner.integrations.requirements import require
from tuner.search.snapshot import Snapshot, read_snapshot, write_snapshot
from tuner.search.state import SearchState
from tuner.searchers import Random
from tuner.searchers.build import build_searcher
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem
from tuner.spec.user_imports import import_module
from tuner.storage.folder import RunFolder


@pytest.fixture(autouse=True)
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == "tuner":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "needs_more.py").write_text("import not_there\n")
    with pytest.raises(InputError, match=r"^needs_more.py cannot be imported: .*not_there"):
        import_module("needs_more.py", (tmp_path,))


def test_a_framework_that_is_there_is_taken() -> None:
    require("lightning")


def test_a_snapshot_is_read_again(tmp_path: Path) -> None:
    folder, over = RunFolder.at(tmp_path), space({"x": {"uniform": [0, 1]}})
    task = SearchProblem(over, ("max",), 4, 9, 3)
    state = SearchState(build_searcher(Random(), task), None, over, (Objective(metric="score", mode="max"),), "epoch")
    write_snapshot(folder, Snapshot(3, 1.5, state, None))
    snapshot, problem = read_snapshot(folder)
    assert problem == ""
    assert snapshot is not None
    assert snapshot.number == 3
