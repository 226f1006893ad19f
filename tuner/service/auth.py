"""The door of the service: who asks, how often, and whether a browser was led to ask by another site."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.errors import EnvironmentFailure
from tuner.jobs.code_bundle import MAX_BYTES
from tuner.live.http_server import answer_until
from tuner.service.errors import NotAllowed, TooLarge, TooMany, answer
from tuner.service.limits import AtOnce, Buckets, Limits
from tuner.service.tokens import Token, TokenRefused, Tokens
from tuner.spec.quantities import format_bytes

COOKIE = "tuner_token"
"""Holds a browser's token."""

LOGIN = "/login"

HEALTH = "/healthz"

OPEN = (LOGIN, HEALTH)
"""Paths that ask for no token."""

_CODE = "/v1/code/"
"""Paths whose bodies may be as large as code."""

_EVENTS, _COPIES = "/events", "/files"
"""The ends of paths of live pages, and of copies of run folders."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load and send; a page with a script of its own sends its own policy."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_LONGEST_FORM, _FORM_S = 10_000, 15.0
"""Bytes that somebody may send who has no token yet, and the time that he may take."""

CHECK_EVERY_S = 5.0
"""So often the token of somebody is looked at who has a live page open."""

_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_READS = ("GET", "HEAD", "OPTIONS")


class Door:
    """Lets a request in if it has the token of a user who has not asked too often. What is behind knows the user."""

    def __init__(self, app: ASGIApp, tokens: Tokens, limits: Limits) -> None:
        self._app, self._tokens, self._limits = app, tokens, limits
        self._requests = Buckets(limits.rate, limits.burst)
        self._refused = Buckets(limits.refused_rate, limits.refused_burst)
        self._at_once = AtOnce(limits.at_once, "requests")
        self._transfers = AtOnce(limits.transfers, "transfers of files")
        self._turns: dict[str, CapacityLimiter] = {}
        """Of each user: so many requests are worked on at once, and the others of that user wait."""
        self._readers = CapacityLimiter(4)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":  # there is nothing else behind it
            return
        send = _with_headers(send)
        with ExitStack() as held:
            try:
                await self._let_in(scope, held)
                receive = _limited(scope, receive, self._longest(scope["path"]))
                receive = _in_time(receive) if scope["path"] in OPEN else receive
            except (TokenRefused, NotAllowed, TooLarge, TooMany, EnvironmentFailure) as error:
                await _refusal(scope, error)(scope, receive, send)
                return
            if scope["path"].endswith(_EVENTS):
                await self._while_allowed(scope, receive, send)
            elif _lasts(scope["path"]) or scope["path"] in OPEN:  # all who have no token would share one turn
                await self._app(scope, receive, send)
            else:
                async with self._turn(scope["state"]["token"].user):
                    await self._app(scope, receive, send)

    async def _while_allowed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, whose answer ends when its token is revoked or expires."""
        refused = asyncio.Event()

        async def watch() -> None:
            while not refused.is_set():
                await asyncio.sleep(CHECK_EVERY_S)
                try:
                    await self._token_of(scope)
                except TokenRefused:
                    refused.set()
                except EnvironmentFailure:  # the storage may answer again
                    continue

        watching = asyncio.create_task(watch())
        try:
            await answer_until(refused, self._app, scope, receive, send)
        finally:
            watching.cancel()

    async def _token_of(self, scope: Scope) -> Token:
        """Raises TokenRefused, and EnvironmentFailure if that is not known now."""
        token = token_of(Request(scope))[0] or ""
        return await to_thread.run_sync(self._tokens.user_of, token, limiter=self._readers)

    def _turn(self, user: str) -> CapacityLimiter:
        return self._turns.setdefault(user, CapacityLimiter(self._limits.in_work))

    def _longest(self, path: str) -> int:
        """Bytes that the body of a request may have."""
        if path in OPEN:
            return _LONGEST_FORM
        return MAX_BYTES if path.startswith(_CODE) else self._limits.body

    def _bytes_read(self, scope: Scope) -> int:
        """Bytes of a body that is read into the memory: those that its header tells, or the most that it may have."""
        headers = Headers(scope=scope)
        if scope["path"].startswith(_CODE):
            return 0
        told = headers.get("content-length", "0")
        is_told = told.isdigit() and "transfer-encoding" not in headers
        return min(int(told), self._limits.body) if is_told else self._limits.body

    async def _let_in(self, scope: Scope, held: ExitStack) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            raise NotAllowed("the header Host of the request is not the name of a host")
        if not scope["path"].isprintable():  # a route also matches before the end of a line
            raise NotAllowed("the path of the request has characters that cannot be printed")
        token, by_cookie = token_of(Request(scope))
        if scope["path"] in OPEN:
            _check_origin(scope, headers, host)
            if scope["path"] != HEALTH:
                self._refused.take(_address(scope))
            return
        try:
            found = await self._token_of(scope)
        except TokenRefused as error:
            self._refused.take(_address(scope))
            raise error if token else TokenRefused("this needs a token: send `Authorization: Bearer TOKEN`") from None
        if by_cookie:
            _check_origin(scope, headers, host)
        self._requests.take(found.user, 1 + self._bytes_read(scope) / self._limits.bytes_a_token)
        held.enter_context(self._at_once.one(found.user))
        if scope["path"].startswith(_CODE) or scope["path"].endswith(_COPIES):
            held.enter_context(self._transfers.one(found.user))
        scope.setdefault("state", {})["token"] = found


