"""Text in a table is read back the same, and is no formula to a spreadsheet."""

from __future__ import annotations

import pytest

from tuner.runs.csv_codec import decode, encode, to_series


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+1", "-a", "@SUM(1)", "a", "", "1", "null", '"q"', "a\nb", "-1"])
def test_text_is_read_back_and_is_no_formula(text: str) -> None:
    assert decode(encode(text)) == text
    assert encode(text)[0] not in "=+-@"


@pytest.mark.parametrize("value", [-1, -0.5, [1, "=x"], {"a": None}, True])
def test_other_values_are_read_back(value: object) -> None:
    assert decode(encode(value)) == value


def test_a_column_of_numbers_that_no_float_can_hold_is_text() -> None:
    assert to_series([0.5, 10**400]).tolist() == ["0.5", str(10**400)]
    assert to_series([0.5, 10**300]).tolist() == [0.5, 1e300]
