"""Every search algorithm of the union against one contract, and Optuna's against random search."""

from __future__ import annotations

import json
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from tuner.searchers import AnySearch
from tuner.searchers.base import Configuration, Searcher, SearchSpec, SearchTask
from tuner.searchers.grid import Grid
from tuner.searchers.optuna import Optuna
from tuner.searchers.random import Random
from tuner.spec.document import read_yaml
from tuner.spec.space import Space, read_space, space_from_param_space

pytestmark = pytest.mark.filterwarnings("error")


def space(text: str) -> Space:
    problems: list[Any] = []
    read = read_space(read_yaml(text, "space.yaml"), (), problems)
    assert read is not None, problems
    return read


PLAIN = space("""
optimizer: {choice: [sgd, adam]}
depth: {randint: [1, 9]}
width: {qlograndint: [16, 256, 16]}
dropout: {quniform: [0, 0.7, 0.1]}
layers: {choice: [[64, 64], [128]]}
fixed: {nested: 3}
""")
CONDITIONAL = space("""
optimizer: {choice: [sgd, adam]}
momentum: {quniform: [0.8, 0.9, 0.05], when: {optimizer: sgd}}
nesterov: {choice: [true, false], when: {momentum: [0.85, 0.9]}}
adam:
  when: {optimizer: adam}
  beta: {choice: [0.9, 0.99]}
  note: text
depth: {qrandint: [2, 8, 2]}
""")
CONTINUOUS = space("""
optimizer: {choice: [sgd, adam]}
lr: {loguniform: [1e-4, 1e-1]}
momentum: {uniform: [0.8, 0.99], when: {optimizer: sgd}}
shift: {randn: []}
jump: {qrandn: [0, 2, 0.5]}
cut: {qloguniform: [0.1, 10, 0.1]}
n: {lograndint: [1, 1000]}
huge: {randint: [-4000000000000000000, 4000000000000000000]}
""")
EXAMPLES = [
    pytest.param(example, id="-".join(str(v) for k, v in example.items() if k in ("kind", "sampler")))
    for kind in typing.get_args(typing.get_args(AnySearch)[0])
    for example in kind.model_config["json_schema_extra"]["examples"]
]


def build(example: dict[str, Any] | SearchSpec, over: Space, seed: int = 0, mode: Any = "min", max_t: int | None = 3):
    spec = example if isinstance(example, SearchSpec) else TypeAdapter(AnySearch).validate_python(example)
    assert spec.complaints(over) == []
    return spec.build(SearchTask(space=over, mode=mode, trials=20, max_t=max_t, seed=seed))


def score(configuration: Configuration) -> float:
    return sum(len(key) * len(str(value)) for key, value in configuration.items()) / 7


def run(searcher: Searcher, trials: int, start: int = 0) -> list[Configuration]:
    """Trials one at a time; every fifth fails at once and every third is stopped early."""
    suggested = []
    for i in range(start, start + trials):
        configuration = searcher.suggest(f"t{i}")
        if configuration is None:
            break
        suggested.append(configuration)
        last = 2 if i % 3 == 2 else 3
        if i % 5 == 4:
            searcher.end(f"t{i}", 0, None)
            continue
        for step in range(1, last + 1):
            searcher.observe(f"t{i}", step, score(configuration) / step)
        searcher.end(f"t{i}", last, score(configuration) / last)
    return suggested


