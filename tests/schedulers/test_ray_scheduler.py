"""The door for schedulers that are written for Ray Tune."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tuner.errors import InputError
from tuner.schedulers.ray import RayScheduler
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

pytestmark = pytest.mark.filterwarnings("error")

SPACE = Space(())
MEDIAN = "ray.tune.schedulers:MedianStoppingRule"
ASHA = "ray.tune.schedulers:AsyncHyperBandScheduler"


def test_builds_rays_object() -> None:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    spec = RayScheduler(class_path=ASHA, options={"grace_period": 3}, time_attr="epoch", max_t=27)
    built: Any = spec.build_ray("loss", "min")
    assert isinstance(built, AsyncHyperBandScheduler)
    assert (built._time_attr, built._max_t, built._metric, built._metric_op) == ("epoch", 27, "loss", -1.0)
    assert spec.fidelity == ("epoch", 27)
    assert RayScheduler(class_path=MEDIAN).fidelity is None


def test_a_simulator_cannot_drive_it() -> None:
    with pytest.raises(InputError, match="acts on trials of Ray"):
        RayScheduler(class_path=MEDIAN).build(SearchProblem(SPACE, ("max",), trials=4, max_t=None, seed=0))


def test_a_class_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_schedulers.py").write_text(
        "from ray.tune.schedulers import FIFOScheduler\n"
        "class Patient(FIFOScheduler):\n"
        "    def __init__(self, patience):\n"
        "        super().__init__()\n"
        "        self.patience = 10 // patience\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_schedulers", raising=False)
    given = {"class_path": "my_schedulers.py:Patient"}
    assert RayScheduler(**given, options={"patience": 5}).validate_space(SPACE) == []
    for options, message in (
        ({}, "missing 1 required positional argument: 'patience'"),
        ({"patience": 0}, "refuses its options: ZeroDivisionError"),
        (
            {"patiense": 1},
            "is not an argument of my_schedulers.py:Patient; allowed: patience; did you mean 'patience'?",
        ),
    ):
        ((path, text),) = RayScheduler(**given, options=options).validate_space(SPACE)
        assert path[0] == "options"
        assert message in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("class_path", "options", "message"),
    [
        ("ray.tune.schedulers:Nope", {}, "has no 'Nope'"),
        ("no_such_module:X", {}, "no module 'no_such_module'"),
        ("collections:OrderedDict", {}, "is not a subclass of ray.tune.schedulers.TrialScheduler"),
        ("math:pi", {}, "is not a subclass"),
        ("ray.tune.schedulers:PopulationBasedTraining", {}, "use scheduler.kind pbt"),
        ("ray.tune.schedulers.pb2:PB2", {}, "use scheduler.kind pbt"),
        ("ray.tune.schedulers:HyperBandForBOHB", {}, "use scheduler.kind bohb"),
        (ASHA, {"metric": "loss"}, "belongs to objective.metric"),
        (ASHA, {"time_attr": "epoch"}, "belongs to scheduler.time_attr"),
        (ASHA, {"brackets": 0}, "brackets must be positive"),
    ],
)
def test_refuses(class_path: str, options: dict[str, Any], message: str) -> None:
    ((_, text),) = RayScheduler(class_path=class_path, options=options).validate_space(SPACE)
    assert message in text


def test_the_class_is_written_as_module_and_name() -> None:
    with pytest.raises(ValidationError, match="pattern"):
        RayScheduler(class_path="ray.tune.schedulers.FIFOScheduler")
