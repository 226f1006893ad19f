"""An Optuna objective as a trainable, and its search space, which is read without running it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import optuna
import pytest

import tuner
from tests.one_trial import run_trial
from tuner import space_from_objective, validate
from tuner.errors import InputError
from tuner.trainable.optuna_objective import is_objective
from tuner.trainable.trainable import Trainable, load_trainable

OBJECTIVE = """
import optuna

LAYERS = 4

def objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    width = trial.suggest_int("model.width", 16, 64, step=16)
    layers = trial.suggest_int("layers", 1, LAYERS)
    opt = trial.suggest_categorical("opt", ["sgd", "adam"])
    trial.set_user_attr("parameters", width * layers)
    trial.set_user_attr("text", opt)
    value = lr
    for step in range(3):
        value = lr / (step + 1)
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    assert trial.params == {"lr": lr, "model.width": width, "layers": layers, "opt": opt}
    return value
"""
BRANCHING = "def objective(trial):\n    if trial.suggest_int('n', 0, 1):\n        trial.suggest_int('m', 0, 1)\n"
CONFIG = {"lr": 0.5, "model": {"width": 32}, "layers": 2, "opt": "adam"}


def in_trial(
    folder: Path, text: str, config: dict[str, Any], metrics: tuple[str, ...] = ("loss",)
) -> tuple[list[Any], str]:
    """Reports of the objective in ``text``, and why it failed."""
    (folder / "with_optuna.py").write_text(text)
    return run_trial(folder, "with_optuna.py:objective", config, metrics, trial_id="1f")


def load(folder: Path, text: str) -> Trainable:
    (folder / "with_optuna.py").write_text(text)
    return load_trainable("with_optuna.py:objective", (folder,))


def experiment(reference: str) -> dict[str, Any]:
    """A search of the objective ``reference``, over the space that it spells out."""
    return {
        "name": "n",
        "trainable": reference,
        "search_space": reference,
        "objective": {"metric": "loss", "mode": "min"},
    }


def config_problems(trainable: Trainable, values: dict[str, Any]) -> dict[str, str]:
    return {".".join(path): message for path, message in trainable.config_problems(values)}


# --- a trial -----------------------------------------------------------------------------------------------------


def test_what_the_objective_reports_reaches_the_trial(user_folder: Path) -> None:
    reports, failure = in_trial(user_folder, OBJECTIVE, CONFIG)
    assert failure == ""
    values = [0.5, 0.25, 0.5 / 3]  # the returned value is the last reported one: no report besides
    assert reports == [{"loss": value, "step": step, "parameters": 64} for step, value in enumerate(values)]


def test_the_returned_value_is_the_last_report(user_folder: Path) -> None:
    text = OBJECTIVE.replace("return value", "trial.set_user_attr('seen', 5)\n    return -1")
    reports, _ = in_trial(user_folder, text, CONFIG)
    assert reports[3:] == [{"loss": -1.0, "step": 2, "parameters": 64, "seen": 5}]


def test_an_objective_that_only_returns_reports_once(user_folder: Path) -> None:
    text = "def objective(trial):\n    return trial.suggest_float('x', 0, 1) + trial.number"
    assert in_trial(user_folder, text, {"x": 0.5}) == ([{"loss": 0.5 + 0x1F}], "")


def test_several_objectives(user_folder: Path) -> None:
    text = "def objective(trial):\n    x = trial.suggest_float('x', 0, 1)\n    return x, -x"
    assert in_trial(user_folder, text, {"x": 0.5}, ("loss", "size")) == ([{"loss": 0.5, "size": -0.5}], "")
    _, failure = in_trial(user_folder, text, {"x": 0.5})
    assert failure.endswith("ObjectiveError: the objective returns 2 values, but the experiment has 1: loss")


def test_a_trial_that_prunes_itself_ends_with_its_last_report(user_folder: Path) -> None:
    text = OBJECTIVE.replace("if trial.should_prune():", "if step == 1:")
    reports, failure = in_trial(user_folder, text, CONFIG)
    assert (len(reports), failure) == (2, "")
    reports, failure = in_trial(user_folder, "import optuna\ndef objective(trial): raise optuna.TrialPruned", {})
    assert (reports, failure.partition(":")[0]) == ([], "TrialPruned")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"x": 0.5},
            "the objective suggests 'lr', which the configuration does not have; it has: x; "
            "add lr: {loguniform: [0.0001, 1.0]} to search_space",
        ),
        (
            CONFIG | {"lr": 2.0},
            "the objective suggests 'lr' from {loguniform: [0.0001, 1.0]}, and the configuration holds 2.0: "
            "give search_space the same range",
        ),
        (
            CONFIG | {"opt": "lion"},
            "the objective suggests 'opt' from {choice: [\"sgd\", \"adam\"]}, and the configuration holds 'lion': "
            "give search_space the same range",
        ),
    ],
)
def test_what_the_configuration_does_not_give_is_a_clear_error(
    user_folder: Path, config: dict[str, Any], message: str
) -> None:
    assert in_trial(user_folder, OBJECTIVE, config) == ([], f"ObjectiveError: {message}")


# --- which functions are objectives ------------------------------------------------------------------------------


def by_name(trial): ...
def by_annotation(t: optuna.Trial): ...
def by_text(t: optuna.trial.Trial): ...
def other_annotation(trial: dict): ...
def configuration(config): ...
def nothing(): ...


class Callable:
    def __call__(self, trial): ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (by_name, True),
        (by_annotation, True),
        (by_text, True),
        (Callable(), True),
        (functools.partial(by_name), True),
        (other_annotation, False),
        (configuration, False),
        (nothing, False),
        (Callable, False),
        (3, False),
    ],
)
def test_an_objective_is_known_by_its_argument(function: Any, expected: bool) -> None:
    assert is_objective(function) == expected


# --- its search space --------------------------------------------------------------------------------------------

COUNT = 5


def many(trial: optuna.Trial) -> float:
    raise AssertionError("it ran")
    trial.suggest_float("a", 0, 1)
    trial.suggest_float("b", low=0.5, high=2.0, step=0.5)
    trial.suggest_float("c", 0.25, 1.25, step=0.5)
    trial.suggest_int("d", 1, COUNT)
    trial.suggest_int("e", 1, 7, step=3)
    trial.suggest_int("f", 1, 100, log=True)
    trial.suggest_categorical("net.act", ("relu", "tanh"))
    trial.suggest_float("net.drop", -0.5, -0.5)


def test_the_space_is_read_and_the_objective_does_not_run() -> None:
    assert space_from_objective(many) == {
        "a": {"uniform": [0.0, 1.0]},
        "b": {"quniform": [0.5, 2.0, 0.5]},
        "c": {"choice": [0.25, 0.75, 1.25]},
        "d": {"randint": [1, 6]},
        "e": {"choice": [1, 4, 7]},
        "f": {"lograndint": [1, 101]},
        "net": {"act": {"choice": ["relu", "tanh"]}, "drop": {"choice": [-0.5]}},
    }


def branch(trial):
    if trial.suggest_categorical("opt", ["sgd", "adam"]) == "sgd":
        return trial.suggest_float("momentum", 0, 1)
    return 0


def loop(trial):
    return [trial.suggest_int(f"width_{i}", 1, 9) for i in range(3)]


def handed_on(trial):
    return branch(trial)


def stored(trial):
    suggest = trial.suggest_float
    return suggest("x", 0, 1)


def computed(trial):
    return trial.suggest_int("width", 1, len(PAGES))


def twice(trial):
    return trial.suggest_int("n", 1, 2) + trial.suggest_int("n", 1, 3)


def reversed_bounds(trial):
    return trial.suggest_float("x", 2, 1)


def silent(trial):
    return 1.0


PAGES = [object()]


@pytest.mark.parametrize(
    ("function", "offset", "reason"),
    [
        (branch, 2, "trial.suggest_float in a branch, a loop or a function of its own"),
        (loop, 1, "trial.suggest_int in a branch, a loop or a function of its own"),
        (handed_on, 1, "the trial is handed on, and more may be suggested there"),
        (stored, 1, "the trial is handed on, and more may be suggested there"),
        (computed, 1, "trial.suggest_int cannot be read: 'len(PAGES)' is not written out"),
        (twice, 1, "trial.suggest_int cannot be read: 'n' is suggested twice, from different ranges"),
        (reversed_bounds, 1, "trial.suggest_float cannot be read: "),
    ],
)
def test_a_space_that_cannot_be_read_is_refused_with_the_line(function: Any, offset: int, reason: str) -> None:
    line = function.__code__.co_firstlineno + offset
    with pytest.raises(InputError) as raised:
        space_from_objective(function)
    assert str(raised.value).startswith(f"{function.__name__}, line {line}: {reason}")
    assert str(raised.value).endswith("; write search_space in the experiment")


def test_an_objective_without_suggestions_or_source_has_no_space() -> None:
    with pytest.raises(InputError, match="silent suggests nothing"):
        space_from_objective(silent)
    made: dict[str, Any] = {}
    exec("def objective(trial): return trial.suggest_float('x', 0, 1)", made)
    with pytest.raises(InputError, match="its source cannot be read"):
        space_from_objective(made["objective"])


def test_the_domains_hold_what_optuna_would_suggest() -> None:
    """Every extreme value of the space that is read lies in the objective's own range."""
    space = validate(experiment(f"{__file__}:many")).spec.search_space
    assert {parameter.name for parameter in space.parameters} == {"a", "b", "c", "d", "e", "f", "net.act", "net.drop"}


