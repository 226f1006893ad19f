"""The routes below ``/v1``, for programs: the command line, the Python client, and others."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from tuner.actions.control import command
from tuner.documents.service import (
    ClusterStatus,
    CommandAnswer,
    KeptCode,
    Me,
    SearchLog,
    StoppedSearch,
    TeamSearch,
    UserUse,
)
from tuner.errors import InputError
from tuner.experiment.spec import check_name
from tuner.runs.commands import LIMIT
from tuner.service.auth import found_token, user_of
from tuner.service.check import Checked, check
from tuner.service.code_store import CodeStore
from tuner.service.errors import RESPONSES, NameTaken, NoSuchSearch, NotAllowed
from tuner.service.files import stream
from tuner.service.interface import Entry, Queue, Submission
from tuner.service.requests import CommandRequest, SubmitRequest
from tuner.spec.document import dump_yaml, plain
from tuner.storage.folder import RunFolder

ANSWER_S = 10.0
"""How long a request waits for the answer of a running search to a command."""

_TAKES_COMMANDS = ("running", "paused", "stopping")

_CHECKS = 2
"""Experiments that are checked at the same time: each check is a process that imports torch."""

_SLOW = 16
"""Requests at the same time that wait for the cluster or for a search: the others have threads of their own."""


_LIST = TypeAdapter(list[TeamSearch])


class Api:
    """What the routes do."""

    def __init__(self, queue: Queue, storage: RunFolder, mlflow: str | None) -> None:
        self.queue, self.storage, self.mlflow = queue, storage, mlflow
        self.code = CodeStore(storage)
        self._naming = threading.Lock()
        self._checks = CapacityLimiter(_CHECKS)
        self._check_turns: dict[str, CapacityLimiter] = {}
        self.slow = CapacityLimiter(_SLOW)
        self._listed: tuple[Sequence[Entry], bytes] = (), b"[]"

    def entry(self, name: str) -> Entry:
        """The search. Raises NoSuchSearch."""
        try:
            return self.queue.entry(name)
        except InputError as error:
            raise NoSuchSearch(str(error)) from None

    def listed(self, user: str | None, state: str | None) -> bytes:
        """Searches of one user or all, in one state or any, as JSON. That of all is made once, until one changes."""
        entries = self.queue.entries()
        if user is not None or state is not None:
            return _json([one for one in entries if user in (None, one.user) and state in (None, one.state)])
        if entries is not self._listed[0]:
            self._listed = entries, _json(entries)
        return self._listed[1]

    def may_control(self, user: str, name: str) -> bool:
        """Whether the search is the user's, or all searches are."""
        return self.entry(name).user == user or self.queue.is_admin(user)

    def owned(self, user: str, name: str) -> Entry:
        """The search, which the user may control. Raises NotAllowed."""
        found = self.entry(name)
        if not self.may_control(user, name):
            raise NotAllowed(f"search {name!r} is {found.user}'s: only {found.user} or an admin may control it")
        return found

    def run(self, name: str) -> RunFolder:
        """The run folder of a search."""
        return self.storage / check_name(self.entry(name).name)

    def known(self, user: str, asked: SubmitRequest) -> Entry | None:
        """The search of the same request, if it was sent before."""
        if asked.request is None:
            return None
        found = (one for one in self.queue.entries() if one.user == user and one.request == asked.request)
        return next(found, None)

    async def submit(self, user: str, asked: SubmitRequest) -> Entry:
        """Checks a search and queues it. Raises InputError as `validate` does, and NameTaken."""
        if known := await to_thread.run_sync(self.known, user, asked):
            return known
        submission = await to_thread.run_sync(_submission, user, asked)
        turn = self._check_turns.setdefault(user, CapacityLimiter(1))  # else slow checks of one user fill all places
        async with turn:
            checked = await to_thread.run_sync(self._checked, submission, limiter=self._checks)
        return await to_thread.run_sync(self._queued, user, asked, submission, checked)

    def _checked(self, submission: Submission) -> Checked:
        has_gpus = self.queue.status().unit == "GPU"
        with tempfile.TemporaryDirectory(prefix="tuner-check-") as folder:
            file = self.code.lay_out(submission, Path(folder))
            return check(Path(folder), file, list(submission.overrides), has_gpus, self.mlflow)

    def _queued(self, user: str, asked: SubmitRequest, submission: Submission, checked: Checked) -> Entry:
        with self._naming:  # the same request may be here twice, and two searches may want one name
            if known := self.known(user, asked):
                return known
            taken = {one.name for one in self.queue.entries()}
            name = asked.name or _free_name(checked.name, taken)
            if name in taken or (self.storage / name).exists():
                raise NameTaken(f"--name {name!r} is taken: a run is never overwritten; choose another name")
            overrides = (*submission.overrides, *checked.overrides)
            needs = {"per_trial": checked.per_trial, "trials": checked.trials}
            whole = Submission(**(vars(submission) | {"name": name, "overrides": overrides} | needs))
            if problem := self.queue.check(whole):
                raise InputError(problem)
            return self.queue.submit(whole)

    def log(self, name: str, offset: int) -> SearchLog:
        """Output of the search's job, from a character on; all if it is shorter: then it is that of another job.

        Raises NoSuchSearch and EnvironmentFailure.
        """
        state = self.entry(name).state  # first: what is printed before the end is in the log then
        log = self.queue.log(name)
        return SearchLog(name=name, log=log[offset if offset <= len(log) else 0 :], offset=len(log), state=state)

    def sent(self, user: str, name: str, do: str, arguments: dict[str, Any]) -> CommandAnswer:
        """Has a running search carry out a command. Raises as `tuner.actions.control.command`."""
        state = self.owned(user, name).state
        if state not in _TAKES_COMMANDS:
            remedy = f"; to continue it: tuner resume {name} --service URL" if state in ("failed", "stopped") else ""
            raise InputError(f"{do}: search {name!r} ({state}) takes commands only while it runs{remedy}")
        if do == LIMIT:
            raise InputError(f"{do}: only the queue limits searches; to let one wait, send `pause`")
        outcome = command(self.run(name), do, arguments, by=user, wait_s=ANSWER_S)
        return CommandAnswer(id=outcome.id, done=outcome.done, reason=outcome.reason, trials=list(outcome.trials))

    async def keep_code(self, sha256: str, request: Request) -> None:
        """Keeps the body of a request as code. Raises InputError."""
        with tempfile.TemporaryFile() as file:
            async for chunk in request.stream():
                await to_thread.run_sync(file.write, chunk)
            file.seek(0)
            await to_thread.run_sync(self.code.put, sha256, file)

    def files(self, name: str) -> Iterator[bytes]:
        """The run folder's files, as a stream. Raises NoSuchSearch if it has none yet."""
        folder = self.run(name)
        if not folder.exists():
            raise NoSuchSearch(f"search {name!r} has no files yet: it has not begun")
        return stream(folder)


