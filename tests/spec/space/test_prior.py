"""Priors: as distributions, in YAML, and in random search."""

from __future__ import annotations

import math
import pickle
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.spaces import space as read
from tuner.errors import Problem
from tuner.searchers.base import SearchSpec
from tuner.searchers.bohb.searcher import Bohb
from tuner.searchers.build import build_searcher
from tuner.searchers.grid import Grid
from tuner.searchers.hyperopt.spec import HyperOpt
from tuner.searchers.optuna.spec import Optuna
from tuner.searchers.random import Draw, PriorShare, Random
from tuner.spec.document import dump_yaml, read_yaml
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import (
    Choice,
    Constant,
    Domain,
    Float,
    Integer,
    Normal,
    Parameter,
    Prior,
    Space,
    json_schema,
    python_only,
    read_space,
    to_yaml,
)
from tuner.spec.space.constraints import read_constraint

BELIEFS: list[tuple[Domain, Any]] = [
    (Float(-2, 3), 0.5),
    (Float(0, 1), 0),
    (Float(0, 1, 0.25), 1.0),
    (Float(1e-4, 1e-1, None, True), 1e-2),
    (Float(0.1, 10, 0.1, True), 0.1),
    (Normal(3.0, 2.0), 4.0),
    (Normal(0.0, 1.0), 50.0),
    (Normal(0.0, 1.0, 0.5), -1.0),
    (Integer(0, 3), 1),
    (Integer(-(2**62), 2**62), 5),
    (Integer(0, 10, 5), 10),
    (Integer(1, 1000, None, True), 1),
    (Integer(8, 64, 8, True), 32),
    (Choice(("sgd", [1], {"a": 2})), [1]),
    (Choice((7,)), 7),
]
CASES = [
    pytest.param(domain, Prior(value, confidence), id=f"{domain} {confidence}")
    for domain, value in BELIEFS
    for confidence in ("low", "medium", "high")
]
GRID = [(i + 0.5) / 5000 for i in range(5000)]


@pytest.mark.parametrize(("domain", "prior"), CASES)
def test_a_density_is_relative_to_the_domain(domain: Domain, prior: Prior) -> None:
    """Its mean over the domain is 1, and the prior's own draws have the frequencies that it says."""
    densities = [prior.density(domain, domain.from_unit(u)) for u in GRID]
    assert statistics.fmean(densities) == pytest.approx(1, abs=0.01)
    drawn = [prior.from_unit(domain, u) for u in GRID]
    assert all(domain.contains(value) for value in drawn)
    second_moment = statistics.fmean(density**2 for density in densities)
    assert statistics.fmean(prior.density(domain, value) for value in drawn) == pytest.approx(second_moment, rel=0.01)


@pytest.mark.parametrize(("domain", "prior"), CASES)
def test_the_believed_value_is_the_likeliest(domain: Domain, prior: Prior) -> None:
    most = prior.density(domain, prior.value)
    assert all(prior.density(domain, domain.from_unit(u)) <= most * (1 + 1e-9) for u in GRID[::50])
    for u in (0.0, 1.0):
        assert domain.contains(prior.from_unit(domain, u))


@pytest.mark.parametrize(("domain", "value"), [case for case in BELIEFS if case[0].count != 1])
def test_confidence_draws_nearer(domain: Domain, value: Any) -> None:
    def peak(confidence: Any) -> float:
        return Prior(value, confidence).density(domain, value)

    assert 1 < peak("low") < peak("medium") < peak("high")


