"""Every search algorithm of the union against one contract, and those that learn against random search."""

from __future__ import annotations

import json
import math
import pickle
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.spaces import space
from tuner.searchers import AnySearch
from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.build import build_searcher
from tuner.searchers.constrained import MAX_REJECTIONS, ConstrainedSearcher
from tuner.searchers.grid import Grid
from tuner.searchers.hyperopt.spec import HyperOpt
from tuner.searchers.optuna.spec import Optuna
from tuner.searchers.random import Random
from tuner.searchers.ray import RaySearch
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space, space_from_param_space

pytestmark = pytest.mark.filterwarnings("error")


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
CONSTRAINED = replace(PLAIN, constraints=space("depth: {randint: [1, 9]}", "depth >= 4 and depth != 6").constraints)
POINTS = [
    {"optimizer": "adam", "depth": 7, "width": 64, "dropout": 0.3, "layers": [128], "fixed": {"nested": 3}},
    {"optimizer": "sgd", "depth": 8, "width": 256, "dropout": 0.0, "layers": [64, 64]},
]
SPACES = [
    pytest.param(PLAIN, id="plain"),
    pytest.param(CONDITIONAL, id="conditional"),
    pytest.param(CONSTRAINED, id="constrained"),
]


def named(example: dict[str, Any]) -> str:
    return "-".join(str(v) for k, v in example.items() if k in ("kind", "sampler", "sequence"))


EXAMPLES = [
    pytest.param(example, id=named(example))
    for kind in typing.get_args(typing.get_args(AnySearch)[0])
    for example in kind.model_config["json_schema_extra"]["examples"]
]


PAIRS = [
    pytest.param(example.values[0], over.values[0], id=f"{example.id}-{over.id}")
    for example in EXAMPLES
    for over in SPACES
    if not (example.values[0]["kind"] == "ray" and over.values[0].conditional)  # which it refuses
]


def build(
    example: dict[str, Any] | SearchSpec,
    over: Space,
    seed: int = 0,
    mode: Any = "min",
    max_t: int | None = 3,
) -> Searcher:
    spec = example if isinstance(example, SearchSpec) else TypeAdapter(AnySearch).validate_python(example)
    assert spec.validate_space(over) == []
    return build_searcher(spec, SearchProblem(space=over, modes=(mode,), trials=20, max_t=max_t, seed=seed))


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
            searcher.on_end(f"t{i}", 0, None)
            continue
        for step in range(1, last + 1):
            searcher.on_report(f"t{i}", step, score(configuration) / step)
        searcher.on_end(f"t{i}", last, (score(configuration) / last,))
    return suggested


