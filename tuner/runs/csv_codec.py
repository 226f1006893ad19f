"""How values are kept in the tables of a run folder, so that they are read back the same."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tuner.storage.untrusted_json import parsed

if TYPE_CHECKING:
    import pandas as pd


_FORMULA = "=+-@"
"""Text that begins with one of these is a formula to a spreadsheet, which may send what it finds elsewhere."""


def encode(value: Any) -> str:
    """Text of a configuration value, from which `decode` reads the same value again."""
    if isinstance(value, str):
        plain = value and value[0] not in _FORMULA and decode(value) == value and value.isprintable()
        return value if plain else json.dumps(value)
    return json.dumps(value, default=repr)


def decode(text: str) -> Any:
    """The configuration value that a cell of trials.csv holds."""
    try:
        return parsed(text)
    except ValueError:
        return text


def _fits(value: Any) -> bool:
    """Whether a float can stand for the number."""
    return not isinstance(value, int) or value.bit_length() < sys.float_info.max_exp


def to_series(values: list[Any]) -> pd.Series[Any]:
    """A column that keeps whole numbers whole where some are missing, and is text where kinds are mixed."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return pd.Series(values, dtype="str")
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean" if None in values else "bool")
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return pd.Series(values, dtype="Int64" if None in values else "int64")
    if kinds <= {int, float} and all(map(_fits, values)):
        return pd.Series(values, dtype="float64")
    return pd.Series([None if value is None else str(value) for value in values], dtype="str")