def _lasts(path: str) -> bool:
    """Whether a request to it may last as long as a page is open, or a copy takes."""
    return path.endswith((_EVENTS, _COPIES)) or path.startswith(_CODE)


def token_of(request: Request) -> tuple[str | None, bool]:
    """The token that a request brings, and whether a browser's cookie holds it."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip(), False
    cookie = request.cookies.get(COOKIE)
    return cookie, cookie is not None


def user_of(request: Request) -> str:
    """Who asks."""
    return found_token(request).user


def found_token(request: Request) -> Token:
    """The token with which somebody asks."""
    token: Token = request.state.token
    return token


def _check_origin(scope: Scope, headers: Headers, host: str) -> None:
    """Raises NotAllowed if a browser sends a request that changes something, and a page of another site made it."""
    if scope["method"] in _READS:
        return
    site = headers.get("sec-fetch-site", "same-origin")
    if urlsplit(headers.get("origin", "")).netloc.lower() != host.lower() or site != "same-origin":
        raise NotAllowed("a page of another site made this request: open the service's own page, or send a token")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _refusal(scope: Scope, error: TokenRefused | NotAllowed | TooLarge | TooMany | EnvironmentFailure) -> Response:
    """JSON; a browser that must log in is led there."""
    wants_page = "text/html" in Headers(scope=scope).get("accept", "")
    if isinstance(error, TokenRefused) and scope["method"] == "GET" and wants_page:
        return RedirectResponse(LOGIN, 303)
    found: JSONResponse = answer(error)
    return found


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent


def _in_time(receive: Receive) -> Receive:
    """``receive``, which raises if the body does not come in time."""
    end = asyncio.get_running_loop().time() + _FORM_S

    async def received() -> Message:
        try:
            async with asyncio.timeout_at(end):
                return await receive()
        except TimeoutError:
            raise HTTPException(408, f"the body of this request did not come within {_FORM_S:.0f} s") from None

    return received


def _limited(scope: Scope, receive: Receive, most: int) -> Callable[[], Awaitable[Message]]:
    """``receive``, which raises if more than ``most`` bytes come. Raises TooLarge if the header already says so."""
    told = Headers(scope=scope).get("content-length", "0")
    text = f"the body of this request may have at most {format_bytes(most)}"
    if told.isdigit() and int(told) > most:
        raise TooLarge(text)
    left = most

    async def received() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, text)
        return message

    return received