def all_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and all_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(all_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


@pytest.mark.parametrize(("example", "over"), PAIRS)
class TestContract:
    def test_suggests_points_of_the_space_in_plain_python_types(self, example: Any, over: Space) -> None:
        suggested = run(build(example, over), 12)
        assert len(suggested) == 12
        for configuration in suggested:
            assert over.violations(configuration) == []
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
        searcher.on_report("pending", 1, 0.5)
        restored = pickle.loads(pickle.dumps(searcher))
        continued = []
        for one in (searcher, restored):
            one.on_end("pending", 3, (0.25,))
            continued.append(run(one, 5, start=6))
        assert continued[0] == continued[1]
        assert len(continued[0]) == 5

    def test_goes_on_whatever_ends(self, example: Any, over: Space) -> None:
        searcher = build(example, over)
        for i in range(8):
            searcher.suggest(f"t{i}")
        searcher.on_end("t0", 0, None)
        searcher.on_end("t1", 0, None)
        searcher.on_end("t2", 1, (0.5,))
        searcher.on_report("t3", 1, 1e308)
        searcher.on_report("t3", 1, -1e308)
        searcher.on_end("t3", 2, (-1e308,))
        searcher.on_end("never suggested", 3, (0.1,))
        searcher.on_report("never suggested", 3, 0.1)
        for i in range(4, 8):
            searcher.on_end(f"t{i}", 3, (0.5,))
        configuration = searcher.suggest("next")
        assert configuration is not None
        assert over.contains(configuration)

    def test_an_adopted_trial_is_one_like_the_others(self, example: Any, over: Space) -> None:
        searcher = build(example, over)
        foreign = build(Random(), over, seed=7).suggest("foreign")
        assert foreign is not None
        run(searcher, 3)
        searcher.register("foreign", foreign)
        searcher.on_report("foreign", 1, 0.5)
        searcher.on_end("foreign", 3, (0.1,))
        assert all(over.contains(c) for c in run(searcher, 5, start=3))


@pytest.mark.parametrize("example", EXAMPLES)
class TestPoints:
    def test_known_points_come_first_with_their_constants(self, example: Any) -> None:
        suggested = run(build({**example, "points_to_evaluate": POINTS}, CONSTRAINED), 5)
        assert suggested[:2] == [POINTS[0], {**POINTS[1], "fixed": {"nested": 3}}]
        assert all(CONSTRAINED.contains(c) for c in suggested[2:])

    def test_continue_after_pickling_between_them(self, example: Any) -> None:
        searcher = build({**example, "points_to_evaluate": POINTS}, CONSTRAINED)
        run(searcher, 1)
        restored = pickle.loads(pickle.dumps(searcher))
        assert run(searcher, 6, start=1) == run(restored, 6, start=1)


class Recorder(Searcher):
    """Suggests 0, 1, 2, …, or always the same, and remembers what it is told."""

    def __init__(self) -> None:
        self.suggestion: Configuration | None = None
        self.asked: list[str] = []
        self.adopted: dict[str, Configuration] = {}
        self.told: list[tuple[str, int, Any]] = []

    def suggest(self, trial_id: str) -> Configuration | None:
        self.asked.append(trial_id)
        return self.suggestion or {"x": len(self.asked) - 1} if len(self.asked) <= 200 else None

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self.adopted[trial_id] = configuration

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        self.told.append((trial_id, step, value))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        self.told.append((trial_id, step, values))


class TestGuarded:
    def guarded(self, *constraints: str) -> tuple[Recorder, ConstrainedSearcher]:
        over = space("x: {randint: [0, 1000]}", *constraints)
        recorder = Recorder()
        return recorder, ConstrainedSearcher(recorder, SearchProblem(over, ("min",), 20, 3, 0))

    def test_a_forbidden_suggestion_has_failed_and_another_is_asked_for(self) -> None:
        recorder, guarded = self.guarded("x >= 2")
        assert guarded.suggest("a") == {"x": 2}
        guarded.on_report("a", 1, 0.5)
        guarded.on_end("a", 3, (0.25,))
        first, second, third = recorder.asked
        assert first == "a"
        assert len({first, second, third}) == 3
        assert recorder.told == [(first, 0, None), (second, 0, None), (third, 1, 0.5), (third, 3, (0.25,))]

    def test_after_some_refusals_the_last_suggestion_is_repaired(self) -> None:
        over = space("x: {randint: [0, 1000]}\ny: {randint: [0, 1000]}\nz: {uniform: [0, 1]}", "x + y >= 1000")
        recorder = Recorder()
        guarded = ConstrainedSearcher(recorder, SearchProblem(over, ("min",), 20, 3, 0))
        recorder.suggestion = {"x": 400, "y": 300, "z": 0.1}
        repaired = [guarded.suggest(str(i)) for i in range(20)]
        assert all(over.contains(c) for c in repaired)
        assert all({c["x"], c["y"], c["z"]} & {400, 300, 0.1} for c in repaired), "nothing is left of the suggestion"
        assert len(recorder.asked) == 20 * MAX_REJECTIONS
        assert list(recorder.adopted.values()) == repaired
        guarded.on_end("19", 3, (0.25,))
        assert recorder.told[-1] == (list(recorder.adopted)[-1], 3, (0.25,))

    def test_what_is_hardly_allowed_is_drawn_anew(self) -> None:
        recorder, guarded = self.guarded("x >= 990")
        recorder.suggestion = {"x": 0}
        drawn = guarded.suggest("a")
        assert drawn is not None
        assert drawn["x"] >= 990
        guarded.on_end("a", 3, (0.25,))
        assert recorder.told[-1] == (*recorder.adopted, 3, (0.25,))

    def test_the_end_of_the_space_stays_its_end(self) -> None:
        recorder, guarded = self.guarded("x < 1000")
        recorder.asked = ["before"] * 200
        assert guarded.suggest("a") is None


LEARNERS = {
    "optuna-tpe": 40,
    "optuna-gp": 10,
    "optuna-cmaes": 60,
    "optuna-nsga2": 60,
    "hyperopt": 40,
    "bohb": 60,
    "ray": 40,
}
"""Examples that learn, and after how many trials they are better than chance."""


@pytest.mark.parametrize("example", [e for e in EXAMPLES if named(e.values[0]) in LEARNERS])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_model_beats_chance_on_a_quadratic(example: Any, mode: Any) -> None:
    """In the mean of 10 seeds, 5 in each direction."""
    over = space("x: {uniform: [-5, 5]}\ny: {uniform: [-5, 5]}")
    sign = 1 if mode == "min" else -1

    def quadratic(c: Configuration) -> float:
        return sign * ((c["x"] - 2) ** 2 + (c["y"] + 1) ** 2)

    trials = LEARNERS[named(example)]
    spec = TypeAdapter(AnySearch).validate_python(example)
    learned, chance = (sign * best_of(one, over, quadratic, trials, mode, seeds=5) for one in (spec, Random()))
    assert learned < chance


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "qmc", "nsga2"])
def test_optuna_draws_from_every_domain(sampler: Any) -> None:
    for configuration in run(build(Optuna(sampler=sampler, n_startup_trials=4), CONTINUOUS), 7):
        assert CONTINUOUS.violations(configuration) == []
        assert all_plain(configuration)


