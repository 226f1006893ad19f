"""Reading a search space from YAML, and what a space is."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spaces import space as read
from tuner.errors import Place, Problem
from tuner.spec.document import Document, read_yaml
from tuner.spec.space import (
    Choice,
    Condition,
    Constant,
    Float,
    GridSearch,
    Integer,
    Normal,
    Parameter,
    Space,
    json_schema,
    read_space,
    to_yaml,
)
from tuner.spec.space.enumeration import UNCOUNTED
from tuner.spec.space.grammar import FORMS

pytestmark = pytest.mark.filterwarnings("error")


def messages(text: str) -> list[str]:
    problems: list[Problem] = []
    assert read_space(read_yaml(text, "s.yaml"), (), problems) is None
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "domain", "description"),
    [
        ("uniform: [0, 1]", Float(0, 1), "uniform [0, 1]"),
        ("quniform: [0, 1, 0.1]", Float(0, 1, 0.1), "quniform [0, 1, 0.1]"),
        ("loguniform: [1e-4, 1e-1]", Float(1e-4, 0.1, None, True), "loguniform [0.0001, 0.1]"),
        ("loguniform: {upper: 1e-1, lower: 1e-4}", Float(1e-4, 0.1, None, True), "loguniform [0.0001, 0.1]"),
        ("qloguniform: [0.1, 10, 0.1]", Float(0.1, 10, 0.1, True), "qloguniform [0.1, 10, 0.1]"),
        ("randn: []", Normal(0.0, 1.0), "randn [0.0, 1.0]"),
        ("randn: [3]", Normal(3, 1.0), "randn [3, 1.0]"),
        ("randn: {sd: 2}", Normal(0.0, 2), "randn [0.0, 2]"),
        ("qrandn: [0, 1, 0.5]", Normal(0, 1, 0.5), "qrandn [0, 1, 0.5]"),
        ("randint: [1, 1e3]", Integer(1, 1000), "randint [1, 1000]"),
        ("qrandint: [0, 10, 5]", Integer(0, 10, 5), "qrandint [0, 10, 5]"),
        ("qrandint: [0, 10]", Integer(0, 10, 1), "qrandint [0, 10, 1]"),
        ("lograndint: [1, 100]", Integer(1, 100, None, True), "lograndint [1, 100]"),
        ("qlograndint: [8, 64, 8]", Integer(8, 64, 8, True), "qlograndint [8, 64, 8]"),
        ("choice: [sgd, 1, null, [1, 2], {a: 1}]", Choice(("sgd", 1, None, [1, 2], {"a": 1})), None),
        ("choice: ['1e-4', none]", Choice(("1e-4", "none")), 'choice ["1e-4", none]'),
        ("grid_search: [1, 2]", GridSearch((1, 2)), "grid_search [1, 2]"),
        ("grid_search: {values: [1, 2]}", GridSearch((1, 2)), "grid_search [1, 2]"),
    ],
)
def test_domains(text: str, domain: Any, description: str | None) -> None:
    space = read(f"p: {{{text}}}")
    assert space.parameters == (Parameter(("p",), domain),)
    assert description in (None, str(space.parameters[0].domain))
    assert all(domain.contains(value) for value in domain.probes())


def test_nesting_constants_and_conditions() -> None:
    space = read(
        """
name: fixed
optimizer: {choice: [sgd, adam, lion]}
sgd:
  when: {optimizer: sgd}
  momentum: {uniform: [0, 1]}
  nesterov: {choice: [true, false]}
  extra: {warmup: 3, dampening: {uniform: [0, 1], when: {nesterov: false, optimizer: [sgd, adam]}}}
