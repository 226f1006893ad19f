"""Metrics for rare classes, beside scikit-learn's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn import metrics as peer

from tuner.training.metrics import balanced_accuracy, confusion, macro_f1


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.tensor([0.8, 0.15, 0.05, 0.0]), 60, replacement=True, generator=generator)
    labels = torch.cat([labels, torch.tensor([0, 1, 2])])  # class 3 never is a label
    guesses = torch.randint(0, 3, labels.shape, generator=generator)
    given = torch.where(torch.rand(labels.shape, generator=generator) < 0.6, labels, guesses)
    assert balanced_accuracy(given, labels, 4) == pytest.approx(peer.balanced_accuracy_score(labels, given))
    assert macro_f1(given.tolist(), labels.tolist(), 4) == pytest.approx(peer.f1_score(labels, given, average="macro"))
    assert confusion(given, labels, 4).tolist() == peer.confusion_matrix(labels, given, labels=range(4)).tolist()


def test_a_class_that_is_predicted_and_never_right_counts_in_f1() -> None:
    labels, given = [0, 0, 1], [0, 2, 1]
    assert macro_f1(given, labels, 3) == pytest.approx(peer.f1_score(labels, given, average="macro"))
    assert balanced_accuracy(given, labels, 3) == pytest.approx(0.75)


@pytest.mark.parametrize("metric", [balanced_accuracy, macro_f1])
@pytest.mark.parametrize(
    ("given", "labels"),
    [([], []), ([0], [0, 1]), ([[0]], [[0]]), ([0, 2], [0, 1]), ([0, 1], [0, -1]), ([0.5, 1.0], [0, 1])],
)
def test_bad_input_is_refused(metric: Any, given: Any, labels: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        metric(given, labels, 2)
