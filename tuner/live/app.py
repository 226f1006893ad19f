"""The routes of a run's live page."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from tuner.actions.control import command as commanded
from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.live import pages
from tuner.live.changes import Json, encoded
from tuner.live.event_stream import EventStream, event, wake
from tuner.live.hub import MOST_VIEWERS, Hub, Watched
from tuner.live.trial_detail import detail, output
from tuner.runs.commands import LIMIT
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.search import orders
from tuner.storage.folder import RunFolder, reason

Find = Callable[[str], "RunFolder | None"]
MayControl = Callable[[Request], "str | None"]

_LONGEST_COMMAND = 1 << 20
"""Bytes."""

_READ_WITHIN_S = 120.0
"""The journal of a run, the first time."""

_SENDERS, _ANSWERED_WITHIN_S = 8, 30.0
"""Commands whose answers are waited for at once, and how long."""

_MOST_DIGITS = 15


def run_routes(find: Find, may_control: MayControl) -> APIRouter:
    """The live page of runs, and what it loads.

    Args:
        find: The folder of a run by its name; None if there is none, or none for whoever asks.
        may_control: The name of the person who may control the run that a request names, None if he may not.

    Returns:
        A router to be included in an app. It checks nobody: the app does.
    """
    routes, hub = APIRouter(include_in_schema=False), Hub()
    senders = ThreadPoolExecutor(_SENDERS, "commands of live pages")  # they wait long, and hold up nothing else
    routes.include_router(pages.asset_routes())

    async def _read(name: str, told: Callable[[Watched], Response]) -> Response:
        """What ``told`` answers when the journal was read."""
        watched = await asyncio.to_thread(_watched, hub, find, name)
        if watched is None:
            return _no_run(name)
        if not await _is_read(watched):
            return error(EnvironmentFailure(f"the journal of {name} is still being read; ask again"), 503)
        return await asyncio.to_thread(told, watched)

    @routes.get("/runs/{name}")
    def page(request: Request, name: str) -> Response:
        if find(name) is None:
            return pages.missing(f"There is no run {name!r} here: it was deleted or moved, or its name is another.")
        user = may_control(request)
        commands = " ".join(orders.KINDS) if user else ""
        return pages.page(name, "run.js", 1, run=name, user=user or "", commands=commands)

    @routes.get("/runs/{name}/data")
    async def data(request: Request, name: str, since: str = "") -> Response:
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        return await _read(name, lambda watched: _all_since(watched, since, zipped))

    @routes.get("/runs/{name}/events")
    def events(request: Request, name: str, since: str = "") -> Response:
        watched = _watched(hub, find, name)
        if watched is None:
            return _no_run(name)
        if hub.viewers >= MOST_VIEWERS:
            return error(EnvironmentFailure(f"{MOST_VIEWERS} viewers are there already, and more cannot be"), 503)
        return EventStream(_Viewer(watched, request.headers.get("last-event-id", since)).next, watched.viewed)

    @routes.get("/runs/{name}/trials/{number}")
    async def trial(name: str, number: str) -> Response:
        return await _read(name, lambda watched: _about(watched, name, number, detail))

    @routes.get("/runs/{name}/trials/{number}/log")
    async def log(name: str, number: str, after: str = "") -> Response:
        start = int(after) if _is_whole(after) else None
        return await _read(name, lambda watched: _about(watched, name, number, partial(output, start=start)))

    @routes.post("/runs/{name}/commands")
    async def command(request: Request, name: str) -> Response:
        by = await asyncio.to_thread(may_control, request)
        if by is None:
            return error(InputError(f"you may not control {name}"), 403)
        folder = await asyncio.to_thread(find, name)
        if folder is None:
            return _no_run(name)
        try:
            do, arguments = _command(await _body(request))
            waits = partial(commanded, folder, do, arguments, by=by, wait_s=_ANSWERED_WITHIN_S)
            outcome = await asyncio.get_running_loop().run_in_executor(senders, waits)
            return JSONResponse(outcome.as_json())
        except InputError as problem:
            return error(problem, 422)
        except EnvironmentFailure as problem:
            return error(problem, 503)
        except OSError as problem:
            return error(EnvironmentFailure(f"{name} cannot be written: {reason(problem)}"), 503)

    return routes


class _Viewer:
    """What one viewer has already."""

    def __init__(self, watched: Watched, since: str) -> None:
        self._watched, self._since, self._moment = watched, since, -1

    def next(self) -> str | None:
        """The event that he lacks."""
        if not self._watched.is_read:
            return None
        told = self._watched.message(self._since, self._moment)
        if told is None:
            return None
        self._since, self._moment = told.id, told.moment
        return event(told.id, told.data)


def _watched(hub: Hub, find: Find, name: str) -> Watched | None:
    folder = find(name)
    return None if folder is None else hub.watched(folder)


async def _is_read(watched: Watched) -> bool:
    """Waits until the journal was read once."""
    loop, is_new = asyncio.get_running_loop(), asyncio.Event()
    with watched.viewed(lambda: wake(loop, is_new)):
        if not watched.is_read:
            try:
                async with asyncio.timeout(_READ_WITHIN_S):
                    await is_new.wait()
            except TimeoutError:
                return False
    return True


def _all_since(watched: Watched, since: str, zipped: bool) -> Response:
    told = watched.message(since, -1)
    assert told is not None  # the state of the moment is new to everybody
    body, headers = told.data.encode(), {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if zipped:
        body, headers = gzip.compress(body, 5), headers | {"Content-Encoding": "gzip"}
    return Response(body, media_type="application/json", headers=headers)


def _about(watched: Watched, name: str, number: str, told: Callable[[ResultSet, Trial], Json]) -> Response:
    """What ``told`` says of a trial."""
    results, wanted = watched.run.results, int(number) if _is_whole(number) else 0
    with watched.lock:
        found = next((trial for trial in results.trials if trial.number == wanted), None)
    if found is None:
        return error(InputError(f"{name} has no trial {number!r}: it has {len(results.trials)}"), 404)
    try:
        return Response(encoded(told(results, found)), media_type="application/json")
    except OSError as problem:
        return error(EnvironmentFailure(f"the output of trial {found.label}: {reason(problem)}"), 503)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


async def _body(request: Request) -> bytes:
    """Of a request. Raises InputError if it is too long, or no JSON."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("a command is JSON: send Content-Type: application/json")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_COMMAND:
            raise InputError(f"a command has at most {_LONGEST_COMMAND} bytes")
    return body


def _command(body: bytes) -> tuple[str, Json]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("a command is JSON, and this is not") from None
    match told:
        case {"do": str(do), "arguments": dict(arguments)} if do != LIMIT:
            return do, arguments
        case {"do": str(do)} if do == LIMIT:
            raise InputError(f"{do}: a page limits no search; to let one wait, send `pause`")
    raise InputError('a command is {"do": KIND, "arguments": {…}}')


def error(problem: TunerError, status: int) -> JSONResponse:
    """The answer that tells of a problem."""
    told = {"message": str(problem), "exit_status": problem.exit_status, "problems": []}
    return JSONResponse({"error": told}, status)


def _no_run(name: str) -> JSONResponse:
    return error(InputError(f"there is no run {name!r}"), 404)