def test_hyperopt_draws_from_every_domain() -> None:
    for configuration in run(build(HyperOpt(n_initial_points=4), CONTINUOUS), 12):
        assert CONTINUOUS.violations(configuration) == []
        assert all_plain(configuration)


def best_of(
    spec: SearchSpec,
    over: Space,
    objective: Callable[[Configuration], float],
    trials: int,
    mode: Any,
    seeds: int = 3,
) -> float:
    scores = []
    pick = min if mode == "min" else max
    for seed in range(seeds):
        searcher = build(spec, over, seed=seed, mode=mode, max_t=None)
        values = []
        for i in range(trials):
            configuration = searcher.suggest(str(i))
            assert configuration is not None
            values.append(objective(configuration))
            searcher.on_end(str(i), 1, (values[-1],))
        scores.append(pick(values))
    return sum(scores) / len(scores)


@pytest.mark.parametrize(
    "spec", [Optuna(n_startup_trials=10), HyperOpt(n_initial_points=10)], ids=["optuna", "hyperopt"]
)
def test_a_right_prior_helps_and_a_wrong_one_does_not_ruin(spec: SearchSpec) -> None:
    def quadratic(c: Configuration) -> float:
        return sum((c[name] - 0.8) ** 2 for name in "vwxyz")

    def after(trials: int, prior: str) -> float:
        over = space("\n".join(f"{name}: {{uniform: [0, 1]{prior}}}" for name in "vwxyz"))
        return best_of(spec, over, quadratic, trials, "min", seeds=5)

    right, wrong = ", prior: 0.75, confidence: high", ", prior: 0.1, confidence: high"
    assert after(10, right) < 0.6 * after(10, "")
    plain = space("\n".join(f"{name}: {{uniform: [0, 1]}}" for name in "vwxyz"))
    assert after(50, wrong) < best_of(Random(), plain, quadratic, 50, "min", seeds=5)


def test_a_conditional_parameter_is_modelled_too() -> None:
    over = space("a: {choice: [p, q]}\nx: {uniform: [-5, 5], when: {a: p}}\ny: {uniform: [-5, 5], when: {a: q}}")

    def peak(c: Configuration) -> float:
        return -((c["x"] - 3) ** 2) if "x" in c else -9 - (c["y"] - 2) ** 2

    chance = best_of(Random(), over, peak, 18, "max")
    assert best_of(Optuna(sampler="gp", n_startup_trials=4), over, peak, 14, "max") > chance
    assert best_of(Optuna(sampler="tpe", n_startup_trials=6), over, peak, 18, "max") > chance
    assert best_of(HyperOpt(n_initial_points=6), over, peak, 18, "max") > chance


