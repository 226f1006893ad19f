"""Random faults of the driver and its files, on the real controller and recorder.

A driver is killed before or after one of its operations on the run folder, whichever: an event, a checkpoint's
deletion, a snapshot, what recovery writes, what `extend` writes, what is written at the end. Then its files may be hurt
as well. The next driver takes the run up, and is killed too. In the end the search must have come to what it comes to
undisturbed; or, where a whole line of the journal was damaged, to an end at which nothing else is missing.

    python -m tests.faults.test_model 500
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

import tuner.execution.controller
from tests.faults.stand_ins import EPOCHS, Actors
from tuner.actions import resume as resumption
from tuner.actions import run
from tuner.errors import InputError, TunerError
from tuner.experiment.reader import load_experiment
from tuner.plan.planner import make_plan
from tuner.runs.history import journalled
from tuner.runs.journal import JOURNAL, JournalReader, last_event
from tuner.runs.results import PROVENANCE, ResultSet
from tuner.search.checkpoint_retention import copy_name
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, locked
from tuner.storage.manifest import find_damage

TRIALS = 8
TOY = Path(__file__).parent / "toy.py"
RUNGS = {"time_attr": "epoch", "max_t": EPOCHS, "reduction_factor": 3}
KINDS: dict[str, dict[str, Any]] = {
    "random asha": {"scheduler": {"kind": "asha", **RUNGS}},
    "tpe asha": {"search": {"kind": "optuna", "n_startup_trials": 3}, "scheduler": {"kind": "asha", **RUNGS}},
    "bohb promotion": {
        "search": {"kind": "bohb", "min_points_in_model": 2},
        "scheduler": {"kind": "asha", "variant": "promotion", **RUNGS},
    },
    "gp asha": {"search": {"kind": "gp", "n_initial_points": 3}, "scheduler": {"kind": "asha", **RUNGS}},
    "random hyperband": {"scheduler": {"kind": "hyperband", **RUNGS}},
    "pbt": {"scheduler": {"kind": "pbt", "time_attr": "epoch", "max_t": EPOCHS, "perturbation_interval": 2}},
}


UNSYNCED, DAMAGED = "unsynced events lost", "damaged"
"""What may happen to the files: the search repeats the one, the other may cost what the line told."""


class Killed(BaseException):
    """The driver is no more."""


class Place:
    """A run folder on a local file system or on one that cannot append, and how a driver on it is killed."""

    def __init__(self, root: Path, local: bool) -> None:
        self.root, self.local = root, local
        self.operations = 0
        self.kill_at: int | None = None
        self.copy: Path | None = None
        """What a kill left."""
        self.safe = 0
        """Bytes of the local journal that a power cut cannot take."""

    @property
    def folder(self) -> RunFolder:
        if self.local:
            return RunFolder.at(self.root / "run")
        return RunFolder(SubTreeFileSystem(str(self.root), LocalFileSystem()), "run", f"{self.root}/run")

    def operation(self) -> None:
        """One operation on the run folder is about to happen, or has happened."""
        if self.copy is not None:
            raise Killed
        self.operations += 1
        if self.operations == self.kill_at:
            self.copy = Path(tempfile.mkdtemp(dir=self.root.parent))
            shutil.copytree(self.root, self.copy, dirs_exist_ok=True)
            raise Killed

    def revived(self) -> Place:
        """The run folder as the kill left it, for the next driver."""
        assert self.copy is not None
        after = Place(self.copy, self.local)
        after.safe = self.safe
        shutil.rmtree(self.root)
        for lock in after.root.glob(f"run/{LOCK}*"):  # locks of dead drivers are the matter of another test
            shutil.rmtree(lock) if lock.is_dir() else lock.unlink()
        return after


@contextlib.contextmanager
def watched(place: Place) -> Iterator[None]:
    """Within: each operation on a run folder counts, and may be the driver's last."""

    def counted(owner: Any, name: str) -> Any:
        real = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            place.operation()
            found = real(*args, **options)
            if name == "fdatasync":
                place.safe = os.fstat(args[0]).st_size
            elif name == "write" and args[1] == f"{JOURNAL}.jsonl":
                place.safe = len(args[2])
            place.operation()
            return found

        return mock.patch.object(owner, name, wrapped)

    with contextlib.ExitStack() as stack:
        for name in ("write", "delete", "rename", "copy_to"):
            stack.enter_context(counted(RunFolder, name))
        for name in ("pwrite", "fdatasync"):
            stack.enter_context(counted(os, name))
        stack.enter_context(mock.patch.object(tuner.execution.controller, "ActorManager", Actors))
        yield


