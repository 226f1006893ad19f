"""Samplers: how often each class is drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tuner.training.sampling import make_sampler

LABELS = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)


def shares(kind: Any, **more: Any) -> list[float]:
    sampler = make_sampler(LABELS, kind, generator=torch.Generator().manual_seed(1), num_samples=20_000, **more)
    drawn = LABELS[list(sampler)]
    return (torch.bincount(drawn, minlength=3) / len(drawn)).tolist()


def test_uniform_gives_every_sample_once() -> None:
    sampler = make_sampler(LABELS, "uniform", generator=torch.Generator().manual_seed(1))
    order = list(sampler)
    assert sorted(order) == list(range(1000))
    assert order != sorted(order)


def test_balanced_draws_each_class_equally_often() -> None:
    assert shares("balanced") == pytest.approx([1 / 3] * 3, abs=0.015)


def test_weighted_lies_between() -> None:
    roots = [900**0.5, 90**0.5, 10**0.5]
    assert shares("weighted") == pytest.approx([root / sum(roots) for root in roots], abs=0.015)


def test_weights_of_ones_own() -> None:
    assert shares("weighted", weights=[0.0, 1.0, 9.0]) == pytest.approx([0.0, 0.5, 0.5], abs=0.015)


def test_every_sample_of_a_class_is_drawn() -> None:
    sampler = make_sampler(LABELS, "balanced", generator=torch.Generator().manual_seed(1), num_samples=50_000)
    assert set(sampler) == set(range(1000))


@pytest.mark.parametrize("kind", ["uniform", "balanced", "weighted"])
def test_the_generator_decides_and_an_epoch_has_the_length_asked_for(kind: Any) -> None:
    generator = torch.Generator().manual_seed(4)
    sampler = make_sampler(LABELS.tolist(), kind, generator=generator, num_samples=30)
    assert len(list(sampler)) == len(sampler) == 30  # type: ignore[arg-type]
    state = generator.get_state()
    first, second = list(sampler), list(sampler)
    assert first != second
    generator.set_state(state)
    assert [list(sampler), list(sampler)] == [first, second]


def test_without_a_number_an_epoch_is_as_long_as_the_data() -> None:
    assert len(list(make_sampler(LABELS, "balanced", generator=torch.Generator()))) == 1000


def test_a_class_number_without_samples_is_left_out() -> None:
    drawn = list(make_sampler([0, 3, 3], "balanced", generator=torch.Generator().manual_seed(0), num_samples=2000))
    assert drawn.count(0) / 2000 == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "fair"}, "kind: 'fair'; allowed: uniform, balanced, weighted"),
        ({"labels": []}, "labels: "),
        ({"labels": [0.5]}, "labels: "),
        ({"labels": [-1, 0]}, "labels: -1"),
        ({"num_samples": 0}, "num_samples: 0"),
        ({"kind": "balanced", "weights": [1.0] * 3}, "weights: of no use for 'balanced'"),
        ({"weights": [1.0]}, "weights: 1, but the labels have 3 classes"),
        ({"weights": [1.0, -1.0, 1.0]}, "0 or more"),
        ({"weights": [1.0, float("nan"), 1.0]}, "0 or more"),
        ({"weights": [0.0, 0.0, 0.0]}, "above 0"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_sampler(**{"labels": LABELS, "kind": "weighted", "generator": torch.Generator(), **changed})