def test_draws_are_seeded_and_plain() -> None:
    domain, prior = Integer(1, 100), Prior(50, "high")
    drawn = [prior.sample(domain, np.random.default_rng(3)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert type(drawn[0]) is int


# --- in YAML -----------------------------------------------------------------------------------------------------


def test_a_prior_stands_beside_its_domain() -> None:
    space = read("""
opt: {choice: [sgd, adam], prior: adam}
lr: {loguniform: [1e-4, 1e-1], prior: 1e-2, confidence: high}
width: {randint: [1, 1e3], prior: 1e2, when: {opt: sgd}, confidence: low}
layers: {choice: [[1], [2, 3]], prior: [2, 3]}
n: {uniform: [0, 1]}
""")
    assert [parameter.prior for parameter in space.parameters] == [
        Prior("adam", "medium"),
        Prior(0.01, "high"),
        Prior(100, "low"),
        Prior([2, 3], "medium"),
        None,
    ]
    assert type(space.parameters[2].prior.value) is int  # type: ignore[union-attr]
    assert str(space.parameters[1].prior) == "prior 0.01 (confidence high)"
    assert repr(read_back(space)) == repr(space)


def read_back(space: Space) -> Space:
    return read(dump_yaml(to_yaml(space), []).decode())


def test_the_words_still_name_parameters_where_no_domain_is() -> None:
    space = read("""
prior: 3
confidence: {uniform: [0, 1]}
model:
  prior: {choice: [normal, laplace]}
  confidence: {scale: {uniform: [0, 1], prior: 0.5}, when: {model.prior: normal}}
""")
    assert [(p.name, str(p.domain), p.prior) for p in space.parameters] == [
        ("prior", "constant 3", None),
        ("confidence", "uniform [0, 1]", None),
        ("model.prior", "choice [normal, laplace]", None),
        ("model.confidence.scale", "uniform [0, 1]", Prior(0.5)),
    ]
    assert repr(read_back(space)) == repr(space)
    constants = Space((Parameter(("model", "prior"), Constant(3)), Parameter(("prior",), Constant(4))))
    assert python_only(constants) == [(("model", "prior"), "has a name that YAML does not allow")]


ERRORS = {
    "a: {uniform: [0, 1], prior: 2}": "s.yaml:1:22: a.prior: 2 is outside uniform [0, 1]",
    "a: {uniform: [0, 1], prior: '0.5'}": "a.prior: '0.5' is text, not a number: remove the quotes",
    "a: {uniform: [0, 1], prior: }": "a.prior: must be a number, not empty",
    "a: {randint: [0, 9], prior: 1.5}": "a.prior: 1.5 is outside randint [0, 9]",
    "a: {randint: [0, 9], prior: 9}": "a.prior: 9 is outside randint [0, 9]",
    "a: {quniform: [0, 1, 0.5], prior: 0.3}": "a.prior: 0.3 is outside quniform [0, 1, 0.5]",
    "a: {randn: [], prior: .inf}": "a.prior: must be a finite number, not .inf",
    "a: {choice: [x, y], prior: z}": "a.prior: z is outside choice [x, y]",
    "a: {grid_search: [1, 2], prior: 1}": "a.prior: grid_search goes through all its values, whatever is believed",
    "a: {uniform: [0, 1], confidence: high}": "s.yaml:1:22: a.confidence: needs a prior beside it",
    "a: {uniform: [0, 1], prior: 0.5, confidence: hihg}": "s.yaml:1:34: a.confidence: must be a level of confidence, "
    "not the text 'hihg'; allowed: low, medium, high; did you mean 'high'?",
    "a: {uniform: [0, 1], prior: 0.5, confidence: 0.9}": "a.confidence: must be a level of confidence, not the number",
    "a: {prior: 0.5}": "s.yaml:1:1: a: holds nothing but 'prior': a domain is missing",
    "a: {prior: 0.5, confidence: low}": "a: holds nothing but 'prior' and 'confidence': a domain is missing",
    "a: {b: {uniform: [0, 1]}, prior: 0.5}": "s.yaml:1:27: a.prior: 'prior' belongs beside a domain, and this is a "
    "group; a constant goes into params",
    "a: {b: 3, confidence: low}": "a.confidence: 'confidence' belongs beside a domain, and this is a group",
    "a: {unifrom: [0, 1], prior: 0.5}": "s.yaml:1:5: a.unifrom: unknown domain; ",
    "a: {uniform: [1, 0], prior: 0.5}": "a.uniform[1]: the range is empty",
    "a: {uniform: [0, 1], priro: 0.5}": "a.priro: stands beside the domain uniform: a domain allows only 'when', "
    "'prior', 'confidence', 'default' beside it",
}


@pytest.mark.parametrize("text", ERRORS)
def test_every_mistake_has_its_message(text: str) -> None:
    problems: list[Problem] = []
    assert read_space(read_yaml(text, "s.yaml"), (), problems) is None
    (problem,) = problems
    assert ERRORS[text] in str(problem)


def test_the_json_schema_knows_priors() -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema())
    for text in ("a: {uniform: [0, 1], prior: 0.5, confidence: low}", "a: {choice: [x], prior: x}"):
        validator.validate(read_yaml(text, "s").value)
    for beside in ("prior: x", "confidence: low", "prior: 0.5, confidence: sure"):
        assert list(validator.iter_errors(read_yaml(f"a: {{uniform: [0, 1], {beside}}}", "s").value)), beside


# --- in random search --------------------------------------------------------------------------------------------


def believing(value: float | None) -> Space:
    belief = "" if value is None else f", prior: {value}, confidence: high"
    return read("".join(f"x{i}: {{uniform: [0, 1]{belief}}}\n" for i in range(4)))


def best(spec: SearchSpec, space: Space, seed: int, trials: int = 60) -> float:
    """The smallest distance from the optimum at 0.7 (squared) that a search finds."""
    searcher = spec.build(SearchProblem(space, ("min",), trials, None, seed))
    found = math.inf
    for i in range(trials):
        configuration = searcher.suggest(str(i))
        assert configuration is not None
        value = sum((x - 0.7) ** 2 for x in configuration.values())
        searcher.on_end(str(i), 1, (value,))
        found = min(found, value)
    return found


@pytest.mark.parametrize("spec", [Random(), Random(sequence="sobol")], ids=["random", "sobol"])
def test_a_right_prior_helps_and_a_wrong_one_costs_little(spec: SearchSpec) -> None:
    none, right, wrong = (
        statistics.fmean(best(spec, believing(value), seed) for seed in range(20)) for value in (None, 0.7, 0.05)
    )
    assert right < none / 4
    assert wrong < none * 1.25


def test_the_share_of_the_prior_follows_its_results() -> None:
    def share(results: list[tuple[bool, tuple[float, ...] | None]], mode: Mode = "min") -> float:
        share = PriorShare(SearchProblem(believing(0.5), (mode,), 20, None, 0))
        for from_prior, values in results:
            share.judge(Draw(from_prior), 1, values)
        return share.value

    better = [(i % 2 == 0, (float(i % 2) + i * 7 % 20 / 100,)) for i in range(40)]
    assert share([]) == 0.5
    assert share(better) > 0.8
    assert share(better, "max") < 0.2
    assert share([(i % 2 == 0, (0.0,) if i % 2 else None) for i in range(40)]) < 0.1


def test_a_trial_that_a_scheduler_let_go_on_counts_as_the_better_one() -> None:
    share = PriorShare(SearchProblem(believing(0.5), ("min",), 20, 9, 0))
    for i in range(20):
        share.judge(Draw(i % 2 == 0), 9 if i % 2 == 0 else 1, (0.5 if i % 2 == 0 else 0.4,))
    assert share.value > 0.8


def test_a_trial_that_pauses_is_judged_there_and_anew_at_its_next_rung() -> None:
    share = PriorShare(SearchProblem(believing(0.5), ("min",), 20, 9, 0))
    good, others = Draw(True), [Draw(i % 2 == 0) for i in range(10)]
    for draw in (*others, good):
        share.judge(draw, 1, (0.1 if draw is good else 0.4,))
    assert good.success
    before = share.value
    share.judge(good, 3, (0.9,))
    assert good.success
    assert share.value == before  # it is the same draw
    for draw in others[:6]:
        share.judge(draw, 3, (0.2,))
    share.judge(good, 9, None)
    assert not good.success
    assert share.value < before


def test_a_search_with_priors_goes_on_after_pickling() -> None:
    space = believing(0.2)
    searcher = Random(sequence="sobol").build(SearchProblem(space, ("min",), 20, None, 1))
    for i in range(7):
        searcher.suggest(str(i))
        searcher.on_end(str(i), 1, (float(i),))
    searcher.suggest("pending")
    restored = pickle.loads(pickle.dumps(searcher))
    for one in (searcher, restored):
        one.on_end("pending", 1, (0.0,))
        one.on_end("never suggested", 1, (0.0,))
    assert [searcher.suggest(str(i)) for i in range(9)] == [restored.suggest(str(i)) for i in range(9)]


def test_a_sobol_sequence_covers_the_space_evenly() -> None:
    space = read(
        "x: {uniform: [0, 8]}\ny: {uniform: [0, 4], when: {o: [a, b]}}".replace("x:", "o: {choice: [a, b]}\nx:")
    )
    first, again, other = (
        [
            searcher.suggest(str(i))
            for searcher in [Random(sequence="sobol").build(SearchProblem(space, ("min",), 8, None, seed))]
            for i in range(8)
        ]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert sorted(int(point["x"]) for point in first if point) == list(range(8))
    assert sorted(int(point["y"]) for point in first if point) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_sobol_sequence_of_nothing_to_draw() -> None:
    space = read("a: 1\nb: {grid_search: [1, 2]}")
    searcher = Random(sequence="sobol").build(SearchProblem(space, ("min",), 8, None, 0))
    assert [searcher.suggest(str(i)) for i in range(3)] == [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}]


# --- in every searcher -------------------------------------------------------------------------------------------


SEARCHES = [Random(), Random(sequence="sobol"), Bohb(), HyperOpt(), Optuna(), Optuna(sampler="cmaes")]


@pytest.mark.parametrize("spec", SEARCHES, ids=lambda spec: f"{spec.kind} {getattr(spec, 'sampler', '')}")
def test_the_mode_of_the_priors_runs_first(spec: SearchSpec) -> None:
    space = read("x: {loguniform: [1e-4, 1], prior: 1e-2}\nn: {randint: [1, 9], prior: 3}\nfree: {uniform: [0, 1]}\n")
    task = SearchProblem(space, ("min",), 20, 9, 5)
    first = build_searcher(spec, task).suggest("a")
    assert first is not None
    assert (first["x"], first["n"]) == (pytest.approx(1e-2), 3)
    assert first == build_searcher(spec, task).suggest("a")
    point = {"x": 0.5, "n": 1, "free": 0.25}
    searcher = build_searcher(spec.model_copy(update={"points_to_evaluate": (point,)}), task)
    assert [searcher.suggest("a"), searcher.suggest("b")] == [point, first]
    twice = build_searcher(spec.model_copy(update={"points_to_evaluate": (first,)}), task)
    assert twice.suggest("a") == first
    assert twice.suggest("b") != first


def test_the_mode_of_the_priors_that_a_constraint_forbids_does_not_run() -> None:
    space = read("x: {randint: [1, 9], prior: 3}\ny: {randint: [1, 9]}\n")
    for rule, found in (("y > x", True), ("x > 4", False)):
        constraint = read_constraint(rule, [parameter.path for parameter in space.parameters], {})
        constrained = replace(space, constraints=(constraint,))
        first = build_searcher(Random(), SearchProblem(constrained, ("min",), 20, 9, 0)).suggest("a")
        assert first is not None
        assert (first["x"] == 3) == found


def test_grid_search_runs_each_combination_once_whatever_is_believed() -> None:
    space = read("x: {randint: [1, 4], prior: 2}\n")
    grid = build_searcher(Grid(), SearchProblem(space, ("min",), 3, 9, 0))
    assert [grid.suggest(str(i)) for i in range(4)] == [{"x": 1}, {"x": 2}, {"x": 3}, None]


@pytest.mark.parametrize("spec", [Optuna(), HyperOpt()], ids=["optuna", "hyperopt"])
def test_a_prior_is_not_spent_by_trials_that_are_stopped_at_once(spec: SearchSpec) -> None:
    """Two hundred trials of one step are worth two complete ones: of 60 suggestions a good share is still near it."""

    def near(steps: int) -> int:
        space = read("x: {uniform: [0, 1], prior: 0.9, confidence: high}\ny: {uniform: [0, 1]}\n")
        searcher = spec.build(SearchProblem(space, ("min",), 300, 100, 0))
        found = 0
        for i in range(260):
            configuration = searcher.suggest(str(i))
            assert configuration is not None
            found += i >= 200 and configuration["x"] > 0.75
            searcher.on_end(str(i), steps, ((configuration["x"] - 0.2) ** 2 + configuration["y"],))
        return found

    assert near(1) > 15 > near(100)