def experiment(kind: str) -> dict[str, Any]:
    base = {
        "trainable": f"{TOY}:quadratic",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random"},
        "budget": {"trials": TRIALS},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        "checkpoints": {"keep_trials": 2 * TRIALS},
    } | KINDS[kind]
    return base | {"search": {**base["search"], "seed": 1}}  # type: ignore[dict-item]


def begin(place: Place, kind: str) -> ResultSet:
    """As `tuner.run` does, on a folder that no URI names."""
    from tuner.execution.session import cluster_at

    loaded = load_experiment(experiment(kind), [])
    with cluster_at(None) as cluster:
        plan = make_plan(loaded, cluster)
        place.folder.create()
        with locked(place.folder) as lock:
            return run.begin(plan, dict(plan.spec.params), place.folder, lock, _quiet)


def _quiet(text: str) -> None: ...


EXTENSIONS: dict[str, list[str]] = {"extended": [], "narrowed": ["search_space.x.uniform=[0, 0.7]"]}
"""Ways in which a search becomes longer, and the overrides of each."""


def take_up(place: Place, longer: str) -> ResultSet:
    """``extend`` in one of `EXTENSIONS`, or else ``resume``."""
    known = ResultSet(place.folder, {}, {})
    if longer:
        return resumption.extend(known, trials=f"+{TRIALS // 2}", overrides=EXTENSIONS[longer], say=_quiet)
    return resumption.resume(known, say=_quiet)


def outcome(results: ResultSet) -> list[Any]:
    return [
        (t.id[-1], t.config, t.status, [(r.step, r.metrics["score"]) for r in t.reports], t.best and t.best.step)
        for t in results.trials
    ]


def anonymous(found: list[Any]) -> list[Any]:
    """Without the ids, which are drawn anew for each search."""
    return [item[1:] for item in found]


def hurt(place: Place, rng: random.Random) -> str:
    """Takes from the files what a power cut may take, or damages a line; which of the two, empty for neither."""
    kind = rng.choice(["nothing", "nothing", "unsynced", "cut line", "flipped byte"])
    if kind == "nothing":
        return ""
    files = sorted(place.root.glob("run/journal.jsonl" if place.local else "run/journal/*.jsonl"))
    file = rng.choice(files) if files else None
    data = file.read_bytes() if file else b""
    if kind == "unsynced" or file is None or not data.endswith(b"\n"):
        if file is None or not place.local or len(data) <= place.safe:
            return ""
        file.write_bytes(data[: rng.randint(place.safe, len(data))])
        return UNSYNCED
    lines = data.splitlines(keepends=True)
    index = rng.randrange(len(lines))
    position = rng.randrange(len(lines[index]))
    line = lines[index]
    if kind == "cut line":
        lines[index] = line[:position] + b"\n"
    else:
        lines[index] = line[:position] + bytes([line[position] ^ 0x15]) + line[position + 1 :]
    file.write_bytes(b"".join(lines))
    place.safe = min(place.safe, file.stat().st_size)
    return DAMAGED


