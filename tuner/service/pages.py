"""The login of people, and a path that tells whether the service answers."""

from __future__ import annotations

import asyncio
import functools
import html
import importlib.resources
import string
import time
import urllib.parse

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tuner.service.auth import COOKIE, HEALTH, LOGIN
from tuner.service.tokens import TokenRefused, Tokens

FORM_S = 10.0
"""How long the form of a login may take to come."""

COOKIE_S = 30 * 86400
"""For how long a browser keeps a token that does not expire before."""


def routes(tokens: Tokens) -> APIRouter:
    """All of them. They are for people, and no part of the description of the API."""
    pages = APIRouter(include_in_schema=False)

    @pages.get(HEALTH)
    async def alive() -> dict[str, str]:
        return {"status": "ok"}

    @pages.get(LOGIN)
    async def login() -> HTMLResponse:
        return _login("Paste the token that you were given.")

    @pages.post(LOGIN)
    async def log_in(request: Request) -> Response:
        try:
            async with asyncio.timeout(FORM_S):
                body = await request.body()
        except TimeoutError:
            raise HTTPException(408, "the form did not come") from None
        form = urllib.parse.parse_qs(body.decode("utf-8", "replace"))
        given = form.get("token", [""])[0].strip()
        try:
            found = await to_thread.run_sync(tokens.user_of, given)
        except TokenRefused as error:
            return _login(str(error), 401)
        age = COOKIE_S if found.expires is None else min(COOKIE_S, int(found.expires - time.time()))
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, given, max_age=age, secure=secure, httponly=True, samesite="strict")
        return answer

    @pages.post("/logout")
    async def log_out() -> Response:
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    return pages


def _login(told: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(_template().substitute(told=html.escape(told), action=LOGIN), status)


@functools.cache
def _template() -> string.Template:
    return string.Template((importlib.resources.files("tuner.service") / "login.html").read_text(encoding="utf-8"))
