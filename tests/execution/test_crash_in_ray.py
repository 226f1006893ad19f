"""What raises within Ray's loop ends the search, and no trial is blamed for it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.execution.test_run import experiment
from tuner import load_run, resume, run
from tuner.errors import Crashed
from tuner.execution.recorder import Listener

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
GRID = {"x": {"grid_search": [0.1, 0.2, 0.3, 0.4]}}


@pytest.mark.parametrize("method", ["reported", "ended"])
def test_a_listener_that_raises_is_nobodys_failed_attempt(tmp_path: Path, method: str) -> None:
    """Ray takes what a callback raises at the end of a trial for that trial's error."""
    broken = Mock(spec_set=Listener)
    getattr(broken, method).side_effect = [None, ZeroDivisionError("by the listener")]
    given = experiment("quadratic", GRID, search={"kind": "grid"})
    with pytest.raises(Crashed, match=r"^listener Mock raised ZeroDivisionError: by the listener \("):
        run(given, storage=tmp_path, name="run", listeners=[broken], say=lambda text: None)
    stopped = load_run(tmp_path / "run")
    assert stopped.provenance["interrupted"] is True
    assert [trial.failures for trial in stopped.trials] == [[]] * len(stopped.trials)
    results = resume(tmp_path / "run", say=lambda text: None)
    assert [(trial.status, trial.steps, trial.failures) for trial in results.trials] == [("completed", 4, [])] * 4
