"""A service without a network, and its users."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.service.plain_queue import PlainQueue
from tuner.live.http_server import READ_S, Server, listening, url_of
from tuner.service.app import create_app
from tuner.service.interface import Submission
from tuner.service.limits import Limits
from tuner.service.records import Record
from tuner.service.tokens import Tokens
from tuner.storage.folder import RunFolder

EXPERIMENT = "trainable: t.py:train\nobjective: {metric: loss, mode: min}\nsearch_space: {lr: {uniform: [0, 1]}}\n"


@dataclass
class Service:
    """An app over a storage, with a token for each user who asks."""

    storage: Path
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.queue = PlainQueue()
        self.folder = RunFolder.at(self.storage)
        self.tokens = Tokens(self.folder)
        self.app = create_app(self.queue, self.tokens, self.folder, self.limits)
        self._known: dict[str, str] = {}

    def token(self, user: str) -> str:
        if user not in self._known:
            self._known[user] = self.tokens.add(user)
        return self._known[user]

    def client(self, user: str | None = None, **settings: Any) -> TestClient:
        """A program of that user, or nobody's."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        return TestClient(
            self.app, "http://tuner.test", headers=headers, follow_redirects=False, client=("10.0.0.1", 1), **settings
        )

    def browser(self, user: str) -> TestClient:
        """One that has logged in."""
        browser = self.client()
        sent = browser.post("/login", data={"token": self.token(user)}, headers={"Origin": "http://tuner.test"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/")
        return browser

    def search(self, name: str = "q", user: str = "ada", **changes: Any) -> Record:
        """One that is in the queue."""
        entry = self.queue.submit(Submission(user, name, f"request-{name}", file="quickstart"))
        if changes:
            self.queue.set(name, **changes)
        return entry

    @contextlib.contextmanager
    def running(self, read_s: float = READ_S) -> Iterator[str]:
        """Within: it answers at this address, over a real network."""
        with listening("127.0.0.1", 0, read_s) as listener:
            server = Server(self.app)
            thread = threading.Thread(target=server.run_at, args=(listener,))
            thread.start()
            try:
                yield url_of(listener)
            finally:
                server.stop()
                thread.join()
