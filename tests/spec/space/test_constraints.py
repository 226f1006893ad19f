"""Constraints: the language, what they do to a space, and what is refused; and points to evaluate, which obey them."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spaces import space
from tuner.errors import MOST_PROBLEMS, InputError
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import Cluster, Node
from tuner.plan.describe import description
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.provenance import resolved_spec
from tuner.searchers.grid import Grid
from tuner.searchers.random import Random
from tuner.spec.configuration import Configuration
from tuner.spec.document import dump_yaml
from tuner.spec.problem import SearchProblem
from tuner.spec.space.constraints import Constraint, read_constraint, unjudged
from tuner.spec.space.model import MAX_EFFORT, Space

NAMES = [("x",), ("y",), ("opt",), ("flag",), ("model", "l1"), ("model", "l2")]
PARAMS = {"accumulate": 4, "data": {"name": "cifar", "augment": True}, "sizes": [1, 2]}
VALUES = {"x": 3, "y": 0.5, "opt": "sgd", "flag": False, "model": {"l1": 64, "l2": 32}}


def constraint(text: str) -> Constraint:
    return read_constraint(text, NAMES, PARAMS)


# --- the language ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("x == 3", True),
        ("  x != 3.0  ", False),
        ("model.l1 >= model.l2", True),
        ("model.l2 * 2 == model.l1", True),
        ("x * accumulate <= 12", True),
        ("x * accumulate <= 11", False),
        ("1 + x * 2 - 4 / 2 == 5", True),
        ("x // 2 == 1 and x % 2 == 1 and x ** 2 == 9", True),
        ("(1 + x) * 2 == 8", True),
        ("-x < 0 < +x", True),
        ("1 <= x < 3", False),
        ("1 < 2 > y", True),
        ("opt == 'sgd'", True),
        ('opt != "sgd" or x > 2', True),
        ("opt == x", False),
        ("not flag", True),
        ("flag or x > 5", False),
        ("flag == false and flag != true", True),
        ("flag == False", True),
        ("opt != null", True),
        ("data.augment and data.name == 'cifar' and x > 0", True),
        # no value: neither does it hold, nor does its contrary
        ("1 / (x - 3) > 0", False),
        ("not 1 / (x - 3) > 0", False),
        ("x % (x - 3) == 0", False),
        ("x == 3 or 1 / (x - 3) > 0", True),  # judged only as far as needed
        ("10 ** 10 ** 10 ** 10 > x", False),
        ("x < 10.0 ** 400", False),
        ("(0 - x) ** 0.5 > 0", False),
        ("1e308 * 10 > x", False),
        ("1 ** 100000000000000 < x", True),
        ("x ** -2 < 1", True),
        (f"x ** {' ** '.join('9' * 20)} > 0", False),
    ],
)
def test_what_holds(text: str, holds: bool) -> None:
    assert constraint(text).holds(VALUES) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not an expression: "),
        ("x >", "'x >' is not an expression: "),
        ("x = 3", "is not an expression: "),
        ("x < 3; y < 3", "is not an expression: "),
        ("x <\n3", "is not an expression: "),
        ("x < '\\d'", "is not an expression: "),
        ("x < 3\0", "is not an expression"),
        ("lambda < 3", "is not an expression: "),
        ("(" * 300 + "x" + ")" * 300 + " < 3", "is not an expression"),
        ("not " * 200 + "flag", "is nested deeper than 50 levels"),
        ("x < " + "1" * 1000, "is longer than 1000 characters"),
        ("max(x, y) <= 3", "'max(x, y)' is not in the language of constraints: write parameter names, numbers, text,"),
        ("__import__('os').system('ls') == 0", "is not in the language"),
        ("x.__class__ == 3", "'x.__class__' in 'x.__class__ == 3' is neither in search_space nor in params"),
        ("'a'.upper() == opt", "is not in the language"),
        ("(x).y < 3", "'x.y' in '(x).y < 3' is neither in search_space nor in params"),
        ("(x + y).real < 3", "'(x + y).real' is not in the language of constraints: a dot only joins nested names"),
        ("sizes[0] < x", "'sizes[0]' is not in the language"),
        ("x in (1, 2)", "'x in (1, 2)' is not in the language"),
        ("x is 3", "is not in the language"),
        ("opt in ['sgd']", "is not in the language"),
        ("(lambda: x)() < 3", "is not in the language"),
        ("[i for i in sizes] == x", "is not in the language"),
        ("x if flag else y", "is not in the language"),
        ("(z := 3) < x", "is not in the language"),
        ("f'{x}' == opt", "is not in the language"),
        ("b'x' == opt", "is not in the language"),
        ("x < 3j", "'3j' is not in the language"),
        ("x < ...", "'...' is not in the language"),
        ("~x < 3", "is not in the language"),
        ("x | y < 3", "is not in the language"),
        ("x << 3 < 9", "is not in the language"),
        ("x @ y < 3", "is not in the language"),
        ("x, y", "is not in the language"),
        ("x * y", "'x * y' says nothing that can hold or fail: compare it, as in x * y <= 4096"),
        ("-x", "says nothing that can hold or fail"),
        ("3", "says nothing that can hold or fail"),
        ("accumulate < 3", "'accumulate < 3' names no parameter of search_space: it always or never holds"),
        ("z < 3", "'z' in 'z < 3' is neither in search_space nor in params; allowed: accumulate, "),
        ("model.l3 < 3", "did you mean 'model.l"),
        ("model < 3", "'model' in 'model < 3' is a group of parameters: name one parameter in it"),
        ("data.name.x == x", "'data.name.x' in 'data.name.x == x' is neither"),
    ],
)
def test_what_the_language_does_not_have(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        constraint(text)
    assert words in str(caught.value)


@given(st.text(st.sampled_from("xy opt.1290+-*/%()<>=!'\"and or not[]{}:,\\\n"), max_size=40) | st.text(max_size=20))
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_constraint_or_a_plain_refusal(text: str) -> None:
    """A ValueError for what is not in the language, an InputError for a type, and nothing else."""
    with contextlib.suppress(ValueError, InputError):
        assert constraint(text).holds(VALUES) in (True, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("opt < 3", "< compares numbers, and opt can be sgd"),
        ("x < 'a'", "< compares numbers, and 'a' can be a"),
        ("opt * 3 == 3", "* takes numbers, and opt can be sgd"),
        ("opt % 3 == 3", "% takes numbers"),
        ("flag + 1 == 1", "+ takes numbers, and flag can be false"),
        ("x and flag", "x must be true or false, and can be 3"),
        ("not opt", "opt must be true or false, and can be sgd"),
        ("opt", "opt must be true or false, and can be sgd"),
        ("-data.name < x", "- takes numbers, and data.name can be cifar"),
    ],
)
def test_wrong_types(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        constraint(text).holds(VALUES)
    assert f"the constraint {text!r} cannot be judged: {words}" in str(caught.value)
    ((index, message),) = unjudged([constraint(text)], [VALUES])
    assert index == 0
    assert words in message


def test_a_part_that_is_rarely_looked_at_and_never_judged_is_found() -> None:
    ((_, message),) = unjudged([constraint("x == 3 or opt > 3")], [VALUES])
    assert "> compares numbers, and opt can be sgd" in message
    guarded = constraint("opt == 'sgd' or opt > 3")
    assert list(unjudged([guarded], [VALUES, VALUES | {"opt": 4}])) == []


def test_a_constraint_on_an_inactive_parameter_holds() -> None:
    values = {"x": 3, "model": {}}
    assert constraint("y > 9").holds(values)
    assert constraint("x > 9 and model.l1 > 9").holds(values)
    assert constraint("not model.l1 > 9").holds(values)
    assert not constraint("x > 9").holds(values)


def test_a_parameter_goes_before_a_param_and_a_word() -> None:
    over = space("x: {choice: [1, 2]}\ntrue: {choice: [1, 2]}", "x == true", params={"x": 1})
    assert over.allows({"x": 2, "true": 2})
    assert not over.allows({"x": 1, "true": 2})


def test_a_constraint_can_be_pickled() -> None:
    before = constraint("1 <= x ** 2 <= accumulate * 4 and not (flag or opt == 'adam')")
    assert pickle.loads(pickle.dumps(before)) == before
    assert pickle.loads(pickle.dumps(before)).holds(VALUES)
    assert str(before) == before.text


# --- in a space --------------------------------------------------------------------------------------------------

TRIANGLE = "a: {randint: [0, 4]}\nb: {randint: [0, 4]}\nc: {choice: [u, v], when: {a: 0}}"


def test_a_space_holds_only_what_is_allowed() -> None:
    over = space(TRIANGLE, "a > b or a == 0", "a + b < 5")
    grid = list(over.grid())
    expected = {(0, b, c) for b in range(4) for c in "uv"} | {
        (a, b, None) for a in (1, 2, 3) for b in range(a) if a + b < 5
    }
    assert {(c["a"], c["b"], c.get("c")) for c in grid} == expected
    assert over.size == len(grid) == len(expected)
    rng = np.random.default_rng(0)
    drawn = [over.sample(rng) for _ in range(200)]
    assert {(c["a"], c["b"], c.get("c")) for c in drawn} == expected
    assert over.violations({"a": 1, "b": 2}) == [((), "breaks the constraint 'a > b or a == 0'")]
    assert not over.contains({"a": 3, "b": 2})
    assert over.contains({"a": 2, "b": 1})
    assert over.violations({"a": 9, "b": 2}) == [(("a",), "9 is outside randint [0, 4]")]


def test_the_grid_of_a_constrained_space_goes_on_after_pickling() -> None:
    walk = space(TRIANGLE, "a > b").grid()
    first = next(walk)
    restored = pickle.loads(pickle.dumps(walk))
    assert [first, *restored] == [first, *walk]


def test_a_grid_search_ends_after_what_is_allowed() -> None:
    over = space(TRIANGLE, "a > b")
    searcher = Grid().build(SearchProblem(over, ("min",), 20, None, 0))
    suggested = [searcher.suggest(str(i)) for i in range(7)]
    assert [c is None for c in suggested] == [False] * 6 + [True]
    assert Grid().default_trials(over) == 6


def test_sampling_gives_up_with_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.spec.space.model.MAX_DRAWS", 50)
    with pytest.raises(InputError, match="constraints: none of 50 drawn configurations satisfies a > 5: loosen"):
        space(TRIANGLE, "a > 5").sample(np.random.default_rng(0))


@pytest.mark.parametrize("sequence", ["random", "sobol"])
def test_random_search_honours_constraints(sequence: Any) -> None:
    over = space(
        "x: {uniform: [0, 1], prior: 0.9}\ny: {uniform: [0, 1]}\nz: {loguniform: [1, 9]}", "x + y < 0.6", "z > y"
    )
    searcher = Random(sequence=sequence).build(SearchProblem(over, ("min",), 50, None, 0))
    assert all(over.contains(searcher.suggest(str(i)) or {}) for i in range(50))


def test_random_search_passes_over_a_combination_that_is_never_allowed() -> None:
    text = "g: {grid_search: [1, 2, 3, 4]}\nh: {grid_search: [u, v]}\nx: {uniform: [0, 1]}"
    over = space(text, "g * x < 2.5", "g > x + 1", "h == 'u' or g == 4")
    searcher = Random().build(SearchProblem(over, ("min",), 8, None, 0))
    drawn = [searcher.suggest(str(i)) or {} for i in range(8)]
    assert all(over.contains(c) for c in drawn)
    assert [(c["g"], c["h"]) for c in drawn] == [(2, "u"), (3, "u"), (4, "u"), (4, "v")] * 2


def test_a_constraint_on_a_grid_forbids_nothing_where_it_is_inactive() -> None:
    text = "o: {choice: [p, q]}\ng: {grid_search: [1, 2], when: {o: p}}\nh: {grid_search: [1, 2]}"
    over = space(text, "g + h < 3")
    searcher = Random().build(SearchProblem(over, ("min",), 80, None, 0))
    drawn = [searcher.suggest(str(i)) or {} for i in range(80)]
    assert {(c["o"], c.get("g"), c["h"]) for c in drawn} == {("p", 1, 1), ("q", None, 1), ("q", None, 2)}


def test_a_point_may_leave_out_what_follows() -> None:
    over = space("k: 3\na: {randint: [0, 4]}\nb: {uniform: [0, 1], when: {k: 3}}\nm: {n: text}", "a < k")
    assert over.violations({"a": 1, "b": 0.5}, partial=True) == []
    assert over.complete({"a": 1, "b": 0.5}) == {"k": 3, "a": 1, "b": 0.5, "m": {"n": "text"}}
    assert over.violations({"a": 3, "b": 0.5}, partial=True) == [((), "breaks the constraint 'a < k'")]
    assert over.violations({"a": 1, "b": 0.5, "k": 2}, partial=True)[0] == (("k",), "2 is outside constant 3")
    assert over.violations({"b": 0.5}, partial=True) == [(("a",), "is missing: it comes from randint [0, 4]")]


# --- in an experiment --------------------------------------------------------------------------------------------

MACHINE = Cluster((Node("a", {"CPU": 4.0}),))
EXPERIMENT = """\
trainable: t_constraints.py:train
params: {accumulate: 4, data: {name: cifar}}
search_space:
  opt: {choice: [sgd, adam]}
  batch_size: {lograndint: [16, 4097]}
  model: {l1: {randint: [1, 257]}, l2: {randint: [1, 257]}}
  momentum: {uniform: [0, 1], when: {opt: sgd}}
