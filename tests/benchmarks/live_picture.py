"""The picture of the live page in the docs: `python tests/benchmarks/live_picture.py`.

Writes the journal of a made-up search with successive halving, opens its page in headless Chromium, and writes
docs/images/live_page.png.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from report_page import started  # noqa: E402

from tests.live.journals import Journal  # noqa: E402
from tests.live.servers import served  # noqa: E402
from tuner.storage.lock import LOCK, locked  # noqa: E402

WIDTH, HEIGHT = 1300, 1180
SLOTS, TRIALS, ROUNDS, RUNGS, MAX_T = 8, 60, 55, (1, 3, 9), 30
EPOCH_S = 7.0


class MadeUpSearch:
    """A search whose trials train as one likes, journalled as a real one is."""

    def __init__(self, storage: Path) -> None:
        self.journal = Journal(storage, "resnet_lr", budget={"trials": TRIALS, "wall_clock": "2h"})
        self._random = random.Random(0)
        self._running: dict[str, tuple[float, int]] = {}
        """Of each trial: the value that it comes to, and its epoch."""
        self._rungs: dict[int, list[float]] = {rung: [] for rung in RUNGS}
        self._count, self._now = 0, 0.0

    def epoch(self) -> None:
        """Each trial trains for an epoch; new ones take the place of those that end."""
        self._now += EPOCH_S
        while len(self._running) < SLOTS and self._count < TRIALS:
            self._suggest()
        for trial, (top, epoch) in list(self._running.items()):
            self._train(trial, top, epoch + 1)
        states = {trial: {"state": "running", "since": time.time() - 60} for trial in self._running}
        nodes, free = [{"GPU": 4.0, "CPU": 16.0}] * 2, {"GPU": float(SLOTS - len(states)), "CPU": 16.0}
        self.journal.live(slots=SLOTS, request={"GPU": 1.0}, nodes=nodes, available=free, trials=states)

    def _suggest(self) -> None:
        chosen = self._random
        self._count += 1
        trial, lr = f"{chosen.getrandbits(32):08x}", 10 ** chosen.uniform(-4, 0)
        config = {"lr": lr, "optimizer": chosen.choice(["sgd", "adamw"]), "dropout": chosen.uniform(0, 0.5)}
        self.journal.append("suggested", trial=trial, config=config, elapsed=self._now)
        self.journal.append("started", trial=trial, host=f"node{chosen.randint(1, 2)}", elapsed=self._now)
        self._running[trial] = 0.9 - 0.1 * (math.log10(lr) + 1.5) ** 2 + chosen.gauss(0, 0.02), 0

    def _train(self, trial: str, top: float, epoch: int) -> None:
        self._running[trial] = top, epoch
        value = top * (1 - math.exp(-epoch / 6)) + self._random.gauss(0, 0.005)
        use = {"gpu_use": round(self._random.uniform(70, 99), 1)}
        self.journal.report(trial, epoch, value, elapsed=self._now, consumed=use)
        seen = self._rungs.get(epoch)
        if seen is not None:
            seen.append(value)
        if seen and sorted(seen, reverse=True).index(value) >= max(1, len(seen) / 3):
            self._end(trial, "stopped", epoch)
        elif epoch == MAX_T:
            self._end(trial, "completed", None)

    def _end(self, trial: str, status: str, rung: int | None) -> None:
        del self._running[trial]
        self.journal.append("ended", trial=trial, status=status, reason="", rung=rung, elapsed=self._now)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, started() as browser:
        search = MadeUpSearch(Path(folder))
        for _ in range(ROUNDS):
            search.epoch()
        with locked(search.journal.folder, LOCK), served(Path(folder), "ada") as address:
            tab = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light").new_page()
            tab.goto(f"{address}/runs/resnet_lr")
            tab.wait_for_selector("html[data-drawn]", state="attached")
            tab.wait_for_function("document.querySelectorAll('[data-part=working] tbody tr').length > 0")
            tab.screenshot(path=ROOT / "docs" / "images" / "live_page.png")


if __name__ == "__main__":
    main()
