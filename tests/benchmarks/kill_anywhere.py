"""Kills searches at random moments with kill -9, resumes them, and checks that nothing is lost.

    python tests/benchmarks/kill_anywhere.py [--kills 200] [--seed 0]

A search of 8 trials by 9 epochs (ASHA; random search, TPE and BOHB in turn; one worker) is killed, resumed and killed
again, and so on; every fifth resume goes to the end, and a new search begins. The moment is drawn at random: three of
four within 50 ms of when the journal has reached a size between what it has and what it will have (which spreads them
over the search, however busy the machine is), the others by the clock, from the start of the process to beyond the
search's end. Killed is the driver (four of five) or its trial's process as well. After each end: every trial accounted
for, no report twice or missing, the best restorable, and the whole outcome equal to that of a search that nothing
happened to. Prints a line a kill, and at the end how many of them were survived.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.faults.search import SEARCHES, TRIAL, Search, check_complete, experiment, outcome  # noqa: E402

LEGS = 5
"""Kills of one search, then it runs to its end."""


@dataclass(frozen=True)
class Whole:
    """A search that nothing happens to."""

    outcome: list[Any]
    seconds: float
    journal: int
    """Bytes."""


def whole(kind: str, folder: Path) -> Whole:
    """One such."""
    search = Search(folder / f"whole {kind}")
    search.folder.mkdir()
    begun = time.monotonic()
    status, said = search.start(experiment(kind)).wait()
    assert status == 0, said
    check_complete(search.run)
    return Whole(outcome(search.run), time.monotonic() - begun, written(search))


def written(search: Search) -> int:
    """Bytes of its journal."""
    file = search.run / "journal.jsonl"
    return file.stat().st_size if file.exists() else 0


def moment(search: Search, draw: random.Random, expected: Whole) -> str:
    """Waits for it, or for the end of the process; how it was drawn."""
    assert search.process is not None
    if draw.random() < 0.25:
        seconds = draw.uniform(0.0, 1.1 * expected.seconds)
        with contextlib.suppress(subprocess.TimeoutExpired):
            search.process.wait(seconds)
        return f"after {seconds:.2f} s"
    size = draw.randint(min(written(search), expected.journal), expected.journal)
    while written(search) < size and search.process.poll() is None:
        time.sleep(0.001)
    time.sleep(draw.uniform(0.0, 0.05))
    return f"at {size} bytes"


def hurt(search: Search, draw: random.Random, expected: Whole) -> str:
    """Kills the process that works on ``search`` at a random moment; what happened."""
    assert search.process is not None
    drawn = moment(search, draw, expected)
    if search.process.poll() is not None:
        search.wait()
        return f"had ended ({drawn})"
    trials = search.children(*TRIAL) if draw.random() < 0.2 else []
    os.kill(search.pid, signal.SIGKILL)
    for pid in trials:
        with contextlib.suppress(ProcessLookupError):  # it died with its driver
            os.kill(pid, signal.SIGKILL)
    search.wait()
    return f"killed {drawn}, event {len(search.events())}{', and its trial' if trials else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    kills = number = lost = 0
    with tempfile.TemporaryDirectory() as scratch:
        expected = {kind: whole(kind, Path(scratch)) for kind in SEARCHES}
        print({kind: f"{found.seconds:.1f} s" for kind, found in expected.items()}, flush=True)
        while kills < arguments.kills:
            kind = list(SEARCHES)[number % len(SEARCHES)]
            number += 1
            folder = Path(scratch) / f"search {number}"
            folder.mkdir()
            search = Search(folder).start(experiment(kind))
            for _ in range(min(LEGS, arguments.kills - kills)):
                said = hurt(search, draw, expected[kind])
                kills += said.startswith("killed")
                print(f"{kills:4} {kind:6} search {number}: {said}", flush=True)
                if not search.events():
                    search.start(experiment(kind))  # nothing was begun
                elif search.events()[-1]["what"] == "left":
                    break
                else:
                    search.start()
            if search.process is not None and search.process.poll() is None:
                status, text = search.wait()
                assert status in (0, 2), text
            try:
                check_complete(search.run)
                assert outcome(search.run) == expected[kind].outcome, "another outcome"
            except AssertionError as error:
                lost += 1
                print(f"     LOST: {str(error).splitlines()[0] if str(error) else error!r} in {search.run}", flush=True)
    print(f"{kills} kills of {number} searches; searches that lost something: {lost}")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
