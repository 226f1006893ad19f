"""Brings messages to people: by one HTTP POST each, in the form of the service, and by a command."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.experiment.notify import Form, Notify, form_of
from tuner.printable import printable
from tuner.tracking.messages import Message

_TIMEOUT_S = 10.0
"""For an answer to a POST."""

_COMMAND_S = 30.0
"""For a command."""

_RETRY_S, _LONGEST_RETRY_S = 5.0, 300.0
"""Between two tries: twice as long after each, up to the second."""

_LAST_TRIES = 3
"""How often the messages that are left are tried at the end of the search."""

_MOST = 100
"""Messages that wait at most; the oldest go first."""

_LONGEST = 1500
"""Characters of a text, which the services take."""


class _Refused(EnvironmentFailure):
    """The service will never take this message."""


def address(options: Notify) -> str:
    """The address that gets messages; '' if there is none. Raises InputError if the environment does not tell."""
    url = options.url or ""
    if not url.startswith("$"):
        return url
    found = os.environ.get(url[1:], "").strip()
    if not found:
        raise InputError(f"notify.url: the environment has no variable {url[1:]}: export it where the search starts")
    if urllib.parse.urlsplit(found).scheme not in ("http", "https"):
        raise InputError(f"notify.url: the variable {url[1:]} holds no address that begins with http:// or https://")
    return found


def body(form: Form, message: Message) -> tuple[bytes, str]:
    """What is posted, and its content type.

    Names and reasons come from trials and users, so nothing in them may address people or be markup.
    """
    text = _line(message)[:_LONGEST]
    content: dict[str, Any]
    match form:
        case "slack":
            escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            content = {"text": escaped}
        case "discord":
            content = {"content": text, "allowed_mentions": {"parse": []}}
        case "teams":
            card = {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.2",
                "body": [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text}]}],
            }
            attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
            content = {"type": "message", "attachments": [attachment]}
        case "ntfy":
            return text.encode(), "text/plain; charset=utf-8"
        case "json":
            content = message.as_json()
    return json.dumps(content).encode(), "application/json"


def _line(message: Message) -> str:
    """Its text, in one line that prints."""
    return printable(" ".join(message.text.split()))


class Delivery:
    """The messages that wait, and the ways by which they go."""

    def __init__(self, options: Notify, say: Callable[[str], None]) -> None:
        """``say`` gets each notice for the user. Raises InputError as `address` does."""
        self._say = say
        self._ways: list[_Way] = []
        if url := address(options):
            self._ways.append(_Way("notify.url", lambda message: _post(url, options.form or form_of(url), message)))
        if command := options.command:
            self._ways.append(_Way("notify.command", lambda message: _run(command, message)))

    def try_out(self, name: str) -> None:
        """Sends a test message for the experiment ``name``. Raises EnvironmentFailure if a way does not take it."""
        for way in self._ways:
            try:
                way.deliver(Message("test", f"{name}: a test message of tuner doctor", {"experiment": name}))
            except EnvironmentFailure as error:
                raise EnvironmentFailure(f"{way.name}: {error}") from None

    def put(self, messages: list[Message]) -> None:
        """They are to be sent."""
        for way in self._ways:
            way.waiting.extend(messages)

    def step(self) -> None:
        """Sends what waits, by each way that did not fail just now."""
        for way in self._ways:
            while way.waiting and time.monotonic() >= way.not_before and way.send(self._say):
                pass

    def close(self) -> None:
        """Sends what is left, or says that it could not."""
        for way in self._ways:
            for left in range(_LAST_TRIES - 1, -1, -1):
                while way.waiting and way.send(self._say):
                    pass
                if not way.waiting:
                    break
                time.sleep(_RETRY_S if left else 0)
            if way.waiting:
                self._say(f"{way.name}: {len(way.waiting)} not sent, the last of them: {way.waiting[-1].text}")


class _Way:
    """One way by which messages go, in their order."""

    def __init__(self, name: str, send: Callable[[Message], None]) -> None:
        self.name = name
        self.waiting: deque[Message] = deque(maxlen=_MOST)
        self.not_before = 0.0
        self.deliver = send
        self._pause = _RETRY_S
        """After the next failure; longer than at first while the way is closed."""

    def send(self, say: Callable[[str], None]) -> bool:
        """Sends the oldest message; whether the next one may be tried at once."""
        try:
            self.deliver(self.waiting[0])
        except _Refused as error:
            say(f"{self.name}: {error}; this message is dropped: {self.waiting.popleft().text}")
            return True
        except EnvironmentFailure as error:
            if self._pause == _RETRY_S:
                say(f"{self.name}: {error}; the search continues, and messages are sent when they can be")
            self.not_before = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_RETRY_S)
            return False
        self.waiting.popleft()
        self._pause = _RETRY_S
        return True


def _post(url: str, form: Form, message: Message) -> None:
    """Raises EnvironmentFailure, without ``url``, which may be a secret."""
    import requests

    content, kind = body(form, message)
    host = urllib.parse.urlsplit(url).hostname
    try:
        # redirects are not followed, and the answer is not read: only its status counts
        with requests.post(
            url, content, headers={"Content-Type": kind}, timeout=_TIMEOUT_S, allow_redirects=False, stream=True
        ) as answer:
            status = answer.status_code
    except requests.Timeout:
        raise EnvironmentFailure(f"{host} does not answer within {_TIMEOUT_S:g} s") from None
    except requests.ConnectionError:
        raise EnvironmentFailure(f"nothing answers at {host}") from None
    except requests.RequestException as error:
        raise EnvironmentFailure(f"{host} cannot be used ({type(error).__name__})") from None
    if 200 <= status < 300:
        return
    if status in (408, 425, 429) or status >= 500:
        raise EnvironmentFailure(f"{host} answers HTTP {status}")
    raise _Refused(f"{host} refuses a message (HTTP {status}): is the address right, and the form?")


def _run(command: str, message: Message) -> None:
    try:
        done = subprocess.run(
            command,
            shell=True,
            input=json.dumps(message.as_json()).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_COMMAND_S,
            env={**os.environ, "TUNER_TEXT": _line(message), "TUNER_EVENT": message.occasion},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Refused(f"it did not end within {_COMMAND_S:g} s, and was killed") from None
    except OSError as error:
        raise _Refused(f"it cannot be started: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        raise _Refused(f"it ended with status {done.returncode}: {printable(lines[-1])[:200]}")
