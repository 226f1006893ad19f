"""An HTTP server that ends when it is asked to, and that no client can hold up."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tuner.errors import EnvironmentFailure, InputError
from tuner.storage.folder import reason

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

READ_S = 60.0
"""A client that takes nothing of what it asked for loses its connection after this time."""

HEAD_S = 15.0
"""A connection on which no whole head of a request has come is closed after this time."""

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


async def answer_until(ending: asyncio.Event, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """One request, whose answer ends in good order when ``ending`` is set, also if it is a stream without an end.

    The app learns of the end as of a client that is gone, once it has the body of the request.
    """
    has_body = is_open = False

    async def received() -> Message:
        nonlocal has_body
        message = await (_gone(ending, receive) if has_body else receive())
        has_body = not message.get("more_body", False)
        return message

    async def sent(message: Message) -> None:
        nonlocal is_open
        is_open = message["type"] == "http.response.start" or message.get("more_body", False)
        await send(message)

    await app(scope, received, sent)
    if is_open and ending.is_set():
        await send({"type": "http.response.body"})


async def _gone(ending: asyncio.Event, receive: Receive) -> Message:
    """That the client is gone, or the answer is to end."""
    waits = [asyncio.ensure_future(receive()), asyncio.ensure_future(ending.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return {"type": "http.disconnect"}


class _Protocol(H11Protocol):
    """Closes a connection on which no whole head of a request has come in time: there are only so many connections."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Also begins to wait for a request."""
        super().connection_made(transport)
        self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Also waits no longer."""
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Also begins to wait for the next request. The body of a refused request may still be on its way."""
        super().on_response_complete()
        self._wait(READ_S if self.conn.their_state is h11.SEND_BODY else HEAD_S)

    def _wait(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


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
        settings |= {"interface": "asgi3", "lifespan": "off", "ws": "none", "limit_concurrency": _MOST_CONNECTIONS}
        self._ending = asyncio.Event()
        ends = partial(answer_until, self._ending, app)
        super().__init__(uvicorn.Config(ends, http=_Protocol, timeout_graceful_shutdown=END_S, **settings))
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
        self._ending.set()
        await super().shutdown(sockets)