def all_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and all_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(all_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


@pytest.mark.parametrize("over", [pytest.param(PLAIN, id="plain"), pytest.param(CONDITIONAL, id="conditional")])
@pytest.mark.parametrize("example", EXAMPLES)
class TestContract:
    def test_suggests_points_of_the_space_in_plain_python_types(self, example: Any, over: Space) -> None:
        suggested = run(build(example, over), 12)
        assert len(suggested) == 12
        for configuration in suggested:
            assert over.complaints(configuration) == []
            assert all_plain(configuration)
            assert json.loads(json.dumps(configuration)) == configuration

    def test_a_suggestion_is_the_callers_to_change(self, example: Any, over: Space) -> None:
        changed, left = build(example, over), build(example, over)
        for i in range(4):
            first, second = changed.suggest(f"t{i}"), left.suggest(f"t{i}")
            assert first == second
            for value in first.values():
                if isinstance(value, list):
                    value.append("mine")

    def test_the_seed_decides(self, example: Any, over: Space) -> None:
        first = run(build(example, over, seed=1), 12)
        assert run(build(example, over, seed=1), 12) == first
        if example["kind"] != "grid":
            assert run(build(example, over, seed=2), 12) != first

    def test_continues_after_pickling_with_pending_trials(self, example: Any, over: Space) -> None:
        searcher = build(example, over)
        run(searcher, 6)
        searcher.suggest("pending")
        searcher.observe("pending", 1, 0.5)
        restored = pickle.loads(pickle.dumps(searcher))
        continued = []
        for one in (searcher, restored):
            one.end("pending", 3, 0.25)
            continued.append(run(one, 5, start=6))
        assert continued[0] == continued[1]
        assert len(continued[0]) == 5

    def test_goes_on_whatever_ends(self, example: Any, over: Space) -> None:
        searcher = build(example, over)
        for i in range(8):
            searcher.suggest(f"t{i}")
        searcher.end("t0", 0, None)
        searcher.end("t1", 0, None)
        searcher.end("t2", 1, 0.5)
        searcher.observe("t3", 1, 1e308)
        searcher.observe("t3", 1, -1e308)
        searcher.end("t3", 2, -1e308)
        searcher.end("never suggested", 3, 0.1)
        searcher.observe("never suggested", 3, 0.1)
        for i in range(4, 8):
            searcher.end(f"t{i}", 3, 0.5)
        configuration = searcher.suggest("next")
        assert configuration is not None
        assert over.contains(configuration)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "qmc"])
def test_optuna_draws_from_every_domain(sampler: Any) -> None:
    for configuration in run(build(Optuna(sampler=sampler, n_startup_trials=4), CONTINUOUS), 9):
        assert CONTINUOUS.complaints(configuration) == []
        assert all_plain(configuration)


def best_of(
    spec: SearchSpec, over: Space, objective: Callable[[Configuration], float], trials: int, mode: Any
) -> float:
    scores = []
    pick = min if mode == "min" else max
    for seed in range(3):
        searcher = build(spec, over, seed=seed, mode=mode, max_t=None)
        values = []
        for i in range(trials):
            configuration = searcher.suggest(str(i))
            values.append(objective(configuration))
            searcher.end(str(i), 1, values[-1])
        scores.append(pick(values))
    return sum(scores) / len(scores)


def test_models_beat_chance_on_a_quadratic() -> None:
    over = space("x: {uniform: [-5, 5]}\ny: {uniform: [-5, 5]}")

    def quadratic(c: Configuration) -> float:
        return (c["x"] - 2) ** 2 + (c["y"] + 1) ** 2

    chance = best_of(Random(), over, quadratic, 40, "min")
    assert best_of(Optuna(sampler="tpe"), over, quadratic, 40, "min") < chance
    assert best_of(Optuna(sampler="gp", n_startup_trials=5), over, quadratic, 12, "min") < chance


def test_a_conditional_parameter_is_modelled_too() -> None:
    over = space("a: {choice: [p, q]}\nx: {uniform: [-5, 5], when: {a: p}}\ny: {uniform: [-5, 5], when: {a: q}}")

    def peak(c: Configuration) -> float:
        return -((c["x"] - 3) ** 2) if "x" in c else -9 - (c["y"] - 2) ** 2

    chance = best_of(Random(), over, peak, 18, "max")
    assert best_of(Optuna(sampler="gp", n_startup_trials=6), over, peak, 18, "max") > chance
    assert best_of(Optuna(sampler="tpe", n_startup_trials=6), over, peak, 18, "max") > chance


