"""From YAML text to an experiment, or to every problem that it has."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import InputError, Place
from tuner.experiment.reader import Experiment, load_experiment
from tuner.plan.cluster import Cluster, Node
from tuner.plan.planner import make_plan
from tuner.runs.provenance import resolved_spec
from tuner.spec.document import MAX_DEPTH, dotted, dump_yaml, read_yaml
from tuner.spec.user_imports import user_code
from tuner.trainable.trainable import load_trainable

SMALL = """\
trainable: t.py:train
search_space: {lr: {uniform: [0, 1]}}
objective: {metric: loss, mode: min}
"""
FULL: dict[str, Any] = {
    "name": "full",
    "trainable": "t.py:train",
    "params": {"epochs": 3, "model": {"layers": [1, 2], "act": "relu"}, "on": "1e-4"},
    "search_space": {
        "optimizer": {"choice": ["sgd", "adam"]},
        "lr": {"loguniform": [1e-4, 0.1], "prior": 0.01, "confidence": "high"},
        "sgd": {"when": {"optimizer": "sgd"}, "momentum": {"quniform": [0.5, 0.9, 0.1]}},
        "width": {"qlograndint": [16, 256, 16]},
    },
    "constraints": ["lr < 0.05 or width >= 32", "width * epochs <= 768"],
    "objective": {"metric": "loss", "mode": "min"},
    "search": {
        "kind": "optuna",
        "sampler": "tpe",
        "n_startup_trials": 4,
        "points_to_evaluate": [{"optimizer": "adam", "lr": 0.01, "width": 32}],
        "seed": 0,
    },
    "scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 9, "grace_period": 1, "reduction_factor": 3},
    "budget": {"trials": 5, "wall_clock": "1h30m", "gpu_hours": 2.5, "target": 0.01},
    "resources": {"cpu": 1, "gpu": 0.25, "memory_gib": 1, "custom": {"tpu": 1}},
    "checkpoints": {"keep_per_trial": 1, "keep_trials": 2},
    "tracking": {"mlflow": {"uri": "sqlite:///x.db", "experiment": "e"}},
}
MACHINE = Cluster((Node("n", {"CPU": 8.0, "GPU": 1.0, "memory": 16 * 2.0**30, "tpu": 1}),))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("def train(config):\n    pass\n")
    return tmp_path


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


def load(folder: Path, text: str | bytes, *overrides: str) -> Experiment:
    file = folder / "e.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_experiment(file.name, overrides)


def problems(folder: Path, text: str | bytes, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(folder, text, *overrides)
    return [str(problem) for problem in caught.value.problems]


def check(file: Path, overrides: tuple[str, ...] = ()) -> None:
    """The contract of reading: an Experiment, or an InputError whose problems have places and take one line each."""
    error = caught(lambda: load_experiment(file, overrides))
    if error is not None:
        assert error.problems
        for problem in error.problems:
            assert problem.message
            assert problem.place.source.startswith((str(file), "--set "))
        assert len(str(error).splitlines()) == len(error.problems)


def caught(read: Callable[[], Any]) -> InputError | None:
    try:
        read()
    except InputError as error:
        return error
    return None


# --- anything at all ---------------------------------------------------------------------------------------------

yaml_like = st.text(st.sampled_from("ab01:-[]{},\"'\n\t #&*!|>%@`?\\xUu.~<=e\u00e9\u2028\x85\ufeff"), max_size=40)


@given(st.text(max_size=60) | yaml_like)
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_value_or_an_input_error(text: str) -> None:
    error = caught(lambda: json.dumps(read_yaml(text, "x.yaml").value))
    if error is not None:
        assert error.problems
        assert all(problem.place.source == "x.yaml" for problem in error.problems)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | yaml_like.map(lambda t: (SMALL + t).encode()))
@settings(max_examples=200, deadline=None)
def test_any_file_is_an_experiment_or_an_input_error(scratch: Path, data: bytes) -> None:
    file = scratch / "any.yaml"
    file.write_bytes(data)
    check(file)


@given(yaml_like)
@settings(max_examples=60, deadline=None)
def test_any_override_is_taken_or_an_input_error(scratch: Path, text: str) -> None:
    file = scratch / "override.yaml"
    file.write_text(SMALL)
    check(file, (f"params.a={text}",))
    check(file, (text.replace("\n", ""),))


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in items for p in paths(item, (*path, key)))]


NAMES = sorted({str(path[-1]) for path in paths(FULL) if path} | {"random", "fifo", "grid", "kindd", "x y", "", "1"})
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats()
    | st.sampled_from([*NAMES, "1e-4", "a:b", ".", "/", "a" * 300, "no.yaml", "t.py:train", "auto", "20m"])
    | st.text(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid experiment with one to four of its values replaced, removed, renamed or added to."""
    value = copy.deepcopy(FULL)
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from([p for p in paths(value) if p] or [("x",)]))
        parent: Any = value
        for key in path[:-1]:
            parent = parent[key]
        act = draw(st.sampled_from(["replace", "replace", "remove", "rename", "add"]))
        if act == "replace" or not isinstance(parent, dict):
            parent[path[-1]] = draw(values)
        elif act == "add":
            parent[draw(st.sampled_from(NAMES))] = draw(values)
        else:
            old = parent.pop(path[-1], None)
            if act == "rename":
                parent[draw(st.sampled_from(NAMES))] = old
    return value


