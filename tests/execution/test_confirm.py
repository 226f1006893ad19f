"""The best configurations trained again on a real Ray session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.actions.test_confirm import finished
from tests.runs.test_results import report, trial
from tuner.actions.confirm import CONFIRMATION, confirm
from tuner.errors import InputError


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_digits_are_trained_again_and_tested(tmp_path: Path) -> None:
    scheduler = {"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": 2}
    objective = {"metric": "val_accuracy", "mode": "max"}
    results = finished(tmp_path / "q", scheduler=scheduler, objective=objective, resources={"gpu": 0})
    for lr, value in ((0.1, 0.99), (0.3, 0.98), (0.2, 0.5)):
        made = trial(results, config={"lr": lr, "optimizer": "sgd", "momentum": 0.9})
        made.best = report(made, value, val_accuracy=value)
    said: list[str] = []
    found = confirm(results, top=2, seeds=2, test=True, say=said.append)

    assert found.folder == f"{tmp_path}/q-confirm"
    assert {c.number for c in found.configurations} == {1, 2}
    for c in found.configurations:
        assert c.best.keys() == c.last.keys() == c.test["test_accuracy"].keys() == {1, 2}
        assert all(0.3 < value < 1 for values in (c.best, c.last, c.test["test_accuracy"]) for value in values.values())
        assert c.best[1] != c.best[2]  # the seed has an effect
    assert json.loads((tmp_path / "q-confirm" / CONFIRMATION).read_text()) == json.loads(json.dumps(found.as_json()))

    before = (tmp_path / "q-confirm/journal.jsonl").stat().st_mtime_ns
    assert confirm(results, top=2, seeds=2, test=True, say=said.append) == found
    assert (tmp_path / "q-confirm/journal.jsonl").stat().st_mtime_ns == before  # nothing was trained a third time
    with pytest.raises(InputError, match="holds other configurations or seeds"):
        confirm(results, top=2, seeds=3, say=said.append)
