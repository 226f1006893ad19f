"""The picture of the MLflow UI in the README: `python tests/benchmarks/mlflow_picture.py RUN`.

Serves the UI as `python -m tuner ui RUN` does, and writes docs/mlflow.png: a search and its trials, with the columns of
the objective, the parameters and the reason why each ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from report_page import started  # noqa: E402

from tuner.runs.loading import load_run  # noqa: E402
from tuner.tracking.ui import page_of_run  # noqa: E402

CHOOSE = """columns => {
  const key = Object.keys(localStorage).find(key => key.includes("ExperimentPage-["));
  localStorage[key] = JSON.stringify({...JSON.parse(localStorage[key]), selectedColumns: columns});
}"""
"""What a click on each of them in the menu "Columns" would do."""


def main(run: str) -> None:
    results = load_run(run)
    metric = results.metric
    columns = [f"params.`{name}`" for name in results.trials[0].config]
    with page_of_run(run, "runs").served(None) as address, started() as browser:
        tab = browser.new_context(viewport={"width": 1500, "height": 760}).new_page()
        tab.goto(address.partition("?")[0])  # that of the search and all its trials
        tab.locator("[row-id]").first.wait_for(timeout=120_000)
        if tab.get_by_label("Close").count():
            tab.get_by_label("Close").first.click()
        tab.wait_for_timeout(1000)
        tab.evaluate(CHOOSE, [f"metrics.`{metric}`", *columns, "tags.`reason`"])
        tab.reload()
        tab.locator("[row-id]").first.wait_for(timeout=120_000)
        tab.locator("[row-id] button").first.click()
        tab.wait_for_timeout(3000)
        tab.screenshot(path=ROOT / "docs" / "mlflow.png")


if __name__ == "__main__":
    main(sys.argv[1])
