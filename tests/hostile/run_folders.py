"""Damaged and hostile run folders, and what the verbs make of them.

    nice -n 19 python -m tests.hostile.run_folders [--cases 100000] [--first 0]

`damaged` makes case number N from a real small run folder, the same for the same N: a file is cut, overwritten, or
replaced by a pipe or a link, or one value in it (of JSON, YAML, CSV, parquet or a journal line) becomes another.
`outcomes` runs verbs on it in forked children of this process, which has imported all they need, and tells what is
wrong: a traceback, no answer within `LIMIT_S`, another exit status than 0, 2, 3 and 4, a control character on the
terminal. As a script it prints each such case.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn
from unittest import mock

from tests.hostile.damage import damaged, executed
from tests.hostile.recovering import NO_RAY, as_jobs, on_a_store, unmended, without_ray
from tests.hostile.whole import made
from tests.terminal import obeyed
from tuner.cli import main
from tuner.storage.folder import RunFolder

LIMIT_S, PATIENCE_S = 5.0, 60.0
"""Processor time that a verb may take, and seconds that it may take on a busy machine."""

BATCH = 50
"""Cases that one child runs, unless it dies."""

# --- verbs -------------------------------------------------------------------------------------------------------

VERBS = (
    "list",
    "show",
    "show --json",
    "why",
    "report",
    "compare",
    "best",
    "best --export",
    "export",
    "table",
    "track",
    "replay",
)
"""Which only read."""
RESUMING = ("resume", "extend", "retry")
SLOW = ("report", "compare", "export", *RESUMING, "store", "jobs")
QUICK = tuple(verb for verb in VERBS if verb not in SLOW)


def arguments(verb: str, storage: Path) -> list[str]:
    """The command line that asks ``verb`` of the run in ``storage``."""
    run, out = str(storage / "victim"), str(storage / "out")
    match verb:
        case "list":
            return ["list", "--storage", str(storage)]
        case "report":
            return ["report", run, "-o", f"{out}.html"]
        case "compare":
            return ["compare", run, run, "-o", f"{out}.html"]
        case "export":
            return ["export", run, "--optuna", f"sqlite:///{out}.db"]
        case "table":
            return ["table", run, "-o", f"{out}.parquet"]
        case "track":
            return ["track", run, "--mlflow", "http://127.0.0.1:9"]
        case "best --export":
            return ["best", run, "--export", out]
        case "replay":
            return ["replay", run, "3"]
        case "extend":
            return ["extend", run, "--trials", "+5"]
        case "retry":
            return ["retry", run, "--failed"]
    return [verb.split()[0], run, *verb.split()[1:]]


def asked(words: list[str]) -> tuple[int, str]:
    """(exit status, what it wrote to stdout and stderr) of a command line, in this process."""
    told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogatepass", write_through=True)
    before, sys.argv = sys.argv, ["tuner", *words]
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.argv = before
    assert isinstance(told.buffer, io.BytesIO)
    return status, told.buffer.getvalue().decode("utf-8", "surrogatepass")


@contextlib.contextmanager
def shown() -> Iterator[list[str]]:
    """Afterwards it holds what was written to the descriptors of the terminal, past Python's own streams."""
    written: list[str] = []
    before = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as file:
        try:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
            yield written
        finally:
            for stream, known in zip((1, 2), before, strict=True):
                os.dup2(known, stream)
                os.close(known)
            file.seek(0)
            written.append(file.read().decode("utf-8", "surrogatepass"))


def complaint(words: list[str]) -> str:
    """What is wrong with the answer to a command line; empty where nothing is."""
    return caught(lambda: judged(*asked(words)))


def caught(ask: Callable[[], str]) -> str:
    """What ``ask`` returns, or raises."""
    try:
        return ask()
    except BaseException as error:  # noqa: BLE001 (whatever it is, it is the finding)
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "/tuner/" in f.filename][-3:]
        return f"{type(error).__name__}: {str(error)[:120]!r} at {' > '.join(ours)}"


def judged(status: int, told: str) -> str:
    """What is wrong with an answer; empty where nothing is."""
    if characters := obeyed(told):
        return f"control characters {characters}"
    if status not in (0, 2, 3, 4, 5):
        return f"exit status {status}: {told[-300:]}"
    if status and not told.strip():
        return f"exit status {status} without a word"
    return f"an error of {len(told)} characters" if status and len(told) > 100_000 else ""