def _submission(user: str, asked: SubmitRequest) -> Submission:
    """Without what only the check of the experiment finds out."""
    if (asked.experiment is None) == (asked.file is None):
        raise InputError("give `experiment` (its text, or a mapping) or `file` (a file of the code), and not both")
    text = asked.experiment
    if isinstance(text, dict):
        text = dump_yaml(plain(text, "experiment"), []).decode()
    name, request = asked.name or "experiment", asked.request or uuid.uuid4().hex
    more = {"priority": asked.priority, "versions": asked.versions}
    return Submission(user, name, request, asked.file, text, tuple(asked.set), asked.code, **more)  # type: ignore[arg-type]


def _free_name(experiment: str, taken: set[str]) -> str:
    """The experiment's name with the time, and a number if there is such a search."""
    first = f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (first if number == 1 else f"{first}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _shown(entry: Entry) -> TeamSearch:
    return TeamSearch.model_validate(entry, from_attributes=True)


def _json(entries: Sequence[Entry]) -> bytes:
    """The latest first."""
    return _LIST.dump_json([_shown(one) for one in sorted(entries, key=lambda one: -one.submitted)])


def routes(api: Api) -> APIRouter:
    """All routes below ``/v1``."""
    v1 = APIRouter(prefix="/v1", responses=RESPONSES)

    @v1.get("/me")
    def me(request: Request) -> Me:
        """Whose token asks."""
        token = found_token(request)
        return Me(user=token.user, admin=api.queue.is_admin(token.user), expires=token.expires)

    @v1.get("/code/{sha256}")
    def known_code(sha256: str) -> KeptCode:
        """Whether the service has this code: then it need not be sent."""
        if not api.code.has(sha256):
            raise NoSuchSearch(f"code {sha256}: not here")
        return KeptCode(sha256=sha256)

    @v1.put("/code/{sha256}")
    async def send_code(sha256: str, request: Request) -> KeptCode:
        """Send code: a .tar.gz of plain files, at most 50 MiB, under the sha256 of its bytes."""
        await api.keep_code(sha256, request)
        return KeptCode(sha256=sha256)

    @v1.post("/searches", status_code=201)
    async def submit(request: Request, asked: SubmitRequest) -> TeamSearch:
        """Queue a search, after it was checked as `tuner validate` does."""
        return _shown(await api.submit(user_of(request), asked))

    @v1.get("/searches", response_model=list[TeamSearch])
    def searches(
        user: Annotated[str | None, Query(description="Of this user alone.")] = None,
        state: Annotated[str | None, Query(description="In this state alone.")] = None,
    ) -> Response:
        """All searches of all users, the latest first."""
        return Response(api.listed(user, state), media_type="application/json")

    @v1.get("/searches/{name}")
    def search(name: str) -> TeamSearch:
        """One search."""
        return _shown(api.entry(name))

    @v1.get("/searches/{name}/logs")
    async def logs(name: str, offset: Annotated[int, Query(ge=0)] = 0) -> SearchLog:
        """Output of the search's last job, from a character on; all of it if it is shorter than that."""
        return await to_thread.run_sync(api.log, name, offset, limiter=api.slow)

    @v1.get("/searches/{name}/files", response_class=Response, responses={200: {"content": {"application/x-tar": {}}}})
    def files(name: str) -> StreamingResponse:
        """All files of the run folder, as a tar archive."""
        return StreamingResponse(api.files(name), media_type="application/x-tar")

    @v1.post("/searches/{name}/stop")
    def stop(request: Request, name: str) -> StoppedSearch:
        """End a search of yours, or take it out of the queue."""
        user = user_of(request)
        api.owned(user, name)
        return StoppedSearch(name=name, was_running=api.queue.stop(name, user))

    @v1.post("/searches/{name}/resume")
    def resume(request: Request, name: str) -> TeamSearch:
        """Queue a search of yours again that ended before its end."""
        user = user_of(request)
        api.owned(user, name)
        return _shown(api.queue.resume(name, user))

    @v1.post("/searches/{name}/commands")
    async def commands(request: Request, name: str, asked: Annotated[CommandRequest, Body()]) -> CommandAnswer:
        """Send a command to a running search of yours, and wait for its answer."""
        words = (user_of(request), name, asked.do, asked.arguments)
        return await to_thread.run_sync(api.sent, *words, limiter=api.slow)

    @v1.get("/cluster")
    def cluster() -> ClusterStatus:
        """How the cluster stands, and what each user has of it."""
        now = api.queue.status()
        users = {name: UserUse(gpus=use.gpus, owed=use.owed, hours=use.hours) for name, use in now.users.items()}
        known = {name: getattr(now, name) for name in ("unit", "gpus", "reserved", "in_use", "problem")}
        return ClusterStatus(users=users, **known)

    return v1
