"""Every example in the docstrings of tuner.training runs and gives what it shows."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from tuner import training

MODULES = [f"tuner.training.{module.name}" for module in pkgutil.iter_modules(training.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.attempted > 0
    assert result.failed == 0
