"""BOHB's searcher: its densities, what it takes for good at which fidelity, and that it learns."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.integrate import trapezoid

from tests.searchers.objectives import MIXED, SQUARE, build, mean_best, mixed, quadratic, search
from tests.spaces import space
from tuner.searchers.bohb.kernel_density import KernelDensity
from tuner.searchers.bohb.searcher import Bohb
from tuner.searchers.observations import Observations
from tuner.searchers.random import Random
from tuner.spec.space import Space
from tuner.spec.space.constraints import read_constraint
from tuner.spec.space.prior import Prior

NAN = math.nan


class TestDensity:
    def test_of_numbers_integrates_to_1_even_at_the_edge(self) -> None:
        density = KernelDensity(np.array([[0.0], [0.97]]), (0,), np.array([0.1]))
        x = np.linspace(0, 1, 2001)
        assert trapezoid(np.exp(density.log_density(x[:, None])), x) == pytest.approx(1, abs=1e-4)

    def test_of_categories_is_that_of_aitchison_and_aitken(self) -> None:
        density = KernelDensity(np.array([[0.125], [0.125], [0.625]]), (4,), np.array([0.3]))
        shares = np.exp(density.log_density(np.array([[0.125], [0.375], [0.625], [0.875]]))) / 4
        assert shares == pytest.approx([(2 * 0.7 + 0.1) / 3, 0.1, (0.7 + 2 * 0.1) / 3, 0.1])

    def test_ignores_what_either_of_two_points_lacks(self) -> None:
        density = KernelDensity(np.array([[0.2, NAN], [0.2, 0.5]]), (0, 0), np.array([0.1, 0.05]))
        alone = KernelDensity(np.array([[0.2]]), (0,), np.array([0.1]))
        lacking, near, far = density.log_density(np.array([[0.3, NAN], [0.3, 0.5], [0.3, 0.99]]))
        expected = alone.log_density(np.array([[0.3]]))[0]
        assert lacking == pytest.approx(expected)
        assert near > expected
        assert far == pytest.approx(expected - math.log(2))  # the point that lacks it holds half of the weight

    @pytest.mark.parametrize("categories", [0, 3])
    def test_a_choice_that_is_absent_counts_as_a_number_that_is(self, categories: int) -> None:
        points = np.array([[0.2, NAN], [0.2, 0.5]])
        density = KernelDensity(points, (0, categories), np.array([0.1, 0.05]))
        alone = KernelDensity(points[:, :1], (0,), np.array([0.1]))
        x = np.array([[0.3, NAN], [0.7, NAN]])
        assert density.log_density(x) == pytest.approx(alone.log_density(x[:, :1]))

    def test_over_a_conditional_choice_it_integrates_to_1(self) -> None:
        """Two branches of equal mass under the domain: one has the choice of three, the other lacks it."""
        density = KernelDensity(np.array([[0.25, NAN], [0.75, 0.5]]), (2, 3), np.array([0.2, 0.1]))
        with_it = np.exp(density.log_density(np.array([[0.75, (k + 0.5) / 3] for k in range(3)])))
        without = np.exp(density.log_density(np.array([[0.25, NAN]])))
        assert with_it.mean() / 2 + without[0] / 2 == pytest.approx(1)

    def test_bandwidths_follow_the_normal_reference_rule(self) -> None:
        points = default_rng(0).random((50, 2))
        density = KernelDensity.fit(points, (0, 0), doubt=0, min_bandwidth=1e-3)
        assert density.bandwidths == pytest.approx(1.06 * points.std(axis=0) * 50 ** (-1 / 6))

    def test_few_points_close_together_are_not_believed_many_are(self) -> None:
        few = KernelDensity.fit(np.full((3, 1), 0.5), (0,), doubt=2, min_bandwidth=1e-3)
        many = KernelDensity.fit(np.full((300, 1), 0.5), (0,), doubt=2, min_bandwidth=1e-3)
        assert few.bandwidths[0] > 0.1
        assert many.bandwidths[0] < 0.02
        assert KernelDensity.fit(np.full((3, 1), 0.5), (0,), doubt=0, min_bandwidth=0.01).bandwidths[0] == 0.01

    def test_a_single_point_makes_all_categories_alike(self) -> None:
        density = KernelDensity.fit(np.array([[0.5]]), (3,), doubt=2, min_bandwidth=1e-3)
        assert density.log_density(np.array([[1 / 6], [0.5], [5 / 6]])) == pytest.approx([0, 0, 0])

    def test_draws_have_the_density(self) -> None:
        density = KernelDensity(np.array([[0.05, 0.5], [0.8, NAN]]), (0, 2 + 1), np.array([0.1, 0.2]))
        drawn = density.sample(default_rng(0), 20_000, factor=1.0)
        assert np.all((drawn >= 0) & (drawn <= 1))
        counts, edges = np.histogram(drawn[:, 0], bins=20, range=(0, 1))
        centres = (edges[:-1] + edges[1:]) / 2
        marginal = KernelDensity(density.points[:, :1], (0,), density.bandwidths[:1])
        assert counts / 1000 == pytest.approx(np.exp(marginal.log_density(centres[:, None])), abs=0.2)
        categories = np.floor(drawn[:, 1] * 3)
        assert (categories == 1).mean() == pytest.approx((0.8 + 1 / 3) / 2, abs=0.02)


class TestObservations:
    def test_the_model_is_of_the_highest_fidelity_with_enough_trials(self) -> None:
        seen = Observations(max_t=9, enough=4)
        for trial in range(8):
            seen.start(trial)
            seen.report(trial, 1, trial)
        assert seen.split(2, 0.15, default_rng(0)) == ([0, 1], [2, 3, 4, 5, 6, 7])
        for trial in (7, 6, 5):
            seen.report(trial, 3, -trial)
        assert seen.split(2, 0.15, default_rng(0)) == ([0, 1], [2, 3, 4, 5, 6, 7])
        seen.report(4, 3, -4)
        assert seen.split(2, 0.15, default_rng(0)) == ([7, 6], [5, 4])

    def test_failed_trials_are_worse_than_all_others(self) -> None:
        seen = Observations(max_t=9, enough=4)
        for trial in range(7):
            seen.start(trial)
        seen.end(0, 1, -100)  # stopped below b, but better than all at b: nothing is known of it
        for trial in range(1, 6):
            seen.report(trial, 3, trial)
        seen.fail(1)
        seen.fail(6)
        assert seen.split(2, 0.15, default_rng(0)) == ([2, 3], [4, 5, 1, 6])

    def test_trials_that_halt_below_the_fidelity_are_bad_until_they_run_again(self) -> None:
        seen = Observations(max_t=9, enough=4)
        for trial in range(8):
            seen.start(trial)
            seen.report(trial, 1, 10 + trial)
        seen.end(0, 1, 10)
        seen.pause(1, 1, 11)
        for trial in range(4, 8):
            seen.report(trial, 3, trial)
        assert seen.split(2, 0.15, default_rng(0)) == ([4, 5], [6, 7, 0, 1])
        seen.resume(1)
        assert seen.split(2, 0.15, default_rng(0)) == ([4, 5], [6, 7, 0])
        seen.report(1, 3, 3.5)
        seen.pause(1, 3, 3.5)  # at the fidelity: by its rank there
        assert seen.split(2, 0.15, default_rng(0)) == ([1, 4], [5, 6, 7, 0])
        seen.resume(1)
        seen.fail(1)
        assert seen.split(2, 0.15, default_rng(0)) == ([4, 5], [6, 7, 1, 0])

    def test_failures_can_leave_too_few(self) -> None:
        seen = Observations(max_t=9, enough=4)
        for trial in range(4):
            seen.start(trial)
            seen.report(trial, 1, trial)
        seen.fail(2)
        assert seen.split(2, 0.15, default_rng(0)) is None

    def test_a_repeated_step_replaces_the_first(self) -> None:
        seen = Observations(max_t=None, enough=4)
        for trial in range(4):
            seen.start(trial)
            seen.report(trial, 1, trial)
        seen.report(0, 1, 10)
        assert seen.split(2, 0.15, default_rng(0)) == ([1, 2], [3, 0])

    def test_without_max_t_a_trial_is_complete_when_it_ends(self) -> None:
        seen = Observations(max_t=None, enough=4)
        for trial in range(5):
            seen.start(trial)
            seen.report(trial, 8, -trial)
        for trial in range(4):
            seen.end(trial, 5 + trial, trial)
        assert seen.split(2, 0.15, default_rng(0)) == ([0, 1], [2, 3])

    def test_a_step_beyond_max_t_is_max_t(self) -> None:
        seen = Observations(max_t=3, enough=4)
        for trial in range(4):
            seen.start(trial)
            seen.end(trial, 3 + trial, trial)
        assert seen.split(2, 0.15, default_rng(0)) == ([0, 1], [2, 3])

    def test_good_is_the_share_gamma_of_many(self) -> None:
        seen = Observations(max_t=1, enough=4)
        for trial in range(1000):
            seen.start(trial)
            seen.end(trial, 1, trial)
        split = seen.split(3, 0.15, default_rng(0))
        assert split is not None
        good, others = split
        assert good == list(range(150))
        assert len(others) == len(set(others)) == 256
        assert min(others) >= 150
        assert statistics.mean(others) == pytest.approx(575, abs=50)


def test_finds_the_optimum_where_random_search_does_not() -> None:
    assert mean_best(Bohb(), SQUARE, quadratic, 60) < 0.3 * mean_best(Random(), SQUARE, quadratic, 60)


def test_learns_logarithms_integers_categories_and_conditions() -> None:
    assert mean_best(Bohb(), MIXED, mixed, 60) < 0.5 * mean_best(Random(), MIXED, mixed, 60)


def test_maximises_too() -> None:
    found = search(build(Bohb(), SQUARE, mode="max"), lambda c: -quadratic(c), 60)
    assert statistics.mean(map(quadratic, found[30:])) < statistics.mean(map(quadratic, found[:5]))


def test_without_random_draws_every_suggestion_follows_the_model() -> None:
    found = search(build(Bohb(random_fraction=0), SQUARE), quadratic, 60)
    assert statistics.median(map(quadratic, found[40:])) < 2


def test_a_low_fidelity_guides_until_a_higher_one_is_known() -> None:
    """Low fidelity says x = 4, high fidelity says x = -4."""
    searcher = build(Bohb(random_fraction=0), SQUARE, max_t=9)
    for i in range(30):
        configuration = searcher.suggest(str(i))
        assert configuration is not None
        searcher.on_report(str(i), 1, abs(configuration["x"] - 4))
    low = [searcher.suggest(f"low{i}") for i in range(10)]
    for i in range(30, 90):
        configuration = searcher.suggest(str(i))
        assert configuration is not None
        searcher.on_report(str(i), 1, abs(configuration["x"] - 4))
        searcher.on_end(str(i), 9, (abs(configuration["x"] + 4),))
    high = [searcher.suggest(f"high{i}") for i in range(10)]
    assert statistics.median(c["x"] for c in low if c) > 2
    assert statistics.median(c["x"] for c in high if c) < -2


def test_adopted_configurations_are_learned_from() -> None:
    searcher = build(Bohb(random_fraction=0), SQUARE)
    rng = default_rng(1)
    for i in range(40):
        configuration = SQUARE.sample(rng)
        searcher.register(str(i), configuration)
        searcher.on_end(str(i), 1, (quadratic(configuration),))
    suggested = [searcher.suggest(f"new{i}") for i in range(20)]
    assert statistics.median(quadratic(c) for c in suggested if c) < 8  # of a random one: about 18


def test_proposes_only_what_the_constraints_allow() -> None:
    constraint = read_constraint("x + y <= 0", [("x",), ("y",)], {})
    over = replace(SQUARE, constraints=(constraint,))
    found = search(build(Bohb(), over), quadratic, 60)
    assert all(c["x"] + c["y"] <= 0 for c in found)
    assert min(map(quadratic, found)) < 1.5  # 0.5 is the least that is allowed


def believe(x: float, y: float) -> Space:
    values = {"x": x, "y": y}
    return replace(SQUARE, parameters=tuple(replace(p, prior=Prior(values[p.name], "high")) for p in SQUARE.parameters))


def test_a_right_prior_helps_and_a_wrong_one_is_forgotten() -> None:
    right, none, wrong = (mean_best(Bohb(), over, quadratic, 20) for over in (believe(2, -1), SQUARE, believe(-4, 4)))
    assert right < none / 2
    chance = mean_best(Random(), SQUARE, quadratic, 60)
    assert mean_best(Bohb(), believe(-4, 4), quadratic, 60) < chance / 2
    assert wrong > right


def test_a_space_without_free_parameters_has_one_configuration() -> None:
    fixed = space("x: 1\ny: text")
    assert search(build(Bohb(), fixed), lambda c: 0.0, 12) == [{"x": 1, "y": "text"}] * 12


def test_what_is_fitted_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    fit = KernelDensity.fit.__func__  # type: ignore[attr-defined]

    def record(cls: type[KernelDensity], points: Any, *rest: Any) -> KernelDensity:
        sizes.append(len(points))
        return fit(cls, points, *rest)

    monkeypatch.setattr(KernelDensity, "fit", classmethod(record))
    searcher = build(Bohb(random_fraction=0), SQUARE)
    rng = default_rng(0)
    for i in range(2500):
        configuration = SQUARE.sample(rng)
        searcher.register(str(i), configuration)
        searcher.on_end(str(i), 1, (quadratic(configuration),))
    searcher.suggest("next")
    assert sizes == [256, 256]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("random_fraction", 1.5),
        ("top_n_percent", 0),
        ("top_n_percent", 100),
        ("num_samples", 0),
        ("min_bandwidth", 0),
        ("bandwidth_factor", math.inf),
    ],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        Bohb.model_validate({option: value})
