"""Damage to a run folder: case number N is the same for the same N."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import os
import pickle
import random
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tuner.spec.document import dump_yaml, read_yaml
from tuner.storage.signing import signature

SMALL = ("experiment.yaml", "provenance.json", "lineage.json", "failures.json", "live.json")
FILES = (*SMALL, "trials.csv", "results.parquet", "run.lock", "journal.jsonl", "best/config.json", "best/metrics.json")
FILES += ("state.pkl", "best/checkpoint/model.pt", "best/checkpoint/.manifest.json")

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


def damaged(folder: Path, number: int) -> str:
    """Makes case ``number`` of the run in ``folder``; what was done."""
    rng = random.Random(number)
    if number % 3:
        (folder / "journal.jsonl").unlink(missing_ok=True)  # else it makes good for what the tables lost
    names = [name for name in FILES if (folder / name).exists()]
    journal = "journal.jsonl" in names and rng.random() < 0.5  # all other files are made from it
    file = folder / ("journal.jsonl" if journal else rng.choice(names))
    if file.name == "model.pt" and rng.random() < 0.8:  # else its manifest tells, and nobody opens it
        (file.parent / ".manifest.json").unlink()
    return f"{file.relative_to(folder)}: {damaged_file(file, rng)}"


def damaged_file(file: Path, rng: random.Random) -> str:
    """Makes ``file`` another one; what was done."""
    ways = [_cut, _noise, _flipped, _gone, _empty, _text, _deep, _other_kind]
    inside = _INSIDE.get(file.suffix, _in_json)
    return rng.choices([*ways, inside], [1] * len(ways) + [3 * len(ways)])[0](file, rng)


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


def _in_snapshot(file: Path, rng: random.Random) -> str:
    """Its head says something else, or its pickle is another one: of another event, or of who is not this user."""
    head, _, content = file.read_bytes().partition(b"\n")
    told = json.loads(head)
    way = rng.choice(["head", "bits", "armed", "number"])
    if way == "head":
        told, way = _mutated(told, rng)
    elif way in ("bits", "armed"):
        flipped = bytearray(content)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        content = bytes(flipped) if way == "bits" else pickle.dumps(Armed(executed(file.parent)))
        told["sha256"] = hashlib.sha256(content).hexdigest()
    else:
        stream = io.BytesIO(content)
        number, elapsed, state = pickle.load(stream)
        first = (max(0, number + rng.choice([-100, -1, 1, 10**6])), elapsed, state)
        content = pickle.dumps(first) + content[stream.tell() :]
        told |= {"sha256": hashlib.sha256(content).hexdigest(), "signature": signature(content)}
    file.write_bytes(json.dumps(told).encode() + b"\n" + content)
    return way


def executed(run: Path) -> Path:
    """The folder that a pickle in ``run`` makes if it is opened."""
    return run.parent.parent / "executed"


class Armed:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def _in_checkpoint(file: Path, rng: random.Random) -> str:
    """Another object in the place of the model's state."""
    armed = Armed(executed(file.parents[2]))
    objects = [armed, {"model": armed}, {"model": {"weight": armed}}, [], {}, {"model": 5}, {1: torch.zeros(1)}]
    value = rng.choice([*objects, {"model": {3: torch.zeros(1)}}, {"a": torch.zeros(1).to_sparse()}, {"": {}}])
    if rng.random() < 0.5:
        file.write_bytes(pickle.dumps(value))
        return f"pickle of {value!r}"
    torch.save(value, file)
    return f"torch.save of {value!r}"


def _in_archive(file: Path, rng: random.Random) -> str:
    """One more member, which leads out of the folder or is not a plain file."""
    member = tarfile.TarInfo(rng.choice(["../x", "/tmp/tuner-hostile", "a", "a/b", "x" * 5000, "\udcff", ""]))
    member.type = rng.choice([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
    member.linkname = rng.choice(["/etc/passwd", "../../x", "a", ""])
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(member)
    return f"{member.name[:40]!r} of type {member.type!r}, to {member.linkname!r}"


def _line(text: bytes) -> bytes:
    return b"%08x %s" % (zlib.crc32(text), text)


_INSIDE: dict[str, Callable[[Path, random.Random], str]] = {
    ".yaml": _in_yaml,
    ".csv": _in_csv,
    ".parquet": _in_parquet,
    ".jsonl": _in_journal,
    ".pkl": _in_snapshot,
    ".pt": _in_checkpoint,
    ".gz": _in_archive,
}
