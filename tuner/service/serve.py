"""Runs the service: the queue in a thread, and the app at a port, until a signal comes."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from tuner.live.http_server import Server, url_of
from tuner.service.app import create_app
from tuner.service.interface import Queue
from tuner.service.limits import Limits
from tuner.service.loop import EVERY_S, Loop
from tuner.service.tokens import Tokens
from tuner.storage.folder import RunFolder


def serve(
    queue: Queue,
    storage: RunFolder,
    listener: socket.socket,
    say: Callable[[str], None],
    started: Callable[[str], None],
    *,
    limits: Limits | None = None,
    mlflow: str | None = None,
    before_pass: Callable[[], None] = lambda: None,
    every_s: float = EVERY_S,
) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
        queue: The searches, which no other process has.
        storage: Of their runs.
        listener: Where to answer.
        say: Gets each line for the operator.
        started: Gets the address when the service answers.
        limits: What one user may do.
        mlflow: The MLflow server of searches that name none.
        before_pass: Called before each look at the cluster.
        every_s: Seconds between two looks at the cluster.

    Raises:
        LockLost: Another process has the storage now.
    """
    tokens = Tokens(storage)
    if not tokens.listed():
        say(f"NOTICE: nobody has a token yet: tuner token add USER --storage {storage.quoted}")
    url = url_of(listener)
    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        say(f"NOTICE: {url} is open to the network, and sends tokens unencrypted: put a proxy with TLS before it")
    app = create_app(queue, tokens, storage, limits or Limits(), mlflow)
    server = Server(app, lambda: started(url))
    loop = Loop(queue, say, server.stop, every_s, before_pass)
    loop.once()
    loop.start()
    try:
        server.run_at(listener)
    finally:
        loop.end()
