"""The pictures of a report in the README: `python tests/benchmarks/report_pictures.py runs/cifar_asha-…/report.html`.

Opens the page in headless Chromium and writes docs/images/report_*.png, one for each of these parts of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from report_page import started

PARTS = ("curves", "importance", "parallel", "contour", "timeline")
IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 860


def main(file: Path) -> None:
    with started() as browser:
        tab = browser.new_context(
            viewport={"width": WIDTH, "height": 900}, color_scheme="light", offline=True
        ).new_page()
        tab.goto(file.resolve().as_uri())
        tab.wait_for_selector("html[data-drawn]", timeout=120_000)
        for part in PARTS:
            tab.locator(f"section[data-part={part}]").screenshot(path=IMAGES / f"report_{part}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