layers: [1, 2]
empty: {}
""".replace("when: {nesterov:", "when: {sgd.nesterov:")
    )
    sgd = Condition(("optimizer",), ("sgd",))
    nested = (sgd, Condition(("sgd", "nesterov"), (False,)), Condition(("optimizer",), ("sgd", "adam")))
    assert space.parameters == (
        Parameter(("name",), Constant("fixed")),
        Parameter(("optimizer",), Choice(("sgd", "adam", "lion"))),
        Parameter(("sgd", "momentum"), Float(0, 1), (sgd,)),
        Parameter(("sgd", "nesterov"), Choice((True, False)), (sgd,)),
        Parameter(("sgd", "extra", "warmup"), Constant(3), (sgd,)),
        Parameter(("sgd", "extra", "dampening"), Float(0, 1), nested),
        Parameter(("layers",), Constant([1, 2])),
        Parameter(("empty",), Constant({})),
    )
    assert space.parameters[3].condition() == " when optimizer is sgd"
    assert space.build(lambda p: p.domain.probes()[1]) == {
        "name": "fixed",
        "optimizer": "adam",
        "layers": [1, 2],
        "empty": {},
    }


OUTER = "o: {choice: [sgd, adam]}\n"
ERRORS = {
    "": "s.yaml: a search space is a mapping from parameter names to domains, not empty",
    "[1]": "s.yaml:1:1: a search space is a mapping from parameter names to domains, not a list",
    "{}": "the search space is empty: write a parameter, such as lr: {loguniform: [1e-4, 0.1]}",
    "uniform: [0, 1]": "s.yaml:1:1: uniform: the domain uniform stands where a parameter's name belongs: "
    "write NAME: {uniform: [lower, upper]}",
    "a: {uniform: [3, 1]}": "s.yaml:1:18: a.uniform[1]: the range is empty: lower 3 is not below upper 1",
    "a: {randint: [3, 3]}": "lower 3 is not below upper 3 (which is exclusive)",
    "a: {loguniform: [0, 1]}": "s.yaml:1:18: a.loguniform[0]: a logarithmic range must start above 0, not at 0",
    "a: {loguniform: {lower: -1, upper: 1}}": "a.loguniform.lower: a logarithmic range must start above 0, not at -1",
    "a: {lograndint: [0, 5]}": "a logarithmic range must start above 0, not at 0",
    "a: {quniform: [0, 1, 0.3]}": "a.quniform[1]: 1 is not a multiple of the quantum 0.3: write 0.9, or change q",
    "a: {qrandint: [1, 8, 4]}": "a.qrandint[0]: 1 is not a multiple of the quantum 4: write 0, or change q",
    "a: {quniform: [0, 1, 0]}": "a.quniform[2]: the quantum must be above 0, not 0",
    "a: {qrandint: [0, 1, -1]}": "the quantum must be above 0, not -1",
    "a: {qrandn: [0, 1, 0]}": "the quantum must be above 0, not 0",
    "a: {quniform: [0, 1, 1e-300]}": "the quantum 1e-300 is too small",
    "a: {qrandn: [0, 1, 1e-300]}": "the quantum 1e-300 is too small",
    "a: {randn: [0, 0]}": "a.randn[1]: the standard deviation must be above 0, not 0",
    "a: {randn: [0, 1e308]}": "the standard deviation 1e+308 is too large: values would overflow",
    "a: {uniform: [0]}": "s.yaml:1:5: a.uniform: uniform takes [lower, upper], not 1 value",
    "a: {uniform: [0, 1, 2]}": "uniform takes [lower, upper], not 3 values",
    "a: {uniform: 3}": "uniform takes [lower, upper], not the number 3",
    "a: {randn: }": "randn takes [mean, sd], not empty",
    "a: {uniform: {lower: 1, upper: 2, high: 2}}": "a.uniform.high: unknown argument of uniform; allowed: lower, upper",
    "a: {uniform: {lower: 1}}": "uniform needs upper",
    "a: {uniform: [true, 2]}": "a.uniform[0]: lower must be a number, not true (a boolean)",
    "a: {uniform: [x, 2]}": "lower must be a number, not the text 'x'",
    "a: {uniform: ['1', 2]}": "lower '1' is text, not a number: remove the quotes",
    "a: {uniform: [0, .inf]}": "a.uniform[1]: upper must be a finite number, not .inf",
    "a: {uniform: [.nan, 1]}": "lower must be a finite number, not .nan",
    "a: {uniform: [-1e308, 1e308]}": "wider than a float can hold",
    "a: {randint: [0, 1.5]}": "a.randint[1]: upper must be a whole number, not 1.5",
    "a: {choice: 3}": "takes a list of values, not the number 3",
    "a: {choice: []}": "a.choice: holds no value: write at least one",
    "a: {choice: [1, 2, 1.0]}": "a.choice[2]: 1.0 is repeated: value 1 is the same",
    "a: {choice: [[1], [1]]}": "a.choice[1]: [1] is repeated: value 1 is the same",
    "a: {choice: ['1e-4', 1]}": "a.choice[0]: '1e-4' is text, not a number: remove the quotes",
    "a: {uniform: [0, 1], choice: [1]}": "has 2 domains, uniform and choice: keep one of them",
    "a: {uniform: [0, 1], q: 2}": "s.yaml:1:22: a.q: stands beside the domain uniform: a domain allows only 'when'",
    "a: {loguniforn: [0.1, 1]}": "s.yaml:1:5: a.loguniforn: unknown domain; allowed: uniform, quniform, loguniform, ",
    "a: {log_uniform: [0.1, 1]}": "did you mean 'loguniform'?",
    "a: [{uniform: [0, 1]}]": "a: a list cannot hold domains: give each element a name of its own",
    "a/b: 1": "a name must not contain '/'",
    "a.b: 1": "a name must not contain '.'",
    "__a: 1": "a name must not start with '__'",
    "'': 1": "a name must not be empty",
    "when: {a: 1}": "'when' is reserved for conditions",
    OUTER + "b: {when: {o: sgd}}": "b: holds nothing but 'when': a domain is missing",
    OUTER + "b: {uniform: [0, 1], when: {p: sgd}}": "s.yaml:2:29: b.when.p: there is no such parameter; allowed: o",
    OUTER + "b: {uniform: [0, 1], when: {o: sgdd}}": "b.when.o: o is never sgdd: it is choice [sgd, adam]",
    OUTER + "b: {uniform: [0, 1], when: {o: [sgd, x]}}": "b.when.o[1]: o is never x: it is choice [sgd, adam]",
    OUTER + "b: {uniform: [0, 1], when: {o: []}}": "names no value of o",
    OUTER
    + "b: {uniform: [0, 1], when: sgd}": "names earlier parameters and their values, such as {optimizer: sgd}, not ",
    OUTER + "b: {uniform: [0, 1], when: {}}": "not an empty mapping",
    OUTER + "b: {choice: [1], when: {b: 1}}": "a parameter cannot depend on itself",
    OUTER + "b: {choice: [1], when: {c: 1}}\nc: 1": "b.when.c: c comes later: move it above b",
    OUTER + "b: {when: {b.c: 1}, c: 1}": "a group cannot depend on a parameter inside it",
    OUTER + "b: {c: 1}\nd: {choice: [1], when: {b: 1}}": "is a group of parameters: name one parameter in it",
    "a: {uniform: [0, 1]}\nb: {choice: [1], when: {a: 0.5}}": "a is uniform [0, 1], which has no separate values",
}


@pytest.mark.parametrize("text", ERRORS)
def test_every_mistake_has_its_message(text: str) -> None:
    (message,) = messages(text)
    assert ERRORS[text] in message


def test_all_mistakes_are_found_in_one_pass() -> None:
    found = messages("a: {uniform: [2, 1]}\nb: {c: {choice: []}, d/e: 1}\nf: {choice: [1], when: {zz: 1, a: 1}}")
    assert [message.split(": ")[0] for message in found] == ["s.yaml:1:18", "s.yaml:2:9", "s.yaml:2:22", "s.yaml:3:25"]


def test_reads_a_part_of_a_document_with_its_places() -> None:
    problems: list[Problem] = []
    document = read_yaml("search_space:\n  a: {uniform: [2, 1]}", "e.yaml")
    assert read_space(document, ("search_space",), problems) is None
    message = "the range is empty: lower 2 is not below upper 1"
    assert problems == [Problem(Place("e.yaml", 2, 20), "search_space.a.uniform[1]", message)]


TREE = """
a: {choice: [1, 2, 3]}
b: {choice: [x, y], when: {a: [1, 2]}}
c: {randint: [0, 4], when: {b: x}}
d: {quniform: [0, 1, 0.5], when: {a: 3}}
e: 7
"""


def test_the_grid_of_a_conditional_space() -> None:
    space = read(TREE)
    grid = list(space.grid())
    assert space.size == len(grid) == 2 * (4 + 1) + 3
    assert len({json.dumps(c) for c in grid}) == len(grid)
    assert grid[0] == {"a": 1, "b": "x", "c": 0, "e": 7}
    assert grid[1] == {"a": 1, "b": "x", "c": 1, "e": 7}
    assert grid[-1] == {"a": 3, "d": 1.0, "e": 7}
    assert all(space.contains(c) for c in grid)


def test_size_needs_no_enumeration() -> None:
    assert read("".join(f"p{i}: {{randint: [0, 1000000]}}\n" for i in range(50))).size == 10**300
    chain = "p0: {choice: [0, 1]}\n" + "".join(
        f"p{i}: {{choice: [0, 1], when: {{p{i - 1}: 1}}}}\n" for i in range(1, 60)
    )
    assert read(chain).size == 61
    assert read("a: {randint: [0, 10]}\nb: {uniform: [0, 1], when: {a: 3}}").size == math.inf
    switches = "".join(f"u{i}: {{choice: [true, false]}}\n" for i in range(40))
    all_of_them = ", ".join(f"u{i}: true" for i in range(40))
    assert read(f"{switches}last: {{choice: [1, 2, 3], when: {{{all_of_them}}}}}").size == 2**40 + 2
    tens = "".join(f"t{i}: {{randint: [0, 10]}}\n" for i in range(12))
    asking = "".join(f"d{i}: {{choice: [1, 2], when: {{t{i}: 3}}}}\n" for i in range(12))
    assert read(tens + asking).size == 11**12
    pairs = [(i, j) for i in range(12) for j in range(i)]
    tied = "".join(f"d{i}_{j}: {{choice: [1, 2], when: {{t{i}: 3, t{j}: 4}}}}\n" for i, j in pairs)
    assert read(tens + tied).size == UNCOUNTED
    with pytest.raises(LookupError, match=r"a: uniform \[0, 1\] has no separate values"):
        next(read("a: {uniform: [0, 1]}").grid())


def test_violations_name_their_reason() -> None:
    space = read(TREE)
    assert space.violations({"a": 1, "b": "y", "e": 7}) == []
    assert space.violations({"a": 3, "b": "x", "d": 0.25, "e": 7, "f": {"g": 1}}) == [
        (("b",), "must be absent: it exists only when a is 1 or 2"),
        (("d",), "0.25 is outside quniform [0, 1, 0.5]"),
        (("f",), "is not a parameter of this space"),
    ]
    assert space.violations({"a": True})[0] == (("a",), "true is outside choice [1, 2, 3]")
    assert space.violations({"a": 1, "b": "y"}) == [(("e",), "is missing: it comes from constant 7")]


def test_configurations_share_nothing() -> None:
    space = read("a: [1]\nb: {choice: [[1]]}")
    first = space.sample(np.random.default_rng(0))
    first["a"].append(2)
    first["b"].append(2)
    assert space.sample(np.random.default_rng(0)) == {"a": [1], "b": [[1]][0]}


def test_quantised_values_are_exact() -> None:
    values = read("a: {quniform: [0, 1, 0.1]}").parameters[0].domain.values()
    assert values == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert Float(0, 1, 1 / 3).values() == (0.0, 1 / 3, 2 / 3, 1.0)


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5)
trees = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
numbers = st.integers(-20, 20) | st.floats(-10, 10) | st.sampled_from([0.1, 1e-5, 1e308, -1e308, 10**400, True, "3"])
names = st.sampled_from(["a", "b", "c", "when", "prior", "confidence", *FORMS])
wild = st.dictionaries(
    names,
    st.recursive(trees | st.lists(numbers, max_size=4), lambda inner: st.dictionaries(names, inner, max_size=3)),
    max_size=4,
)


@given(wild)
@settings(max_examples=250, deadline=None)
def test_the_reader_never_raises_and_reads_only_what_can_be_sampled(value: Any) -> None:
    problems: list[Problem] = []
    space = read_space(Document(value, "x"), (), problems)
    assert (space is None) == bool(problems)
    if space is not None:
        check(space)


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, Any]:
    """Valid conditional spaces with small domains, as YAML holds them."""
    finite = st.one_of(
        st.lists(st.integers(0, 5) | st.sampled_from(["u", "v"]), min_size=1, max_size=3, unique=True).map(
            lambda values: {"choice": values}
        ),
        st.integers(-3, 3).map(lambda low: {"randint": [low, low + 2]}),
        st.sampled_from([{"quniform": [0, 0.3, 0.1]}, {"qlograndint": [2, 6, 2]}, 5, "text", [1, 2]]),
    )
    value: dict[str, Any] = {}
    for name in "abcdef"[: draw(st.integers(1, 6))]:
        domain = draw(finite)
        earlier = sorted(value)
        if earlier and draw(st.booleans()):
            target = draw(st.sampled_from(earlier))
            written = value[target]["g"] if isinstance(value[target], dict) and "g" in value[target] else value[target]
            problems: list[Problem] = []
            read_back = read_space(Document({"t": strip(written)}, "x"), (), problems)
            assert read_back is not None
            options = read_back.parameters[0].domain.values() or ()
            chosen = draw(st.lists(st.sampled_from(options), min_size=1, max_size=2, unique_by=repr))
            where = f"{target}.g" if written is not value[target] else target
            condition = {where: list(chosen)}
            if draw(st.booleans()):
                domain = {"when": condition, "g": domain}
            elif isinstance(domain, dict):
                domain = {**domain, "when": condition}
        value[name] = domain
    return value


def strip(domain: Any) -> Any:
    return {k: v for k, v in domain.items() if k != "when"} if isinstance(domain, dict) else domain


@given(spaces())
@settings(max_examples=150, deadline=None)
def test_grid_size_and_round_trip(value: dict[str, Any]) -> None:
    problems: list[Problem] = []
    space = read_space(Document(value, "x"), (), problems)
    assert space is not None, problems
    check(space)
    grid = [json.dumps(c) for c in space.grid()]
    assert space.size == len(grid) == len(set(grid))
    assert all(space.contains(json.loads(c)) for c in grid)


def check(space: Space) -> None:
    """Samples lie inside, probes too, and YAML gives the same space back."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        configuration = space.sample(rng)
        assert space.violations(configuration) == []
    for parameter in space.parameters:
        assert all(parameter.domain.contains(value) for value in parameter.domain.probes())
    problems: list[Problem] = []
    again = read_space(Document(to_yaml(space), "x"), (), problems)
    assert problems == []
    assert repr(again) == repr(space)


def test_the_json_schema_accepts_what_the_reader_accepts() -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema())
    for text in (TREE, "a: {randn: []}", "a: {uniform: {lower: 0, upper: 1}}", "g: {when: {o: 1}, x: 1}"):
        validator.validate(read_yaml(text, "s").value)
    for text in ("a: {uniform: [0]}", "uniform: [0, 1]", "a: {uniform: [0, 1], x: 1}", "a: {choice: []}", "a.b: 1"):
        assert list(validator.iter_errors(read_yaml(text, "s").value)), text
