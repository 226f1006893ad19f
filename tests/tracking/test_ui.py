"""``ui`` in a real browser: MLflow's own pages of a run."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tracking.made_up import made_up_run, made_up_trial
from tuner.errors import InputError
from tuner.runs.results import EXPERIMENT, PROVENANCE, write_json
from tuner.spec.document import dump_yaml
from tuner.tracking.ui import Page, page_of_storage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of the page of a run of three trials that nothing had sent to MLflow."""
    results = made_up_run(tmp_path, interrupted=False, notices=[])
    for accuracies in ((0.1, 0.2), (0.3, 0.9), (0.5,)):
        made_up_trial(results, *accuracies, status="completed")
    results.folder.filesystem.create_dir(results.folder.path)
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    write_json(results.folder, PROVENANCE, results.provenance)
    results.save()
    server = subprocess.Popen(
        [sys.executable, "-m", "tuner", "ui", "run", "--storage", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.send_signal(signal.SIGTERM)
    server.stdout.close()
    assert server.wait(timeout=30) == 0


@pytest.mark.processes
def test_the_search_and_its_trials_are_there(address: str, browser: Browser) -> None:
    assert re.match(r"http://127\.0\.0\.1:\d+/#/experiments/\d+/runs\?", address)
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    names = page.locator("[row-id] a[href*='/runs/']")
    names.nth(2).wait_for(timeout=60_000)
    assert names.all_inner_texts() == ["trial 2", "trial 3", "trial 1"]  # the best first, and not the search's own run
    page.get_by_text("Model metrics").first.wait_for(timeout=60_000)
    page.locator(".js-plotly-plot").first.wait_for(timeout=60_000)
    page.close()
    page = browser.new_page(viewport={"width": 1400, "height": 900})  # without what the first one remembers
    page.goto(address.partition("?")[0])
    rows = page.locator("[row-id]")
    names = rows.locator("a[href*='/runs/']")
    names.first.wait_for(timeout=60_000)
    assert names.all_inner_texts() == ["run"]  # its trials are nested
    rows.locator("button").first.click()
    names.nth(3).wait_for(timeout=60_000)
    assert sorted(names.all_inner_texts()) == ["run", "trial 1", "trial 2", "trial 3"]
    assert errors == []
    page.close()


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"--port {port}: Address already in use; choose another"):
            Page("sqlite://", "").served(port).__enter__()


def test_a_server_elsewhere_is_not_started() -> None:
    with Page("https://mlflow.example.org/", "#/runs").served(None) as address:
        assert address == "https://mlflow.example.org/#/runs"


def test_a_storage_without_a_database_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no mlflow.db: no search there was tracked in it"):
        page_of_storage(str(tmp_path))