objective: {metric: loss, mode: min}
"""


@pytest.fixture(autouse=True)
def folder(user_folder: Path) -> Path:
    (user_folder / "t_constraints.py").write_text("def train(config): raise SystemExit('a trial ran')\n")
    return user_folder


def plan(folder: Path, extra: str, *overrides: str) -> Plan:
    (folder / "e.yaml").write_text(EXPERIMENT + extra)
    return make_plan(load_experiment("e.yaml", overrides), MACHINE)


def problems(folder: Path, extra: str, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        plan(folder, extra, *overrides)
    assert caught.value.exit_status == 2
    assert len(str(caught.value).splitlines()) == len(caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


def test_constraints_of_an_experiment(folder: Path) -> None:
    texts = ["model.l1 >= model.l2", "batch_size * accumulate <= 4096", "momentum < 0.9 or opt == 'adam'"]
    made = plan(folder, f"constraints: {texts}\n")
    over = made.task.space
    assert [c.text for c in over.constraints] == texts
    assert [text for _, text in description(made) if "only where" in text] == [f"only where {text}" for text in texts]
    rng = np.random.default_rng(1)
    drawn = [over.sample(rng) for _ in range(50)]
    assert all(c["model"]["l1"] >= c["model"]["l2"] and c["batch_size"] <= 1024 for c in drawn)
    resolved = resolved_spec(made, made.spec.params)
    assert resolved["constraints"] == texts
    (folder / "again.yaml").write_bytes(dump_yaml(resolved, []))
    assert load_experiment("again.yaml").spec == load_experiment("again.yaml").spec
    assert load_experiment("again.yaml").spec.search_space == over


def test_a_constraint_sees_overrides(folder: Path) -> None:
    made = plan(folder, "constraints: [batch_size * accumulate <= 4096]\n", "params.accumulate=64")
    assert not made.task.space.allows({"opt": "sgd", "batch_size": 65})
    assert plan(folder, "constraints: [batch_size < 2]\n", "constraints=[batch_size > 32]").task.space.constraints


def test_constraints_of_a_space_from_python(folder: Path) -> None:
    (folder / "constrained_space.py").write_text(
        "from ray import tune\n"
        "SPACE = {'a': tune.randint(0, 10), 'b': tune.sample_from(lambda config: 2 * config['a'])}\n"
    )
    extra = "constraints: [b <= 6 or batch_size == 3]\n"
    (message,) = problems(folder, extra, "search_space=constrained_space:SPACE")
    assert "e.yaml:9:15: constraints[0]: 'batch_size' in " in message
    over = plan(folder, "constraints: [b <= 6]\n", "search_space=constrained_space:SPACE").task.space
    rng = np.random.default_rng(0)
    assert {over.sample(rng)["a"] for _ in range(60)} == {0, 1, 2, 3}
    made = plan(
        folder,
        "constraints: [b <= 6]\n",
        "search_space=constrained_space:SPACE",
        "search.points_to_evaluate=[{a: 2}]",
        "search.kind=random",
    )
    assert resolved_spec(made, {})["constraints"] == ["b <= 6"]
    extra = "constraints: [b <= 6]\nsearch: {kind: random, points_to_evaluate: [{a: 4}]}\n"
    (message,) = problems(folder, extra, "search_space=constrained_space:SPACE")
    assert message.endswith("search.points_to_evaluate[0]: breaks the constraint 'b <= 6'")


@pytest.mark.parametrize(
    ("extra", "start", "words"),
    [
        ("constraints: [model.l1 > model.l3]", "e.yaml:9:15: constraints[0]: ", "did you mean 'model.l"),
        ("constraints: [max(batch_size) > 3]", "e.yaml:9:15: constraints[0]: ", "is not in the language"),
        ("constraints: ['opt == sgd']", "e.yaml:9:15: constraints[0]: ", "'sgd' in 'opt == sgd' is neither in"),
        ("constraints: model.l1 > 3", "e.yaml:9:1: constraints: ", "must be a list, not the text"),
        ("constraints: [3]", "e.yaml:9:15: constraints[0]: ", "must be string, not the number 3"),
        ("constraints: [opt < 3]", "e.yaml:9:15: constraints[0]: 'opt < 3': ", "< compares numbers, and opt can be "),
        (
            "constraints: [batch_size > 0, model.l1 > 256]",
            "e.yaml:9:31: constraints[1]: none of ",
            "0 configurations drawn at random satisfies 'model.l1 > 256': it is rarer than that or impossible",
        ),
        (
            "constraints: [model.l1 > 200, model.l1 < 100]",
            "e.yaml:9:1: constraints: none of ",
            "configurations drawn at random satisfies all constraints together: it is rarer",
        ),
        (
            "search: {kind: random, points_to_evaluate: [{opt: adam, batch_size: 16, model: {l1: 2, l2: 1}}, "
            "{opt: adam, batch_size: 5, model: {l1: 2, l2: 1}}]}",
            "e.yaml:9:109: search.points_to_evaluate[1].batch_size: 5 is outside lograndint [16, 4097]",
            "",
        ),
        (
            "search: {kind: random, points_to_evaluate: [{opt: adam, batch_size: 16, model: {l1: 2}}]}",
            "e.yaml:9:73: search.points_to_evaluate[0].model.l2: is missing",
            "randint [1, 257]",
        ),
        (
            "search: {kind: random, points_to_evaluate: "
            "[{opt: adam, momentum: 0.5, batch_size: 16, model: {l1: 2, l2: 1}}]}",
            "e.yaml:9:57: search.points_to_evaluate[0].momentum: must be absent: it exists only when opt is sgd",
            "",
        ),
        (
            "search: {kind: random, points_to_evaluate: [{opt: adam, batch_size: 16, model: {l1: 2, l2: 1}, lr: 1}]}",
            "e.yaml:9:96: search.points_to_evaluate[0].lr: is not a parameter of this space",
            "",
        ),
        (
            "search: {kind: random, points_to_evaluate: [{opt: adam, batch_size: 16, model: {l1: 1, l2: 2}}]}\n"
            "constraints: [model.l1 > model.l2]",
            "e.yaml:9:45: search.points_to_evaluate[0]: breaks the constraint 'model.l1 > model.l2'",
            "",
        ),
        (
            "search: {kind: random, points_to_evaluate: {opt: adam}}",
            "e.yaml:9:24: search.points_to_evaluate: must be",
            "",
        ),
        ("search: {kind: random, points_to_evaluate: [3]}", "e.yaml:9:45: search.points_to_evaluate[0]: must be", "3"),
        ("search: {kind: random, sequence: sobel}", "e.yaml:9:24: search.sequence: ", "did you mean 'sobol'?"),
    ],
)
def test_one_problem_with_its_place(folder: Path, extra: str, start: str, words: str) -> None:
    (found,) = problems(folder, extra + "\n")
    assert found.startswith(start)
    assert words in found


def test_an_inactive_parameter_makes_no_constraint_impossible(folder: Path) -> None:
    made = plan(folder, "constraints: [momentum > 1]\n")
    assert made.task.space.sample(np.random.default_rng(0))["opt"] == "adam"


def test_a_rare_constraint_is_met_and_told(folder: Path) -> None:
    (folder / "unit.yaml").write_text("batch_size: {uniform: [0, 1]}\n")
    made = plan(folder, "constraints: [batch_size < 0.00003]\n", "search_space=unit.yaml")
    assert 10_000 < 1 / made.acceptance < 200_000
    assert "random draws satisfies the constraints" in "\n".join(text for _, text in description(made))


def test_a_configuration_is_drawn_once_to_judge_all_that_is_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, sample = 0, Space.sample

    def counted(space: Space, rng: np.random.Generator) -> Configuration:
        nonlocal drawn
        drawn += 1
        return sample(space, rng)

    monkeypatch.setattr(Space, "sample", counted)
    (folder / "unit.yaml").write_text("batch_size: {uniform: [0, 1]}\n")
    made = plan(folder, "constraints: [batch_size < 0.00003]\n", "search_space=unit.yaml")
    assert 10_000 < drawn <= MAX_EFFORT // made.spec.search_space.effort


def test_points_are_shown_in_the_plan(folder: Path) -> None:
    point = "{opt: adam, batch_size: 16, model: {l1: 2, l2: 1}}"
    made = plan(folder, f"search: {{kind: random, points_to_evaluate: [{point}]}}\n")
    assert "1 point to evaluate first" in dict(description(made))["search"]
    (folder / "again.yaml").write_bytes(dump_yaml(resolved_spec(made, made.spec.params), []))
    assert load_experiment("again.yaml").spec.search.points_to_evaluate == made.spec.search.points_to_evaluate


def test_of_many_wrong_points_only_the_first_are_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, violations = 0, Space.violations

    def counted(space: Space, point: Configuration, partial: bool = False) -> list[Any]:
        nonlocal looked
        looked += 1
        return violations(space, point, partial)

    monkeypatch.setattr(Space, "violations", counted)
    points = ", ".join("{opt: adam}" for _ in range(1000))
    assert problems(folder, f"search: {{kind: random, points_to_evaluate: [{points}]}}\n")
    assert looked <= MOST_PROBLEMS
