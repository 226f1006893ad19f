"""Runs `validate` on hostile experiment files, each in a forked child with a real time limit, and judges the answers.

    python -m tests.hostile.driver --first 0 --count 1000 --processes 2

prints one line for each file that is answered wrongly, and a summary as JSON. A file of number n is written anew by
`python -m tests.hostile.driver --show n`.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.experiments import BASES, dump, make
from tests.hostile.user_code import MODULES
from tests.terminal import obeyed

LIMIT = 5
"""Seconds of a processor within which any file is answered: they do not depend on what else the machine does."""

WAIT = 60.0
"""Seconds after which a child that waits for something, and so uses no processor, is ended."""

MOST_TEXT = {0: 1_100_000, 2: 64_000}
"""Characters of an answer at most by its status: lines of 1,000 for 1,000 parameters, for 50 problems, and room."""

MEMORY = 8 * 2**30
"""Bytes of address space of a child beyond what the parent has."""

STATUSES = (0, 2)


@dataclass(frozen=True)
class Answer:
    """What `validate` said of one file."""

    status: int
    """Exit status; minus a signal."""
    seconds: float
    """Of a processor."""
    out: str
    err: str

    def wrong(self) -> str:
        """What is wrong with it, in a word or two; empty where nothing is."""
        if self.status in (-signal.SIGKILL, -signal.SIGXCPU):
            return "hang"
        if "Traceback (most recent call last)" in self.err:
            return "traceback"
        if self.status not in STATUSES:
            return f"status {self.status}"
        if not (self.out if self.status == 0 else self.err).strip():
            return "silence"
        if len(self.out) + len(self.err) > MOST_TEXT[self.status]:
            return "long text"
        return "control characters" if obeyed(self.out + self.err) else ""


def prepare(folder: Path) -> None:
    """Writes the user's modules into ``folder``, goes there, and imports all that any file may need."""
    for name, text in MODULES.items():
        (folder / name).write_bytes(text.encode("latin-1" if name == "latin.yaml" else "utf-8"))
    os.chdir(folder)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import hyperopt  # noqa: F401
    import ray.tune.schedulers
    import ray.tune.search  # noqa: F401
    import scipy.stats.qmc  # noqa: F401
    import sqlalchemy  # noqa: F401
    import torch  # noqa: F401

    import trainables.tabulated  # noqa: F401
    from tuner.plan import describe  # noqa: F401

    for base in BASES.values():
        module, _, _ = base["trainable"].partition(":")
        if module.startswith("trainables."):  # frameworks take seconds
            importlib.import_module(module)
    for base in BASES.values():
        answer = asked(dump(base), folder)
        assert answer.status == 0, (answer, base)


def asked(data: bytes, folder: Path) -> Answer:
    """What `validate` says of the file ``data``, in a child of this process that cannot outlive its limits."""
    (folder / "e.yaml").write_bytes(data)
    out, err = folder / "out", folder / "err"
    child = os.fork()
    if child == 0:
        _child(out, err)
    reader = os.pidfd_open(child)
    done = bool(_ready(reader, WAIT))
    if not done:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    texts = [file.read_bytes()[: 2 * MOST_TEXT[0]].decode(errors="replace") for file in (out, err)]
    return Answer(os.waitstatus_to_exitcode(status), seconds, *texts)


def _ready(descriptor: int, seconds: float) -> list[int]:
    import select

    return select.select([descriptor], [], [], seconds)[0]


def _child(out: Path, err: Path) -> None:
    code = 70
    try:
        for number, file in ((1, out), (2, err)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
        faulthandler.register(signal.SIGXCPU, chain=True)  # tells where the time went
        sys.argv = ["tuner", "validate", "e.yaml"]
        code = _validate()
    except BaseException:  # noqa: BLE001 - a bug: its traceback is what the parent looks for
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _validate() -> int:
    """`validate` as the command line calls it; where it accepts the file, what `run` would record must be readable."""
    from tuner import cli
    from tuner.actions import run as runner
    from tuner.plan.plan import Plan
    from tuner.runs.provenance import resolved_spec
    from tuner.spec.document import dump_yaml, read_yaml

    plans: list[Plan] = []
    validate = runner.validate

    def kept(*arguments: Any, **options: Any) -> Plan:
        plans.append(validate(*arguments, **options))
        return plans[-1]

    runner.validate = kept
    try:
        cli.main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    for plan in plans:
        spec = resolved_spec(plan, {})
        assert repr(read_yaml(dump_yaml(spec, []).decode(), "x").value) == repr(json.loads(json.dumps(spec)))
    return status


def wrong_answers(numbers: Iterable[int], folder: Path, until: float) -> Iterator[tuple[int, str, Answer]]:
    """(number, what is wrong or nothing, answer) of each file, until the time is over."""
    for number in numbers:
        if time.monotonic() > until:
            return
        answer = asked(make(number), folder)
        verdict = answer.wrong()
        if (folder / "executed").exists():
            (folder / "executed").unlink()
            verdict = "executed"
        yield number, verdict, answer


def _work(numbers: Iterable[int], minutes: float) -> Counter[str]:
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        prepare(folder)
        slowest = 0.0
        for number, verdict, answer in wrong_answers(numbers, folder, time.monotonic() + minutes * 60):
            found["files"] += 1
            found[f"status {answer.status}"] += 1
            slowest = max(slowest, answer.seconds)
            if verdict:
                found[verdict] += 1
                told = [line for line in answer.err.splitlines() if line.strip() and "click" not in line]
                told = told[1:9] if verdict == "hang" else told[-3:]
                print(number, verdict, f"{answer.seconds:.1f}s", " | ".join(line[:200] for line in told), flush=True)
        print(f"slowest {slowest:.2f} s")
        os.chdir("/")
    return found


def main() -> None:
    """Runs the files that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--show", type=int)
    arguments = parser.parse_args()
    if arguments.show is not None:
        sys.stdout.buffer.write(make(arguments.show))
        return
    children = []
    for i in range(arguments.processes):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            numbers = range(arguments.first + i, arguments.first + arguments.count, arguments.processes)
            os.write(write, json.dumps(_work(numbers, arguments.minutes)).encode())
            sys.stdout.flush()
            os._exit(0)
        os.close(write)
        children.append((child, read))
    total: Counter[str] = Counter()
    for child, read in children:
        total.update(json.loads(os.read(read, 65536)))
        os.waitpid(child, 0)
    print(json.dumps(total))


if __name__ == "__main__":
    main()
