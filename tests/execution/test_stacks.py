"""Which processes are asked for their stacks by a signal that would end any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tuner.execution.stacks import send

READY = "print(flush=True); input()"
ANSWERS = f"from tuner.execution.stacks import answer_signal; answer_signal(); {READY}"


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *asked: found.append(asked))
    return found


@pytest.mark.parametrize(
    ("name", "code", "asked"),
    [
        ("ray::Trial.next_reports", ANSWERS, True),
        ("ray::Trial.next_reports", READY, False),  # still importing: it would die
        ("another program", ANSWERS, False),  # the number of a process that has died
    ],
)
def test_only_a_process_of_rays_that_answers_is_signalled(
    signalled: list[tuple[int, int]], name: str, code: str, asked: bool
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([name, "-c", code], executable=sys.executable, env=environment, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        send(process.pid)
        process.communicate(b"\n")
    assert signalled == ([(process.pid, signal.SIGUSR1)] if asked else [])


def test_a_process_that_is_gone_is_not_signalled(signalled: list[tuple[int, int]]) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    send(process.pid)
    assert signalled == []
