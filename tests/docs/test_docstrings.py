"""The docstrings of the public names: complete, and their examples run as they are written."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tuner
from tuner import schedulers, searchers, testing

ROOT = Path(__file__).parents[2]
ANSWERS = {"Decision", "Exploit", "Resume", "Stop"}
"""Of a scheduler; the example of `SchedulerSpec` shows them."""
ON_A_RUN = ["run", "load_run", "load", "ResultSet", "Run", "restore_best", "extend", "resume", "retry"]
"""Their examples need a run that ended: the first one makes it."""


def public(module: ModuleType) -> dict[str, Any]:
    """The functions and classes of its ``__all__``, of tuner itself."""
    found = {name: getattr(module, name) for name in module.__all__}
    kinds = (type, type(public))
    return {name: value for name, value in found.items() if isinstance(value, kinds) and "tuner" in value.__module__}


NAMES = {
    **{f"schedulers.{name}": value for name, value in public(schedulers).items() if name not in ANSWERS},
    **{f"searchers.{name}": value for name, value in public(searchers).items()},
    **public(tuner),
    **{name: getattr(testing, name) for name in ("check_searcher", "check_scheduler", "space_of")},
}
SEEN_IN_ANOTHER = {"schedulers.Scheduler", "searchers.Searcher", "schedulers.Space", "searchers.Space"}
"""`SearchSpec` and `SchedulerSpec` show the classes that they build, and `space_of` makes a space."""
CALLED = [tuner.Search, tuner.Run, tuner.AskTell, tuner.Callback, tuner.TrackingBackend]
CALLED += [searchers.Searcher, schedulers.Scheduler]
"""Classes whose methods a user calls or defines."""


def functions() -> dict[str, Any]:
    """The public functions, and the public methods of `CALLED`."""
    found = {name: value for name, value in NAMES.items() if inspect.isfunction(value)}
    for cls in CALLED:
        for name, value in vars(cls).items():
            method = getattr(value, "__func__", value)
            if inspect.isfunction(method) and not name.startswith("_"):
                found[f"{cls.__name__}.{name}"] = method
    return found


def run_examples(name: str, value: Any) -> int:
    """Runs the examples of one docstring, and of a class's methods; how many lines ran. Fails if one differs."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in doctest.DocTestFinder().find(value, name):
        if found.examples:
            runner.run(found)
    results = runner.summarize(verbose=False)
    assert results.failed == 0
    return results.attempted


@pytest.mark.parametrize("name", sorted(NAMES.keys() - SEEN_IN_ANOTHER - set(ON_A_RUN)))
def test_the_example_of_a_public_name_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run_examples(name, NAMES[name]) > 0


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_the_examples_that_need_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ON_A_RUN:
        assert run_examples(name, NAMES[name]) > 0


@pytest.mark.parametrize("name", sorted(functions()))
def test_a_public_function_describes_each_argument_and_what_it_returns(name: str) -> None:
    function = functions()[name]
    signature = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    for parameter in signature.parameters:
        if parameter not in ("self", "cls"):
            assert re.search(rf"^    \*{{0,2}}{parameter}: ", text, re.M), f"{name} does not describe {parameter}"
    answers = signature.return_annotation not in ("None", None, inspect.Signature.empty)
    assert not answers or "Returns:" in text or len(text.splitlines()) == 1


def test_the_schema_of_the_experiment_file_shows_no_python() -> None:
    from tuner.experiment.schema import experiment_schema

    assert ">>>" not in str(experiment_schema())
