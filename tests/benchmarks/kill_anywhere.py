"""Kills searches at random moments with kill -9, resumes them, and checks that nothing is lost.

    python tests/benchmarks/kill_anywhere.py [--kills 200] [--seed 0]

A search of 8 trials by 9 epochs (ASHA; random search, TPE and BOHB in turn; one worker) is killed after a time that is
drawn at random, from its start to beyond its end, then resumed and killed again, and so on; every fifth resume goes to
the end, and a new search begins. Killed is the driver (four of five) or its trial's process as well. After each end:
every trial accounted for, no report twice or missing, the best restorable, and the whole outcome equal to that of a
search that nothing happened to. Prints a line a kill, and at the end how many of them were survived.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.faults.search import SEARCHES, Search, check_complete, experiment, outcome  # noqa: E402

LEGS = 5
"""Kills of one search, then it runs to its end."""


def whole(kind: str, folder: Path) -> tuple[list[Any], float]:
    """What a search finds that nothing happens to, and the seconds it takes."""
    search = Search(folder / f"whole {kind}")
    search.folder.mkdir()
    begun = time.monotonic()
    status, said = search.start(experiment(kind)).wait()
    assert status == 0, said
    check_complete(search.run)
    return outcome(search.run), time.monotonic() - begun


def hurt(search: Search, draw: random.Random, longest: float) -> str:
    """Kills the process that works on ``search`` after a random time; what happened."""
    delay = draw.uniform(0.0, longest)
    try:
        search.wait(delay)
    except subprocess.TimeoutExpired:
        trials = search.children("ray::Trial") if draw.random() < 0.2 else []
        os.kill(search.pid, signal.SIGKILL)
        for pid in trials:
            with contextlib.suppress(ProcessLookupError):  # it died with its driver
                os.kill(pid, signal.SIGKILL)
        search.wait()
        return f"killed after {delay:.2f} s, at event {len(search.events())}{', and its trial' if trials else ''}"
    return f"had ended before {delay:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    kills = number = lost = 0
    with tempfile.TemporaryDirectory() as scratch:
        expected = {kind: whole(kind, Path(scratch)) for kind in SEARCHES}
        print({kind: f"{seconds:.1f} s" for kind, (_, seconds) in expected.items()}, flush=True)
        while kills < arguments.kills:
            kind = list(SEARCHES)[number % len(SEARCHES)]
            number += 1
            folder = Path(scratch) / f"search {number}"
            folder.mkdir()
            search = Search(folder).start(experiment(kind))
            for _ in range(min(LEGS, arguments.kills - kills)):
                said = hurt(search, draw, 1.1 * expected[kind][1])
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
                assert outcome(search.run) == expected[kind][0], "another outcome"
            except AssertionError as error:
                lost += 1
                print(f"     LOST: {str(error).splitlines()[0] if str(error) else error!r} in {search.run}", flush=True)
    print(f"{kills} kills of {number} searches; searches that lost something: {lost}")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
