"""Searches that nothing happens to, one of each kind in each process of pytest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.search import Search, check_complete, experiment, outcome


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """What a search finds that nothing happens to, by searcher."""
    known: dict[str, list[Any]] = {}

    def found(search: str) -> list[Any]:
        if search not in known:
            ran = Search(tmp_path_factory.mktemp(search)).start(experiment(search))
            status, said = ran.wait()
            assert status == 0, said
            check_complete(ran.run)
            known[search] = outcome(ran.run)
        return known[search]

    return found
