"""What the terminal says while a search runs, and at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.runs.test_results import new_run, report, trial
from tuner.display.plain import PlainProgress
from tuner.runs.results import ResultSet
from tuner.runs.trial import Segment
from tuner.visualization.text_tables import headline


def said_at_the_end_of(results: ResultSet, *ended: int) -> list[str]:
    """The line for each of these trials' ends, by number, without its time."""
    said: list[str] = []
    screen = SimpleNamespace(say=said.append, take=lambda results: None)
    view = PlainProgress(screen)  # type: ignore[arg-type]
    results.provenance |= {"trials": 4, "slots": 1, "seed": 0}
    running = [results.trials[number - 1] for number in ended]
    statuses = [one.status for one in running]
    for one in running:
        one.status = "running"
    view.started(results)
    for one, status in zip(running, statuses, strict=True):
        one.status = status
        view.ended(one)
    return [line.split("s] ")[1] for line in said[1:]]


def test_a_paused_trial_is_not_done(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    for value, status in ((0.1, "paused"), (0.4, "completed"), (0.2, "paused"), (0.3, "running")):
        trial(results, value).status = status  # type: ignore[assignment]
    results.trials[1].reason = "epoch reached max_t 1"
    (line,) = said_at_the_end_of(results, 2)
    assert line == "[1/4] trial #2 (id2) completed after 1 step, best acc 0.4 (epoch reached max_t 1)"


def test_ends_are_counted_without_looking_at_all_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = new_run(tmp_path / "r")
    for value in (0.1, 0.2, 0.3):
        trial(results, value).status = "completed"
    monkeypatch.setattr(ResultSet, "count", None)
    lines = said_at_the_end_of(results, 2, 3)
    assert [line.split()[0] for line in lines] == ["[2/4]", "[3/4]"]


@pytest.mark.parametrize(("exploits", "times"), [(1, "once"), (2, "2 times")])
def test_a_trial_that_went_on_from_others_says_so(tmp_path: Path, exploits: int, times: str) -> None:
    results = new_run(tmp_path / "r")
    changed = trial(results, 0.1, 0.2, 0.3)
    changed.segments = [Segment(k, {}, donor="id2" if k else None) for k in range(exploits + 1)]
    changed.reason = "epoch reached max_t 2"
    (line,) = said_at_the_end_of(results, 1)
    words = f"completed after 3 steps, some of them again: it continued from a better trial {times}, best acc 0.3"
    assert line == f"[1/4] trial #1 (id1) {words} (epoch reached max_t 2)"


def savings_of(folder: Path, kind: str) -> list[str]:
    results = new_run(folder)
    results.spec["scheduler"] = {"kind": kind, "time_attr": "epoch", "max_t": 4}
    for last, status in ((4, "completed"), (1, "stopped"), (2, "paused")):
        found = trial(results)
        report(found, 0.5, epoch=last)
        found.status = status
    return [line for line in headline(results) if "saved" in line]


def test_what_early_stopping_saved_is_said_where_trials_can_be_stopped(tmp_path: Path) -> None:
    for kind in ("asha", "median", "ray"):
        assert savings_of(tmp_path / kind, kind) == ["7 of 10 epochs run: 30% saved by stopping early"]
    for kind in ("pbt", "pb2"):
        assert savings_of(tmp_path / kind, kind) == []


def test_who_led_before_a_resume_still_leads(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.9)
    said: list[str] = []
    screen = SimpleNamespace(say=said.append, take=lambda results: None)
    view = PlainProgress(screen)  # type: ignore[arg-type]
    results.provenance |= {"trials": 4, "slots": 1, "seed": 0}
    view.started(results)
    for value in (0.5, 0.95):
        new = trial(results, value)
        assert new.best is not None
        view.reported(new, new.best)
    assert [line.split("s] ")[1][:30] for line in said[1:]] == ["trial #3 (id3) takes the lead,"]
