"""The early stop: when, and that it survives a resume."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.training.early_stop import PlateauStop

NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "values", "stops"),
    [
        ({"patience": 2}, [3.0, 2.0, 2.0, 2.5], [False, False, False, True]),
        ({"patience": 2}, [3.0, 2.0, 2.5, 1.0, 1.0], [False] * 5),
        ({"patience": 1}, [1.0, 1.0], [False, True]),
        ({"patience": 2, "mode": "max"}, [0.5, 0.6, 0.6, 0.6], [False, False, False, True]),
        ({"patience": 1, "min_delta": 0.1}, [1.0, 0.95], [False, True]),
        ({"patience": 1, "min_delta": 0.1}, [1.0, 0.85], [False, False]),
        ({"patience": 1, "min_delta": 0.25, "mode": "max"}, [1.0, 1.25], [False, True]),
        ({"patience": 2}, [NAN, NAN, 1.0], [False, True, False]),
        ({"patience": 2}, [1.0, NAN, NAN], [False, False, True]),
        ({"patience": 1, "mode": "max"}, [-float("inf"), 0.0], [False, False]),
    ],
)
def test_it_stops_after_the_patience(options: dict[str, Any], values: list[float], stops: list[bool]) -> None:
    stop = PlateauStop(**options)
    assert [stop.update(value) for value in values] == stops


def test_small_gains_are_measured_from_the_best_and_not_from_the_last() -> None:
    stop = PlateauStop(patience=3, min_delta=0.1)
    assert [stop.update(1.0 - 0.06 * k) for k in range(6)] == [False] * 6


def test_a_resumed_one_stops_when_the_first_would_have() -> None:
    values = [3.0, 2.0, 2.1, 2.2, 2.3]
    whole = PlateauStop(patience=3)
    expected = [whole.update(value) for value in values]
    assert expected[-1]
    for cut in range(len(values)):
        first = PlateauStop(patience=3)
        got = [first.update(value) for value in values[:cut]]
        resumed = PlateauStop(patience=3)
        resumed.load_state_dict(first.state_dict())
        assert got + [resumed.update(value) for value in values[cut:]] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience: 0"),
        ({"patience": 1, "min_delta": -1.0}, "min_delta: -1.0"),
        ({"patience": 1, "min_delta": NAN}, "min_delta: nan"),
        ({"patience": 1, "mode": "up"}, "mode: 'up'; allowed: min, max"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlateauStop(**options)
