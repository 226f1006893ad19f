"""What it costs that nothing is lost: the journal while a search runs, and the time until a resumed search continues.

    python tests/benchmarks/resuming.py [--rounds 5] [--trials 1000]

1. The quickstart (30 trials, digits, two at a time, not tracked) with and without journal, snapshots and the keeping of
   checkpoints, in turn, each in a process of its own; from the first trial's start to the end of the search. Without:
   `JournalWriter.append`, its syncing, `save_state`, and all that keeps and deletes checkpoints do nothing. Ratio of
   each pair; median and spread; and the share of the search's time that is spent in them. Besides, milliseconds to
   write the manifest of one of its checkpoints.
2. A search of ``--trials`` and 10 more trials that report once, killed with kill -9 when ``--trials`` have ended:
   seconds from `python -m tuner resume`, Ray and all, to the start of the next trial, for random search and for TPE.

Measured on 2 cores (AMD EPYC), Ray 2.60:
  quickstart with / without: median 1.012 (0.804 to 1.103), 9 pairs: the order in which trials report, and so how much
  is trained, differs more; by the driver's clock 1.3 % (up to 1.4 %) of the search is spent in it. Manifest: 0.6 ms.
  resume after 1,000 trials: 5.2 s (random), 5.3 s (TPE).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.faults.search import Search, experiment  # noqa: E402
from tuner.storage.folder import RunFolder  # noqa: E402
from tuner.storage.manifest import contents, seal  # noqa: E402

QUICKSTART = """
import sys, time
from tuner import run
from tuner.runs import journal
import tuner.execution.recorder as recorder

spent = 0.0

def timed(function):
    def call(*arguments, **options):
        global spent
        begun = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spent += time.perf_counter() - begun
    return call

def nothing(function):
    return lambda *arguments, **options: None

change = timed if sys.argv[1] == "with" else nothing
for owner, name in (
    (journal.JournalWriter, "append"), (journal.JournalWriter, "sync"), (recorder, "save_state"),
    (recorder.CheckpointRetention, "reported"), (recorder.CheckpointRetention, "ended"),
):
    setattr(owner, name, change(getattr(owner, name)))
overrides = {"budget.wall_clock": "1h", "tracking": {}}
results = run("experiments/quickstart.yaml", overrides, storage=sys.argv[2], name="q", say=lambda text: None)
print(results.provenance["elapsed_s"], spent)
"""


def quickstart(how: str) -> tuple[float, float]:
    """Seconds from the first trial's start to the search's end, and those of them spent in what nothing is lost by."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", QUICKSTART, how, folder]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        elapsed, spent = map(float, done.stdout.split()[-2:])
        return elapsed, spent


def resumed_after(search: str, trials: int) -> float:
    """Seconds from the start of ``resume`` to the start of the next trial."""
    with tempfile.TemporaryDirectory() as folder:
        spec: dict[str, Any] = experiment(search, workers=2, seconds=0.0)
        spec |= {"budget": {"trials": trials + 10}, "scheduler": {"kind": "fifo"}, "checkpoints": {"keep_trials": 5}}
        spec["params"]["epochs"] = 1
        hurt = Search(Path(folder)).start(spec)
        hurt.until(lambda: _count(hurt, "ended") >= trials, timeout=3600).kill()
        known = _count(hurt, "started")
        begun = time.monotonic()
        hurt.start().until(lambda: _count(hurt, "started") > known, timeout=300)
        seconds = time.monotonic() - begun
        hurt.kill()
        return seconds


def _count(search: Search, what: str) -> int:
    """Events of that kind. Looks seldom, and reads no line as JSON, which would slow the search down."""
    time.sleep(0.1)
    file = search.run / "journal.jsonl"
    return file.read_bytes().count(f'"what":"{what}"'.encode()) if file.exists() else 0


def manifest_ms(size: int, count: int = 300) -> float:
    """Of a checkpoint of one file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "checkpoint.pt").write_bytes(os.urandom(size))
        begun = time.perf_counter()
        for _ in range(count):
            seal(RunFolder.at(folder), contents(RunFolder.at(folder)))
        return 1000 * (time.perf_counter() - begun) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=1000)
    arguments = parser.parse_args()
    print(f"manifest of a checkpoint of 44 kB: {manifest_ms(44_000):.2f} ms", flush=True)
    for search in ("random", "tpe"):
        seconds = resumed_after(search, arguments.trials)
        print(f"resume after {arguments.trials} trials, {search}: {seconds:.1f} s", flush=True)
    ratios, shares = [], []
    for number in range(arguments.rounds):
        order = ("with", "without") if number % 2 else ("without", "with")
        took = {how: quickstart(how) for how in order}
        ratios.append(took["with"][0] / took["without"][0])
        shares.append(took["with"][1] / took["with"][0])
        print(json.dumps(took), flush=True)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"quickstart with / without: median {statistics.median(ratios):.3f} ({spread}), {len(ratios)} pairs")
    print(f"share of the time spent in it: median {statistics.median(shares):.3f} (up to {max(shares):.3f})")


if __name__ == "__main__":
    main()
