"""Damaged and hostile run folders, and what the verbs make of them.

    python tests/hostile/run_folders.py [--cases 100000] [--first 0]

`damaged` makes case number N from a real small run folder, the same for the same N: a file is cut, overwritten, or
replaced by a pipe or a link, or one value in it (of JSON, YAML, CSV, parquet or a journal line) becomes another.
`outcomes` runs verbs on it in forked children of this process, which has imported all they need, and tells what is
wrong: a traceback, no answer within `LIMIT_S`, another exit status than 0, 2, 3 and 4, a control character on the
terminal. As a script it prints each such case.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from tuner.cli import main
from tuner.failure import Failure
from tuner.journal import JournalWriter
from tuner.results import ResultSet, write_json
from tuner.runner import write_experiment
from tuner.spec.document import dump_yaml, read_yaml
from tuner.storage import RunFolder
from tuner.trial import Report, Segment, Trial

LIMIT_S, PATIENCE_S = 5.0, 60.0
"""Processor time that a verb may take, and seconds that it may take on a busy machine."""

BATCH = 50
"""Cases that one child runs, unless it dies."""

SMALL = ("experiment.yaml", "provenance.json", "lineage.json", "failures.json", "live.json")
FILES = (*SMALL, "trials.csv", "results.parquet", "run.lock", "journal.jsonl", "best/config.json", "best/metrics.json")

SPEC: dict[str, Any] = {
    "name": "victim",
    "trainable": "tests.hostile.trainable:train",
    "params": {"epochs": 9, "model": {"depth": 2}},
    "search_space": {
        "optimizer": {"choice": ["sgd", "adamw"]},
        "lr": {"loguniform": [1e-4, 1.0]},
        "momentum": {"uniform": [0.8, 0.99], "when": {"optimizer": "sgd"}},
        "width": {"randint": [8, 129]},
    },
    "objective": {"metric": "acc", "mode": "max"},
    "search": {"kind": "random", "seed": 0},
    "scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 9, "grace_period": "auto", "reduction_factor": 3},
    "budget": {"trials": 24},
    "resources": {"cpu": 1},
}
PROVENANCE: dict[str, Any] = {
    "id": "0" * 32,
    "started": "2026-01-01T00:00:00+0000",
    "command": ["tuner", "run", "victim.yaml"],
    "working_directory": "/tmp",
    "experiment_file": "/tmp/victim.yaml",
    "roots": ["/tmp"],
    "notices": ["a notice"],
    "prepared": {},
    "seed": 0,
    "trials": 24,
    "trial_resources": {"CPU": 1.0},
    "slots": 2,
    "cluster": [{"name": "here", "CPU": 2.0, "memory": 1e9}],
    "user": "me",
    "host": "here",
    "platform": "Linux",
    "python": "3.11.2",
    "packages": {"torch": "2.11"},
    "git": {"commit": "a" * 40, "diff_sha256": ""},
    "interrupted": True,
    "elapsed_s": 99.0,
}
LIVE = {
    "time": 1.7e9,
    "slots": 2,
    "request": {"CPU": 1.0},
    "nodes": [{"CPU": 2.0}],
    "available": {"CPU": 0.0},
    "more": True,
    "trials": {"id2": {"state": "paused", "since": 1.7e9}},
}

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    10**9,
    10**18,
    10**400,
    0.5,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "nope",
    "../../other",
    "/dev/zero",
    "\x1b]0;evil\x07\x9b31m\u202e",
    "\ud800",
    "<script>alert(1)</script>",
    "9" * 300,
    "x" * 20_000,
    [],
    {},
    [[]],
    [{}],
    {"": {}},
    {"x": [1, "x", None]},
    {"__pickled__": "gASVKAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjA1lY2hvIGV4ZWN1dGVklIWUUpQu"},
)
"""What any value of a file may become."""


def made(folder: Path, with_journal: bool = True) -> None:
    """A whole run folder: 24 trials, with failures, checkpoints, lineage, live.json, best/ and a journal."""
    results = ResultSet(RunFolder.at(folder), copy.deepcopy(SPEC), copy.deepcopy(PROVENANCE))
    results.folder.create()
    rng = random.Random(0)
    for number in range(1, 25):
        config: dict[str, Any] = {"optimizer": rng.choice(["sgd", "adamw"]), "lr": 10 ** rng.uniform(-4, 0)}
        config |= {"width": rng.randrange(8, 129)}
        config |= {"momentum": rng.uniform(0.8, 0.99)} if config["optimizer"] == "sgd" else {}
        status: Any = ("completed", "stopped", "failed", "paused", "running", "pending")[min(number % 8, 5)]
        trial = results.add(Trial(f"id{number}", number, config, status, f"reason {number}", 3, host=f"h{number % 2}"))
        for step in range(1, 1 + (0 if status == "pending" else rng.randrange(1, 10))):
            metrics = {"acc": rng.random(), "epoch": step, "note": "text", "fine": True}
            at, kept = 1.7e9 + 10 * number + step, f"ray/id{number}/checkpoint_{step}"
            trial.reports.append(Report(trial.id, step, 1.5 * step, at, metrics, kept if step % 2 else None))
        kept_reports = [r for r in trial.reports if r.checkpoint]
        trial.best = max(kept_reports, key=results.value, default=None)
        if status == "failed":
            trial.failures = [Failure("exception", "ValueError: no", 1), Failure("hung", "silent for 60s", 2, 8)]
    first, second = results.trials[:2]
    second.segments = [Segment(0, second.config), Segment(1, first.config, first.id, 1)]
    write_experiment(results)
    results.save()
    write_json(results.folder, "live.json", LIVE)
    results.folder.write("run.lock", json.dumps({"pid": 1, "host": "here", "time": 1.0}).encode())
    if results.best is not None and results.best.best is not None:
        (folder / "best" / "checkpoint").mkdir(parents=True)
        (folder / "best" / "checkpoint" / "model").write_text("model")
        (folder / "best" / "config.json").write_text(json.dumps(results.full_config(results.best)))
        told = {"trial": results.best.id, "step": results.best.best.step, **results.best.best.metrics}
        (folder / "best" / "metrics.json").write_text(json.dumps(told))
    if with_journal:
        _journal(results)


def _journal(results: ResultSet) -> None:
    journal = JournalWriter(results.folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    now = 0.0
    for trial in results.trials:
        journal.append("suggested", trial=trial.id, config=trial.config, elapsed=now)
        journal.append("started", trial=trial.id, host=trial.host, elapsed=now)
        for report in trial.reports:
            now += 1.0
            fields: dict[str, Any] = {"step": report.step, "seconds": report.seconds, "timestamp": report.timestamp}
            fields |= {"metrics": report.metrics, "checkpoint": report.checkpoint, "decision": "continue"}
            journal.append("reported", trial=trial.id, **fields, elapsed=now)
        if trial.has_ended:
            ended: dict[str, Any] = {"status": trial.status, "reason": trial.reason, "rung": trial.rung}
            journal.append("ended", trial=trial.id, **ended, elapsed=now)
    journal.append("left", interrupted=True, elapsed=now)
    journal.close()


# --- damage ------------------------------------------------------------------------------------------------------


def damaged(folder: Path, number: int) -> str:
    """Makes case ``number`` of the run in ``folder``; what was done."""
    rng = random.Random(number)
    if number % 3:
        (folder / "journal.jsonl").unlink(missing_ok=True)  # else it makes good for what the tables lost
    names = [name for name in FILES if (folder / name).exists()]
    journal = "journal.jsonl" in names and rng.random() < 0.5  # all other files are made from it
    file = folder / ("journal.jsonl" if journal else rng.choice(names))
    ways = [_cut, _noise, _flipped, _gone, _empty, _text, _deep, _other_kind]
    inside = _INSIDE.get(file.suffix, _in_json)
    done = rng.choices([*ways, inside], [1] * len(ways) + [3 * len(ways)])[0]
    return f"{file.relative_to(folder)}: {done(file, rng)}"


def _cut(file: Path, rng: random.Random) -> str:
    data = file.read_bytes()
    at = rng.randrange(len(data) + 1)
    file.write_bytes(data[:at])
    return f"cut at {at}"


def _noise(file: Path, rng: random.Random) -> str:
    size = rng.choice([1, 10, 1000, 100_000])
    file.write_bytes(rng.randbytes(size))
    return f"{size} random bytes"


def _flipped(file: Path, rng: random.Random) -> str:
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 10])) if data else ():
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(data))
    return "bits flipped"


def _gone(file: Path, rng: random.Random) -> str:
    file.unlink()
    return "missing"


def _empty(file: Path, rng: random.Random) -> str:
    file.write_bytes(b"")
    return "empty"


def _text(file: Path, rng: random.Random) -> str:
    value = json.dumps(rng.choice(ODD)).encode()
    file.write_bytes(value)
    return f"is {value[:60]!r}"


def _deep(file: Path, rng: random.Random) -> str:
    opener = rng.choice([b"[", b'{"a":', b"a: [", b"- "])
    count = rng.choice([50, 200, 990, 5000, 100_000])
    file.write_bytes(opener * count)
    return f"{opener!r} x {count}"


def _other_kind(file: Path, rng: random.Random) -> str:
    file.unlink()
    kind = rng.choice(["pipe", "folder", "link to a device", "link to nothing", "link to itself", "sparse"])
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "sparse":
        with file.open("wb") as opened:
            opened.truncate(rng.choice([10**7, 10**10, 10**12]))
    else:
        targets = {"link to a device": rng.choice(["/dev/zero", "/dev/tty", "/dev/full"]), "link to nothing": "/none"}
        file.symlink_to(targets.get(kind, file.name))
    return kind


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from _paths(child, (*path, key))


def _mutated(value: Any, rng: random.Random) -> tuple[Any, str]:
    """One value somewhere in it becomes an odd one, is dropped, or gets another key."""
    path = rng.choice(list(_paths(value)))
    if not path:
        return (new := rng.choice(ODD)), f"the whole = {str(new)[:40]!r}"
    *groups, last = path
    target = value
    for key in groups:
        target = target[key]
    way = rng.choice(["set", "set", "set", "drop", "rename", "deep", "neighbour"])
    shown = f"{'.'.join(map(str, path))}"
    if way == "drop":
        del target[last]
    elif way == "rename" and isinstance(target, dict):
        target[rng.choice(["", "x", "\x1b[2J", "a.b", "../x", "id1", "__pickled__"])] = target.pop(last)
    elif way == "deep":
        deep: Any = 0
        for _ in range(rng.choice([30, 150, 400])):
            deep = rng.choice([{"a": deep}, [deep]])
        target[last] = deep
    elif way == "neighbour":
        choices = [target[key] for key in (target if isinstance(target, dict) else range(len(target)))]
        target[last] = copy.deepcopy(rng.choice(choices))
    else:
        target[last] = rng.choice(ODD)
    return value, f"{shown}: {way} {str(target.get(last) if isinstance(target, dict) else '')[:40]!r}"


def _in_json(file: Path, rng: random.Random) -> str:
    value, told = _mutated(json.loads(file.read_text()), rng)
    file.write_text(json.dumps(value))
    return told


def _in_yaml(file: Path, rng: random.Random) -> str:
    value, told = _mutated(read_yaml(file.read_text(), "x").value, rng)
    with contextlib.suppress(UnicodeEncodeError, RecursionError):
        file.write_bytes(dump_yaml(value, []))
    return told


def _in_csv(file: Path, rng: random.Random) -> str:
    rows = [line.split(",") for line in file.read_text().splitlines()]
    row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    way = rng.choice(["cell", "cell", "cell", "row twice", "no column", "heading", "bytes"])
    if way == "row twice":
        rows.append(rows[row])
    elif way == "no column":
        rows = [line[:column] + line[column + 1 :] for line in rows]
    elif way == "heading":
        rows[0][column] = rng.choice(["id", "config.lr.x", "config.", "config" + ".a" * 5000, "best_nope", "x"])
    else:
        text = str(rng.choice(ODD)) if way == "cell" else json.dumps(rng.choice(ODD))
        rows[row][column] = '"' + text.replace('"', '""') + '"'
    file.write_bytes("\n".join(map(",".join, rows)).encode("utf-8", "replace") + b"\n")
    return f"{way} {row} {column}: {','.join(rows[min(row, len(rows) - 1)])[:80]!r}"


def _in_parquet(file: Path, rng: random.Random) -> str:
    table = pq.read_table(file)
    name, count = rng.choice(table.column_names), len(table)
    way = rng.choice(["kind", "value", "drop", "twice", "bomb", "wide", "text bomb", "order"])
    place = table.column_names.index(name)
    if way == "drop":
        table = table.drop_columns([name])
    elif way == "twice":
        table = table.append_column(name, table[name])
    elif way == "order":
        table = table.take(rng.sample(range(count), count))
    elif way == "bomb":
        rows = rng.choice([2, 6]) * 10**6
        table = pa.table(
            {key: pa.array([table[key][0].as_py()] * rows) for key in ["trial_id"]} | _constant(table, rows)
        )
    elif way == "wide":
        table = pa.table(
            {**{key: table[key] for key in table.column_names}, **{f"m{i}": table["acc"] for i in range(2000)}}
        )
    elif way == "text bomb":
        table = table.set_column(place, name, pa.array(["x" * 10**6] * count))
    elif way == "kind":
        new = rng.choice([["x"] * count, [[1.0]] * count, [{"a": 1}] * count, [b"\xff"] * count, [None] * count,
                          [True] * count, [0.5] * count, [10**18] * count, [1.5e308] * count])  # fmt: skip
        table = table.set_column(place, name, pa.array(new))
    else:
        values = table[name].to_pylist()
        odd = rng.choice([None, -1, 0, 10**18, float("nan"), float("inf"), -1e300, "../x", "\x1b[2J", "id99"])
        values[rng.randrange(count)] = odd
        with contextlib.suppress(pa.ArrowException):
            table = table.set_column(place, name, pa.array(values))
    pq.write_table(table, file, compression=rng.choice(["snappy", "zstd", "none"]))
    return f"{way} {name}"


def _constant(table: pa.Table, rows: int) -> dict[str, pa.Array]:
    """All columns but the first, of one value."""
    return {key: pa.repeat(table[key][0], rows) for key in table.column_names if key != "trial_id"}


def _in_journal(file: Path, rng: random.Random) -> str:
    lines = file.read_bytes().splitlines()
    row = rng.randrange(len(lines))
    way = rng.choice(["event", "event", "event", "drop", "twice", "swap", "text"])
    other = rng.randrange(len(lines))
    if way == "event":
        value, told = _mutated(json.loads(lines[row].partition(b" ")[2]), rng)
        lines[row] = _line(json.dumps(value).encode())
        way = told
    elif way == "text":
        lines[row] = _line(rng.choice([b"", b"null", b"[]", b"{", b"[" * 10**5, b'{"n": %d}' % (row + 1), b"\xff"]))
    elif way == "drop":
        del lines[row]
    elif way == "twice":
        lines.insert(other, lines[row])
    else:
        lines[row], lines[other] = lines[other], lines[row]
    file.write_bytes(b"\n".join(lines) + b"\n")
    return f"line {row + 1}: {way}"


def _line(text: bytes) -> bytes:
    return b"%08x %s" % (zlib.crc32(text), text)


_INSIDE: dict[str, Callable[[Path, random.Random], str]] = {
    ".yaml": _in_yaml,
    ".csv": _in_csv,
    ".parquet": _in_parquet,
    ".jsonl": _in_journal,
}


# --- verbs -------------------------------------------------------------------------------------------------------

VERBS = ("list", "show", "show --json", "why", "report", "compare", "best", "export", "table", "track", "replay")
SLOW = ("report", "compare", "export")
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
        case "replay":
            return ["replay", run, "3"]
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


def complaint(words: list[str]) -> str:
    """What is wrong with the answer to a command line; empty where nothing is."""
    try:
        status, told = asked(words)
    except BaseException as error:  # noqa: BLE001 (whatever it is, it is the finding)
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "/tuner/" in f.filename][-3:]
        return f"{type(error).__name__}: {str(error)[:120]!r} at {' > '.join(ours)}"
    hidden = {c for c in told if not c.isprintable() and c not in "\n\t"}
    if hidden:
        return f"control characters {hidden}"
    if status not in (0, 2, 3, 4):
        return f"exit status {status}"
    if status and not told.strip():
        return f"exit status {status} without a word"
    return f"an error of {len(told)} characters" if status and len(told) > 100_000 else ""


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
        return complaint(arguments(verb, storage))

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
    for verb in VERBS:
        told = complaint(arguments(verb, storage))
        assert not told, (verb, told)
    shutil.rmtree(storage)


def chosen(number: int) -> tuple[str, ...]:
    """The verbs of a case: two of the quick ones, or in one of ten a slow one."""
    rng = random.Random(f"verbs of {number}")
    return (rng.choice(SLOW),) if rng.random() < 0.1 else tuple(rng.sample(QUICK, 2))


def search(numbers: Sequence[int], done: Callable[[int], None] = lambda count: None) -> Iterator[str]:
    """What is wrong in these cases, a line each. ``done`` gets how many of them have been tried."""
    with tempfile.TemporaryDirectory() as folder:
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
    os.nice(19)
    wrong = 0

    def tell(count: int) -> None:
        print(f"{count} cases from {given.first} on", flush=True)

    for line in search(range(given.first, given.first + given.cases), tell):
        print(line.encode("utf-8", "backslashreplace").decode(), flush=True)
        wrong += 1
    print(f"{given.cases} cases from {given.first} on, {wrong} wrong")


if __name__ == "__main__":
    run_all()
