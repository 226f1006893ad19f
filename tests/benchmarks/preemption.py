"""What it costs to give away the place of a trial: it pauses at its next checkpoint, or it is killed at once.

    python tests/benchmarks/preemption.py [--rounds 10] [--epoch 1.5] [--every 4]

One search on a Ray cluster of its own, in namespaces of its own (Linux, root): two trials that would train for ever,
each on one CPU. An epoch sleeps `--epoch` seconds, so that other work on the machine does not change it; each
`--every`-th writes a checkpoint of 10 MB. In turn, after a pause of random length:

- paused: the command ``slots 1``, as the queue of `tuner serve` sends it. A trial pauses at its next checkpoint. When
  its place is free, ``slots`` gets its old value, and the trial continues.
- killed: kill -9 of the process of a trial. tuner retries it from its last checkpoint, as soon as it can.

Free after: from the command, or the kill, until the process of the trial is gone. Trained again: from the last
checkpoint to the kill; the epochs that were reported twice are counted too. Start: from the order to continue, or the
kill, to the first new report, less one epoch. Lost: both together, in seconds of one place.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.faults.search import TRIAL, Search  # noqa: E402
from tuner.runs.commands import send  # noqa: E402
from tuner.storage.folder import RunFolder  # noqa: E402

INSIDE = "TUNER_BENCHMARK_INSIDE"
NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
RAY = ["start", "--head", "--num-cpus", "2", "--num-gpus", "0", "--node-ip-address", "127.0.0.1", "--port", "6379"]
RAY += ["--include-dashboard", "false", "--object-store-memory", "100000000", "--disable-usage-stats"]


def processes() -> list[int]:
    """Of trials that train. The namespace has no other ones."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            title = (path / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if title.startswith(TRIAL):
            found.append(int(path.name))
    return found


class Rounds:
    """A search of two trials, and what happens to it."""

    def __init__(self, folder: Path, epoch_s: float, every: int) -> None:
        self.epoch_s = epoch_s
        self.search = Search(folder, environment={"TUNER_RAY_ADDRESS": "127.0.0.1:6379"}).start(
            {
                "trainable": f"{ROOT}/tests/benchmarks/preemption_trials.py:train",
                "params": {"seconds": epoch_s, "every": every},
                "search_space": {"x": {"uniform": [0, 1]}},
                "objective": {"metric": "score", "mode": "max"},
                "search": {"kind": "random", "seed": 1},
                "budget": {"trials": 2},
                "failures": {"retries": 1000},
                "resources": {"gpu": 0, "max_concurrent_trials": 2},
            }
        )

    def until(self, condition: Callable[[], Any]) -> None:
        self.search.until(condition, timeout=300)

    def reports(self, trial: str) -> list[dict[str, Any]]:
        return [event for event in self.search.events("reported") if event["trial"] == trial]

    def both_train(self) -> None:
        """Until each trial has reported something since now, and a checkpoint since it began."""
        begun = time.time()
        trials = [event["trial"] for event in self.search.events("suggested")]

        def have_reported() -> bool:
            told = [self.reports(trial) for trial in trials]
            return all(some and some[-1]["timestamp"] > begun for some in told)

        self.until(lambda: len(self.search.events("suggested")) == 2)
        trials = [event["trial"] for event in self.search.events("suggested")]
        self.until(have_reported)
        self.until(lambda: all(any(event["checkpoint"] for event in self.reports(trial)) for trial in trials))

    def paused(self) -> dict[str, float]:
        known, folder = len(self.search.events("paused")), RunFolder.at(self.search.run)
        begun = time.time()
        send(folder, "slots", "the queue", {"trials": 1})
        self.until(lambda: len(self.search.events("paused")) > known)
        trial = self.search.events("paused")[-1]["trial"]
        self.until(lambda: len(processes()) < 2)
        free, again, kept = time.time(), time.time(), self.reports(trial)
        send(folder, "slots", "the queue", {"trials": None})
        return self._after(trial, kept, free - begun, again, kept[-1]["timestamp"])

    def killed(self) -> dict[str, float]:
        known = len(self.search.events("failed attempt"))
        victim, begun = random.choice(processes()), time.time()
        os.kill(victim, signal.SIGKILL)
        self.until(lambda: victim not in processes())
        free = time.time()
        self.until(lambda: len(self.search.events("failed attempt")) > known)
        trial = self.search.events("failed attempt")[-1]["trial"]
        kept = [event for event in self.reports(trial) if event["timestamp"] < begun]
        return self._after(trial, kept, free - begun, begun, begun)

    def _after(self, trial: str, kept: list[dict[str, Any]], free: float, again: float, end: float) -> dict[str, float]:
        """``kept``: reports until then; ``again``: when it was to continue; ``end``: when it ceased to train."""
        self.until(lambda: self.reports(trial)[len(kept) :])
        first = self.reports(trial)[len(kept)]
        last = [event for event in kept if event["checkpoint"]][-1]
        start = first["timestamp"] - again - self.epoch_s
        lost = end - last["timestamp"]
        twice = kept[-1]["step"] - first["step"] + 1
        return {"free": free, "trained again": lost, "twice": twice, "start": start, "lost": lost + start}


def spread(values: list[float], form: str = ".1f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def inside(options: argparse.Namespace) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="pre", ignore_cleanup_errors=True) as folder:
        ray = Path(sys.executable).with_name("ray")
        said = subprocess.run([ray, *RAY, "--temp-dir", f"{folder}/r"], capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        print(f"cores: {os.cpu_count()}; load of the machine at the start: {os.getloadavg()[0]:.1f}", flush=True)
        rounds = Rounds(Path(folder), options.epoch, options.every)
        found: dict[str, list[dict[str, float]]] = {"paused": [], "killed": []}
        for _ in range(options.rounds):
            for name, some in found.items():
                rounds.both_train()
                time.sleep(random.uniform(0, options.epoch * options.every))
                some.append(getattr(rounds, name)())
                print(name, json.dumps({key: round(value, 2) for key, value in some[-1].items()}), flush=True)
        rounds.search.kill()
    print("\n| | rounds | free after, s | trained again, s | epochs reported twice | start, s | lost, s a place |")
    print("|---|---|---|---|---|---|---|")
    for name, some in found.items():
        told = [spread([one[key] for one in some]) for key in ("free", "trained again")]
        told.append(spread([one["twice"] for one in some], ".0f"))
        told += [spread([one[key] for one in some]) for key in ("start", "lost")]
        print(f"| {name} | {len(some)} | {' | '.join(told)} |")
    again = {name: statistics.fmean(one["trained again"] for one in some) for name, some in found.items()}
    whole = {name: statistics.fmean(one["lost"] for one in some) for name, some in found.items()}
    print(f"\nmeans: trained again {again}, lost {whole}; killed / paused: {whole['killed'] / whole['paused']:.2f}")
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epoch", type=float, default=1.5, help="seconds")
    parser.add_argument("--every", type=int, default=4, help="epochs from one checkpoint to the next")
    options = parser.parse_args()
    if os.environ.get(INSIDE):
        inside(options)
        return
    assert shutil.which("unshare"), "this needs Linux, with unshare and ip"
    done = subprocess.run([*NAMESPACES, sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"})
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
