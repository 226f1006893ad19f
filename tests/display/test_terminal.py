"""A terminal that is gone, or slow."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

from tuner.search.control import STOPPING

SPEAK = """
import sys
from tuner.search.control import SearchControl
from tuner.display.terminal import TerminalCapture

control = SearchControl()
with TerminalCapture() as screen, control.on_interrupt(screen.say):
    screen.say("a" * 100)
    sys.stdin.readline()
    screen.say("b" * 200_000)
    screen.say("c")
print(control.interrupted)
"""


def speak() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SPEAK],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "a" * 100 + "\n"
    return process


def unread(pipe: IO[str]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_what_a_terminal_that_is_gone_would_have_shown_is_dropped() -> None:
    process = speak()
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    assert process.communicate("\n") == ("False\n", None)
    assert process.returncode == 0


def test_an_interrupt_in_the_midst_of_a_slow_line_is_told_after_it() -> None:
    process = speak()
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write("\n")
    process.stdin.flush()
    deadline = time.monotonic() + 30
    while unread(process.stderr) < fcntl.fcntl(process.stderr, fcntl.F_GETPIPE_SZ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    shown, said = process.communicate()
    lines = said.splitlines()
    assert lines[0] == "b" * 200_000
    assert sorted(lines[1:]) == sorted(["c", STOPPING])
    assert shown == "True\n"
    assert process.returncode == 0
