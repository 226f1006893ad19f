"""Searchers and schedulers learn how long a trial has trained: while it runs, in a replay and in a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.search.test_recovery import EPOCHS, SPACE, Search
from tuner.schedulers import Decision, Scheduler, TimedSpec
from tuner.schedulers.audited import Audited
from tuner.schedulers.build import build_scheduler
from tuner.search.state import SearchState
from tuner.searchers import Random, Searcher, SearchSpec
from tuner.searchers.build import build_searcher
from tuner.simulator import CurveFunction, simulate
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem
from tuner.storage.folder import RunFolder

LIMIT = 4.0
ROW = np.arange(1.0, EPOCHS + 1)[None]


class Slow(TimedSpec):
    """Stops a trial when it has run for `LIMIT` seconds."""

    kind: str = "slow"

    def build(self, task: SearchProblem) -> Scheduler:
        return StopsSlow()

    def rungs(self) -> tuple[int, ...]:
        return tuple(range(1, self.max_t + 1))


class StopsSlow(Scheduler):
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def on_seconds(self, trial_id: str, seconds: float) -> None:
        self.seconds[trial_id] = seconds

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        return Decision.STOP if self.seconds[trial_id] >= LIMIT else Decision.CONTINUE


class Learning(SearchSpec):
    """Suggests a point that follows from all seconds so far."""

    kind: str = "learning"

    def build(self, task: SearchProblem) -> Searcher:
        return LearnsSeconds()


class LearnsSeconds(Searcher):
    def __init__(self) -> None:
        self.news: list[tuple[Any, ...]] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        total = sum(new[1] for new in self.news if len(new) == 2)
        return {"x": total % 7 / 7, "shape": (3,), "n": 1 + len(self.news) % 8}

    def on_seconds(self, trial_id: str, seconds: float) -> None:
        self.news.append((trial_id, seconds))

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        self.news.append((trial_id, step, value))


SLOW, LEARNING = Slow(time_attr="epoch", max_t=EPOCHS), Learning()
TASK = SearchProblem(SPACE, ("max",), trials=3, max_t=EPOCHS, seed=0)


def test_seconds_come_before_the_report_that_they_belong_to() -> None:
    searcher = LearnsSeconds()
    objectives = (Objective(metric="score", mode="max"),)
    state = SearchState(searcher, build_scheduler(SLOW, TASK), SPACE, objectives, "epoch")
    state.add("a", {})
    assert state.report("a", 1, {"epoch": 1, "score": 0.5}, 1.5) is Decision.CONTINUE
    assert state.report("a", 1, {"epoch": 1, "score": 0.5}, 9.0) is Decision.CONTINUE  # it came before
    assert state.report("a", 2, {"epoch": 2, "score": 0.6}, LIMIT) is Decision.STOP
    assert searcher.news == [("a", 1.5), ("a", 1, 0.5), ("a", LIMIT), ("a", 2, 0.6)]


def test_a_trial_that_the_audit_keeps_has_ended_to_the_scheduler() -> None:
    inner = StopsSlow()
    audited = Audited(inner, SLOW.model_copy(update={"audit": 1.0}), seed=0)
    audited.add("a", {})
    for seconds in (LIMIT, LIMIT + 1):
        audited.on_seconds("a", seconds)
        assert audited.report("a", 1, 0.5) is Decision.CONTINUE
    assert inner.seconds == {"a": LIMIT}


def test_points_to_evaluate_do_not_hide_them() -> None:
    searcher = build_searcher(Learning(points_to_evaluate=({"x": 0.5, "shape": (1, 2), "n": 2},)), TASK)
    searcher.suggest("a")
    searcher.on_seconds("a", 2.0)
    assert searcher.suggest("b") == {"x": 2 / 7, "shape": (3,), "n": 2}


@pytest.mark.parametrize("until", [9, 20])
def test_a_replay_tells_the_same_seconds(tmp_path: Path, until: int) -> None:
    def search(name: str) -> Search:
        made = Search(RunFolder.at(tmp_path / name), ({"kind": "random"}, {"kind": "fifo"}))
        made.search, made.scheduler = LEARNING, SLOW
        return made

    whole = search("whole").begin().go_on()
    search("killed").begin().go_on(until=until)
    again = search("killed").resume().go_on()
    configs = [trial.config for trial in whole.results.trials]
    assert [trial.config for trial in again.results.trials] == configs
    assert len({config["x"] for config in configs}) > 3
    assert {trial.steps for trial in again.results.trials} == {int(LIMIT)}


def test_a_simulation_tells_virtual_seconds() -> None:
    curves = CurveFunction("slow", SPACE, tuple(range(1, EPOCHS + 1)), lambda asked: (ROW * 0.1, ROW * 1.5))
    trace = simulate(Random(), SLOW, curves, "max", workers=1, trials=3)
    assert (trace.trials, trace.reports, trace.finished_at) == (3, 9, 13.5)
