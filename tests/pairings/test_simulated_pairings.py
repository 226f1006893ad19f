"""All pairings of a search with a scheduler that can be simulated, in virtual time, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.pairings.test_pairings import EPOCHS, PAIRINGS, SCHEDULER_CLASS, SEARCH_CLASS, TRIALS, block, space
from tests.tables import space as read
from tuner.plan.compatibility import label, simulation_problem
from tuner.schedulers import AnyScheduler
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers import AnySearch
from tuner.searchers.base import SearchSpec
from tuner.simulator import CurveFunction, simulate

SIMULATED = [pairing for pairing in PAIRINGS if not simulation_problem(pairing[1])]


def curves(configurations: Sequence[dict[str, Any]]) -> tuple[Any, Any]:
    """The accuracy is the better the nearer ``lr`` is to 0.03; an epoch of a wider network takes longer."""
    lr = np.array([[configuration["lr"]] for configuration in configurations])
    hidden = np.array([[configuration["hidden"]] for configuration in configurations])
    epochs = np.arange(1, EPOCHS + 1)
    return -np.abs(np.log(lr / 0.03)) - 1 / epochs, hidden * epochs


@pytest.mark.parametrize(("search", "scheduler"), SIMULATED, ids=label)
def test_the_pairing_searches_in_virtual_time(search: SearchSpec, scheduler: SchedulerSpec) -> None:
    searcher = TypeAdapter(AnySearch).validate_python(block(search, SEARCH_CLASS))
    decides = TypeAdapter(AnyScheduler).validate_python(block(scheduler, SCHEDULER_CLASS))
    function = CurveFunction("made up", read(space(search)), tuple(range(1, EPOCHS + 1)), curves, "val_accuracy")
    trace = simulate(searcher, decides, function, "max", workers=2, trials=TRIALS)
    assert trace.trials == TRIALS
    steps: dict[str, int] = {}
    ended = set()
    for event in trace.decisions:
        assert event.trial not in ended
        assert event.step - steps.get(event.trial, 0) in (0, 1)
        steps[event.trial] = event.step
        if event.what in ("stop", "complete"):
            ended.add(event.trial)
    assert len(ended) == TRIALS
    assert max(steps.values()) == EPOCHS
    assert trace.reports == sum(steps.values())