def test_qmc_covers_the_space_from_its_first_point() -> None:
    searcher = build(Optuna(sampler="qmc"), space("x: {uniform: [0, 8]}\ny: {uniform: [0, 1]}"))
    points = [searcher.suggest(str(i)) for i in range(8)]
    assert sorted(int(point["x"]) for point in points) == list(range(8))


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_optuna_learns_from_stopped_trials_as_from_others(sampler: Any) -> None:
    searcher = build(Optuna(sampler=sampler, n_startup_trials=2), PLAIN)
    run(searcher, 6)
    states = [trial.state.name for trial in searcher._study.trials]  # type: ignore[attr-defined]
    assert states == ["COMPLETE"] * 4 + ["FAIL", "COMPLETE"]


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_optuna_models_the_highest_fidelity_with_enough_trials(sampler: Any) -> None:
    searcher = build(Optuna(sampler=sampler, n_startup_trials=3), space("x: {uniform: [0, 1]}"), mode="max")
    for i in range(5):
        searcher.register(str(i), {"x": i / 10})
        searcher.on_report(str(i), 1, float(i))
    assert shown(searcher) == [(i / 10, float(i)) for i in range(5)]
    for i in range(3):  # of them 2 still runs, and the others ended at step 1
        searcher.on_report(str(i), 2, 10.0 - i)
    for i in (0, 1, 3):
        searcher.on_end(str(i), 2 if i < 2 else 1, (10.0 - i if i < 2 else 3.0,))
    searcher.on_end("4", 1, None)
    searcher.register("new", {"x": 0.9})
    restored = pickle.loads(pickle.dumps(searcher))
    for one in (searcher, restored):
        assert shown(one) == [(0.0, 10.0), (0.1, 9.0), (0.2, 8.0), (0.9, None)]
    assert restored.suggest("next") == searcher.suggest("next")


def shown(searcher: Any) -> list[tuple[float, float | None]]:
    """(x, value) of the trials that Optuna's samplers see; None for a pending one."""
    trials = searcher._study.get_trials(deepcopy=False)
    return [(trial.params["x"], trial.value if trial.state.name == "COMPLETE" else None) for trial in trials]


def test_a_share_of_tpes_suggestions_is_drawn_at_random() -> None:
    over = space("x: {uniform: [0, 1]}")

    def near_the_best(random_fraction: float) -> int:
        searcher = build(Optuna(n_startup_trials=5, random_fraction=random_fraction), over, mode="max")
        found = []
        for i in range(60):
            found.append(searcher.suggest(str(i))["x"])
            searcher.on_end(str(i), 3, (-abs(found[-1] - 0.5),))
        return sum(abs(x - 0.5) < 0.1 for x in found[20:])

    assert near_the_best(0.0) > 20 > 14 > near_the_best(1.0)


def test_libraries_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    for sampler in ("tpe", "gp", "cmaes", "qmc", "nsga2"):
        run(build({"kind": "optuna", "sampler": sampler, "n_startup_trials": 2}, CONDITIONAL), 5)
    run(build(HyperOpt(n_initial_points=2), CONDITIONAL), 5)
    assert capfd.readouterr() == ("", "")


def test_stopped_trials_of_several_objectives_count_with_their_last_values() -> None:
    over = space("x: {uniform: [0, 1]}")
    searcher = build_searcher(Optuna(), SearchProblem(over, ("min", "max"), 20, 3, 0))
    searcher.suggest("a")
    searcher.on_report("a", 1, 0.5)
    searcher.on_end("a", 1, (0.5, 2.0))
    (trial,) = searcher._study.trials  # type: ignore[attr-defined]
    assert (trial.state.name, trial.values) == ("COMPLETE", [0.5, 2.0])


@pytest.mark.parametrize(
    "spec",
    [
        Optuna(sampler="nsga2", population_size=10),
        Optuna(sampler="tpe"),
        Optuna(sampler="gp", n_startup_trials=6),
        Optuna(sampler="qmc"),
    ],
    ids=["nsga2", "tpe", "gp", "qmc"],
)
def test_several_objectives_in_a_conditional_space(spec: Optuna) -> None:
    assert spec.max_objectives == math.inf
    searcher = build_searcher(spec, SearchProblem(CONDITIONAL, ("min", "max"), 20, 3, 0))
    for i in range(12):
        configuration = searcher.suggest(str(i))
        assert CONDITIONAL.contains(configuration)
        searcher.on_end(str(i), 3, None if i % 5 == 4 else (float(configuration["depth"]), 1e308 if i == 3 else -i))


@pytest.mark.parametrize("spec", [Optuna(sampler="nsga2", population_size=10), Optuna(sampler="tpe")])
def test_a_search_with_two_objectives_approaches_the_front(spec: Optuna) -> None:
    """x² and (x - 1)² + y²: the front is y = 0, 0 ≤ x ≤ 1; random points are at the mean distance 2.5 from y = 0."""
    over = space("x: {uniform: [-5, 5]}\ny: {uniform: [-5, 5]}")
    late = []
    for seed in range(3):
        searcher = build_searcher(spec, SearchProblem(over, ("min", "max"), 80, None, seed))
        for i in range(80):
            c = searcher.suggest(str(i))
            searcher.on_end(str(i), 1, (c["x"] ** 2 + c["y"] ** 2, -((c["x"] - 1) ** 2) - c["y"] ** 2))
            late += [abs(c["y"])] if i >= 60 else []
    assert sum(late) / len(late) < 1.8


