"""What the pages about extension points show runs as it stands there."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner import run
from tuner.experiment.reader import load_experiment
from tuner.spec.document import read_yaml

PAGES = Path(__file__).parents[2] / "docs/how-to"

TRAIN = """
from ray import tune

def train(config):
    for epoch in (1, 2):
        tune.report({"val_accuracy": epoch * config["lr"]})
"""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (PAGES / page).read_text(), re.M | re.S)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "train.py").write_text(TRAIN)
    before = set(sys.modules)
    yield tmp_path
    for name in {"hill", "plateau", "page", "train", "lines"} - before:
        sys.modules.pop(name, None)


def executed(here: Path, page: str, module: str) -> dict[str, Any]:
    """The names that the page defines: its first block in a file called ``module``, the others as a script."""
    first, *others = blocks(page, "python")
    (here / f"{module}.py").write_text(first)
    names = dict(vars(importlib.import_module(module)))
    for block in others:
        exec(compile(block, page, "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize(
    ("page", "module", "block", "kind"),
    [("add-a-searcher.md", "hill", "search", "Hill"), ("add-a-scheduler.md", "plateau", "scheduler", "Plateau")],
)
def test_an_algorithm_of_a_page_keeps_its_contract_and_is_read(
    here: Path, page: str, module: str, block: str, kind: str
) -> None:
    names = executed(here, page, module)
    (text,) = blocks(page, "yaml")
    experiment = {"trainable": "train.py:train", "search_space": {"lr": {"uniform": [0, 1]}}}
    written = read_yaml(text, page).value
    spec = load_experiment({**experiment, "objective": {"metric": "val_accuracy", "mode": "max"}, **written}).spec
    assert type(getattr(spec, block)) is names[kind]
    if "search" in names:
        names["search"].to_yaml("written.yaml")
        recorded = read_yaml(Path("written.yaml").read_text(), "written.yaml").value["search"]
        assert recorded == {"kind": "custom", "class_path": "hill:Hill", "change": 0.3, "seed": 0}
        assert names["HillClimb"]().kind == "hill"


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_the_tracking_backend_of_the_page_records_every_report(here: Path) -> None:
    executed(here, "add-a-tracking-backend.md", "lines")
    (text,) = blocks("add-a-tracking-backend.md", "yaml")
    (here / "search.yaml").write_text(text)
    results = run("search.yaml", name="q", say=lambda told: None)
    recorded = {file.stem: file.read_text().splitlines() for file in (here / "runs/q/lines").iterdir()}
    assert recorded.keys() == {trial.id for trial in results.trials}
    for trial in results.trials:
        told = [json.loads(line)["val_accuracy"] for line in recorded[trial.id]]
        assert told == [report.metrics["val_accuracy"] for report in trial.reports]


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_the_callback_of_the_page_hears_of_every_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executed(here, "callbacks.md", "page")
    lines = [json.loads(line) for line in (here / "reports.jsonl").read_text().splitlines()]
    assert sorted(line["step"] for line in lines) == [1, 1, 1, 2, 2, 2]
    assert capsys.readouterr().out.count("completed") == 3