# --- before the run ----------------------------------------------------------------------------------------------


def test_names_and_ranges_are_checked_before_the_run(user_folder: Path) -> None:
    trainable = load(user_folder, OBJECTIVE)
    assert config_problems(trainable, CONFIG) == {}
    found = config_problems(trainable, {"lr": 2.0, "model": {"width": 17}, "layers": 2, "optt": "adam"})
    assert found == {
        "optt": "the objective suggests no such parameter; allowed: lr, model.width, layers, opt; did you mean 'opt'?",
        "opt": 'the objective suggests it: add opt: {choice: ["sgd", "adam"]}',
        "lr": "the objective suggests it from {loguniform: [0.0001, 1.0]}, so it cannot be 2.0",
        "model.width": "the objective suggests it from {qrandint: [16, 64, 16]}, so it cannot be 17",
    }


def test_what_cannot_be_read_is_not_checked(user_folder: Path) -> None:
    assert config_problems(load(user_folder, BRANCHING), {"x": 1}) == {}


def test_an_experiment_takes_its_space_from_the_objective(user_folder: Path) -> None:
    (user_folder / "with_optuna.py").write_text(OBJECTIVE)
    plan = validate(experiment("with_optuna.py:objective"), {"search_space.opt": "{choice: [sgd]}"})
    domains = {parameter.name: str(parameter.domain) for parameter in plan.spec.search_space.parameters}
    assert domains == {
        "lr": "loguniform [0.0001, 1.0]",
        "model.width": "qrandint [16, 64, 16]",
        "layers": "randint [1, 5]",
        "opt": "choice [sgd]",
    }


def test_an_experiment_names_the_line_of_an_objective_whose_space_cannot_be_read(user_folder: Path) -> None:
    (user_folder / "branching.py").write_text(BRANCHING)
    with pytest.raises(InputError, match=r"search_space: objective, line 3: trial\.suggest_int in a branch"):
        validate(experiment("branching.py:objective"))


def test_a_search_from_python_takes_an_objective(user_folder: Path) -> None:
    def local(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0, 1) ** 2

    for objective in (local, many):
        search = tuner.Search(objective, space_from_objective(objective), objective=tuner.minimize("loss"))
        assert str(search.plan())