class Undisturbed:
    """What each kind of search comes to, with and without `extend`, and how many operations that takes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, str], tuple[list[Any], int]] = {}

    def of(self, kind: str, local: bool, longer: str) -> tuple[list[Any], int]:
        if (kind, local, longer) not in self._known:
            with tempfile.TemporaryDirectory() as folder:
                place = Place(Path(folder) / "whole", local)
                place.root.mkdir()
                with watched(place):
                    results, operations = begin(place, kind), place.operations
                    results = take_up(place, longer) if longer else results
                    self._known[kind, local, longer] = anonymous(outcome(results)), operations
        return self._known[kind, local, longer]


UNDISTURBED = Undisturbed()


def sequence(seed: int) -> str:
    """One random sequence of faults; in words what happened."""
    rng = random.Random(seed)
    kind, local = rng.choice(list(KINDS)), rng.random() < 0.5
    longer = rng.choice([*EXTENSIONS, "", ""])
    if KINDS[kind].get("scheduler", {}).get("kind") == "pbt" and longer == "narrowed":
        longer = "extended"  # a population keeps its space
    expected, operations = UNDISTURBED.of(kind, local, longer)
    told = [f"seed {seed}: {kind}, {'local' if local else 'object store'}{longer and f', {longer}'}"]
    lossy, begun, asked = False, False, False
    with tempfile.TemporaryDirectory() as temporary:
        place = Place(Path(temporary) / "0", local)
        place.root.mkdir()
        for attempt in range(12):
            if attempt < 4:
                place.kill_at = rng.randint(1, operations if attempt == 0 else max(operations // 2, 2))
            results: ResultSet | None = None
            try:
                with watched(place):
                    results = take_up(place, longer if asked else "") if begun else begin(place, kind)
            except Killed:
                told.append(f"killed at operation {place.kill_at}")
            except InputError as error:
                if "nothing to resume" not in str(error) or "journal" in str(error):
                    raise AssertionError("; ".join(told)) from error
                results = _known(place)
            except TunerError as error:
                if (
                    lossy
                    and "the run folder is damaged" in str(error)
                    and not (place.root / "run" / PROVENANCE).exists()
                ):
                    return "; ".join([*told, "the journal's first line was all that there was"])
                raise AssertionError("; ".join(told)) from error
            if place.copy is not None:
                place = place.revived()
                begun = begun or last_event(place.folder) is not None
                if begun and (what := hurt(place, rng)):
                    lossy = lossy or what == DAMAGED
                    told.append(what)
                if begun and not lossy:
                    _check_nothing_needed_is_gone(place, "; ".join(told))
                continue
            assert results is not None
            begun = True
            if longer and not asked:
                asked = True
                continue
            _compare(results, expected, lossy, place, "; ".join(told))
            return "; ".join(told)
    raise AssertionError(f"{'; '.join(told)}: it does not come to its end")


def _known(place: Place) -> ResultSet:
    from tuner.runs.loading import load_latest

    return load_latest(place.folder)


def _check_nothing_needed_is_gone(place: Place, told: str) -> None:
    """What a kill and a power cut leave has the checkpoints that its journal makes the search continue from."""
    for trial in journalled(place.folder, {})[0].results.trials:
        needed = [report.checkpoint for report in (*trial.reports[-1:], *filter(None, [trial.best]))]
        if trial.segments and trial.segments[-1].after == trial.steps and not trial.has_ended:
            needed.append(f"ray/{trial.id}/{copy_name(trial.segments[-1])}")
        for checkpoint in needed:
            assert find_damage(place.folder / str(checkpoint)) == "", f"{told}: {checkpoint}"


def _check_nothing_superfluous_is_left(place: Place, results: ResultSet, told: str) -> None:
    """Of each trial its best and its latest checkpoint are there, and no other folder."""
    for trial in results.trials:
        kept = {report.checkpoint for report in trial.reports if report.checkpoint}
        assert {f"ray/{trial.id}/{name}" for name in (place.folder / "ray" / trial.id).folders()} == kept, told
        assert len(kept) <= 2, told


def _compare(results: ResultSet, expected: list[Any], lossy: bool, place: Place, told: str) -> None:
    reader = JournalReader(place.folder)
    for _ in reader.new():
        pass
    assert not reader.damage, told
    _check_nothing_superfluous_is_left(place, results, told)
    if not lossy:
        assert anonymous(outcome(results)) == expected, told
        return
    # where damage took even the request of an extension, the same request is a new one
    assert len(results.trials) in (len(expected), len(expected) + TRIALS // 2), told
    for trial in results.trials:
        assert trial.has_ended, told
        steps = [report.step for report in trial.reports]
        assert steps == sorted(set(steps)), told
    assert results.best is not None, told


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(3))
def test_random_faults_lose_nothing(ray_session: None, chunk: int) -> None:
    for seed in range(chunk * 10, chunk * 10 + 10):
        sequence(seed)


if __name__ == "__main__":
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for number in range(first, first + int(sys.argv[1])):
        print(sequence(number), flush=True)
