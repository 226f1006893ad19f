"""A server of the live page on this machine, for whoever has its token."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote, urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.errors import EnvironmentFailure, InputError
from tuner.live.app import Find, run_routes
from tuner.live.event_stream import GIVEN_UP_AFTER_S, end_streams
from tuner.live.metrics import router as metrics_router
from tuner.storage.folder import RunFolder

HOST = "127.0.0.1"

_TOKEN, _OPEN = "token", ("/metrics",)
"""The parameter of an address that holds the token; and the paths that want none."""

_STARTS_WITHIN_S = 30.0

_REFUSED = "This page is for whoever started it: open the address that `tuner watch` printed, with its token.\n"


class TokenDoor:
    """Lets in who has the token: once in the address, later in a cookie."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or passes the request on."""
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        cookie = f"tuner-{scope['server'][1]}"  # cookies know no ports
        if self._is_token(request.query_params.get(_TOKEN, "")):
            await self._let_in(scope, receive, send, cookie)
        elif not self._is_token(request.cookies.get(cookie, "")):
            await PlainTextResponse(_REFUSED, 403)(scope, receive, send)
        elif request.method != "GET" and not _is_own(request):
            await PlainTextResponse("Another page sent this.\n", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, cookie: str) -> None:
        """Sends the browser to the same address without the token, which then is in no history."""
        answer = RedirectResponse(
            "/" + quote(scope["path"].lstrip("/")), 303, headers={"Referrer-Policy": "no-referrer"}
        )
        answer.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        await answer(scope, receive, send)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._token.encode())


def _is_own(request: Request) -> bool:
    """Whether a page of this server sent it; programs send no Origin."""
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def local_app(find: Find, runs: Callable[[], Iterable[RunFolder]], user: str, token: str) -> FastAPI:
    """The live page of the runs that ``find`` knows, with ``/metrics`` of ``runs``; ``user`` may control them."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.include_router(run_routes(find, lambda request: user))
    app.include_router(metrics_router(runs))
    app.add_middleware(TokenDoor, token=token)
    return app


def new_token() -> str:
    """One that nobody can guess."""
    return secrets.token_urlsafe(24)


def listening(host: str, port: int) -> socket.socket:
    """A socket for uvicorn; port 0 is one that is free. Raises InputError if the port is taken.

    Connections of clients that take nothing are closed by the system.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(GIVEN_UP_AFTER_S * 1000))
        found.bind((host, port))
        found.listen(256)
    except OSError as problem:
        found.close()
        raise InputError(f"--port {port}: {problem.strerror}; choose another, or none: a free one is taken") from None
    return found


class Server:
    """An app, served in a thread."""

    def __init__(self, app: FastAPI, port: int = 0, page: str = "") -> None:
        """``page``: of its pages the one that people are to open; empty: its root."""
        self._page = f"/{page}" if page else ""
        self._socket = listening(HOST, port)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=[[self._socket]], name="live page", daemon=True)

    @property
    def address(self) -> str:
        """Of its page."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}{self._page}"

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Within: its address answers. Raises EnvironmentFailure if it does not come up."""
        self._thread.start()
        try:
            deadline = time.monotonic() + _STARTS_WITHIN_S
            while not self._server.started:
                if not self._thread.is_alive() or time.monotonic() > deadline:
                    raise EnvironmentFailure("the server of the live page did not come up")
                time.sleep(0.01)
            yield self.address
        finally:
            self._server.should_exit = True
            end_streams()
            self._thread.join()
            self._socket.close()

    def wait(self) -> None:
        """Until it ends."""
        while self._thread.is_alive():
            self._thread.join(1.0)
