"""The median stopping rule, by hand and compared with Ray's."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from tuner.schedulers.base import Scheduler
from tuner.schedulers.median import Median
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

pytestmark = pytest.mark.filterwarnings("error")


def build(spec: Median, mode: Mode) -> Scheduler:
    return spec.build(SearchProblem(Space(()), (mode,), trials=40, max_t=spec.max_t, seed=0))


class _Hashable:
    """Ray keeps trials as keys."""

    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


def decisions(spec: Median, reports: list[tuple[str, int, float]], mode: Mode = "max") -> list[str]:
    scheduler = build(spec, mode)
    for name in dict.fromkeys(name for name, _, _ in reports):
        scheduler.add(name, {})
    return [str(scheduler.report(*report).name) for report in reports]  # type: ignore[union-attr]


def test_by_hand() -> None:
    reports = [
        ("a", 1, 9.0, "CONTINUE"),  # below the grace period
        ("a", 2, 1.0, "CONTINUE"),
        ("a", 3, 3.0, "CONTINUE"),  # its mean up to 3 is 2
        ("b", 2, 4.0, "CONTINUE"),
        ("b", 3, 6.0, "CONTINUE"),  # its mean is 5
        ("c", 2, 0.0, "STOP"),  # worse than 2.5, the median of 1 and 4
        ("d", 2, 1.0, "CONTINUE"),  # as good as the median of 0, 1, 4
        ("d", 3, 3.5, "CONTINUE"),  # as good as the median of 2 and 5; its mean is 2.25
        ("e", 3, 2.0, "STOP"),  # worse than the median of 2, 2.25, 5
        ("f", 2, 4.0, "CONTINUE"),
        ("f", 3, 0.0, "CONTINUE"),  # its best so far counts
    ]
    spec = Median(max_t=9, grace_period=2, min_samples_required=2)
    assert decisions(spec, [r[:3] for r in reports]) == [r[3] for r in reports]
    mirrored = [(name, step, -value) for name, step, value, _ in reports]
    assert decisions(spec, mirrored, "min") == [r[3] for r in reports]
    assert decisions(spec, [("a", 8, 0.0), ("a", 9, 0.0)]) == ["CONTINUE", "STOP"]  # max_t


@pytest.mark.parametrize("mode", ["min", "max"])
def test_decisions_are_rays(mode: Mode) -> None:
    from ray.tune.schedulers import MedianStoppingRule

    spec = Median(max_t=1000, grace_period=2, min_samples_required=4)
    ours = build(spec, mode)
    ray = MedianStoppingRule("training_iteration", "m", mode, grace_period=2, min_samples_required=4)
    controller, generator = SimpleNamespace(get_live_trials=list), random.Random(mode)
    running = {f"t{i}": 0 for i in range(40)}
    trials = {name: _Hashable(name) for name in running}
    level = {name: generator.gauss(0, 1) for name in running}
    for name in running:
        ours.add(name, {})
    stopped = 0
    while running:
        name = generator.choice(list(running))
        running[name] += 1
        value = level[name] + generator.gauss(0, 0.5)
        theirs = ray.on_trial_result(controller, trials[name], {"training_iteration": running[name], "m": value})
        assert ours.report(name, running[name], value).name == theirs  # type: ignore[union-attr]
        stopped += theirs == "STOP"
        if theirs == "STOP" or running[name] == 12:
            ours.remove(name)
            del running[name]
    assert 10 < stopped < 40


def test_refuses_a_grace_period_beyond_the_end() -> None:
    with pytest.raises(ValidationError, match="grace_period 5 is above max_t 4"):
        Median(max_t=4, grace_period=5)
