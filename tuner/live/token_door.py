"""The live page on this machine, for whoever has its token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.actions.control import sender
from tuner.live.app import Find, run_routes
from tuner.live.metrics import router as metrics_router
from tuner.storage.folder import RunFolder

_TOKEN, _OPEN = "token", ("/metrics",)
"""The parameter of an address that holds the token; and the paths that want none."""

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


def watched(folder: RunFolder, token: str) -> tuple[FastAPI, str]:
    """The live page of the run in ``folder`` for this user; and its path, with the token."""
    name = folder.path.rstrip("/").rpartition("/")[2]

    def find(asked: str) -> RunFolder | None:
        return folder if asked == name and folder.exists() else None

    return local_app(find, lambda: [folder], sender(), token), f"/runs/{quote(name, safe='')}?{_TOKEN}={token}"
