"""How long the report of a large run takes to write and to open, and how large it is.

    python tests/benchmarks/report_page.py [--trials 1000] [--reports 30] [--keep FILE]

Makes a run with made-up learning curves (ASHA's statuses and rungs, eight parameters, one of them conditional), writes
its page, and opens that in headless Chromium without a network: milliseconds from the start of the navigation until the
last figure is drawn. The target: 3 s and 10 MB with 1,000 trials of 30 reports, every trial with all of its reports.

With 100,000 trials of 3 reports, of which 1,000 are shown, it is as large (6.5 MB) and takes 3.2 s of processor time
to open.

2 cores, plotly 7.1, Chromium 156: written in 2.9 s (1.4 s once the libraries are imported), 6.7 MB, opened in 2.9 s
(median of 5), of them 2.7 s processor time of the page's main thread, 1 s of which reads plotly.js.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from made_up_run import made_up_run

from tuner.visualization.html import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu")


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    program = next(path for name in CHROMIUM if (path := shutil.which(name)))
    with sync_playwright() as driver, driver.chromium.launch(executable_path=program, args=[*SWITCHES]) as browser:
        yield browser


def opened(file: Path) -> tuple[float, float]:
    """Milliseconds until the page's last figure is drawn, in a browser just started; processor time of its thread."""
    with started() as browser:
        tab = browser.new_context(offline=True).new_page()
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-drawn]", timeout=120_000)
        spent = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
        return float(tab.evaluate("document.documentElement.dataset.drawn")), 1000 * spent["TaskDuration"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--reports", type=int, default=30)
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--keep", type=Path, help="Where to keep the page.")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = made_up_run(Path(scratch) / "large", chosen.trials, chosen.reports)
        begun = time.perf_counter()
        text = page(results)
        written = time.perf_counter() - begun
        begun = time.perf_counter()
        page(results)
        again = time.perf_counter() - begun
        file = chosen.keep or Path(scratch) / "report.html"
        file.write_text(text)
        times = [opened(file.resolve()) for _ in range(chosen.times)]
    print(f"{chosen.trials} trials x {chosen.reports} reports")
    print(f"written in {written:.2f} s, again {again:.2f} s (the libraries are imported then)")
    print(f"{len(text.encode()) / 1e6:.2f} MB")
    wall, processor = (statistics.median(column) / 1000 for column in zip(*times, strict=True))
    print(
        f"opened in {wall:.2f} s, median of {len(times)}; {processor:.2f} s of them processor time of its main thread"
    )


if __name__ == "__main__":
    main()
