"""The Gaussian process: what it is fitted to, what it expects of stopped trials, and that its searches learn."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.stats import norm

from tests.searchers.objectives import MIXED, SQUARE, mean_best, mixed, quadratic, search
from tests.spaces import space
from tuner.searchers.base import Searcher
from tuner.searchers.build import build_searcher
from tuner.searchers.gp.encoding import Encoding
from tuner.searchers.gp.final_values import extrapolate, levels_up_to
from tuner.searchers.gp.gaussian_process import GaussianProcess, Hyperparameters, fitted
from tuner.searchers.gp.searcher import log_expected_improvement
from tuner.searchers.gp.spec import Gp
from tuner.searchers.random import Random
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space
from tuner.spec.space.prior import Prior

NAN = math.nan


def build(over: Space, seed: int = 0, trials: int = 60, max_t: int | None = None, **options: Any) -> Searcher:
    return build_searcher(Gp(**options), SearchProblem(over, ("min",), trials, max_t, seed))


class TestProcess:
    def test_passes_through_values_without_noise_and_knows_nothing_far_away(self) -> None:
        points, values = np.array([[0.1, 0.5], [0.4, 0.2], [0.9, 0.9]]), np.array([-1.0, 0.5, 1.0])
        known = Hyperparameters(np.log([0.1, 0.1]), 0.0, math.log(1e-6))
        process = GaussianProcess(points, np.arange(2), values, np.zeros(3), known)
        means, variances = process.predict(np.vstack([points, [[0.1, 5.0]]]))
        assert means[:3] == pytest.approx(values, abs=1e-3)
        assert variances[:3] == pytest.approx(0, abs=1e-4)
        assert variances[3] == pytest.approx(1.0, abs=1e-3)

    def test_believes_a_noisy_value_less(self) -> None:
        points, values = np.array([[0.2], [0.2], [0.8]]), np.array([-1.0, 1.0, 0.0])
        process = GaussianProcess(
            points, np.array([0]), values, np.array([0.01, 1.0, 0.01]), Hyperparameters.initial(1)
        )
        assert process.predict(points[:1])[0] < -0.7

    def test_finds_the_parameter_that_matters(self) -> None:
        points = default_rng(0).random((40, 3))
        values = np.sin(6 * points[:, 1])
        found = fitted(points, np.arange(3), values, np.zeros(40), Hyperparameters.initial(3))
        lengths = np.exp(found.lengths)
        assert lengths[1] < 1
        assert min(lengths[0], lengths[2]) > 3 * lengths[1]

    def test_the_fit_is_a_maximum(self) -> None:
        """No step in any direction is better, by the density itself and not by its gradient."""
        rng = default_rng(1)
        points = rng.random((30, 2))
        values = np.cos(4 * points[:, 0]) + 0.1 * rng.standard_normal(30)
        noise = np.full(30, 1e-3)

        def density(found: Hyperparameters) -> float:
            lengths = np.exp(found.lengths)
            r = math.sqrt(5) * np.sqrt((((points[:, None] - points) / lengths) ** 2).sum(axis=2))
            kernel = math.exp(found.scale) * (1 + r + r * r / 3) * np.exp(-r)
            covariance = kernel + np.diag(noise + math.exp(found.noise) + 1e-8)
            centred = values - values.mean()
            value = -0.5 * centred @ np.linalg.solve(covariance, centred) - 0.5 * np.linalg.slogdet(covariance)[1]
            value += (
                norm.logpdf(found.lengths, math.sqrt(2) + math.log(2) / 2, math.sqrt(3)).sum() - found.lengths.sum()
            )
            value += norm.logpdf(found.scale) + norm.logpdf(found.noise, math.log(1e-3), 2)
            return float(value)

        best = fitted(points, np.arange(2), values, noise, Hyperparameters.initial(2), iterations=200)
        for i, step in itertools.product(range(4), (-0.05, 0.05)):
            moved = best.vector()
            moved[i] += step
            assert density(Hyperparameters.of(moved)) < density(best)


class TestExtrapolation:
    def test_what_is_complete_stays(self) -> None:
        values = default_rng(0).standard_normal((6, 4))
        means, variances = extrapolate(values, np.ones(6, dtype=bool))
        assert means.tolist() == values[:, -1].tolist()
        assert variances.tolist() == [0] * 6

    def test_the_earlier_a_trial_ended_the_less_is_known(self) -> None:
        values = np.cumsum(default_rng(0).standard_normal((40, 5)) * 0.3, axis=1)
        for row, reached in enumerate((1, 2, 3, 4)):
            values[row, reached:] = NAN
        variances = extrapolate(values, np.ones(40, dtype=bool))[1]
        assert variances[0] > variances[1] > variances[2] > variances[3] > variances[4] == 0

    def test_is_not_deceived_by_who_survived(self) -> None:
        """All trials gain 1 from the first level to the last; only the best third of them are seen to."""
        rng = default_rng(0)
        start = rng.standard_normal(300)
        values = np.stack([start, start + 0.5, start + 1 + 0.1 * rng.standard_normal(300)], axis=1)
        values[start < np.quantile(start, 2 / 3), 1:] = NAN
        means, variances = extrapolate(values, np.ones(300, dtype=bool))
        stopped = np.isnan(values[:, -1])
        errors = means[stopped] - (start[stopped] + 1)
        assert abs(errors.mean()) < 0.1
        assert np.abs(errors / np.sqrt(variances[stopped])).max() < 4

    def test_learns_only_from_the_rows_that_it_is_told(self) -> None:
        """The trials that were chosen because they gained most are predicted, and teach nothing."""
        rng = default_rng(0)
        start = rng.standard_normal(400)
        values = np.stack([start, start + rng.standard_normal(400)], axis=1)
        learned = np.arange(400) < 200
        chosen = learned | (values[:, 1] - values[:, 0] > 1)
        values = np.append(values[chosen], [[0.0, NAN]], axis=0)
        few, all_ = (
            extrapolate(values, np.append(rows, True))[0][-1] for rows in (learned[chosen], np.ones(chosen.sum(), bool))
        )
        assert abs(few) < 0.2
        assert all_ > few + 0.2

    def test_levels_end_at_the_last_fidelity(self) -> None:
        assert levels_up_to(1) == (1,)
        assert levels_up_to(50) == (1, 2, 3, 4, 7, 10, 15, 22, 33, 50)
        assert len(levels_up_to(100_000)) < 32


class TestEncoding:
    OVER = space("""
    width: {choice: [16, 32, 64, 128]}
    act: {choice: [relu, gelu, silu]}
    slope: {uniform: [0, 1], when: {act: relu}}
    depth: {randint: [1, 4]}
    """)
    NESTED = space("""
    act: {choice: [relu, gelu, silu]}
    fixed: 3
    norm: {choice: [null, batch, layer], when: {act: [relu, silu], fixed: 3}}
    momentum: {uniform: [0, 1], when: {norm: batch}}
    depth: {randint: [1, 4]}
    last: {loguniform: [1, 10], when: {depth: [2, 3], act: silu}}
    """)

    def test_ascending_numbers_are_ordered_and_names_are_not(self) -> None:
        encoding = Encoding(self.OVER)
        assert encoding.parameter.tolist() == [0, 1, 1, 1, 2, 2, 3]

        def at(**changes: Any) -> Any:
            configuration = {"width": 16, "act": "gelu", "depth": 1, **changes}
            return encoding.features(np.array([self.OVER.to_unit(configuration)]))[0]

        def distance(a: Any, b: Any) -> float:
            return float(np.linalg.norm(a - b))

        assert distance(at(width=128), at()) > distance(at(width=32), at()) > 0
        assert distance(at(act="silu"), at()) == pytest.approx(1)
        assert distance(at(act="relu", slope=0.1), at(act="relu", slope=0.4)) == pytest.approx(0.3)

    @given(st.integers(0, 2**32 - 1), st.sampled_from([OVER, NESTED]))
    def test_a_snapped_point_is_that_of_its_configuration(self, seed: int, over: Space) -> None:
        encoding = Encoding(over)
        for point in encoding.snapped(default_rng(seed).random((5, len(over.free)))):
            assert point.tolist() == pytest.approx(over.to_unit(over.from_unit(point)), abs=1e-12, nan_ok=True)


def test_expected_improvement_is_exact_also_where_it_is_tiny() -> None:
    z = np.array([2.0, 0.0, -3.0, -5.9, -6.1, -30.0])
    found = log_expected_improvement(z)
    plain = np.log(norm.pdf(z[:4]) + z[:4] * norm.cdf(z[:4]))
    assert found[:4] == pytest.approx(plain, rel=1e-6)
    assert found[3] - found[4] == pytest.approx(6.0 * 0.2, abs=0.2)
    assert found[5] == pytest.approx(norm.logpdf(30.0) - 2 * math.log(30), rel=1e-3)


@pytest.mark.parametrize(("over", "loss", "bound"), [(SQUARE, quadratic, 0.02), (MIXED, mixed, 0.35)])
def test_learns(over: Space, loss: Callable[[Configuration], float], bound: float) -> None:
    found = mean_best(Gp(), over, loss, 30, seeds=5)
    assert found < bound
    assert found < 0.5 * mean_best(Random(), over, loss, 30, seeds=5)


def test_learns_from_trials_that_were_all_stopped() -> None:
    searcher = build(SQUARE, max_t=27)
    best = math.inf
    for i in range(25):
        configuration = searcher.suggest(str(i))
        assert configuration is not None
        best = min(best, quadratic(configuration))
        for step in (1, 2, 3):
            searcher.on_report(str(i), step, quadratic(configuration) + 9 / step)
        searcher.on_end(str(i), 3, (quadratic(configuration) + 3,))
    assert best < 0.1


def test_many_workers_do_not_ask_the_same() -> None:
    def with_many_optima(c: Configuration) -> float:
        return quadratic(c) + 5 * math.cos(3 * c["x"]) + 5 * math.cos(3 * c["y"])

    apart = []
    for seed in range(5):
        searcher = build(SQUARE, seed=seed)
        search(searcher, with_many_optima, 8)
        asked = [searcher.suggest(f"waiting{i}") for i in range(8)]
        points = np.array([[c["x"], c["y"]] for c in asked if c])
        apart.append(np.median(np.linalg.norm(points[:, None] - points, axis=2)[np.triu_indices(8, 1)]))
    assert np.median(apart) > 0.3


def test_failed_trials_are_avoided() -> None:
    searcher = build(SQUARE)
    asked = []
    for i in range(40):
        configuration = searcher.suggest(str(i))
        assert configuration is not None
        asked.append(configuration["x"])
        failed = configuration["x"] > 0  # where the optimum would be
        searcher.on_end(str(i), 1, None if failed else (quadratic(configuration),))
    assert sum(x > 0.5 for x in asked[20:]) <= 8


def test_a_diverged_trial_hides_no_differences() -> None:
    """Its value is no longer a number that can be squared."""
    searcher = build(SQUARE)
    searcher.register("diverged", {"x": -5.0, "y": -5.0})
    searcher.on_end("diverged", 1, (1e300,))
    assert min(map(quadratic, search(searcher, quadratic, 25))) < 0.1


def test_a_metric_that_most_trials_bring_to_its_top_still_tells_the_others_apart() -> None:
    """As an accuracy of 1 does: the median is then the best value."""
    searcher = build(SQUARE, n_initial_points=12)
    asked = search(searcher, lambda c: max(c["x"], 0.0), 40)
    assert sum(c["x"] > 0.5 for c in asked[12:]) <= 4


def test_each_configuration_of_a_small_space_is_asked_once() -> None:
    over = space("a: {randint: [0, 4]}\nb: {choice: [x, y]}")
    searcher = build(over)
    asked = search(searcher, lambda c: (c["a"] - 2) ** 2 + (c["b"] == "x"), 8)
    assert len({(c["a"], c["b"]) for c in asked}) == 8
    assert searcher.suggest("more") is None


def test_no_configuration_runs_twice_also_if_the_best_is_at_an_end() -> None:
    over = space("x: {loguniform: [1e-4, 1e-1]}")
    searcher, asked = build(over, n_initial_points=3), []
    for k in range(15):
        configuration = searcher.suggest(f"t{k}")
        assert configuration is not None
        asked.append(configuration["x"])
        searcher.on_end(f"t{k}", 0, (-math.log(asked[-1]),))
    assert max(asked) == pytest.approx(0.1)
    assert len({round(math.log10(x), 3) for x in asked}) == len(asked)


def test_a_right_prior_helps_and_its_mode_runs_first() -> None:
    believed = space("x: {uniform: [-5, 5], prior: 2, confidence: high}\ny: {uniform: [-5, 5]}")
    first = build(believed).suggest("a")
    assert first is not None
    assert first["x"] == pytest.approx(2)
    assert isinstance(believed.parameters[0].prior, Prior)
    assert mean_best(Gp(), believed, quadratic, 8) < mean_best(Gp(), SQUARE, quadratic, 8)


def test_a_long_search_is_fitted_to_a_bounded_history(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.searchers.gp import searcher as module

    sizes = []

    class Counting(GaussianProcess):
        def __init__(self, points: Any, *others: Any) -> None:
            sizes.append(len(points))
            super().__init__(points, *others)

    monkeypatch.setattr(module, "GaussianProcess", Counting)
    searcher = build(SQUARE, max_history=50)
    for i in range(120):
        searcher.register(str(i), {"x": i / 30 - 2, "y": 1.0})
        searcher.on_end(str(i), 1, (float(i),))
    assert searcher.suggest("next") is not None
    assert sizes == [50]
    assert len(pickle.dumps(searcher)) < 200_000


@pytest.mark.parametrize("stopping", [True, False])
def test_a_suggestion_looks_at_a_bounded_number_of_trials(monkeypatch: pytest.MonkeyPatch, stopping: bool) -> None:
    """The best trial and those that got furthest stay in view, and the regressions do not learn from who was best."""
    from tuner.searchers.gp import searcher as module

    seen: list[tuple[Any, Any]] = []

    def watched(values: Any, learned: Any) -> Any:
        seen.append((values, learned))
        return extrapolate(values, learned)

    monkeypatch.setattr(module, "extrapolate", watched)
    searcher, rng = build(SQUARE, max_t=9), default_rng(0)
    for i in range(5000):
        searcher.register(str(i), {"x": float(rng.uniform(-2, 2)), "y": 1.0})
        complete = not stopping or i % 50 == 0
        loss = 0.0 if i == 100 else float(rng.uniform(1, 2))
        for step in range(1, 10 if complete else 3):
            searcher.on_report(str(i), step, loss + 1 / step)
        searcher.on_end(str(i), 9 if complete else 2, (loss + (1 / 9 if complete else 1 / 2),))
        if i % 100 == 99:
            assert searcher.suggest(f"next {i}") is not None
            values, learned = seen[-1]
            assert len(values) <= 1500
            assert learned.sum() >= min(i, 1000)
            if i > 100:  # the best trial is at 1, half of all trials below 0
                assert sorted(values[~np.isnan(values[:, -1]), -1])[-2] < 0.6
    assert (~np.isnan(seen[-1][0][:, -1])).sum() >= (100 if stopping else 1000)
    assert max(len(values) for values, _ in seen) > 1400


def test_the_first_trial_is_the_middle_unless_something_is_known() -> None:
    over = space("x: {uniform: [-5, 5]}\nlr: {loguniform: [1e-4, 1e-2]}")
    first = build(over, seed=3).suggest("a")
    assert first == pytest.approx({"x": 0.0, "lr": 1e-3})
    searcher = build(over, seed=3)
    searcher.register("earlier", {"x": 1.0, "lr": 1e-3})
    assert searcher.suggest("a") != pytest.approx({"x": 0.0, "lr": 1e-3})
