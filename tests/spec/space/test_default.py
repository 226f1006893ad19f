"""`default:` beside a domain: in YAML, as the first trial, and of trials that lack the parameter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spaces import space as read
from tuner.errors import Problem
from tuner.searchers import AnySearch
from tuner.searchers.build import build_searcher
from tuner.searchers.grid import Grid
from tuner.searchers.random import Random
from tuner.spec.configuration import Configuration
from tuner.spec.document import dump_yaml, read_yaml
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space, json_schema, read_space, to_yaml

SPACE = """
opt: {choice: [sgd, adam, null], default: null}
lr: {loguniform: [1e-4, 1e-1], default: 1e-2, prior: 2e-2, confidence: high}
width: {randint: [1, 1e3], default: 1e2}
momentum: {uniform: [0, 1], default: 0.9, when: {opt: sgd}}
"""


def suggestions(space: Space, count: int = 3, search: Any = None) -> list[Configuration | None]:
    searcher = build_searcher(search or Random(), SearchProblem(space, ("max",), 20, None, seed=1))
    return [searcher.suggest(f"t{k}") for k in range(count)]


def test_it_stands_beside_its_domain() -> None:
    space = read(SPACE)
    defaults = [parameter.default.value for parameter in space.parameters if parameter.default]
    assert defaults == [None, 0.01, 100, 0.9]
    assert type(defaults[2]) is int
    assert [str(parameter.default) for parameter in space.parameters][:2] == ["default null", "default 0.01"]
    assert repr(read(dump_yaml(to_yaml(space), []).decode())) == repr(space)


def test_the_word_still_names_a_parameter_where_no_domain_is() -> None:
    space = read("default: 3\nmodel: {default: {choice: [a, b]}}")
    assert [(p.name, str(p.domain), p.default) for p in space.parameters] == [
        ("default", "constant 3", None),
        ("model.default", "choice [a, b]", None),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {uniform: [0, 1], default: 2}", "s.yaml:1:22: a.default: 2 is outside uniform [0, 1]"),
        ("a: {uniform: [0, 1], default: '0.5'}", "a.default: '0.5' is text, not a number: remove the quotes"),
        ("a: {randint: [0, 9], default: 1.5}", "a.default: 1.5 is outside randint [0, 9]"),
        ("a: {grid_search: [x, y], default: z}", "a.default: z is outside grid_search [x, y]"),
        ("a: {default: 1}", "s.yaml:1:1: a: holds nothing but 'default': a domain is missing"),
        ("a: {b: {uniform: [0, 1]}, default: 1}", "a.default: 'default' belongs beside a domain, and this is a group"),
    ],
)
def test_every_mistake_has_its_message(text: str, message: str) -> None:
    problems: list[Problem] = []
    assert read_space(read_yaml(text, "s.yaml"), (), problems) is None
    (problem,) = problems
    assert message in str(problem)


def test_the_json_schema_knows_it() -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema())
    for text in (
        "a: {uniform: [0, 1], default: 0.5}",
        "a: {choice: [x], default: x}",
        "a: {grid_search: [1], default: 1}",
    ):
        validator.validate(read_yaml(text, "s").value)
    assert list(validator.iter_errors(read_yaml("a: {uniform: [0, 1], default: x}", "s").value))


@pytest.mark.parametrize("kind", ["random", "gp", "bohb", "optuna", "hyperopt"])
def test_the_defaults_run_first_and_then_the_mode_of_the_priors(kind: str) -> None:
    from pydantic import TypeAdapter

    search = TypeAdapter(AnySearch).validate_python({"kind": kind})
    first, second, _ = suggestions(read(SPACE), search=search)
    assert first == {"opt": None, "lr": 0.01, "width": 100}
    assert second == {"opt": None, "lr": pytest.approx(0.02), "width": 100}


def test_known_points_come_before_and_a_parameter_without_a_default_is_drawn() -> None:
    point = {"x": 0.25, "y": 0.5}
    search = Random(points_to_evaluate=(point,))
    first, second, third = suggestions(read("x: {uniform: [0, 1], default: 0.75}\ny: {uniform: [0, 1]}"), search=search)
    assert first == point
    assert second is not None
    assert third is not None
    assert second["x"] == 0.75
    assert second["y"] not in (0.5, third["y"])
    assert third["x"] != 0.75


def test_constraints_hold_for_it() -> None:
    text = "x: {uniform: [0, 1], default: 0.75}\ny: {uniform: [0, 1]}"
    for constraint, is_possible in (("y < x", True), ("x < 0.5", False)):
        space = read(text, constraint)
        first, *_ = suggestions(space)
        assert first is not None
        assert space.allows(first)
        assert (first["x"] == 0.75) == is_possible


def test_a_grid_goes_its_own_way() -> None:
    space = read("x: {choice: [1, 2, 3], default: 2}")
    assert suggestions(space, 4, Grid()) == [{"x": 1}, {"x": 2}, {"x": 3}, None]
    grid = read("x: {grid_search: [1, 2, 3], default: 2}")
    assert suggestions(grid) == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_a_trial_without_the_parameter_had_its_default() -> None:
    space = read("x: {uniform: [0, 1]}\nn: {randint: [1, 9], default: 4}\nk: {choice: [1, 2]}")
    assert space.project({"x": 0.5, "k": 2}) == ({"x": 0.5, "n": 4, "k": 2}, "")
    assert space.project({"x": 0.5, "n": 7, "k": 2}) == ({"x": 0.5, "n": 7, "k": 2}, "")
    assert space.project({"x": 0.5}) == ({}, "k: has no value there, and no default here")
    assert space.project({"x": 5, "k": 2}) == ({}, "x: 5 is outside uniform [0, 1]")
