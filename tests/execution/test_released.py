"""What the driver keeps of trials that have ended, on Ray's control loop with stand-ins for its processes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from ray.tune.experiment import Trial as RayTrial

from tests.execution.test_checkpoints import At
from tests.faults.stand_ins import Actors
from tuner import run
from tuner.execution import controller
from tuner.runs.trial import Trial

TRIALS = 12
TOY = Path(__file__).parents[1] / "faults/toy.py"


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("scheduler", ["fifo", "asha"])
def test_of_trials_that_have_ended_nothing_of_rays_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    monkeypatch.setattr(controller, "ActorManager", Actors)
    made: list[weakref.ref[RayTrial]] = []
    add = controller.Controller.add_trial

    def noted(self: controller.Controller, trial: RayTrial) -> None:
        made.append(weakref.ref(trial))
        add(self, trial)

    monkeypatch.setattr(controller.Controller, "add_trial", noted)
    left: list[int] = []

    class Counts(At):
        def ended(self, trial: Trial) -> None:
            if trial.number == TRIALS:
                gc.collect()
                left.append(sum(reference() is not None for reference in made))

    spec: dict[str, Any] = {
        "trainable": f"{TOY}:quadratic",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "scheduler": {"kind": scheduler} | ({"time_attr": "epoch", "max_t": 9} if scheduler == "asha" else {}),
        "budget": {"trials": TRIALS},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
    }
    run(spec, {}, storage=tmp_path, name="run", listeners=[Counts(0, None)], say=lambda text: None)
    assert len(made) == TRIALS
    assert left == [1]
