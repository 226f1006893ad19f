"""Commands that are called as processes of their own, each with its document: a fault of one harms no other."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.documents.calls import PendingCall
from tuner.errors import InputError, Interrupted

LAST_LINES = 5
"""Lines of a pending command that its document tells."""

_MOST_TAIL_BYTES = 8192
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Answer:
    """What a call gave."""

    document: Any
    failed: bool = False


@dataclass(frozen=True)
class Call:
    """A command that was started."""

    id: str
    command: str
    run: str | None
    survives: bool
    lasts: bool
    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path
    interrupted: threading.Event = field(default_factory=threading.Event)

    def interrupt(self) -> None:
        """Interrupts the command as Ctrl-C does; nothing if it has ended."""
        if self.process.poll() is None:
            self.interrupted.set()
            self.process.send_signal(signal.SIGINT)

    def give_up(self) -> None:
        """The client waits no longer: a command that was not to last is interrupted."""
        if not self.lasts:
            self.interrupt()

    def answer(self, status: int | None) -> Answer:
        """The document of the command, which ended with ``status``; if that is None, that of a pending call."""
        if status is None:
            return Answer(PendingCall(call=self.id, command=self.command, run=self.run, said=self._said()).model_dump())
        try:
            document = finite(json.loads(self.stdout.read_bytes()))
        except ValueError:
            if self.interrupted.is_set():  # before it could say so
                return Answer(failure("interrupted", Interrupted.exit_status), failed=True)
            return Answer(failure("\n".join(self._said()) or _ended(status), status), failed=True)
        return Answer(document, failed=isinstance(document, dict) and {"error", "exit_status"} <= set(document))

    def _said(self) -> list[str]:
        with self.stderr.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-LAST_LINES:]


@dataclass
class Client:
    """Who waits for the answer to one request."""

    started: Call | None = None
    """The command that the request has started."""
    is_gone: bool = False
    """Whether nobody waits any more."""

    def has_started(self, call: Call) -> None:
        """Notes the command."""
        self.started = call
        if self.is_gone:
            call.give_up()

    def go(self) -> None:
        """Waits no longer."""
        self.is_gone = True
        if self.started is not None:
            self.started.give_up()


class Calls:
    """The commands that a server was asked for. Its methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: dict[str, Call] = {}
        self._closed = threading.Event()

    def start(
        self,
        command: str,
        words: Sequence[str],
        *,
        run: str | None = None,
        lasts: bool = False,
        survives: bool = False,
    ) -> Call:
        """Starts a command of the command line. One that ``survives`` has a session of its own."""
        call_id = f"{command}-{secrets.token_hex(4)}"
        stdout, stderr = self._folder / f"{call_id}.json", self._folder / f"{call_id}.txt"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuner", command, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=survives,
            )
        call = Call(call_id, command, run, survives, lasts, process, stdout, stderr)
        self._pending[call_id] = call
        return call

    def find(self, call_id: str) -> Call:
        """The call of that id. Raises InputError if its answer was given before, or it is none of this server's."""
        call = self._pending.get(call_id)
        if call is None:
            raise self._not_pending(call_id)
        return call

    def _not_pending(self, call_id: str) -> InputError:
        known = ", ".join(self._pending) or "none"
        return InputError(f"call: {call_id!r} is not pending here; pending: {known}; a run is found by status and show")

    def settle(self, call: Call, seconds: float | None, client: Client) -> Answer:
        """The answer of a call, which is given once.

        Args:
            call: One that is pending.
            seconds: If they are over before its end, the call stays pending; None: it may last.
            client: Who waits. If he is gone, a call that lasts stays pending.

        Returns:
            The document of the command, or that of a pending call.

        Raises:
            InputError: Its answer was given to another request meanwhile.
        """
        end = math.inf if seconds is None else time.monotonic() + seconds
        while call.process.poll() is None and (left := end - time.monotonic()) > 0:
            if self._closed.is_set() or (client.is_gone and call.lasts):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                call.process.wait(min(left, _LOOK_EVERY_S))
        status = call.process.poll()
        if status is None or (client.is_gone and call.lasts):
            return call.answer(None)
        if self._pending.pop(call.id, None) is None:
            raise self._not_pending(call.id)
        answer = call.answer(status)
        call.stdout.unlink()
        call.stderr.unlink()
        return answer

    def close(self) -> None:
        """Ends all waiting, and interrupts what does not survive the server."""
        self._closed.set()
        for call in list(self._pending.values()):
            if not call.survives:
                call.interrupt()


@contextlib.contextmanager
def calls() -> Iterator[Calls]:
    """The calls of a server, until its end. Searches continue after it."""
    with tempfile.TemporaryDirectory(prefix="tuner-mcp-") as folder:
        started = Calls(Path(folder))
        try:
            yield started
        finally:
            started.close()


def failure(text: str, status: int) -> dict[str, Any]:
    """The document of a call that fails without one of its own."""
    problem = {"file": None, "line": None, "column": None, "key": None, "message": text}
    problems = [problem] if status == InputError.exit_status else []
    return {"error": text, "exit_status": status if status > 0 else 1, "problems": problems}


def finite(value: Any) -> Any:
    """``value`` with null in place of numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ended(status: int) -> str:
    return f"the command ended by signal {-status}" if status < 0 else f"the command ended with exit status {status}"
