"""Records the sessions that the pages show: `python docs/record.py [NAME …]` writes docs/_sessions/NAME.txt.

The commands run in a temporary folder that sees the experiments of this checkout. A session without a name on the
command line is not recorded again. Long lines are folded, and `…` stands for lines that are left out.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_sessions"
WIDTH = 100
SHARED = ("experiments", "search_spaces", "trainables", "cluster")
PACKAGES = ("tuner", "ray", "torch", "optuna")

FLAKY_TRAINING = """\
from ray import tune


def train(config):
    text = open("train.txt").read() if config["row"] == 2 else "1"
    tune.report({"score": config["row"] * float(text)})
"""
FLAKY = """\
trainable: flaky.py:train
search_space: {row: {grid_search: [1, 2, 3]}}
objective: {metric: score, mode: max}
search: {kind: grid}
resources: {cpu: 1, gpu: 0}
"""


_PAGES = ROOT / "docs" / "how-to"


@dataclass(frozen=True)
class Command:
    """A command line, and how much of what it prints is kept."""

    line: str
    head: int = 40
    tail: int = 40
    until: str = ""
    """The text at which ``signal`` is sent to the process."""
    signal: int = 0
    meanwhile: str = ""
    """A command that runs when ``until`` was printed, before the signal."""


Step = Command | Callable[[Path], None]


def _write_flaky(folder: Path) -> None:
    (folder / "flaky.py").write_text(FLAKY_TRAINING)
    (folder / "flaky.yaml").write_text(FLAKY)


def _write_missing(folder: Path) -> None:
    (folder / "train.txt").write_text("1")


def _write_files(page: str, folder: Path) -> None:
    """Those that a page shows: code blocks that begin with the comment of a file's name."""
    blocks = re.findall(r"^```\w+\n(# (\S+\.(?:py|yaml))\n.*?)^```", (_PAGES / page).read_text(), re.M | re.S)
    assert blocks
    for text, name in blocks:
        (folder / name).write_text(text)


_QUICKSTART = Command("tuner run experiments/quickstart.yaml --name q", head=6, tail=8)
_SIX = "tuner run experiments/quickstart.yaml --name k --set budget.trials=6 --set scheduler.variant=promotion"

SESSIONS: dict[str, list[list[Step]]] = {
    "doctor": [[Command("tuner doctor experiments/quickstart.yaml")]],
    "quickstart": [[_QUICKSTART]],
    "results": [[_QUICKSTART], [Command("tuner list"), Command("tuner show q", head=10, tail=0)]],
    "best": [[_QUICKSTART], [Command("tuner best runs/q --test")]],
    "report": [[_QUICKSTART], [Command("tuner report q")]],
    "compare": [
        [_QUICKSTART],
        [
            Command("tuner run experiments/quickstart.yaml --name all --set scheduler.kind=fifo", head=0, tail=4),
            Command("tuner compare q all --target 0.97"),
        ],
    ],
    "export": [[_QUICKSTART], [Command("tuner export q --optuna sqlite:///study.db")]],
    "replay": [[_QUICKSTART], [Command("tuner replay q 5", head=4, tail=2)]],
    "confirm": [[_QUICKSTART], [Command("tuner confirm q --top 3 --seeds 3 --test", head=3, tail=18)]],
    "ctrl-c": [
        [
            Command(
                "tuner run experiments/quickstart.yaml --name c", head=4, tail=12, until="[3/30]", signal=signal.SIGINT
            ),
            Command("tuner resume c", head=2, tail=6),
        ]
    ],
    "kill": [
        [
            Command(_SIX, head=3, tail=0, until="takes the lead", signal=signal.SIGKILL, meanwhile="tuner status k"),
            Command("tuner status k"),
            Command("tuner resume k", head=4, tail=6),
            Command("tuner extend k --trials +2 --max-t 40 --set params.epochs=40", head=2, tail=8),
        ]
    ],
    "narrow": [
        [_QUICKSTART],
        [
            Command(
                "tuner extend q --trials +10 --set search_space.optimizer=sgd "
                "--set 'search_space.lr.loguniform=[0.1, 1.0]'",
                head=2,
                tail=6,
            )
        ],
    ],
    "audit": [
        [
            Command(
                "tuner run experiments/quickstart.yaml --set scheduler.audit=0.1 --set budget.trials=100 "
                "--set budget.wall_clock=null",
                head=0,
                tail=6,
            )
        ],
    ],
    "retry": [
        [_write_flaky],
        [Command("tuner run flaky.yaml --name f", head=0, tail=6)],
        [_write_missing],
        [Command("tuner retry f", head=0, tail=5)],
    ],
    "init_project": [
        [
            Command("tuner init my_project --from images"),
            Command("python -m pytest -q -p no:cacheprovider my_project", head=0, tail=1),
        ]
    ],
    "init_script": [
        [partial(_write_files, "start-a-project.md")],
        [
            Command("tuner init --from train.py"),
            Command("cat search.yaml"),
            Command("tuner run search.yaml --name s", head=2, tail=4),
        ],
    ],
    "objectives": [
        [
            Command(
                "tuner run experiments/quickstart.yaml --name two "
                "--set 'objective=[{metric: val_accuracy, mode: max}, {metric: train_loss, mode: min}]'",
                head=0,
                tail=9,
            )
        ]
    ],
    "limits": [
        [partial(_write_files, "limit-what-trials-report.md")],
        [Command("tuner run mlp.yaml --name small", head=0, tail=7), Command("tuner show small", head=10, tail=0)],
    ],
    "messages": [
        [
            Command(
                "tuner run experiments/quickstart.yaml --name m --set 'notify={command: cat > message.json}'",
                head=0,
                tail=1,
            ),
            Command("python -m json.tool message.json"),
        ]
    ],
    "repeat": [
        [partial(_write_files, "repeat-over-seeds-or-folds.md")],
        [Command("tuner run folds.yaml --name folds", head=2, tail=6)],
    ],
    "digits_random": [
        [Command("tuner run experiments/digits_random.yaml --name d", head=2, tail=6)],
        [Command("tuner export d --table digits.parquet")],
    ],
    "digits_grid": [[Command("tuner run experiments/digits_grid.yaml --name grid", head=2, tail=8)]],
    "cifar": [
        [Command("tuner run experiments/cifar_asha.yaml --name cifar", head=7, tail=10)],
        [Command("tuner best runs/cifar --test")],
    ],
}
"""Each session: groups of steps. A group that equals one of an earlier session is its preparation: it is not repeated,
and not shown again."""