def test_an_evolution_strategy_has_one_objective() -> None:
    assert Optuna(sampler="cmaes").max_objectives == 1
    assert HyperOpt().max_objectives == 1


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "qmc", "nsga2"])
def test_optuna_learns_from_adopted_trials(sampler: Any) -> None:
    searcher = build(Optuna(sampler=sampler), CONTINUOUS)
    for i in range(4):
        configuration = build(Random(), CONTINUOUS, seed=i).suggest("any")
        searcher.register(str(i), configuration)
        searcher.on_end(str(i), 3, (0.5,))
        trial = searcher._study.trials[-1]  # type: ignore[attr-defined]
        assert trial.state.name == "COMPLETE"
        seen = {p.path: p for p in CONTINUOUS.parameters if p.path[0] in configuration}
        assert {"/".join(path) for path in seen} <= set(trial.params)
        assert trial.params["lr"] == configuration["lr"]


@pytest.mark.parametrize("spec", [Optuna(max_history=60), HyperOpt(max_history=60)], ids=["optuna", "hyperopt"])
def test_the_history_is_bounded_and_keeps_the_best_and_the_pending(spec: SearchSpec) -> None:
    over = space("x: {uniform: [0, 1]}")
    searcher = build(spec, over, mode="max")
    searcher.register("pending", {"x": 0.123})
    searcher.register("best", {"x": 0.987})
    searcher.on_end("best", 3, (1e6,))
    for i in range(200):
        searcher.register(str(i), {"x": i / 200})
        searcher.on_end(str(i), 3 if i % 2 else 1, None if i % 7 == 0 else (-float(i),))
    restored = pickle.loads(pickle.dumps(searcher))
    assert restored.suggest("next") == searcher.suggest("next")
    if isinstance(spec, Optuna):
        shown = [trial.params["x"] for trial in searcher._study.get_trials(deepcopy=False)]  # type: ignore[attr-defined]
    else:
        shown = [document["misc"]["vals"]["x"][0] for document in searcher._shown()]  # type: ignore[attr-defined]
    assert len(shown) <= 62
    assert {0.987, 0.123} <= set(shown)
    searcher.on_end("pending", 3, (2e6,))


def test_models_refuse_what_they_cannot_choose() -> None:
    from ray import tune

    over = space_from_param_space({"a": tune.grid_search([1, 2]), "g": {"b": tune.sample_from(lambda config: 1)}})
    expected = [
        (("a",), "grid_search belongs to search.kind grid or random: use choice here"),
        (("g", "b"), "sample_from belongs to search.kind grid or random: compute it in the trainable"),
    ]
    assert Optuna().validate_space(over) == expected
    assert HyperOpt().validate_space(over) == expected
    assert RaySearch(class_path="ray.tune.search.hyperopt:HyperOptSearch").validate_space(over) == expected


def test_samplers_refuse_spaces_that_they_would_ignore() -> None:
    choices = space("a: {choice: [1, 2]}")
    assert Optuna(sampler="cmaes").validate_space(choices) == [
        (
            (),
            "sampler cmaes needs a numeric parameter, and there is none; "
            "use sampler tpe, gp or nsga2, or search.kind hyperopt, bohb or random",
        )
    ]
    believed = space("x: {uniform: [0, 1], prior: 0.5}")
    ((path, message),) = Optuna(sampler="qmc").validate_space(believed)
    assert path == ("x",)
    assert "would be ignored; a sequence follows none: use another sampler" in message


TOY = """
from ray.tune.search import Searcher

class Toy(Searcher):
    def __init__(self, metric=None, mode=None, first=0, seed=None):
        super().__init__(metric, mode)
        self.count, self.seed, self.told, self.points = first, seed, [], []

    def set_search_properties(self, metric, mode, config, **spec):
        self.metric_name, self.direction, self.config = metric, mode, config
        return True

    def suggest(self, trial_id):
        self.count += 1
        if self.count == 3:
            return None
        return Searcher.FINISHED if self.count > 6 else {"g": {"n": float(self.count)}, "c": (1, 2)}

    def on_trial_result(self, trial_id, result):
        self.told.append((trial_id, result[self.metric_name]))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((trial_id, error))

    def add_evaluated_point(self, parameters, value, **more):
        self.points.append((parameters, value))

class Deaf(Searcher):
    def suggest(self, trial_id):
        return {}
"""


