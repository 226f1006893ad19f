"""The live view of a real search, on a terminal of 80 columns and 24 lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.display.test_live import Terminal, live_on, terminal
from tests.execution.test_run import HERE
from tuner import run
from tuner.display import live as live_module

__all__ = ["terminal"]


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_a_search_of_30_trials_fits_on_the_screen_and_leaves_it_clean(
    tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "REDRAW_S", 0.02)
    monkeypatch.setattr(live_module, "SHARE", 1.0)  # else the whole search may pass between two drawings
    screens: list[list[str]] = []

    class Watched(live_module.LiveProgress):
        def tick(self) -> None:
            super().tick()
            screens.append(terminal.lines)

    live = live_on(terminal, Watched)
    spec = {
        "trainable": f"{HERE}/toys.py:quadratic",
        "params": {"epochs": 9, "seconds": 0.05},
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "scheduler": {"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": 9, "reduction_factor": 3},
        "budget": {"trials": 30},
        "resources": {"gpu": 0},
    }
    run(spec, storage=tmp_path, name="live", listeners=[live], say=lambda text: None)
    assert len(screens) > 10
    for shown in screens:
        assert shown[0].startswith("live: ")
        assert sum(line.startswith("best: ") for line in shown) == 1
        assert len(shown) < 24
    assert any(line.startswith("#") and "x 0." in line for shown in screens for line in shown)
    assert terminal.lines[0].startswith("best: trial #")  # what it leaves are the last words
    assert not any("at rung" in line for line in terminal.lines)