def test_qmc_covers_the_space_from_its_first_point() -> None:
    searcher = build(Optuna(sampler="qmc"), space("x: {uniform: [0, 8]}\ny: {uniform: [0, 1]}"))
    points = [searcher.suggest(str(i)) for i in range(8)]
    assert sorted(int(point["x"]) for point in points) == list(range(8))


def test_optuna_reports_stopped_and_failed_trials() -> None:
    searcher = build(Optuna(), PLAIN)
    run(searcher, 6)
    states = [trial.state.name for trial in searcher._study.trials]
    assert states == ["COMPLETE", "COMPLETE", "PRUNED", "COMPLETE", "FAIL", "PRUNED"]
    assert list(searcher._study.trials[2].intermediate_values) == [1, 2]


def test_a_gaussian_process_learns_from_stopped_trials() -> None:
    searcher = build(Optuna(sampler="gp", n_startup_trials=2), PLAIN)
    run(searcher, 3)
    assert [trial.state.name for trial in searcher._study.trials] == ["COMPLETE"] * 3


def test_optuna_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    for sampler in ("tpe", "gp", "qmc"):
        run(build({"kind": "optuna", "sampler": sampler, "n_startup_trials": 2}, CONDITIONAL), 5)
    assert capfd.readouterr() == ("", "")


def test_optuna_refuses_what_it_cannot_do() -> None:
    from ray import tune

    over = space_from_param_space({"a": tune.grid_search([1, 2]), "g": {"b": tune.sample_from(lambda config: 1)}})
    assert Optuna().complaints(over) == [
        (("a",), "grid_search belongs to grid or random search: use choice here"),
        (("g", "b"), "sample_from belongs to grid or random search: compute it in the trainable"),
    ]


def test_grid_gives_each_combination_once_and_ends() -> None:
    searcher = build(Grid(), CONDITIONAL)
    size = Grid().default_trials(CONDITIONAL)
    suggested = run(searcher, size + 5)
    assert len(suggested) == size == CONDITIONAL.size
    assert len({json.dumps(c) for c in suggested}) == size
    assert searcher.suggest("beyond") is None


def test_grid_refuses_continuous_ranges() -> None:
    assert [path for path, _ in Grid().complaints(CONTINUOUS)] == [("lr",), ("momentum",), ("shift",), ("jump",)]
    message = dict(Grid().complaints(CONTINUOUS))[("lr",)]
    assert message.startswith(
        "loguniform [0.0001, 0.1] has no end of values; grid search needs separate values: use choice"
    )


def test_random_goes_through_the_grid_while_it_draws_the_rest() -> None:
    over = space("a: {grid_search: [1, 2]}\nb: {grid_search: [x, y], when: {a: 2}}\nc: {uniform: [0, 1]}")
    assert Random().default_trials(over) == 3
    assert Random().default_trials(CONTINUOUS) == 20
    drawn = run(build(Random(), over), 6)
    assert [(c["a"], c.get("b")) for c in drawn] == [(1, None), (2, "x"), (2, "y")] * 2
    assert len({c["c"] for c in drawn}) == 6


def test_random_honours_a_grid_under_a_condition_on_what_is_drawn() -> None:
    over = space("a: {choice: [p, q]}\nb: {grid_search: [1, 2, 3], when: {a: p}}\nc: {choice: [1], when: {b: 2}}")
    drawn = run(build(Random(), over), 60)
    assert all(over.contains(c) for c in drawn)
    assert {c.get("b") for c in drawn} == {None, 1, 2, 3}


def test_a_wrong_kind_lists_the_right_ones() -> None:
    with pytest.raises(ValueError, match="'random', 'grid', 'optuna'"):
        TypeAdapter(AnySearch).validate_python({"kind": "magic"})
