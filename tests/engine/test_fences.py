"""A search that is not alone, on a real Ray session: its run folder is taken over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.test_checkpoints import At, experiment, press_ctrl_c
from tuner import resume, run
from tuner.errors import Interrupted, LockLost
from tuner.loading import last_known
from tuner.lock import LOCK
from tuner.storage import RunFolder

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("ray_session")]


def test_a_search_whose_run_was_taken_over_ends_and_writes_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    left: dict[str, bytes] = {}

    def take_over() -> None:
        (folder / LOCK).write_text(json.dumps({"owner": "b", "pid": 4711, "host": "elsewhere"}))
        for file in folder.glob("*.json*"):
            left[file.name] = file.read_bytes()

    spec = experiment(params={"epochs": 3000}, budget={"trials": 2})
    with pytest.raises(LockLost) as caught:
        run(spec, {}, storage=tmp_path, name="run", say=lambda text: None, listeners=[At(5, take_over)])
    assert "process 4711 on elsewhere has taken run.lock over" in str(caught.value)
    assert f"python -m tuner resume {folder}" in str(caught.value)
    assert b"4711" in (folder / LOCK).read_bytes()
    assert (folder / "provenance.json").read_bytes() == left["provenance.json"]
    assert not (folder / "report.html").exists()
    assert not (folder / "best").exists()
    with pytest.raises(Interrupted):
        resume(folder, say=lambda text: None, listeners=[At(5, press_ctrl_c)])
    assert [report.step for report in last_known(RunFolder.at(folder)).trials[0].reports][:6] == [1, 2, 3, 4, 5, 6]
