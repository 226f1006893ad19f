"""An HTTP server that ends when it is asked to, and that no client can hold up."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from tuner.errors import EnvironmentFailure, InputError
from tuner.storage.folder import reason

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

READ_S = 60.0
"""A client that takes nothing of what it asked for loses its connection after this time."""

END_S = 3
"""How long open requests may take to end when the server is to end."""

_MOST_CONNECTIONS = 800
"""More get HTTP 503: a process has 1,024 files by default."""


@contextlib.contextmanager
def listening(host: str, port: int, read_s: float = READ_S) -> Iterator[socket.socket]:
    """Within: a socket with that address.

    Args:
        host: A name or an address of this machine.
        port: 0 for any that is free.
        read_s: See `READ_S`.

    Raises:
        InputError: The host is none.
        EnvironmentFailure: The port is in use, or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host}: this machine has no such address: {error}") from None
    with socket.socket(family, kind, protocol) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * read_s)
        )  # its connections inherit it
        try:
            found.bind(address)
            found.listen(socket.SOMAXCONN)
        except OSError as error:
            why = "something else listens there" if error.errno == errno.EADDRINUSE else reason(error)
            raise EnvironmentFailure(f"port {port} of {host}: {why}; choose another with --port") from None
        yield found


def url_of(listener: socket.socket) -> str:
    """The address of a server at this socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _UntilEnd:
    """An app whose answers that have no end, such as streams of events, end in good order when the server is to end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._ending = app, asyncio.Event()

    def end(self) -> None:
        """To be called in the server's loop."""
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. The app learns of the end as of a client that is gone, once it has the body of the request."""
        has_body = is_open = False

        async def received() -> Message:
            nonlocal has_body
            message = await (self._received(receive) if has_body else receive())
            has_body = not message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            nonlocal is_open
            is_open = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        await self._app(scope, received, sent)
        if is_open and self._ending.is_set():
            await send({"type": "http.response.body"})

    async def _received(self, receive: Receive) -> Message:
        """That the client is gone, or the server is to end."""
        waits = [asyncio.ensure_future(receive()), asyncio.ensure_future(self._ending.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return {"type": "http.disconnect"}


class Server(uvicorn.Server):
    """Runs an app until SIGINT, SIGTERM or `stop`.

    Example:
        >>> from tuner.live.http_server import Server, listening
        >>> with listening("127.0.0.1", 8380) as listener:
        ...     Server(app).run_at(listener)
    """

    def __init__(self, app: ASGIApp, started: Callable[[], None] = lambda: None) -> None:
        """``started``: called when it answers."""
        settings: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
        settings |= {"lifespan": "off", "ws": "none", "limit_concurrency": _MOST_CONNECTIONS}
        self._app = _UntilEnd(app)
        super().__init__(uvicorn.Config(self._app, timeout_graceful_shutdown=END_S, **settings))
        self._told = started

    def run_at(self, listener: socket.socket) -> None:
        """Answers at the socket until its end."""
        self.run(sockets=[listener])

    def stop(self) -> None:
        """Lets it end; any thread may call it."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the server ends as by `stop`, and the process does not end by the signal afterwards."""
        self.force_exit = self.should_exit  # the second one does not wait for open requests
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does, and says so."""
        await super().startup(sockets)
        self._told()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does; streams of events end at once."""
        self._app.end()
        await super().shutdown(sockets)
