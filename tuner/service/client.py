"""A client of the service: from Python what `tuner submit`, `jobs`, `logs`, `stop` and `fetch` do with `--service`."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from tuner.documents.service import ErrorAnswer
from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.jobs.cluster_address import is_loopback
from tuner.jobs.code_bundle import MAX_BYTES
from tuner.redaction import has_secret, redacted
from tuner.runs.file_shapes import checked
from tuner.service.files import unpack
from tuner.service.interface import ENDED
from tuner.storage.folder import reason

ANSWER_S = 180.0
"""How long an answer may take: the check of an experiment imports what it names."""

PATIENCE_S = 60.0
"""For how long a search whose answer was lost is sent again: the service may have been started anew."""

_AGAIN_S, _FOLLOW_S = 1.0, 2.0
_NO_ANSWER = {500, 502, 503, 504}
"""The statuses of a server that ends with requests in work, and of a proxy that finds none."""

_LOST = (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead, TimeoutError)


class Service:
    """A service, with the token of one of its users.

    Every method raises InputError if the service refuses what was asked, and EnvironmentFailure if it does not answer
    or cannot do it now, each with its message.

    Example:
        >>> from tuner.service.client import Service
        >>> Service("http://127.0.0.1:8380", "tuner_…").url
        'http://127.0.0.1:8380'
    """

    def __init__(self, url: str, token: str) -> None:
        """``url``: as `tuner serve` prints it. ``token``: as `tuner token add` prints it."""
        self.url = _checked_url(url)
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise InputError("the token of the service is malformed: `tuner token add` prints one, in one line")
        self._token = token
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if is_loopback(self.url):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy's own loopback is another one
        self._opener = urllib.request.build_opener(*handlers)

    def me(self) -> dict[str, Any]:
        """Whose token it is."""
        return self._object("GET", "/v1/me")

    def submit(
        self,
        experiment: str | Mapping[str, Any] | None = None,
        *,
        file: str | None = None,
        overrides: Sequence[str] = (),
        code: bytes | None = None,
        name: str | None = None,
        priority: int = 0,
        versions: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Queues a search. If the answer is lost, it asks again, and the search is queued once all the same.

        Args:
            experiment: The text of an experiment file, or the same as a mapping.
            file: In place of it: a file of ``code``, or the name of a shipped experiment.
            overrides: As of ``--set``.
            code: A bundle of `tuner.service.code_store.pack`, or None if the cluster has all code.
            name: Of the search; None: the experiment's, with the time.
            priority: Searches with a higher one come first.
            versions: Of Python and packages here; the job refuses other ones of Python and Ray.

        Returns:
            The search, as `search` does.

        Raises:
            InputError: The experiment cannot be run; holds the problems that `validate` finds.
            EnvironmentFailure: The service does not answer.

        Example:
            >>> from tuner.service.client import Service
            >>> service = Service("http://127.0.0.1:8380", token)
            >>> service.submit(file="quickstart", overrides=["budget.trials=4"])["state"]
            'queued'
        """
        asked = {
            "experiment": experiment,
            "file": file,
            "set": list(overrides),
            "code": None if code is None else self.send_code(code),
            "name": name,
            "request": uuid.uuid4().hex,
            "priority": priority,
            "versions": dict(versions or {}),
        }
        give_up = None
        while True:
            try:
                return self._object("POST", "/v1/searches", asked)
            except _AnswerLost as lost:
                give_up = give_up or time.monotonic() + PATIENCE_S
                if time.monotonic() > give_up:
                    remedy = "the search may be queued all the same: `tuner jobs` shows that"
                    raise EnvironmentFailure(f"{lost}; {remedy}") from None
            except _NoConnection:
                if give_up is None or time.monotonic() > give_up:
                    raise
            time.sleep(_AGAIN_S)

    def send_code(self, bundle: bytes) -> str:
        """Sends a bundle, unless the service has it. Returns its sha256."""
        if len(bundle) > MAX_BYTES:
            raise InputError(f"the code has {len(bundle):,} bytes, and at most {MAX_BYTES:,} travel")
        name = hashlib.sha256(bundle).hexdigest()
        try:
            self._object("GET", f"/v1/code/{name}")
        except _NotFound:
            self._object("PUT", f"/v1/code/{name}", bundle)
        return name

    def searches(self, user: str | None = None, state: str | None = None) -> list[dict[str, Any]]:
        """All searches, the latest first; of one user, or in one state, alone."""
        asked = {"user": user, "state": state}
        query = urllib.parse.urlencode({key: value for key, value in asked.items() if value is not None})
        return cast("list[dict[str, Any]]", self._asked("GET", f"/v1/searches?{query}"))

    def search(self, name: str) -> dict[str, Any]:
        """One search: ``name``, ``user``, ``state``, ``position``, ``submitted``, ``priority``, ``reason``."""
        return self._object("GET", _path(name))

    def logs(self, name: str, show: Callable[[str], None], follow: bool = False) -> str:
        """Gives ``show`` what the search's job has printed, and with ``follow`` what it prints until its end.

        Returns:
            The state of the search.
        """
        offset = 0
        while True:
            found = self._object("GET", f"{_path(name, '/logs')}?offset={offset}")
            if found["log"]:
                show(found["log"])
            offset = found["offset"]
            if not follow or found["state"] in ENDED:
                return str(found["state"])
            time.sleep(_FOLLOW_S)

    def fetch(self, name: str, target: Path) -> Path:
        """Copies the run folder of a search below ``target``. Returns the copy."""
        copy = target / name
        with self._open("GET", _path(name, "/files")) as files:
            try:
                self._read_whole(lambda: unpack(cast("BinaryIO", files), copy), name)
            except OSError as error:
                raise EnvironmentFailure(f"{copy} cannot be written: {reason(error)}") from None
        return copy

    def stop(self, name: str) -> bool:
        """Ends a search of yours; whether there was something to stop."""
        return bool(self._object("POST", _path(name, "/stop"))["was_running"])

    def resume(self, name: str) -> dict[str, Any]:
        """Queues a search of yours again that ended before its end."""
        return self._object("POST", _path(name, "/resume"))

    def command(self, name: str, do: str, /, **arguments: Any) -> dict[str, Any]:
        """Sends a command to a running search of yours: ``service.command("q", "stop-trial", trial="3")``."""
        return self._object("POST", _path(name, "/commands"), {"do": do, "arguments": arguments})

    def cluster(self) -> dict[str, Any]:
        """How the cluster stands, and what each user has of it."""
        return self._object("GET", "/v1/cluster")

    # ---- requests

    def _object(self, verb: str, path: str, body: Any = None) -> dict[str, Any]:
        found = self._asked(verb, path, body)
        if not isinstance(found, dict):
            raise self._not_ours()
        return found

    def _asked(self, verb: str, path: str, body: Any = None) -> Any:
        with self._open(verb, path, body) as answer:
            data = self._read_whole(answer.read, path)
        try:
            return json.loads(data)
        except ValueError:
            raise self._not_ours() from None

    def _open(self, verb: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        is_bytes = isinstance(body, bytes)
        data = None if body is None else body if is_bytes else json.dumps(body).encode()
        kind = "application/gzip" if is_bytes else "application/json"
        request = urllib.request.Request(self.url + path, data, method=verb)
        request.add_header("Content-Type", kind)
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return cast("http.client.HTTPResponse", self._opener.open(request, timeout=ANSWER_S))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except urllib.error.URLError as error:
            told = f"{self.url}: {getattr(error.reason, 'strerror', None) or error.reason}"
            if isinstance(error.reason, _LOST) and not isinstance(error.reason, ConnectionRefusedError):
                raise _AnswerLost(told) from None
            raise _NoConnection(f"{told}; does `tuner serve` run there, and is the tunnel to it open?") from None
        except _LOST as error:
            raise _AnswerLost(f"{self.url}: the connection was lost: {_text(error)}") from None
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentFailure(f"{self.url}: {_text(error)}") from None

    def _read_whole(self, read: Callable[[], Any], what: str) -> Any:
        try:
            return read()
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise _AnswerLost(f"{self.url}: the connection was lost in {what}: {_text(error)}") from None

    def _refusal(self, error: urllib.error.HTTPError) -> TunerError:
        """What the service tells, as the error that the command line would have raised itself."""
        if 300 <= error.code < 400:
            return InputError(
                f"{self.url}: it leads elsewhere (HTTP {error.code}): is that the address of the service?"
            )
        try:
            told = checked(ErrorAnswer, json.loads(error.read(MAX_BYTES))).error
        except (ValueError, OSError, http.client.HTTPException):
            told_by = f"{self.url}: HTTP {error.code} {error.reason}"
            if error.code in _NO_ANSWER:
                return _AnswerLost(f"{told_by}: the service does not answer now: it may be starting, or have no room")
            return EnvironmentFailure(f"{told_by}: is that the address of a service?")
        if error.code == http.HTTPStatus.NOT_FOUND:
            return _NotFound(told.message)
        if told.exit_status == InputError.exit_status:
            return InputError([problem.problem for problem in told.problems] or told.message)
        return EnvironmentFailure(f"{self.url}: {told.message}")

    def _not_ours(self) -> EnvironmentFailure:
        return EnvironmentFailure(f"{self.url}: something else than tuner's service answers there")


class _NotFound(InputError):
    """The service has nothing of this name."""


class _NoConnection(EnvironmentFailure):
    """Nothing listens there: the request was not sent."""


class _AnswerLost(EnvironmentFailure):
    """The request was sent, and nobody knows what became of it."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows none: the token is for one server."""

    def redirect_request(self, *arguments: Any) -> None:
        """Nothing: the answer is an error."""


def _path(name: str, rest: str = "") -> str:
    return f"/v1/searches/{urllib.parse.quote(name, safe='')}{rest}"


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _checked_url(url: str) -> str:
    """``url`` without a slash at its end. Raises InputError if it is none, or holds a password."""
    shown = redacted(url, whole=True)
    if has_secret(url):
        raise InputError(f"--service {shown}: an address holds no password; the token is in TUNER_TOKEN or a file")
    try:
        parsed = urllib.parse.urlsplit(url)
        fits = parsed.scheme in ("http", "https") and bool(parsed.hostname) and (parsed.port is None or parsed.port > 0)
        fits = fits and not parsed.query and not parsed.fragment and url.isprintable() and " " not in url
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"--service {shown}: must be an address such as http://127.0.0.1:8380 or https://tuner.team")
    return url.rstrip("/")