@given(mutated())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_nearly_right_experiment_never_crashes_the_reader(scratch: Path, value: Any) -> None:
    file = scratch / "mutated.yaml"
    file.write_bytes(dump_yaml(value, []))
    check(file)


@pytest.mark.parametrize(
    "text",
    [
        "search: {kind: random, random: {random: 1}}",
        "search: {kind: optuna, optuna: {optuna: {optuna: 1}}}",
        "scheduler: {kind: asha, asha: {asha: 1, max_t: 3}}",
        'params: {a: "\\UFFFFFFFF"}',
        'params: {a: "\\U00110000"}',
        "%YAML 1." + "9" * 5000 + "\n--- {}",
        "params: &a {b: *a}",
        "params: *nowhere",
        "--- 1\n--- 2",
    ],
)
def test_rare_texts_do_not_crash_the_reader(folder: Path, text: str) -> None:
    assert problems(folder, text if text.startswith(("%", "-")) else SMALL + text)


@pytest.mark.parametrize("key", ["search_space", "trainable"])
def test_a_path_too_long_for_the_file_system(folder: Path, key: str) -> None:
    text = SMALL.replace("t.py:train" if key == "trainable" else "{lr: {uniform: [0, 1]}}", "a" * 300 + ".yaml")
    assert problems(folder, text)[0].startswith(f"e.yaml:{1 if key == 'trainable' else 2}:1: {key}: ")


# --- round trips -------------------------------------------------------------------------------------------------

