"""Servers of live pages in a thread, and a client that reads their events."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from tuner.live.app import run_routes
from tuner.live.http_server import Server, listening, url_of
from tuner.storage.folder import RunFolder

WITHIN_S = 60.0


def app_of(storage: Path, may_control: Callable[[Any], str | None] = lambda request: None) -> FastAPI:
    """The live pages of the runs below ``storage``, for everybody."""

    def find(name: str) -> RunFolder | None:
        folder = RunFolder.at(storage) / name
        return folder if folder.exists() else None

    app = FastAPI()
    app.include_router(run_routes(find, may_control))
    return app


@contextlib.contextmanager
def served(storage: Path, user: str | None = None, port: int = 0) -> Iterator[str]:
    """Within: the address of a server of all runs below ``storage``."""
    with running(app_of(storage, lambda request: user), port) as address:
        yield address


@contextlib.contextmanager
def running(app: FastAPI, port: int = 0) -> Iterator[str]:
    """Within: the address at which ``app`` answers."""
    answers = threading.Event()
    server = Server(app, answers.set)
    with listening("127.0.0.1", port) as listener:
        thread = threading.Thread(target=server.run_at, args=[listener])
        thread.start()
        try:
            assert answers.wait(WITHIN_S)
            yield url_of(listener)
        finally:
            server.stop()
            thread.join()


def get(address: str, **headers: str) -> Any:
    """The JSON at an address."""
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=WITHIN_S) as answer:
        return json.loads(answer.read())


class Events:
    """Reads the events of a run, as a browser does."""

    def __init__(self, address: str, run: str = "run", since: str = "", last: str | None = None) -> None:
        host = address.removeprefix("http://")
        self._connection = http.client.HTTPConnection(host, timeout=WITHIN_S)
        headers = {} if last is None else {"Last-Event-ID": last}
        self._connection.request("GET", f"/runs/{run}/events?since={since}", headers=headers)
        self.answer = self._connection.getresponse()
        self.id = ""

    def next(self) -> dict[str, Any]:
        """The next message."""
        while True:
            line = self.answer.readline().decode()
            if not line:
                raise ConnectionError("the server has ended")
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "id":
                self.id = value
            if name == "data" and value:
                told: dict[str, Any] = json.loads(value)
                return told

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message for which ``holds``."""
        while not holds(told := self.next()):
            pass
        return told

    def close(self) -> None:
        """Leaves."""
        self.answer.close()
        self._connection.close()
