"""What a process keeps between trials."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from tuner.training import keep, keeping


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    keeping.drop_all()
    yield
    keeping.drop_all()


def test_a_value_is_made_once_for_a_key() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    assert [keep(("a", 1), lambda: make("a")), keep("b", lambda: make("b")), keep(("a", 1), lambda: make("c"))] == [
        "a",
        "b",
        "a",
    ]
    assert made == ["a", "b"]
    keeping.drop_all()
    assert keep("b", lambda: make("d")) == "d"


def test_what_make_raises_is_not_kept() -> None:
    with pytest.raises(ZeroDivisionError):
        keep("a", lambda: 1 // 0)
    assert keep("a", lambda: 2) == 2


def test_its_random_numbers_follow_from_the_key_and_leave_those_of_the_trial() -> None:
    def draw() -> list[float]:
        return [random.random(), np.random.random(), torch.rand(1).item()]

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    alone = draw()
    seed()
    first = keep("a", draw)
    assert draw() == alone
    keeping.drop_all()
    assert keep("a", draw) == first
    assert keep("b", draw) != first


def in_a_new_process(text: str) -> None:
    """Memory is that of the process: other tests would count."""
    begin = "import numpy as np; from tuner.training import keep, keeping; MIB = 2**20\n"
    subprocess.run([sys.executable, "-c", begin + textwrap.dedent(text)], check=True)


def test_its_memory_counts_as_held() -> None:
    in_a_new_process("""
        keep("a", lambda: np.ones(64 * MIB // 8))
        assert 60 * MIB < keeping.held().host < 80 * MIB, keeping.held()
        assert keeping.held().gpu == 0
    """)


def test_of_what_the_last_trial_did_not_use_the_oldest_are_dropped_beyond_the_limit() -> None:
    in_a_new_process("""
        for name in "abc":
            keep(name, lambda: np.ones(64 * MIB // 8))
        keeping.begin_trial(0, 0)
        assert keeping.held().host > 180 * MIB, keeping.held()  # the trial that made them used them
        keep("a", list)
        keeping.begin_trial(150 * MIB, 0)
        assert [name for name in "abc" if name in keeping._kept] == ["a", "c"]
        keeping.begin_trial(150 * MIB, 0)
        assert "c" in keeping._kept  # there is room for it
    """)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: torch.ones(3), lambda value: value.add_(1)),
        (lambda: {"x": [torch.ones(3)]}, lambda value: value["x"][0].zero_()),
        (lambda: nn.Linear(2, 2), lambda value: nn.init.zeros_(value.weight)),
        (lambda: nn.BatchNorm1d(2), lambda value: value(torch.randn(4, 2))),
    ],
)
def test_what_a_trial_changed_is_made_anew(make: object, change: object) -> None:
    value = keep("a", make)
    untouched = keep("b", make)
    assert keeping.begin_trial(0, 0) == []
    change(keep("a", make))
    assert keep("b", make) is untouched
    assert keeping.begin_trial(0, 0) == ["a"]
    assert keep("a", make) is not value
    assert keep("b", make) is untouched
