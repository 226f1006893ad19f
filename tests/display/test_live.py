"""What a terminal shows while a search runs, as a terminal emulator sees it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyte
import pytest
from rich.console import Console

from tests.runs.test_results import new_run, report, trial
from tuner.display.choice import progress_on
from tuner.display.dashboard import render
from tuner.display.live import LiveProgress
from tuner.display.plain import PlainProgress
from tuner.display.terminal import TerminalCapture
from tuner.execution.gpus import Gpu, Gpus
from tuner.experiment.reader import load_experiment
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet, Used

COST = {"per_gpu_hour": 3, "max": 9}
SPEC = load_experiment(
    {
        "trainable": "t:train",
        "search_space": {"lr": {"uniform": [0, 1]}},
        "objective": {"metric": "acc", "mode": "max"},
        "scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 9, "grace_period": 1, "reduction_factor": 3},
        "budget": {
            "trials": 60,
            "wall_clock": 600,
            "epochs": 300,
            "gpu_hours": 2,
            "cost": {"per_gpu_hour": 3, "max": 9},
        },
    }
).spec
GPUS = [Gpu(k, 87, 12 * 2**30, 80 * 2**30, watts) for k, watts in enumerate((None, 412.6))]
NOW = 1e9 + 4
"""In seconds since 1970: as `tests.runs.test_results.report` counts, a second after the third report."""


def search(folder: Path, running: int = 2) -> ResultSet:
    results = new_run(folder)
    results.provenance |= {"trials": 60, "slots": 2, "seed": 0, "trial_resources": {"GPU": 0.5}}
    results.used = Used(elapsed=125.0, epochs=88, held_seconds=1800)
    config = {"lr": 0.012345, "optimizer": "adam", "note": "quite long", "layers": [64, 64, 64], "dropout": 0.25}
    trial(results, 0.5, 0.9, 0.7, config=config).reports[-1].metrics["epoch"] = 9
    trial(results, 0.4).status = "stopped"
    broken = trial(results)
    broken.status, broken.reason = "failed", "RuntimeError: " + "very long " * 20
    broken.failures = [Failure("exception", broken.reason, 0, None, True)]
    for _ in range(running):
        made = trial(results, config=config)
        made.status = "running"
        for epoch in (1, 2, 3):
            made.best = report(made, 0.1 * epoch, epoch=epoch)
    return results


def lines_of(results: ResultSet, columns: int = 80, lines: int = 24, **options: Any) -> list[str]:
    """What the emulator shows; nothing may have been wrapped or have scrolled away."""
    size = os.terminal_size((columns, lines))
    causes = [f"#{k} failed: {results.trials[2].reason}" for k in range(3, 8)]
    shown = render(results, SPEC, options.get("causes", causes), options.get("gpus", GPUS), size, NOW)
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=columns, height=lines).print(shown)
    written = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()).splitlines()
    assert all(len(line) <= columns for line in written)
    assert len(written) < lines
    return written


def test_80_by_24_holds_all_that_matters(tmp_path: Path) -> None:
    assert lines_of(search(tmp_path / "r")) == [
        "r: 1 completed, 1 stopped, 1 failed, 2 running",
        "trials 5, 55 left · time 2m05s, 7m55s left · epochs 88, 212 left",
        "GPU hours 0.25, 1.75 left · cost 0.75, 8.25 left",
        "best: acc 0.9, trial #1, step 2",
        "      lr 0.01235, optimizer adam, note quite long, layers [64, 64, 64]",
        "      dropout 0.25",
        "trials at rung (epoch):  1: 4  3: 3  9: 1",
        "GPU 0 87 %, 12.0 of 80.0 GiB · GPU 1 87 %, 12.0 of 80.0 GiB, 413 W",
        "failed attempts: 1 (1 exception)",
        *(f"#{k} failed: RuntimeError: {'very long ' * 20}"[:79] + "…" for k in (5, 6, 7)),
        "trial  epoch  rung  acc  best  s/report  ETA   configuration",
        "#4     3      9     0.3  0.3   0.5       2.0s  lr 0.01235, optimizer adam, note…",
        "#5     3      9     0.3  0.3   0.5       2.0s  lr 0.01235, optimizer adam, note…",
    ]


def test_10_lines_keep_the_best_the_latest_failure_and_some_trials(tmp_path: Path) -> None:
    shown = lines_of(search(tmp_path / "r", running=40), lines=10)
    assert shown[0].startswith("r: 1 completed")
    assert shown[1].startswith("trials 43, 17 left")
    assert shown[2] == "best: acc 0.9, trial #1, step 2"
    assert shown[5].startswith("#7 failed: RuntimeError")
    assert shown[-1] == "and 39 more"


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("lines", [4, 10, 24, 60])
@pytest.mark.parametrize("running", [0, 1, 100])
def test_no_size_makes_a_line_wrap(tmp_path: Path, columns: int, lines: int, running: int) -> None:
    results = search(tmp_path / "r", running)
    results.trials[0].config["note"] = "学习率" * 20
    shown = lines_of(results, columns, lines)
    if lines == 60:
        assert shown[-1].startswith("and " if running == 100 else "#4" if running else "")


def test_before_the_first_report_there_is_nothing_to_compare(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    results.provenance |= {"trials": 60, "trial_resources": {}}
    assert lines_of_nothing(results)[:3] == ["r: starting", "trials 0, 60 left", "best: no trial has reported yet"]
    trial(results).status = "running"
    assert lines_of_nothing(results)[-1] == "#1     0      1"


def lines_of_nothing(results: ResultSet) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=80).print(render(results, SPEC, [], [], os.terminal_size((80, 24)), NOW))
    return [line.rstrip() for line in file.getvalue().splitlines()]


class Terminal:
    """A pseudo-terminal with an emulator at its other end."""

    def __init__(self, columns: int, lines: int) -> None:
        self._master, slave = pty.openpty()
        self.file = os.fdopen(slave, "w", encoding="utf-8", buffering=1)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)

    def read(self) -> None:
        """Takes in what was written so far."""
        os.set_blocking(self._master, False)
        try:
            while data := os.read(self._master, 65536):
                self.raw += data
                self._stream.feed(data)
        except BlockingIOError:
            return

    @property
    def lines(self) -> list[str]:
        self.read()
        return [line.rstrip() for line in self._screen.display if line.strip()]

    def close(self) -> None:
        self.file.close()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("NO_COLOR", "CI", "JPY_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    opened = Terminal(80, 24)
    yield opened
    opened.close()


def live_on(terminal: Terminal, kind: type[LiveProgress] = LiveProgress) -> LiveProgress:
    screen = SimpleNamespace(file=terminal.file, above=None, take=lambda results: None, release=lambda: None)
    screen.say = lambda text: terminal.file.write(text + "\n")
    return kind(screen, SPEC)  # type: ignore[arg-type]


def test_it_redraws_in_place_below_what_is_said_and_leaves_nothing(tmp_path: Path, terminal: Terminal) -> None:
    results = search(tmp_path / "r")
    live = live_on(terminal)
    live.started(results)
    assert terminal.lines[0].startswith("r: 1 completed")
    live._screen.above("NOTICE: other data")  # type: ignore[misc]
    results.trials[3].status = "completed"
    live._next = 0
    live.tick()
    assert terminal.lines[:2] == ["NOTICE: other data", "r: 2 completed, 1 stopped, 1 failed, 1 running"]
    live.finished(results)
    assert terminal.lines[:2] == ["NOTICE: other data", "NOTICE: other data"]  # said above, and in the last words
    assert not any("left" in line for line in terminal.lines)
    assert terminal.raw.count(b"\x1b[?2026h") == terminal.raw.count(b"\x1b[?2026l") == 2


def test_a_terminal_that_is_resized_is_drawn_anew(tmp_path: Path, terminal: Terminal) -> None:
    live = live_on(terminal)
    live.started(search(tmp_path / "r", running=30))
    for columns, lines in ((40, 10), (120, 50), (30, 6)):
        terminal.resize(columns, lines)
        live._next = 0
        live.tick()
        shown = terminal.lines
        assert shown[0].startswith("r: 1 completed")
        assert sum("best: acc 0.9" in line for line in shown) == 1
        assert len(shown) < lines


def test_a_terminal_that_does_not_know_its_size_is_taken_for_a_usual_one(tmp_path: Path, terminal: Terminal) -> None:
    fcntl.ioctl(terminal.file, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    live_on(terminal).started(search(tmp_path / "r"))
    assert terminal.lines[1].startswith("trials 5, 55 left")


class FakeNvml:
    """A driver with two GPUs, of which the first is split with MIG; counts how often it is asked."""

    class NVMLError(Exception):
        pass

    def __init__(self, broken: bool = False) -> None:
        self.asked = 0
        self._broken = broken

    def nvmlInit(self) -> None:
        if self._broken:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, i: int) -> int:
        return i

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        self.asked += 1
        if handle == 0:
            raise self.NVMLError("not supported")
        return SimpleNamespace(gpu=87)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=3, total=8)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 71_500  # milliwatts


def test_gpus_are_asked_now_and_then_and_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeNvml()
    # the module may not be imported yet: it depends on the tests that ran before in this process
    monkeypatch.setattr("ray._private.thirdparty.pynvml", driver, raising=False)
    gpus = Gpus()
    assert [gpus.read() for _ in range(5)] == [(Gpu(1, 87, 3, 8, 71.5),)] * 5
    assert driver.asked == 2
    monkeypatch.setattr("ray._private.thirdparty.pynvml", FakeNvml(broken=True))
    assert Gpus().read() == ()


def coloured(raw: bytes) -> bool:
    codes = re.findall(rb"\x1b\[([\d;]*)m", raw)
    return any(30 <= int(part or 0) <= 49 or int(part or 0) >= 90 for code in codes for part in code.split(b";"))


@pytest.mark.parametrize("no_color", [False, True])
def test_no_color_is_respected(
    tmp_path: Path, terminal: Terminal, no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    live = live_on(terminal)
    live.started(search(tmp_path / "r"))
    terminal.read()
    assert coloured(terminal.raw) is not no_color


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, LiveProgress),
        ({"CI": "true"}, PlainProgress),
        ({"JPY_PARENT_PID": "7"}, PlainProgress),
        ({"TERM": "dumb"}, PlainProgress),
    ],
)
def test_where_a_terminal_only_collects_text_there_are_plain_lines(
    terminal: Terminal, variables: dict[str, str], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    screen = TerminalCapture()
    screen.file = terminal.file
    assert type(progress_on(screen, SPEC)) is kind
    screen.file = io.StringIO()
    assert type(progress_on(screen, SPEC)) is PlainProgress
