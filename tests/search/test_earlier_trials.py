"""``search.from_runs``: what a search learns from the trials of earlier runs, and that a resumed one knows the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.actions.ask_tell import AskTell
from tuner.actions.run import validate
from tuner.errors import EnvironmentFailure, InputError

SPACE = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
MODELS: list[dict[str, Any]] = [
    {"kind": "gp"},
    {"kind": "bohb", "random_fraction": 0},
    {"kind": "hyperopt"},
    {"kind": "optuna", "random_fraction": 0},
    {"kind": "optuna", "sampler": "gp"},
]
KINDS = {
    "random": tuner.searchers.Random,
    "gp": tuner.searchers.Gp,
    "bohb": tuner.searchers.Bohb,
    "hyperopt": tuner.searchers.HyperOpt,
    "optuna": tuner.searchers.Optuna,
}


def loss(config: dict[str, Any], epoch: int = 3) -> float:
    return float((config["x"] - 0.3) ** 2 + (config.get("y", 0.5) - 0.6) ** 2 + 0.1 / epoch)


def search(model: dict[str, Any], space: Any = None, **keys: Any) -> tuner.Search:
    options = {"seed": 1, **model}
    searcher = KINDS[options.pop("kind")](**options)
    keys = {"objective": tuner.minimize("loss"), "budget": tuner.Budget(trials=30), "name": "mine"} | keys
    return tuner.Search(None, space or SPACE, searcher=searcher, **keys)


def drive(loop: AskTell, trials: int) -> list[dict[str, Any]]:
    """Runs so many trials to their end; the configurations that were suggested."""
    configs = []
    for _ in range(trials):
        trial = loop.ask()
        if trial is None:
            break
        configs.append(trial.config)
        for epoch in (1, 2, 3):
            loop.tell(trial, {"loss": loss(trial.config, epoch), "epoch": epoch, "size": 7})
        loop.finish(trial)
    return configs


def run(made: tuner.Search, name: str = "a", trials: int = 30) -> list[dict[str, Any]]:
    with made.begin(name=name) as loop:
        return drive(loop, trials)


@pytest.fixture
def earlier(user_folder: Path) -> Path:
    """A run of 30 random trials."""
    run(search({"kind": "random"}))
    return Path("runs/a")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: " ".join(map(str, model.values())))
def test_the_first_suggestions_follow_the_earlier_trials(model: dict[str, Any], earlier: Path) -> None:
    first = run(search({**model, "from_runs": [str(earlier)]}), "b", 4)
    assert min(map(loss, first)) < 0.1 / 3 + 0.03  # at random: 0.2 is the mean, and 0.05 the best of 4
    assert len(tuner.load("runs/b").trials) == 4  # the earlier ones are not trials of this run


def test_a_resumed_search_knows_the_same_without_the_earlier_run(earlier: Path) -> None:
    made = search({"kind": "gp", "from_runs": [str(earlier)]})
    whole = run(made, "whole", 6)
    with made.begin(name="left") as loop:
        configs = drive(loop, 3)
    shutil.rmtree(earlier)
    (Path("runs/left") / "state.pkl").unlink(missing_ok=True)
    with tuner.load("runs/left").reopen() as loop:
        configs += drive(loop, 3)
    assert configs == whole
    told = json.loads(Path("runs/left/earlier_trials.json").read_text())
    assert [len(told), told[0]["steps"], len(told[0]["point"])] == [30, [1, 2, 3], 2]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "is missing"),
        ("[{]", "cannot be read"),
        ('[{"name": "a", "point": [2.0, 0.1], "steps": [], "values": [], "failed": false}]', "less than or equal to 1"),
        ('[{"name": "a", "point": [0.2], "steps": [], "values": [], "failed": false}]', "a trial of another search"),
    ],
)
def test_a_damaged_file_is_named(content: str | None, problem: str, earlier: Path) -> None:
    with search({"kind": "gp", "from_runs": [str(earlier)]}).begin(name="b") as loop:
        drive(loop, 1)
    (Path("runs/b") / "state.pkl").unlink(missing_ok=True)
    file = Path("runs/b/earlier_trials.json")
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(EnvironmentFailure, match=rf"runs/b: earlier_trials.json .*{problem}.*is damaged"):
        tuner.load("runs/b").reopen()


def note(made: tuner.Search) -> str:
    return made.plan().plan.notes[-1]


def test_trials_of_another_space_count_if_they_lie_in_this_one(earlier: Path) -> None:
    from_runs = {"kind": "gp", "from_runs": ["runs/a"]}
    assert note(search(from_runs)) == "search.from_runs: runs/a: the search learns from 30 trials"
    assert search(from_runs).plan().plan.modelled == 30
    assert search({"kind": "gp"}).plan().plan.modelled < 30
    narrow = note(search(from_runs, {"x": {"uniform": [0, 0.5]}}))
    assert "and not from 1" in narrow
    assert "outside of its space (x: 0." in narrow
    assert "is outside uniform [0, 0.5])" in narrow
    with pytest.raises(InputError, match=r"none of its trials can be learned from: z: has no value there"):
        note(search(from_runs, {**SPACE, "z": {"uniform": [0, 1]}}))
    with pytest.raises(InputError, match=r"none of its trials can be learned from: x: 0\.\d+ is outside constant 3"):
        note(search(from_runs, {"x": 3, "y": {"uniform": [0, 1]}}))


def test_a_parameter_that_was_fixed_has_that_value(user_folder: Path) -> None:
    run(search({"kind": "random"}, {"x": {"uniform": [0, 1]}}, params={"y": 0.5, "epochs": 3}), trials=3)
    told = note(search({"kind": "gp", "from_runs": ["runs/a"]}, params={"epochs": 9}))
    assert told.endswith("runs/a: the search learns from 3 trials; its params had epochs 3 (here 9)")


def test_fidelity_and_objective_are_those_of_the_new_search(earlier: Path) -> None:
    asha = tuner.schedulers.Asha(time_attr="epoch", max_t=9)
    with search({"kind": "gp", "from_runs": ["runs/a"]}, scheduler=asha).begin(name="b") as loop:
        assert loop.ask() is not None
    told = json.loads(Path("runs/b/earlier_trials.json").read_text())
    assert told[0]["steps"] == [1, 2, 3]
    other = search({"kind": "gp", "from_runs": ["runs/a"]}, objective=tuner.maximize("size"))
    with other.begin(name="c") as loop:
        assert loop.ask() is not None
    assert json.loads(Path("runs/c/earlier_trials.json").read_text())[0]["values"] == [[7.0]] * 3


def test_small_spaces_may_be_gone_through_again(user_folder: Path) -> None:
    space = {"x": {"choice": [0.1, 0.3, 0.5]}, "y": {"choice": [0.5, 0.6]}}
    assert len(run(search({"kind": "gp"}, space))) == 6
    again = run(search({"kind": "gp", "n_initial_points": 3, "from_runs": ["runs/a"]}, space), "b")
    assert again[0] == {"x": 0.3, "y": 0.6}
    assert len(again) == 6


@pytest.mark.parametrize(
    ("model", "keys", "problem"),
    [
        ({"kind": "random"}, {}, "search random learns nothing from earlier runs; use one of: optuna tpe, "),
        ({"kind": "optuna", "sampler": "qmc"}, {}, "search optuna qmc learns nothing from earlier runs"),
        ({"kind": "gp", "from_runs": ["runs/none"]}, {}, r"from_runs\[0\]: .*runs/none"),
        ({"kind": "gp", "from_runs": ["runs/a", "runs/a"]}, {}, r"from_runs\[1\]: runs/a is there twice"),
        (
            {"kind": "gp"},
            {"objective": tuner.maximize("accuracy")},
            "report no 'accuracy', which the search compares; they report epoch, loss, size",
        ),
        (
            {"kind": "gp"},
            {"scheduler": tuner.schedulers.Asha(time_attr="fold", max_t=9)},
            "report no 'fold', which the search compares",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_one_line(
    model: dict[str, Any], keys: dict[str, Any], problem: str, earlier: Path
) -> None:
    with pytest.raises(InputError, match=problem):
        search({"from_runs": ["runs/a"], **model}, **keys).plan()


def test_validate_tells_and_names_the_line(earlier: Path) -> None:
    file = Path("mine.yaml")
    file.write_text(
        "trainable: trainables.digits:train\nsearch_space: {lr: {uniform: [0, 1]}}\n"
        "objective: {metric: loss, mode: min}\nsearch:\n  kind: gp\n  from_runs:\n    - runs/gone\n"
    )
    with pytest.raises(InputError, match=r"mine.yaml:7:7: search.from_runs\[0\]: "):
        validate(file)
