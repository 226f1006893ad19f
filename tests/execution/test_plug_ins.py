"""A third party's search and scheduler in a real search, which another process extends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execution.test_run import experiment
from tests.experiment.test_plug_ins import SCHEDULER, SEARCH, dedented
from tuner import extend, load_run, run
from tuner.callback import Callback
from tuner.errors import Crashed, InputError
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]


def quiet(text: str) -> None: ...


def forget() -> None:
    """As if another process continued."""
    for name in ("mine", "early"):
        sys.modules.pop(name, None)
    sys.path_importer_cache.clear()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(dedented(SEARCH))
    (tmp_path / "early.py").write_text(dedented(SCHEDULER))
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    forget()


def search(here: Path, name: str, trials: int, callbacks: list[Callback], **options: object) -> ResultSet:
    spec = experiment(
        "quadratic",
        {"x": {"uniform": [0, 1]}},
        params={"epochs": 4},
        search={"kind": "custom", "class_path": "mine.py:Walk", "seed": 3, **options},
        scheduler={"kind": "custom", "class_path": "early:Early", "time_attr": "epoch", "max_t": 4},
        budget={"trials": trials},
    )
    return run(spec, storage=here, name=name, listeners=callbacks, say=quiet)


class Count(Callback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def started(self, results: ResultSet) -> None:
        self.calls.append("started")

    def reported(self, trial: Trial, report: Report) -> None:
        self.calls.append(f"reported {report.step}")

    def ended(self, trial: Trial) -> None:
        self.calls.append(trial.status)

    def finished(self, results: ResultSet) -> None:
        self.calls.append("finished")


def test_it_runs_and_another_process_extends_it(here: Path) -> None:
    whole = search(here, "whole", 6, [])
    count = Count()
    first = search(here, "run", 4, [count])
    assert [trial.status for trial in first.trials] == ["stopped"] * 4
    assert [trial.steps for trial in first.trials] == [2] * 4
    assert (count.calls[0], count.calls[-1]) == ("started", "finished")
    assert sorted(count.calls[1:-1]) == sorted(["reported 1", "reported 2", "stopped"] * 4)
    forget()
    extend(here / "run", trials="6", say=quiet)
    after = load_run(here / "run")
    assert sorted(trial.config["x"] for trial in after.trials) == sorted(trial.config["x"] for trial in whole.trials)
    assert after.spec["search"]["class_path"] == "mine.py:Walk"


def test_what_raises_ends_the_search_and_is_named(here: Path) -> None:
    with pytest.raises(Crashed, match="search Walk raised KeyError: 'lost'"):
        search(here, "run", 4, [], trouble="raises")
    with pytest.raises(InputError, match="search Walk: suggest must return a dict or None, not list"):
        search(here, "other", 4, [], trouble="list")
