"""How long the report of a large run takes to write and to open, and how large it is.

    python tests/benchmarks/report_page.py [--trials 1000] [--reports 30] [--keep FILE]

Makes a run with made-up learning curves (ASHA's statuses and rungs, eight parameters, one of them conditional), writes
its page, and opens that in headless Chromium without a network: milliseconds from the start of the navigation until the
last figure is drawn. The target: 3 s and 10 MB with 1,000 trials of 30 reports, every trial with all of its reports.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from made_up_run import made_up_run

from tuner.report.html import page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu")


def opened(file: Path) -> float:
    """Milliseconds until the last figure of the page is drawn, in a browser that was just started."""
    from playwright.sync_api import sync_playwright

    program = next(path for name in CHROMIUM if (path := shutil.which(name)))
    with sync_playwright() as driver, driver.chromium.launch(executable_path=program, args=[*SWITCHES]) as browser:
        tab = browser.new_context(offline=True).new_page()
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-drawn]", timeout=120_000)
        return float(tab.evaluate("document.documentElement.dataset.drawn"))


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
    print(f"opened in {statistics.median(times) / 1000:.2f} s, median of {len(times)}: {sorted(times)} ms")


if __name__ == "__main__":
    main()