class TestRay:
    OVER = space("g: {n: {randint: [1, 9]}}\nc: {choice: [[1, 2], [3]]}\nfixed: 5")

    @pytest.fixture
    def toy(self, tmp_path: Path) -> str:
        (tmp_path / "toys.py").write_text(TOY)
        return f"{tmp_path}/toys.py"

    def test_passes_questions_and_news_on(self, toy: str) -> None:
        spec = RaySearch(class_path=f"{toy}:Toy", options={"first": 1})
        assert spec.validate_options() == []
        searcher = build(spec, self.OVER, seed=11, mode="max")
        theirs = searcher._theirs  # type: ignore[attr-defined]
        assert (theirs.direction, theirs.seed, theirs.config["fixed"]) == ("max", 11, 5)
        assert searcher.suggest("a") == {"g": {"n": 2}, "c": [1, 2], "fixed": 5}
        waited = searcher.suggest("b")
        assert self.OVER.contains(waited)
        searcher.suggest("c")
        searcher.on_report("a", 1, 0.5)
        searcher.on_report("b", 1, 0.7)
        searcher.on_end("a", 3, (0.25,))
        searcher.on_end("b", 3, (0.75,))
        searcher.on_end("c", 0, None)
        assert theirs.told == [("a", 0.5), ("a", False), ("c", True)]
        assert theirs.points == [({"g/n": waited["g"]["n"], "c": waited["c"]}, 0.75)]
        assert [searcher.suggest(str(i)) is None for i in range(3)] == [False, False, True]

    def test_ray_searchers_with_their_own_libraries(self) -> None:
        for name in ("ray.tune.search.optuna:OptunaSearch", "ray.tune.search.hyperopt:HyperOptSearch"):
            over = space("g: {lr: {loguniform: [1e-4, 1]}}\nn: {lograndint: [1, 9]}\nc: {choice: [p, q]}")
            suggested = run(build(RaySearch(class_path=name), over), 8)
            assert len(suggested) == 8
            assert all(over.contains(c) and all_plain(c) for c in suggested)

    @pytest.mark.parametrize(
        ("class_path", "options", "path", "message"),
        [
            ("no_such:X", {}, "class_path", "no module 'no_such'"),
            ("os:listdir", {}, "class_path", "os:listdir is not a subclass of ray.tune.search.Searcher"),
            ("ray.tune.search.optuna:OptunaSearch", {"sed": 1}, "class_path", "did you mean 'seed'?"),
            ("ray.tune.search.optuna:OptunaSearch", {"mode": "max"}, "options", "belongs to objective.mode"),
        ],
    )
    def test_a_wrong_class_or_option_is_named(
        self, class_path: str, options: dict[str, Any], path: str, message: str
    ) -> None:
        ((where, said),) = RaySearch(class_path=class_path, options=options).validate_options()
        assert where[0] == path
        assert message in said

    def test_a_space_that_it_refuses_is_an_error(self, toy: str) -> None:
        ((_, deaf),) = RaySearch(class_path=f"{toy}:Deaf").validate_space(self.OVER)
        assert "takes no search space: its set_search_properties must keep it and return True" in deaf
        optuna = RaySearch(class_path="ray.tune.search.optuna:OptunaSearch")
        ((_, quantum),) = optuna.validate_space(space("x: {randn: []}"))
        assert "refuses its options or this search space: ValueError" in quantum
        conditional = optuna.validate_space(space("a: {choice: [1, 2]}\nb: {uniform: [0, 1], when: {a: 1}}"))
        assert conditional == [
            (("b",), "has a condition (when a is 1); use search.kind optuna, hyperopt, bohb or random")
        ]


def test_grid_gives_each_combination_once_and_ends() -> None:
    searcher = build(Grid(), CONDITIONAL)
    size = Grid().default_trials(CONDITIONAL)
    suggested = run(searcher, size + 5)
    assert len(suggested) == size == CONDITIONAL.size
    assert len({json.dumps(c) for c in suggested}) == size
    assert searcher.suggest("beyond") is None


def test_grid_refuses_continuous_ranges() -> None:
    assert [path for path, _ in Grid().validate_space(CONTINUOUS)] == [("lr",), ("momentum",), ("shift",), ("jump",)]
    message = dict(Grid().validate_space(CONTINUOUS))[("lr",)]
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
    with pytest.raises(ValueError, match="'random', 'grid', 'optuna', 'hyperopt'"):
        TypeAdapter(AnySearch).validate_python({"kind": "magic"})