texts = st.text(max_size=8) | st.sampled_from(
    ["1e-4", "on", "yes", "2024-01-01", "~", "null", "True", "0o7", "0x1F", ".inf", "1_000", "1:30", "", " ", "=", "<<"]
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def exact(value: Any) -> Any:
    """Distinguishes 1, 1.0 and True, which are equal in Python."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


@given(plain)
@settings(max_examples=300, deadline=None)
def test_what_is_dumped_is_read_back_the_same(value: Any) -> None:
    text = dump_yaml(value, ["# a comment"]).decode()
    assert text.startswith("# a comment\n")
    assert exact(read_yaml(text, "x").value) == exact(value)


def test_a_header_line_cannot_leave_its_comment() -> None:
    assert read_yaml(dump_yaml({"a": 1}, ["# one\nb: 2", "# \r three"]).decode(), "x").value == {"a": 1}


@given(st.dictionaries(texts.filter(lambda t: t not in ("lr", "optimizer", "sgd", "width")), plain, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_resolved_spec_is_read_back_the_same(scratch: Path, params: dict[str, Any]) -> None:
    (scratch / "t.py").write_text("def train(config):\n    pass\n")
    file = scratch / "round.yaml"
    file.write_bytes(dump_yaml(FULL | {"params": {"epochs": 3, **params}}, []))
    plan = make_plan(load_experiment(file), MACHINE)
    resolved = resolved_spec(plan, plan.spec.params)
    file.write_bytes(dump_yaml(resolved, ["# python -m tuner run x"]))
    again = load_experiment(file)
    assert exact(again.spec.params) == exact({"epochs": 3, **params})
    assert again.spec == plan.spec.model_copy(update={"search": plan.spec.search.for_trials(plan.trials)})
    assert resolved_spec(make_plan(again, MACHINE), again.spec.params) == resolved


@pytest.mark.parametrize("extra", ["", "search: {kind: grid}\n", "search: {seed: 3, kind: random}\n", "budget: {}\n"])
def test_defaults_are_written_out_and_read_back(folder: Path, extra: str) -> None:
    text = SMALL.replace("uniform: [0, 1]", "choice: [1, 2]") + extra
    plan = make_plan(load(folder, text), MACHINE)
    resolved = resolved_spec(plan, {})
    again = load(folder, dump_yaml(resolved, []))
    assert again.spec.search.seed == plan.seed
    assert again.spec.budget.trials == plan.trials
    assert resolved_spec(make_plan(again, MACHINE), {}) == resolved
    assert list(resolved)[:4] == ["name", "trainable", "params", "search_space"]


# --- the dialect -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("-.5e3", -500.0),
        ("1.", 1.0),
        ("+3", 3),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00"),
        ("true", True),
        ("False", False),
        ("tRue", "tRue"),
        ("~", None),
        ("", None),
        ("null", None),
        ("nil", "nil"),
        ("none", "none"),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("|\n  1\n", "1\n"),
        ("=", "="),
        ("[1, [2]]", [1, [2]]),
        ("{1: 2, on: 3, ~: 4}", {"1": 2, "on": 3, "~": 4}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("{<<: {a: 1}}", {"<<": {"a": 1}}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("# only a comment", None),
    ],
)
def test_the_dialect(text: str, value: Any) -> None:
    assert exact(read_yaml(text, "x").value) == exact(value)


def test_nan() -> None:
    assert math.isnan(read_yaml(".nan", "x").value)


def test_aliased_values_are_separate_objects() -> None:
    value = read_yaml("a: &x {k: 1}\nb: *x", "x").value
    value["a"]["k"] = 2
    assert value["b"] == {"k": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "x:4:3: b.c: repeated key: it is already set in line 3; keep one of them"),
        ("{a: 1, 'a': 2}", "x:1:8: a: repeated key: it is already set in line 1; keep one of them"),
        ("a: !!python/object/apply:os.system [ls]", "x:1:4: a: the tag '!!python/object/apply:os.system' is not "),
        ("a: !secret x", "x:1:4: a: the tag '!secret' is not allowed: write plain YAML"),
        ("[1]: 2", "x:1:1: a key must be text, not a list or mapping"),
        ("{{}: 2}", "a key must be text, not a list or mapping"),
        ("a: [1", "x:1:6: not valid YAML: while parsing a flow sequence expected ',' or ']', but got "),
        ("a: b: c", "x:1:5: not valid YAML: mapping values are not allowed here"),
        ("a:\n\t- 1", "any token; YAML is indented with spaces: replace the tab"),
        (
            "a:\n  b: 1\n   c: 2\n d: 3",
            "x:3:5: not valid YAML: mapping values are not allowed here",
        ),
        (
            "a:\n    b: 1\n  c: 2",
            "x:3:3: not valid YAML: while parsing a block mapping expected <block end>, but found "
            "'<block mapping start>'; check the indentation of this line",
        ),
        ("a: *b", "x:1:4: not valid YAML: found undefined alias 'b'"),
        ("a\x00b", "not valid YAML: unacceptable character #x0000"),
        ("a\x07b", "not valid YAML: unacceptable character #x0007"),
        ("a: 9223372036854775808", "x:1:4: a: the number does not fit into 64 bits"),
        (f"a: {10**399}", "x:1:4: a: the number does not fit into 64 bits"),
        (f"a: {10**401}", "0 is beyond the largest number; infinity is .inf"),
        ("a: -1e999", "x:1:4: a: -1e999 is beyond the largest number; infinity is -.inf"),
        ('a: ["\\ud800"]', "x:1:5: a[0]: holds U+D800, which is half a character that no file can hold"),
        ('"a\\udc00": 1', "holds U+DC00, which is half a character"),
        ("[" + "x," * 200_000, "more than 50,000 values"),
        (f"a: &a {'x' * 10_000}\nb: [{'*a,' * 101}]", "more than 1,000,000 characters in all values together"),
        ("---\na\n---\nb", "expected a single document"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), f"nested deeper than {MAX_DEPTH} levels"),
        ("[" * 20_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("&a [*a]", f"nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_what_the_dialect_refuses(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_yaml(text, "x")
    (problem,) = caught.value.problems
    assert message in str(problem)
    assert "\n" not in str(problem)


def test_billion_laughs() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(InputError, match="more than 50,000 values"):
        read_yaml("\n".join(lines), "x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"name: caf\xe9", "e.yaml: not text in UTF-8 (byte 9)"),
        ("name: a".encode("utf-16"), "e.yaml: not text in UTF-8 (byte 0)"),
        (b"", "e.yaml: the file is empty; it needs at least trainable, search_space and objective"),
        (b"# nothing\n\n", "the file is empty"),
        (b"~", "is empty"),
        (b"- 1", "e.yaml:1:1: an experiment is a mapping of keys, not a list"),
        (b"text", "e.yaml:1:1: an experiment is a mapping of keys, not the text 'text'"),
    ],
)
def test_files_that_are_no_experiment(folder: Path, data: bytes, message: str) -> None:
    (found,) = problems(folder, data)
    assert message in found


def test_a_byte_order_mark_is_no_part_of_the_first_key(folder: Path) -> None:
    assert load(folder, "\ufeff" + SMALL).spec.trainable == "t.py:train"


def test_keys_with_line_breaks_keep_one_line_a_problem(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(folder, SMALL + '"a\\nerror: b": 1\nparams: {"c\\nd": 1}')
    assert len(str(caught.value).splitlines()) == 1


# --- all problems at once, each at its place ---------------------------------------------------------------------


def test_all_problems_of_a_file_in_its_order(folder: Path) -> None:
    found = problems(
        folder,
        """\
nam: x
trainable: nope
search_space:
  lr: {uniform: [1, 0]}
  opt: {choice: []}
objective: {metric: loss, mode: maximum}
search: {kind: optunaa}
scheduler: {kind: asha, max_t: "10"}
budget: {trials: true, wall_clock: 20 minutes, target: .nan, gpu_hours: 0}
resources: {cpu: 0, gpu: two, fresh_process: 1}
checkpoints: [1]
tracking: {mlflow: {uri: 3}}
""",
    )
    where = [": ".join(text.split(": ")[:2]) for text in found]
    assert where == [
        "e.yaml:1:1: nam",
        "e.yaml:2:1: trainable",
        "e.yaml:4:21: search_space.lr.uniform[1]",
        "e.yaml:5:9: search_space.opt.choice",
        "e.yaml:6:27: objective.mode",
        "e.yaml:7:10: search.kind",
        "e.yaml:8:25: scheduler.max_t",
        "e.yaml:9:10: budget.trials",
        "e.yaml:9:24: budget.wall_clock",
        "e.yaml:9:48: budget.target",
        "e.yaml:9:62: budget.gpu_hours",
        "e.yaml:10:13: resources.cpu",
        "e.yaml:10:21: resources.gpu",
        "e.yaml:10:31: resources.fresh_process",
        "e.yaml:11:1: checkpoints",
        "e.yaml:12:21: tracking.mlflow.uri",
    ]


def test_what_is_missing_is_said_with_what_to_write(folder: Path) -> None:
    assert problems(folder, "{}") == [
        "e.yaml:1:1: objective: required, but missing; write {metric: NAME, mode: max} or mode: min",
        "e.yaml:1:1: search_space: required, but missing; write domains, the path of a YAML file, or module:attribute",
        "e.yaml:1:1: trainable: required, but missing; write module:function, file.py:function, script.py, "
        "hydra:config.yaml or lightning:config.yaml",
    ]


@pytest.mark.parametrize(
    ("extra", "start", "words"),
    [
        ("search: {kind: optuna, sampler: tpee}", "e.yaml:4:24: search.sampler: ", "did you mean 'tpe'?"),
        ("search: {kind: optuna, samplr: tpe}", "e.yaml:4:24: search.samplr: unknown key", "did you mean 'sampler'?"),
        ("search: {sampler: tpe}", "e.yaml:4:1: search: ", "kind"),
        ("search: optuna", "e.yaml:4:1: search: ", "mapping"),
        (
            "scheduler: {kind: asha, max_t: 2, grace_period: 3}",
            "e.yaml:4:35: scheduler.grace_period: 3",
            "is above max_t 2",
        ),
        (
            "scheduler: {kind: asha, max_t: 10, grace_period: 1, brackets: 9}",
            "e.yaml:4:53: scheduler.brackets: 9 is",
            "more than the",
        ),
        (
            "scheduler: {kind: asha, max_t: 1, grace_period: auto, reduction_factor: 1.5}",
            "e.yaml:4:55: scheduler.reduct",
            "reduction_factor: 1.5 is too small for grace_period auto",
        ),
        (
            "scheduler: {kind: hyperband, max_t: 100, reduction_factor: 1.1}",
            "e.yaml:4:42: scheduler.reduction_factor: ",
            "1.1 puts two rungs on training_iteration 1",
        ),
        ("scheduler: {kind: pbt, max_t: 2}", "e.yaml:4:1: scheduler: perturbation_interval", "below max_t 2"),
        ("scheduler: {kind: pbt, mutate: []}", "e.yaml:4:24: scheduler.mutate: ", "must be a list of at least 1, not "),
        ("scheduler: {kind: ray, class_path: a.b}", "e.yaml:4:24: scheduler.class_path: ", "'a.b' is not module:Class"),
        ("resources: {accelerator: '-'}", "e.yaml:4:13: resources.accelerator: '-' is not the name of a kind", "H100"),
        ("scheduler: {kind: asha, reduction_factor: .inf}", "e.yaml:4:25: scheduler.reduction_factor: ", "finite"),
        ("scheduler: {kind: asha, reduction_factor: 1}", "e.yaml:4:25: scheduler.reduction_factor: ", "greater than 1"),
        ("resources: {gpu: -1}", "e.yaml:4:13: resources.gpu: ", "0"),
        ("resources: {gpu: true}", "e.yaml:4:13: resources.gpu: ", "auto"),
        ("resources: {custom: {a: .inf}}", "e.yaml:4:22: resources.custom.a: ", "finite"),
        ("resources: 3", "e.yaml:4:1: resources: ", "mapping"),
        ("params: [1]", "e.yaml:4:1: params: ", "mapping"),
        ("params:", "e.yaml:4:1: params: ", "empty"),
        ("name: a/b", "e.yaml:4:1: name: ", "cannot name a folder"),
        ("name: ..", "e.yaml:4:1: name: ", "cannot name a folder"),
        ("name: 3", "e.yaml:4:1: name: ", "the number 3"),
        (f"name: {'a' * 101}", "e.yaml:4:1: name: ", "100"),
        ("budget: {wall_clock: 0s}", "e.yaml:4:10: budget.wall_clock: ", "greater than 0"),
        (f"budget: {{wall_clock: {'9' * 400}s}}", "e.yaml:4:10: budget.wall_clock: ", "finite"),
        ("budget: {trials: 1.5}", "e.yaml:4:10: budget.trials: ", "integer"),
        ("budget: {trials: 1.0}", "e.yaml:4:10: budget.trials: ", "integer"),
    ],
)
def test_one_problem_with_its_place(folder: Path, extra: str, start: str, words: str) -> None:
    (found,) = problems(folder, f"{SMALL}{extra}\n")
    assert found.startswith(start)
    assert words in found


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("45", 45)]
)
def test_durations(folder: Path, text: str, seconds: float) -> None:
    assert load(folder, f"{SMALL}budget: {{wall_clock: {text}}}").spec.budget.wall_clock == seconds


# --- overrides ---------------------------------------------------------------------------------------------------


def test_overrides(folder: Path) -> None:
    spec = load(
        folder,
        SMALL.replace("uniform: [0, 1]", "loguniform: [1e-5, 1]") + "scheduler: {kind: asha, max_t: 4}\nname: n\n",
        "search_space.lr.loguniform=[1e-4,1e-1]",
        "search_space.depth={randint: [1, 4]}",
        "budget.trials=6",
        "budget.target=1e-3",
        "scheduler={kind: fifo}",
        "params.model.layers=[1, 2]",
        "params.equation=a=b",
        "params.empty=",
        "objective.mode=max",
        "name=other",
    ).spec
    assert [f"{p.name} {p.domain}" for p in spec.search_space.parameters] == [
        "lr loguniform [0.0001, 0.1]",
        "depth randint [1, 4]",
    ]
    assert (spec.budget.trials, spec.budget.target) == (6, 1e-3)
    assert spec.scheduler.kind == "fifo"
    assert spec.params == {"model": {"layers": [1, 2]}, "equation": "a=b", "empty": None}
    assert spec.objective.mode == "max"
    assert spec.name == "other"


def test_a_domain_can_be_replaced_by_another(folder: Path) -> None:
    (parameter,) = load(folder, SMALL, "search_space.lr={choice: [1, 2]}").spec.search_space.parameters
    assert str(parameter.domain) == "choice [1, 2]"


@pytest.mark.parametrize("kind", ["bohb", "random", "hyperopt"])
def test_another_search_keeps_what_the_two_have_in_common(folder: Path, kind: str) -> None:
    spec = load_experiment(FULL, [f"search.kind={kind}"]).spec
    assert (spec.search.kind, spec.search.seed, len(spec.search.points_to_evaluate)) == (kind, 0, 1)
    assert load_experiment(FULL, ["search.kind=optuna"]).spec.search.n_startup_trials == 4  # type: ignore[attr-defined]
    assert FULL["search"]["sampler"] == "tpe"


@pytest.mark.parametrize("kind", ["hyperband", "bohb", "median", "pbt", "fifo"])
def test_another_scheduler_keeps_what_the_two_have_in_common(folder: Path, kind: str) -> None:
    found = load_experiment(FULL, {"scheduler.kind": kind}).spec.scheduler
    assert found.kind == kind
    assert found.fidelity == (None if kind == "fifo" else ("epoch", 9))
    assert getattr(found, "reduction_factor", 3) == 3


def test_another_kind_hides_no_mistake(folder: Path) -> None:
    def refused(search: dict[str, Any], *overrides: str) -> str:
        with pytest.raises(InputError) as raised:
            load_experiment(FULL | {"search": search}, overrides)
        (problem,) = raised.value.problems
        return f"{problem.key}: {problem.message}"

    optuna = {"kind": "optuna", "sampler": "tpe"}
    assert refused(optuna | {"samplr": "gp"}, "search.kind=random").startswith("search.samplr: unknown key")
    assert refused(optuna, "search.sampler=gp", "search.kind=random").startswith("search.sampler: unknown key")
    assert refused(optuna, "search.kind=randm").startswith("search.kind: 'randm' is unknown")


def test_a_later_override_wins(folder: Path) -> None:
    assert load(folder, SMALL, "budget.trials=6", "budget.trials=7").spec.budget.trials == 7


def test_overrides_reach_into_a_search_space_file(folder: Path) -> None:
    (folder / "space.yaml").write_text("lr: {uniform: [0, 1]}\nb: {choice: [1]}\n")
    text = SMALL.replace("{lr: {uniform: [0, 1]}}", "space.yaml")
    parameters = load(folder, text, "search_space.lr.uniform=[2, 3]").spec.search_space.parameters
    assert [str(p.domain) for p in parameters] == ["uniform [2, 3]", "choice [1]"]
    (folder / "other.yaml").write_text("z: {choice: [1]}\n")
    (z,) = load(folder, text, "search_space=other.yaml").spec.search_space.parameters
    assert z.name == "z"


def test_overrides_as_a_mapping_of_python_values(folder: Path) -> None:
    (folder / "e.yaml").write_text(SMALL)
    spec = load_experiment("e.yaml", {"budget.trials": 6, "params.a": [1], "objective.metric": "acc"}).spec
    assert (spec.budget.trials, spec.params, spec.objective.metric) == (6, {"a": [1]}, "acc")


def test_a_mapping_is_read_like_a_file_and_not_changed(folder: Path) -> None:
    before = copy.deepcopy(FULL)
    spec = load_experiment(FULL, ["params.model.act=gelu", "search_space.lr.loguniform=[0.001, 1]"]).spec
    assert spec.params["model"]["act"] == "gelu"
    assert before == FULL
    with pytest.raises(InputError, match="<python>: budgett: unknown key"):
        load_experiment(FULL | {"budgett": 1})


@pytest.mark.parametrize(
    ("override", "start", "words"),
    [
        ("budget.trials=x", "--set budget.trials: budget.trials: ", "integer, not the text 'x'"),
        ("budget.trials", "--set budget.trials: ", "write --set KEY=VALUE"),
        ("=3", "--set =3: ", "write --set KEY=VALUE"),
        ("a..b=3", "--set a..b=3: ", "write --set KEY=VALUE"),
        ("budget.trials=[1", "--set budget.trials: ", "not valid YAML"),
        ("budget.trials.x=3", "--set budget.trials.x: ", "budget.trials is the number 4: it has no keys to set"),
        ("budgett.trials=3", "--set budgett.trials: budgett: unknown key", "did you mean 'budget'?"),
        ("budgett=3", "--set budgett: budgett: unknown key", "did you mean 'budget'?"),
        ("budget.trial=3", "--set budget.trial: budget.trial: unknown key", "did you mean 'trials'?"),
        ("search_space.lr.uniform=[1, 0]", "--set search_space.lr.uniform: search_space.lr.uniform[1]: ", "is empty"),
        ("search_space={a: {choice: []}}", "--set search_space: search_space.a.choice: ", "holds no value"),
        ("search_space=no.yaml", "--set search_space: search_space: no file 'no.yaml'", "looked in"),
        ("trainable=nope", "--set trainable: trainable: ", "module:function"),
    ],
)
def test_problems_of_overrides(folder: Path, override: str, start: str, words: str) -> None:
    (found,) = problems(folder, f"{SMALL}budget: {{trials: 4}}\n", override)
    assert found.startswith(start)
    assert words in found


def test_an_override_repairs_what_it_replaces(folder: Path) -> None:
    text = SMALL.replace("uniform: [0, 1]", "uniform: [1, 0]") + "budget: 3\nsearch: {kind: bad}\n"
    spec = load(folder, text, "search_space={a: {choice: [1]}}", "budget={}", "search.kind=grid").spec
    assert spec.search.kind == "grid"
    assert spec.budget.trials is None


def test_overrides_of_a_python_search_space_are_refused(folder: Path) -> None:
    (folder / "space_here.py").write_text("SPACE = {'a': {'grid_search': [1, 2]}}\n")
    text = SMALL.replace("{lr: {uniform: [0, 1]}}", "space_here:SPACE")
    assert [p.name for p in load(folder, text).spec.search_space.parameters] == ["a"]
    (found,) = problems(folder, text, "search_space.a=1")
    assert found.startswith("e.yaml:2:1: search_space: space_here:SPACE is a Python object")


# --- where files are looked up -----------------------------------------------------------------------------------


def test_lookup_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "project" / "experiments").mkdir(parents=True)
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    file = folder / "project" / "experiments" / "e.yaml"
    file.write_text(SMALL.replace("{lr: {uniform: [0, 1]}}", "space.yaml"))
    with pytest.raises(InputError) as caught:
        load_experiment(file)
    (problem,) = caught.value.problems
    assert (problem.place, problem.key) == (Place(str(file), 2, 1), "search_space")
    looked = problem.message.index
    assert looked(str(folder / "work")) < looked(str(file.parent)) < problem.message.rindex(str(file.parent.parent))
    for place, name in [(file.parent.parent, "parent"), (file.parent, "beside"), (folder / "work", "cwd")]:
        (place / "space.yaml").write_text(f"{name}: {{choice: [1]}}\n")
        (parameter,) = load_experiment(file).spec.search_space.parameters
        assert parameter.name == name


def test_problems_in_a_search_space_file_are_placed_there(folder: Path) -> None:
    (folder / "space.yaml").write_text("a: {choice: [1]}\nb: {uniform: [1, 0]}\n")
    text = SMALL.replace("{lr: {uniform: [0, 1]}}", "space.yaml")
    (found,) = problems(folder, text)
    assert found.startswith("space.yaml:2:18: search_space.b.uniform[1]: ")
    (folder / "space.yaml").write_text("a: [1\n")
    (found,) = problems(folder, text)
    assert found.startswith("space.yaml:2:1: not valid YAML")
    (folder / "space.yaml").write_text("")
    (found,) = problems(folder, text)
    assert "not empty" in found


def test_an_absolute_search_space_path(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "s.yaml"
    file.write_text("a: {choice: [1]}\n")
    text = SMALL.replace("{lr: {uniform: [0, 1]}}", str(file))
    assert load(folder, text).spec.search_space.parameters[0].name == "a"


def test_a_missing_file_lists_its_neighbours(folder: Path) -> None:
    (folder / "one.yaml").write_text(SMALL)
    (folder / "two.yml").write_text(SMALL)
    with pytest.raises(InputError, match=r"none\.yaml: no such file; in \. there is: one\.yaml, two\.yml"):
        load_experiment("none.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_experiment(folder)


def test_the_name_defaults_to_the_files(folder: Path) -> None:
    assert load(folder, SMALL).spec.name == "e"


def test_dotted() -> None:
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c"


def test_pyyaml_agrees_on_what_is_dumped(folder: Path) -> None:
    """Other programs read experiment.yaml too."""
    assert yaml.safe_load(dump_yaml(FULL, [])) == FULL
    assert os.listdir(folder) == ["t.py"]


def test_the_parent_of_an_experiments_folder_comes_after_the_installed_packages(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user_folder / "up/down").mkdir(parents=True)
    (user_folder / "work").mkdir()
    monkeypatch.chdir(user_folder / "work")
    (user_folder / "up/colorsys.py").write_text("raise SystemError('planted')\n")
    (user_folder / "up/only_there.py").write_text("")
    (user_folder / "up/down/beside.py").write_text("import colorsys\nimport only_there\ndef train(config): ...\n")
    file = user_folder / "up/down/e.yaml"
    file.write_text(SMALL)
    before = list(sys.path)
    sys.modules.pop("colorsys", None)
    roots = load_experiment(file).roots
    trainable = load_trainable("beside:train", roots)
    assert sys.path == before
    assert trainable.module.__file__ == str(file.with_name("beside.py"))
    with user_code(roots):
        assert sys.path[:2] == [str(user_folder / "work"), str(file.parent)]
        assert sys.path[-1] == str(user_folder / "up")


def test_a_parent_that_anybody_may_write_to_is_not_looked_in(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user_folder / "up/down").mkdir(parents=True)
    (user_folder / "up").chmod(0o1777)
    (user_folder / "up/space.yaml").write_text("x: {uniform: [0, 1]}\n")
    file = user_folder / "up/down/e.yaml"
    file.write_text(SMALL.replace("{lr: {uniform: [0, 1]}}", "space.yaml"))
    with pytest.raises(InputError) as caught:
        load_experiment(file)
    (problem,) = caught.value.problems
    assert problem.message == f"no file 'space.yaml'; looked in {user_folder}, {file.parent}"


def test_a_comment_holds_nothing_that_cannot_be_read_back() -> None:
    text = dump_yaml({"a": 1}, ["# \x1b[33mred\x1b[0m\x85 \ud800 ü\nnext"])
    assert text.splitlines()[0].decode() == "# \\x1b[33mred\\x1b[0m \\ud800 ü next"
    assert read_yaml(text.decode(), "x").value == {"a": 1}
