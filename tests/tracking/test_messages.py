"""Messages to people: which events are worth one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tracking.made_up import made_up_run
from tuner.experiment.notify import Notify
from tuner.runs.history import EventApplier
from tuner.runs.results import ResultSet
from tuner.tracking.messages import Watch


class Search:
    """A search that never ran, with a clock of its own."""

    def __init__(self, folder: Path, budget: dict[str, Any] | None = None, **options: Any) -> None:
        options.setdefault("on", ("end", "best", "failures", "stalled", "budget"))
        self.results: ResultSet = made_up_run(folder, trials=40, interrupted=None)
        self.results.spec["budget"] = budget or {}
        self.history, self.now = EventApplier(self.results), 0.0
        self.watch = Watch(Notify(command="true", **options), self.results, self.now)

    def happens(self, what: str, **event: Any) -> None:
        told = {"what": what, **event}
        self.history.apply(told)
        self.watch.saw(told, self.now)

    def trial(self, name: str, *accuracies: float, status: str = "completed", reason: str = "") -> None:
        self.happens("suggested", trial=name, config={"lr": 0.1})
        self.happens("started", trial=name)
        for step, accuracy in enumerate(accuracies, 1):
            metrics = {"acc": accuracy, "epoch": step}
            self.happens(
                "reported", trial=name, step=step, seconds=1, timestamp=1.8e9, metrics=metrics, checkpoint=None
            )
        if status != "running":
            self.happens("ended", trial=name, status=status, reason=reason, rung=None)

    def said(self, later: float = 0.0) -> list[str]:
        self.now += later
        return [message.text.removeprefix("run: ") for message in self.watch.due(self.results, self.now)]


class TestWhatIsWorthAMessage:
    def test_a_new_best_and_several_within_a_minute_as_one(self, tmp_path: Path) -> None:
        search = Search(tmp_path)
        search.trial("a", 0.5)
        assert search.said() == ["new best: trial #1 (a) with acc 0.5 at step 1"]
        search.trial("b", 0.4)
        search.trial("c", 0.6, 0.7)
        assert search.said(1) == []
        search.trial("d", 0.8)
        assert search.said(60) == ["new best: trial #4 (d) with acc 0.8 at step 1"]
        search.trial("e", 0.1)
        assert search.said(120) == []

    def test_failed_trials_with_the_reasons_of_some(self, tmp_path: Path) -> None:
        search = Search(tmp_path)
        search.trial("a", status="failed", reason="ValueError: no such file")
        assert search.said() == ["1 trial failed (1 of 1 trial so far): trial #1 (a): ValueError: no such file"]
        search.watch.saw({"what": "ended", "trial": "b", "status": "failed"}, search.now)  # read twice at the start
        for name in "bcdef":
            search.trial(name, status="failed", reason="CUDA out of memory")
        assert search.said(1) == []
        (told,) = search.said(60)
        assert told.startswith("5 trials failed (6 of 6 trials so far): trial #2 (b): CUDA out of memory; trial #3")
        assert told.endswith("; and 2 more")

    def test_a_search_in_which_nothing_happens_once(self, tmp_path: Path) -> None:
        search = Search(tmp_path, stalled_after="10m")
        search.trial("a", 0.5, status="running")
        search.said()
        assert search.said(599) == []
        (told,) = search.said(1)
        assert told.startswith("nothing has happened for 10m00s (running: #1 (a)); to see why: python -m tuner status ")
        assert search.said(3600) == []
        search.trial("b", 0.1)
        assert search.said() == []
        assert len(search.said(600)) == 1

    @pytest.mark.parametrize(
        ("budget", "told"),
        [
            ({"trials": 10}, "budget.trials: 9 of 10 trials are used"),
            ({"epochs": 20}, "budget.epochs: 18 of 20 epochs are used"),
            ({"wall_clock": 100.0}, "budget.wall_clock: 1m35s of 1m40s are used"),
            ({"gpu_hours": 2.0}, "budget.gpu_hours: 1.9 of 2 GPU hours are used"),
            ({"cost": {"per_gpu_hour": 10, "max": 20}}, "budget.cost: 19 of a cost of 20 are used"),
        ],
    )
    def test_a_budget_of_which_little_is_left(self, tmp_path: Path, budget: dict[str, Any], told: str) -> None:
        search = Search(tmp_path, budget, on=("budget",))
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "live.json").write_text('{"request": {"GPU": 0.5}}')
        for number in range(8):
            search.trial(f"t{number}", 0.5, 0.5)
        assert search.said() == []
        search.trial("t8", 0.5, 0.5)
        search.happens("asked", more=True, elapsed=95.0, held=3.8 * 3600)
        assert search.said() == [told]
        search.happens("asked", more=True, elapsed=96.0, held=3.81 * 3600)
        assert search.said() == []

    def test_nothing_of_what_happened_before_a_resume(self, tmp_path: Path) -> None:
        search = Search(tmp_path, {"trials": 10})
        for number in range(9):
            search.trial(f"t{number}", 0.5)
        search.trial("x", status="failed", reason="killed")
        resumed = Watch(Notify(command="true", on=("best", "failures", "budget")), search.results, 0.0)
        assert resumed.due(search.results, 1.0) == []

    def test_only_what_was_asked_for(self, tmp_path: Path) -> None:
        search = Search(tmp_path, on=("end",))
        search.trial("a", 0.5)
        search.trial("b", status="failed", reason="killed")
        assert search.said(7200) == []
        assert [message.occasion for message in search.watch.end(search.results)] == ["end"]

    @pytest.mark.parametrize(
        ("provenance", "told"),
        [
            ({"interrupted": False}, "the search has ended: 2 trials (1 completed, 1 failed); best: trial #1 (a) with"),
            ({"interrupted": False, "ended_by": "budget.trials 2"}, "the search has ended (budget.trials 2): 2 trials"),
            ({"interrupted": True, "interrupted_by": "SIGTERM"}, "the search was interrupted: SIGTERM; to continue: "),
            ({}, "the process of the search is gone; to continue: python -m tuner resume "),
        ],
    )
    def test_how_the_search_ended(self, tmp_path: Path, provenance: dict[str, Any], told: str) -> None:
        search = Search(tmp_path)
        search.trial("a", 0.5)
        search.trial("b", status="failed", reason="killed")
        search.said()
        search.results.provenance |= provenance
        (message,) = search.watch.end(search.results)
        assert message.text.removeprefix("run: ").startswith(told)
        assert message.as_json()["trials"] == {"completed": 1, "failed": 1}
        assert message.as_json()["best"] == {"trial": "a", "step": 1, "values": {"acc": 0.5}, "config": {"lr": 0.1}}
