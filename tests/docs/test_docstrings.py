"""The examples in the docstrings of the public face run as they are written."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "module",
    ["tuner.api.search", "tuner.actions.ask_tell", "tuner.trainable.optuna_space", "tuner.trainable.reporting"],
)
def test_the_examples_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
