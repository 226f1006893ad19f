"""A trial that starts from the checkpoint of another one, in every scheduler: what it had trained before counts."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.tables import space
from tuner.schedulers import AnyScheduler
from tuner.schedulers.base import Decision, Scheduler
from tuner.schedulers.build import build_scheduler
from tuner.spec.problem import SearchProblem

RUNGS = {"time_attr": "epoch", "max_t": 27, "reduction_factor": 3}
KINDS: list[dict[str, Any]] = [
    {"kind": "asha", "grace_period": 1, **RUNGS},
    {"kind": "asha", "grace_period": 1, "audit": 0.5, **RUNGS},
    {"kind": "asha", "grace_period": "auto", **RUNGS},
    {"kind": "asha", "variant": "promotion", "grace_period": 1, **RUNGS},
    {"kind": "asha", "variant": "promotion", "grace_period": "auto", **RUNGS},
    {"kind": "hyperband", **RUNGS},
    {"kind": "median", "time_attr": "epoch", "max_t": 27, "grace_period": 4},
    {"kind": "pbt", "time_attr": "epoch", "max_t": 27, "perturbation_interval": 9},
    {"kind": "fifo"},
]


def scheduler(kind: dict[str, Any]) -> Scheduler:
    task = SearchProblem(space({"x": {"uniform": [0, 1]}}), ("max",), 9, 27, 3)
    return build_scheduler(TypeAdapter(AnyScheduler).validate_python(kind), task)


def decisions(built: Scheduler, trial: str, first: int, value: float, last: int = 27) -> list[tuple[int, Any]]:
    """What becomes of a trial that reports ``value`` at each step, up to the first that is not to continue."""
    found: list[tuple[int, Any]] = []
    for step in range(first, last + 1):
        found.append((step, built.report(trial, step, value)))
        if found[-1][1] is not Decision.CONTINUE:
            break
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.values())))
def test_the_worst_clone_is_not_compared_at_rungs_below_its_beginning(kind: dict[str, Any]) -> None:
    built = scheduler(kind)
    for number in range(6):
        built.add(f"t{number}", {"x": number / 10})
        decisions(built, f"t{number}", 1, 1.0 + number, last=3)
    built.add_at("clone", {"x": 0.9}, 5)
    built = pickle.loads(pickle.dumps(built))
    found = decisions(built, "clone", 6, -9.0, last=8)
    if kind["kind"] != "median":  # which has no rungs: at each step it compares with the others at that step
        assert [decision for _, decision in found] == [Decision.CONTINUE] * 3
    built.remove("clone")
    built.next_action(False)


def test_hyperband_lets_a_clone_run_to_its_end_and_its_brackets_go_on_without_it() -> None:
    built = scheduler({"kind": "hyperband", **RUNGS})
    built.add_at("clone", {"x": 0.9}, 2)
    assert decisions(built, "clone", 3, -9.0) == [(s, Decision.CONTINUE) for s in range(3, 27)] + [(27, Decision.STOP)]
    for number in range(27):
        built.add(f"t{number}", {"x": number / 30})
        built.report(f"t{number}", 1, float(number))
    resumed = {action.trial_id for _ in range(27) if (action := built.next_action(True)) and "Resume" in repr(action)}
    assert {f"t{number}" for number in range(19, 26)} <= resumed  # the last to arrive did not pause
    built.remove("clone")


def test_a_promoted_clone_waits_at_the_first_rung_above_its_beginning() -> None:
    built = scheduler({"kind": "asha", "variant": "promotion", "grace_period": 1, **RUNGS})
    built.add_at("clone", {"x": 0.9}, 3)
    assert decisions(built, "clone", 4, 1.0) == [*((s, Decision.CONTINUE) for s in range(4, 9)), (9, Decision.PAUSE)]


def test_a_clone_in_a_population_is_as_far_as_its_parent() -> None:
    built = scheduler({"kind": "pbt", "time_attr": "epoch", "max_t": 27, "perturbation_interval": 9})
    built.add("t0", {"x": 0.1})
    built.add_at("clone", {"x": 0.9}, 12)
    assert decisions(built, "clone", 13, 1.0, last=17) == [(s, Decision.CONTINUE) for s in range(13, 18)]
