"""The driver is killed while trials wait at a rung, continue from it, or have just taken over another's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.search import EPOCHS, Search, check_never_taken_back, experiment, outcome
from tuner import load_run

pytestmark = pytest.mark.faults

RUNGS = {"time_attr": "epoch", "max_t": EPOCHS, "reduction_factor": 3}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "promotion": {"kind": "asha", "variant": "promotion", "grace_period": 1, **RUNGS},
    "hyperband": {"kind": "hyperband", **RUNGS},
    "pbt": {"kind": "pbt", "time_attr": "epoch", "max_t": EPOCHS, "perturbation_interval": 2},
}


def _a_paused_trial_goes_on(search: Search) -> bool:
    """And has not reported since."""
    *before, last = search.events() or [{"what": ""}]
    return last["what"] == "started" and any(
        event["what"] == "paused" and event["trial"] == last["trial"] for event in before
    )


def _a_checkpoint_was_copied(search: Search) -> bool:
    """And the trial that took it over has not reported since."""
    reports = search.events("reported")
    return bool(reports) and reports[-1]["decision"] == "exploit" and bool(list(search.run.glob("ray/*/from_*")))


MOMENTS: dict[str, Callable[[Search], bool]] = {
    "promotion": _a_paused_trial_goes_on,
    "hyperband": _a_paused_trial_goes_on,
    "pbt": _a_checkpoint_was_copied,
}


def spec(kind: str) -> dict[str, Any]:
    searcher = "random" if kind == "pbt" else "tpe"
    trials = 4 if kind == "pbt" else 9
    keys: dict[str, Any] = {"scheduler": SCHEDULERS[kind], "budget": {"trials": trials}}
    return experiment(searcher, seconds=0.1, **keys) | {"checkpoints": {"keep_trials": trials}}


def found(run: Path) -> list[Any]:
    """Its outcome, and of each trial how it came by its configurations and its checkpoints."""
    results = load_run(run)
    assert all(trial.has_ended for trial in results.trials)
    assert not list(run.glob("ray/*/from_*"))
    lineage = [
        [(s.after, s.config, s.donor and results.trial(s.donor).number, s.donor_step) for s in trial.segments]
        for trial in results.trials
    ]
    return [outcome(run), lineage]


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_killed_it_ends_as_without(tmp_path: Path, kind: str) -> None:
    whole, hurt = (Search(tmp_path / name) for name in ("whole", "hurt"))
    for search in (whole, hurt):
        search.folder.mkdir()
        search.start(spec(kind))  # side by side
    hurt.until(lambda: MOMENTS[kind](hurt)).kill()
    assert hurt.events("paused")
    hurt.finish()
    status, said = whole.wait()
    assert status == 0, said
    assert found(hurt.run) == found(whole.run)
    check_never_taken_back(hurt)  # from its own checkpoint, or the one that it took over