def record(names: list[str], folder: Path) -> None:
    """Runs the sessions in ``folder`` and writes one file for each."""
    for name in SHARED:
        (folder / name).symlink_to(ROOT / name)
    done: list[list[Step]] = []
    for name in names:
        lines: list[str] = []
        for group in SESSIONS[name]:
            if group in done:
                continue
            done.append(group)
            shown = [line for step in group for line in _perform(step, folder)]
            if group is not _preparation(name):
                lines += shown
        if lines:
            write(name, lines)


def _preparation(name: str) -> list[Step] | None:
    groups = SESSIONS[name]
    return groups[0] if len(groups) > 1 and groups[0] == [_QUICKSTART] else None


def write(name: str, lines: list[str], by: str = "docs/record.py") -> None:
    """Keeps a session, with where it was recorded."""
    packages = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    host = f"{os.cpu_count()} CPU cores ({platform.machine()}), {platform.system()}, Python {platform.python_version()}"
    load = f"load average {os.getloadavg()[1]:.1f}"
    header = [f"# Recorded by {by} on {datetime.date.today()}: {host};", f"# {packages}; {load}."]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text(without_paths("\n".join([*header, *lines]) + "\n"))
    print(f"{name}: {len(lines)} lines", file=sys.stderr)


def without_paths(text: str) -> str:
    """The text without the place of this checkout and of its Python, which differ on every machine."""
    return text.replace(sys.prefix, ".venv").replace(str(ROOT), ".")


def _perform(step: Step, folder: Path) -> Iterator[str]:
    if not isinstance(step, Command):
        step(folder)
        return
    yield from typed(step.line)
    process = _start(step.line, folder)
    printed: list[str] = []
    between: list[str] = []
    sent = False
    assert process.stdout is not None
    for line in process.stdout:
        printed.append(line.rstrip("\n"))
        if step.until and step.until in line and not sent:
            sent = True
            if step.meanwhile:
                time.sleep(1)  # some epochs, so that there is something to see
                between = [f"$ {step.meanwhile}", *_output(step.meanwhile, folder)]
            process.send_signal(step.signal)
            if step.signal == signal.SIGINT:
                printed.append("^C")
            else:
                between.append(f"$ kill -9 {process.pid}")
    process.wait()
    shown = shorten(printed, step.head, step.tail)
    yield from (part for line in [*shown, *between] for part in fold(line))


def _start(line: str, folder: Path) -> subprocess.Popen[str]:
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
    return subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _output(line: str, folder: Path) -> list[str]:
    return _start(line, folder).communicate()[0].splitlines()


def shorten(lines: list[str], head: int, tail: int) -> list[str]:
    """The first and the last ones."""
    if len(lines) <= head + tail:
        return lines
    return [*lines[:head], "…", *(lines[-tail:] if tail else [])]


def typed(line: str, prompt: str = "$") -> list[str]:
    """A command as one types it: if it is long, on several lines that end with a backslash."""
    lines = [prompt]
    for part in re.split(r" (?=--)", line):
        if len(lines[-1]) + len(part) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {part}"
    return lines


def fold(line: str) -> list[str]:
    """A line as several ones, if it is long."""
    if len(line) <= WIDTH:
        return [line.rstrip()]
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=" " * 8,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        record(sys.argv[1:] or list(SESSIONS), Path(scratch))
