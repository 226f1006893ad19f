"""Searches with schedulers that the table of ``algorithms`` pairs them with, on Ray, with a real training.

All of them with ``-m every_pairing``; with ``-m pairings``, as in CI, a subset with every search, in which every
scheduler meets every kind of search. In virtual time all meet that can be simulated: test_simulated_pairings.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

from tests.searchers.covering import covering
from tuner import load_run, restore_best, run, validate
from tuner.plan.compatibility import abilities, is_plug_in, kind, label, schedulers, searches
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers.base import SearchSpec
from tuner.spec.model import Model

pytestmark = pytest.mark.usefixtures("ray_session")

EPOCHS, TRIALS = 4, 6
OPTIONS = {
    "time_attr": "epoch",
    "max_t": EPOCHS,
    "reduction_factor": 2,
    "perturbation_interval": 1,
    "mutate": ["lr", "momentum"],
    "seed": 0,
    "n_startup_trials": 2,
    "n_initial_points": 2,
    "min_points_in_model": 1,
    "population_size": 2,
}
"""Options of searches and schedulers, given to those that have them: so that each does its work within six trials."""

SEARCH_CLASS, SCHEDULER_CLASS = "ray.tune.search.optuna:OptunaSearch", "ray.tune.schedulers:AsyncHyperBandScheduler"
"""What stands behind the plug-ins."""


def block(spec: Model, plug_in: str) -> dict[str, Any]:
    """``spec`` as it is written in an experiment."""
    variant = {name: getattr(spec, name) for name in spec.model_fields_set}
    options = {name: value for name, value in OPTIONS.items() if name in type(spec).model_fields}
    return {"kind": kind(spec), **variant, **options, **({"class_path": plug_in} if is_plug_in(spec) else {})}


def space(search: SearchSpec) -> dict[str, Any]:
    """A number, a whole number, a category, and what depends on it where ``search`` knows conditions."""
    can = abilities(search)
    continuous = can is None or "loguniform" not in can.refused
    always = {
        "lr": {"loguniform": [1e-3, 1e-1]} if continuous else {"choice": [1e-3, 1e-1]},
        "hidden": {"qrandint": [16, 48, 16]},
        "optimizer": {"choice": ["sgd", "adam"]},
    }
    momentum = {"momentum": {"quniform": [0.5, 0.9, 0.1], "when": {"optimizer": "sgd"}}}
    return always | momentum if can and can.conditions else always


def experiment(search: SearchSpec, scheduler: SchedulerSpec) -> dict[str, Any]:
    return {
        "trainable": "tests/pairings/softmax_toy.py:train",
        "params": {"epochs": EPOCHS},
        "search_space": space(search),
        "objective": {"metric": "val_accuracy", "mode": "max"},
        "search": block(search, SEARCH_CLASS),
        "scheduler": block(scheduler, SCHEDULER_CLASS),
        "resources": {"gpu": 0},
    }


Pairing = tuple[SearchSpec, SchedulerSpec]

PAIRINGS: list[Pairing] = [
    (search, scheduler)
    for search in searches()
    for scheduler in schedulers()
    if scheduler.incompatibility(kind(search)) is None
]


HEARD = {"grid": frozenset[str](), "random": frozenset({"on_end"})}
"""What searchers listen to, of those that do not hear of reports too (tests/searchers/test_covering.py asks them)."""


def news(search: SearchSpec) -> frozenset[str]:
    """What its searcher listens to: reports, ends of trials, or neither."""
    return HEARD.get(kind(search), frozenset({"on_report", "on_end"}))


def parts(pairing: Pairing) -> frozenset[Hashable]:
    """What must occur in CI: each search, each scheduler with each kind of search."""
    search, scheduler = pairing
    return frozenset([label(search), (label(scheduler), news(search))])


def marked() -> list[Any]:
    """All of them, those of a covering subset for CI."""
    chosen = covering(PAIRINGS, parts)
    return [
        pytest.param(
            *pairing,
            id=" + ".join(map(label, pairing)),
            marks=[pytest.mark.every_pairing, *([pytest.mark.pairings] if pairing in chosen else [])],
        )
        for pairing in PAIRINGS
    ]


@pytest.mark.parametrize(("search", "scheduler"), marked())
def test_the_pairing_searches(tmp_path: Path, search: SearchSpec, scheduler: SchedulerSpec) -> None:
    written, trials = experiment(search, scheduler), [f"budget.trials={TRIALS}"]
    plan = validate(written, trials)
    assert (plan.trials, plan.slots) == (TRIALS, 2)

    results = run(written, trials, storage=tmp_path, name="run", say=lambda text: None)
    assert len(results.trials) == TRIALS
    for trial in results.trials:
        epochs = [report.metrics["epoch"] for report in trial.reports]
        assert trial.status == ("completed" if epochs[-1] == EPOCHS else "stopped"), trial.reason
        assert [report.step for report in trial.reports] == list(range(1, trial.steps + 1))
        assert trial.segments or epochs == list(range(1, trial.steps + 1))  # an exploited trial has its donor's epochs
        assert trial.rung in (None, *plan.spec.scheduler.rungs())
        expected = "momentum" in written["search_space"] and trial.config["optimizer"] == "sgd"
        assert ("momentum" in trial.config) == expected
    again = load_run(tmp_path / "run")
    assert again.best.best.metrics == results.best.best.metrics
    restored = restore_best(again)
    assert restored.validation["val_accuracy"] == pytest.approx(results.value(results.best.best), abs=1e-6)