def answer(verb: str, storage: Path, number: int) -> str:
    """What is wrong with what ``verb`` makes of the run in ``storage``; empty where nothing is."""
    if verb == "store":
        return on_a_store(storage, random.Random(number))
    if verb == "jobs":
        return as_jobs(storage, random.Random(number))
    if verb not in RESUMING:
        return complaint(arguments(verb, storage))
    with without_ray(), shown() as screen:
        status, told = asked(arguments(verb, storage))
    wrong = judged(status, told + "".join(screen))
    return wrong or (unmended(RunFolder.at(storage / "victim")) if NO_RAY in told else "")


def outcomes(tasks: Sequence[tuple[str, Callable[[], str]]]) -> Iterator[str]:
    """A line for each of ``tasks``, (name, ask), that complains, dies or has no end; they run in forked children."""
    first = 0
    while first < len(tasks):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _answer(tasks[first:], writing)
        os.close(writing)
        with open(reading, "rb") as told:
            answers = told.read().decode().split("\0")[:-1]
        _, status = os.waitpid(child, 0)
        for (name, _), answer in zip(tasks[first:], answers, strict=False):
            if answer:
                yield f"{name}: {answer}"
        first += len(answers)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            yield f"{tasks[first][0]}: {'no end' if number in _TIMERS.values() else f'killed by signal {number}'}"
            first += 1


_TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}


def _answer(tasks: Sequence[tuple[str, Callable[[], str]]], writing: int) -> NoReturn:
    """Runs ``tasks`` in this child, each under a timer that kills it."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    for number in _TIMERS.values():
        signal.signal(number, signal.SIG_DFL)
    try:
        for _, ask in tasks:
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
            os.write(writing, ask().encode("utf-8", "replace").replace(b"\0", b"") + b"\0")
    finally:
        os._exit(0)


def tasks(number: int, whole: Path, scratch: Path, verbs: Sequence[str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Case ``number``, made from the run folder ``whole`` when its first verb is asked."""
    storage = scratch / "storage"

    def ask(verb: str) -> str:
        if verb == verbs[0]:
            shutil.rmtree(storage, ignore_errors=True)
            shutil.copytree(whole, storage / "victim")
            damaged(storage / "victim", number)
        wrong = caught(lambda: answer(verb, storage, number))
        return "executed" if executed(storage / "victim").exists() else wrong

    return ((f"{number} {verb}", partial(ask, verb)) for verb in verbs)


def what(number: int, whole: Path, scratch: Path) -> str:
    """What is done to the run folder in case ``number``."""
    shutil.copytree(whole, scratch / "again")
    done = damaged(scratch / "again", number)
    shutil.rmtree(scratch / "again")
    return done


def warm(whole: Path, scratch: Path) -> None:
    """Imports what the verbs need, so that the children find it done."""
    storage = scratch / "warm"
    shutil.copytree(whole, storage / "victim")
    for verb in (*VERBS, *SLOW):
        told = caught(partial(answer, verb, storage, 0))
        assert not told, (verb, told)
        shutil.rmtree(storage)
        shutil.copytree(whole, storage / "victim")
    shutil.rmtree(storage)


def chosen(number: int) -> tuple[str, ...]:
    """The verbs of a case: two of the quick ones, or in one of five a slow one."""
    rng = random.Random(f"verbs of {number}")
    return (rng.choice(SLOW),) if rng.random() < 0.2 else tuple(rng.sample(QUICK, 2))


def search(numbers: Sequence[int], done: Callable[[int], None] = lambda count: None) -> Iterator[str]:
    """What is wrong in these cases, a line each. ``done`` gets how many of them have been tried."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": folder}):
        scratch, whole = Path(folder), Path(folder) / "whole"
        made(whole)
        warm(whole, scratch)
        for first in range(0, len(numbers), BATCH):
            some = numbers[first : first + BATCH]
            every = [task for number in some for task in tasks(number, whole, scratch, chosen(number))]
            for line in outcomes(every):
                yield f"{line} [{what(int(line.split()[0]), whole, scratch)}]"
            done(first + len(some))


def run_all() -> None:
    """The script."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=100_000)
    options.add_argument("--first", type=int, default=0)
    given = options.parse_args()
    wrong = 0

    def tell(count: int) -> None:
        print(f"{count} cases from {given.first} on", flush=True)

    for line in search(range(given.first, given.first + given.cases), tell):
        print(line.encode("utf-8", "backslashreplace").decode(), flush=True)
        wrong += 1
    print(f"{given.cases} cases from {given.first} on, {wrong} wrong")


if __name__ == "__main__":
    run_all()
