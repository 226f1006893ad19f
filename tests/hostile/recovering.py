"""Damaged runs taken up again, as far as that needs no Ray: from here, from an object store, as a cluster's jobs."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tests.hostile.damage import damaged_file
from tuner.errors import EnvironmentFailure, TunerError
from tuner.jobs.record import JOBS, Job, Submitter, list_code, recorded, stored_jobs
from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan
from tuner.runs.journal import JournalReader
from tuner.runs.loading import load_latest, load_summary
from tuner.runs.provenance import experiment_of
from tuner.search.new_state import new_state
from tuner.search.recovery import read_stored_search, recover
from tuner.storage.folder import RunFolder

NO_RAY = "this is as far as a search comes without Ray"


@contextlib.contextmanager
def without_ray() -> Iterator[None]:
    """Within: a search has all but Ray, and ends where it would start it."""

    def refused(*_: Any) -> Any:
        raise EnvironmentFailure(NO_RAY)

    with mock.patch("tuner.actions.run.ray_up", refused):
        yield


def unmended(folder: RunFolder) -> str:
    """What is still damaged of the journal of a search that was taken up; empty where nothing is."""
    reader = JournalReader(folder)
    for _ in reader.new():
        pass
    return f"the journal was not mended: {reader.damage}" if reader.damage else ""


def on_a_store(storage: Path, rng: random.Random) -> str:
    """What is wrong with the run once it is read and taken up from an object store, whose journal is damaged more."""
    _in_segments(storage / "victim", rng)
    for file in (storage / "victim").rglob("*"):
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            file.unlink()  # a store holds no links and no pipes
    folder = RunFolder(SubTreeFileSystem(str(storage), LocalFileSystem()), "victim", "test://victim")
    with contextlib.suppress(TunerError):
        load_latest(folder)
    try:
        stock = read_stored_search(load_summary(folder))
        recover(stock, lambda: new_state(make_plan(experiment_of(stock.results), this_machine()), []))
    except TunerError:
        return ""
    return unmended(folder)


def _in_segments(run: Path, rng: random.Random) -> None:
    """Makes of the local journal the objects that a store would hold, of which one is damaged or gone."""
    file = run / "journal.jsonl"
    whole = file.is_file() and not file.is_symlink() and file.stat().st_size < 10**7
    lines = file.read_bytes().splitlines(keepends=True) if whole else []
    file.unlink() if file.is_symlink() or file.is_file() else None
    (run / "journal").mkdir()
    for first in range(0, len(lines), 60):
        (run / f"journal/{first + 1:09}.jsonl").write_bytes(b"".join(lines[first : first + 60]))
    objects = sorted((run / "journal").iterdir())
    if not objects:
        return
    some, other = rng.choice(objects), rng.choice(objects)
    match rng.choice(["none", "gone", "empty", "cut", "bits", "twice", "swapped", "named", "other"]):
        case "gone":
            some.unlink()
        case "empty":
            some.write_bytes(b"")
        case "cut":
            some.write_bytes(some.read_bytes()[: rng.randrange(1 + some.stat().st_size)])
        case "bits":
            data = bytearray(some.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            some.write_bytes(bytes(data))
        case "twice":
            some.with_name("999999999.jsonl").write_bytes(some.read_bytes())
        case "swapped":
            one, two = some.read_bytes(), other.read_bytes()
            some.write_bytes(two)
            other.write_bytes(one)
        case "named":
            some.rename(some.with_name(rng.choice(["x.jsonl", "\x1b[2J.jsonl", ".jsonl", "000000000.jsonl"])))
        case "other":
            some.with_name("x.tmp").write_bytes(rng.randbytes(100))


def as_jobs(storage: Path, rng: random.Random) -> str:
    """What is wrong with how a cluster that lost its head finds the damaged record of a job."""
    project = storage / "project"
    project.mkdir()
    (project / "code.py").write_text("x = 1")
    list_code(project, ["code.py"])
    Job("victim", str(storage), "python -m nothing", Submitter("me@here", {"ray": "2"})).keep(project)
    damaged_file(storage / JOBS / "victim" / rng.choice(["job.json", "code.tar.gz"]), rng)
    with contextlib.suppress(TunerError):
        for name in recorded(str(storage)):
            with tempfile.TemporaryDirectory() as folder:
                with contextlib.suppress(TunerError):
                    stored_jobs(str(storage), name).unpack(Path(folder) / "code")
                if found := [path.name for path in Path(folder).iterdir() if path.name != "code"]:
                    return f"its code was unpacked to {found}"
    return ""
