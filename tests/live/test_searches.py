"""The page of all searches: rows of a queue and its runs, told again only if they change."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.live.journals import Journal
from tests.live.servers import WITHIN_S, running
from tests.service.entries import entry
from tuner.errors import EnvironmentFailure
from tuner.live import searches
from tuner.live.figures import FollowedRuns
from tuner.live.searches import SearchRow, rows_of, searches_routes


class Board:
    """A server of a list that a test changes, and a client that reads its events."""

    def __init__(self) -> None:
        self.rows: list[SearchRow] = [SearchRow("a", "ada", "running"), SearchRow("b", "bob", "queued", 1)]
        self.failure: Exception | None = None
        self.calls: list[str] = []

    def read(self) -> Iterator[list[SearchRow]]:
        self.calls.append(threading.current_thread().name)
        if self.failure:
            raise self.failure
        yield self.rows


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr(searches, "LOOK_EVERY_S", 0.05)
    return Board()


@pytest.fixture
def address(board: Board) -> Iterator[str]:
    app = FastAPI()
    app.include_router(searches_routes(board.read))
    with running(app) as address:
        yield address


@pytest.fixture
def events(address: str) -> Iterator[Iterator[Any]]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=WITHIN_S)
    connection.request("GET", "/searches/events")
    answer = connection.getresponse()
    yield (json.loads(line[6:]) for line in answer if line.startswith(b"data: {"))
    answer.close()
    connection.close()


def test_only_rows_that_change_are_told_again(board: Board, events: Iterator[Any]) -> None:
    first = next(events)
    assert (first["order"], [row["name"] for row in first["rows"]]) == (["a", "b"], ["a", "b"])
    board.rows = [replace(board.rows[1], state="running", position=None), board.rows[0]]
    told = next(events)
    assert (told["order"], [(row["name"], row["state"]) for row in told["rows"]]) == (["b", "a"], [("b", "running")])
    board.rows = board.rows[:1]
    assert next(events) == {"order": ["b"], "rows": [], "problem": ""}
    assert len(set(board.calls)) == 1


@pytest.mark.parametrize("failure", [OSError(5, "x"), EnvironmentFailure("the cluster is gone")])
def test_a_failure_is_told_and_the_list_stays(board: Board, events: Iterator[Any], failure: Exception) -> None:
    next(events)
    board.failure = failure
    told = next(events)
    assert told["order"] == ["a", "b"]
    assert told["problem"]
    board.failure = None
    assert next(events)["problem"] == ""


def test_texts_are_cut_and_one_line(board: Board, events: Iterator[Any]) -> None:
    board.rows = [SearchRow("</script>\n\ndata: {}", "x" * 10_000)]
    while "</script>\n\ndata: {}" not in (told := next(events))["order"]:
        pass
    assert len(told["rows"][0]["user"]) == 300


def test_rows_join_a_queue_and_its_runs(tmp_path: Path) -> None:
    journals = [Journal(tmp_path, name) for name in ("a", "z")]
    journals[0].start("t")
    journals[0].report("t", 1, 0.51234)
    journals[0].end("t", "stopped", rung=1)
    figures, _ = FollowedRuns().read(journal.folder for journal in journals)
    entries = [
        entry("old", "bob", "succeeded", submitted=1.0),
        entry("a", "ada", "running", submitted=5.0),
        entry("w2", "bob", "queued", 2),
        entry("w1", "ada", "queued", 1, reason="bob has used less"),
    ]
    rows = rows_of(entries, figures)
    assert [row.name for row in rows] == ["w1", "w2", "a", "old", "z"]
    assert rows[0] == SearchRow("w1", "ada", "queued", 1, reason="bob has used less", has_page=False)
    assert rows[2] == SearchRow("a", "ada", "running", None, "val_accuracy 0.5123", "1 of 1 trials ended")


def test_the_page_is_at_the_root(board: Board) -> None:
    app = FastAPI()
    app.include_router(searches_routes(board.read))
    page = TestClient(app).get("/")
    assert page.status_code == 200
    assert 'src="live/' in page.text
