"""``tuner.report`` and ``tuner.get_checkpoint``, outside of a trial."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuner


def test_outside_of_a_trial_the_metrics_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tuner.report({"val/loss": 0.123456789}, epoch=3, name="a", accuracy=np.float32(0.5), checkpoint=tmp_path)
    assert capsys.readouterr().out == "val/loss 0.123457  epoch 3  name a  accuracy 0.5\n"
    assert tuner.get_checkpoint() is None


def test_it_can_be_called_after_the_package_of_the_same_name_was_imported(capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("tuner.visualization.text_tables")
    tuner.report(loss=1)
    assert capsys.readouterr().out == "loss 1\n"


def test_a_script_that_is_run_by_hand_imports_neither_ray_nor_torch() -> None:
    code = "import tuner, sys; tuner.report(loss=1); tuner.get_checkpoint(); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "loss 1\nFalse\n"


def test_a_report_without_a_metric_is_an_error() -> None:
    with pytest.raises(TypeError, match="needs at least one metric"):
        tuner.report()


def test_a_checkpoint_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing' is not a folder"):
        tuner.report(loss=1, checkpoint=tmp_path / "nothing")
