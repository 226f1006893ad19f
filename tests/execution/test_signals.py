"""Signals that ask a search to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tuner.execution.local_cluster import _without_hangups
from tuner.search.control import STOPPING, SearchControl


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) is handler
        signal.signal(number, handler)


def send(*numbers: int) -> SearchControl:
    """To this process, one after the other, while a search runs."""
    control, said = SearchControl(), list[str]()
    with control.on_interrupt(said.append):
        for number in numbers:
            os.kill(os.getpid(), number)
    assert said == [STOPPING]
    return control


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_asks_running_trials_to_save(number: signal.Signals) -> None:
    control = send(number)
    assert (control.interrupted, control.finished, control.reason) == (True, False, number.name)


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGHUP, signal.SIGINT)])
def test_the_second_ends_the_search_at_once(numbers: tuple[int, int]) -> None:
    with pytest.raises(KeyboardInterrupt):
        send(*numbers)


def test_a_terminal_that_is_gone_says_so_more_than_once() -> None:
    assert send(signal.SIGHUP, signal.SIGHUP, signal.SIGHUP).reason == "SIGHUP"
    assert send(signal.SIGINT, signal.SIGHUP).reason == "SIGINT"


def test_nohup_is_obeyed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        control = SearchControl()
        with control.on_interrupt(lambda text: None):
            os.kill(os.getpid(), signal.SIGHUP)
        assert not control.interrupted
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_that_ray_starts_outlives_the_terminal_and_nothing_is_lost_meanwhile() -> None:
    control = SearchControl()
    with control.on_interrupt(lambda text: None):
        with _without_hangups():
            child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            os.kill(os.getpid(), signal.SIGHUP)
        # It waited, or another thread of this process took it: then Python calls the handler a moment later.
        until = time.monotonic() + 10
        while not control.interrupted and time.monotonic() < until:
            time.sleep(0.001)
        assert control.interrupted
    child.send_signal(signal.SIGHUP)
    child.communicate(b"\n")
    assert child.returncode == 0
