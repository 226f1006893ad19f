"""Tabulated learning curves: what a trial reports, and when, without training anything.

The format: a parquet file with one row for each configuration at each fidelity, in any order, and the columns

- one for each parameter of the search space that is chosen, by its dotted name (``model.width``). It is empty if a
  condition makes it inactive. A value that is a list or a mapping, or in a column of mixed kinds, is written as JSON;
- the fidelity, such as ``epoch``: whole numbers above 0, the same ones for every configuration;
- every metric that an experiment may ask for: finite numbers;
- ``seconds``: how long a trial had been running when it reported this row: cumulative, never falling;
- ``measured`` (optional): false where the row was not measured but carried on from the last one that was.

All other columns are ignored. A configuration that is not in the table is answered with the nearest one in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError, Place, Problem
from tuner.runs.csv_codec import decode, encode
from tuner.simulator.curves import Curves
from tuner.spec.configuration import Configuration
from tuner.spec.document import read_yaml
from tuner.spec.objective import Mode
from tuner.spec.space import Choice, Integer, Parameter, Space, at, read_space
from tuner.spec.values import is_number, to_inline_yaml, value_key

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

SECONDS, MEASURED = "seconds", "measured"
"""Names of columns."""

_BEYOND = 1e-6
"""How far a configuration may lie outside of the space, in its unit cube: float32 columns round the bounds."""


@dataclass(frozen=True, eq=False)
class Table(Curves):
    """Learning curves of some configurations of ``space``, all over the same fidelities.

    Example:
        >>> import pandas
        >>> from tuner import Table
        >>> from tuner.testing import space_of
        >>> frame = pandas.DataFrame({"lr": [1, 1, 2, 2], "epoch": [1, 2, 1, 2], "loss": [3.0, 2.0, 4.0, 1.0],
        ...                           "seconds": [1.0, 2.0, 1.0, 2.0]})
        >>> table = Table.of(frame, space_of({"lr": {"choice": [1, 2]}}), metric="loss", fidelity="epoch")
        >>> table.configurations, table.fidelities
        (({'lr': 1}, {'lr': 2}), (1, 2))
    """

    what = "table"
    name: str
    space: Space
    metric: str
    fidelity: str
    """Name of the column that counts progress."""
    configurations: tuple[Configuration, ...]
    fidelities: tuple[int, ...]
    """Ascending."""
    values: NDArray[np.float64]
    """The metric: one row a configuration, one column a fidelity."""
    seconds: NDArray[np.float64]
    """Cumulative running time, in the same shape."""
    measured: float
    """The share of rows that were measured, and not carried on from earlier ones."""
    _points: NDArray[np.float64]
    """Each configuration in the unit cube: one column a free parameter, NaN if it is inactive."""
    _categorical: NDArray[np.bool_]
    """Which columns of ``_points`` stand for categories."""

    @classmethod
    def read(cls, path: str | Path, space: Space | str | Path, metric: str, fidelity: str) -> Table:
        """Reads and checks a parquet file.

        Args:
            path: The file: a row for each configuration and fidelity, with the columns of the space's parameters, of
                ``fidelity``, of ``metric``, and ``seconds``, the running time up to then.
            space: The search space, or the path of its YAML file.
            metric: Name of the column of the objective.
            fidelity: Name of the column that counts progress, such as ``epoch``; whole numbers.

        Returns:
            The table.

        Raises:
            InputError: The file cannot be read, or a column is missing or wrong; it names everything that is.
        """
        from pyarrow.parquet import ParquetFile

        space = space if isinstance(space, Space) else _read_space(Path(space))

        try:
            with ParquetFile(path) as file:  # opened by Arrow: pandas gives its threads a file of Python's to hold
                frame = file.read(use_threads=False).to_pandas()
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such table") from None
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"{path}: this is not a readable parquet file: {reason}") from None
        return cls.of(frame, space, metric, fidelity, str(path))

    @classmethod
    def of(cls, frame: pd.DataFrame, space: Space, metric: str, fidelity: str, source: str = "<table>") -> Table:
        """The table that a dataframe holds.

        Args:
            frame: What `read` takes as a file.
            space: The search space.
            metric: Name of the column of the objective.
            fidelity: Name of the column that counts progress.
            source: Where the frame is from, for messages.

        Returns:
            The table.

        Raises:
            InputError: A column is missing or wrong; it names everything that is.
        """
        import numpy as np

        def refuse(found: list[tuple[str, str]]) -> None:
            if found:
                raise InputError([Problem(Place(source), key, message) for key, message in found])

        free = list(space.free)
        refuse(list(_missing_columns(frame, [p.name for p in free], metric, fidelity)))
        refuse(list(_wrong_numbers(frame, metric, fidelity)))
        frame = _plain_cells(frame, [p.name for p in free])
        curve = _curve_numbers(frame, [p.name for p in free])
        frame = frame.reset_index(drop=True).assign(**{_CURVE: curve}).sort_values([_CURVE, fidelity], kind="stable")
        refuse(list(_wrong_curves(frame, metric, fidelity)))
        fidelities = tuple(sorted(int(step) for step in frame[fidelity].unique()))
        firsts = frame.iloc[:: len(fidelities)]
        configurations = [_configuration(space, record) for record in firsts.to_dict("records")]
        refuse(list(_outsiders(space, configurations)))
        shape = len(configurations), len(fidelities)
        return cls(
            name=Path(source).stem,
            space=space,
            metric=metric,
            fidelity=fidelity,
            configurations=tuple(configurations),
            fidelities=fidelities,
            values=frame[metric].to_numpy(np.float64).reshape(shape),
            seconds=frame[SECONDS].to_numpy(np.float64).reshape(shape),
            measured=float(frame[MEASURED].mean()) if MEASURED in frame else 1.0,
            _points=np.array([space.to_unit(c) for c in configurations]).reshape(len(configurations), len(free)),
            _categorical=np.array([isinstance(p.domain, Choice) for p in free], dtype=bool),
        )

    def learning_curve(self, configuration: Configuration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        row = self.nearest(configuration)
        return self.values[row], self.seconds[row]

    @property
    def sample(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All of its rows."""
        return self.values, self.seconds

    def best(self, mode: Mode) -> float:
        return float(self.values.max() if mode == "max" else self.values.min())

    def curve(self, configuration: Configuration) -> list[tuple[int, float, float]]:
        """(fidelity, value, cumulative seconds) of ``configuration``, or of the nearest one, ascending."""
        values, seconds = self.learning_curve(configuration)
        return list(zip(self.fidelities, values.tolist(), seconds.tolist(), strict=True))

    def nearest(self, configuration: Configuration) -> int:
        """The row of `values` for ``configuration``, or for the nearest configuration; of equals the first.

        The distance is Euclidean in the unit cube (`Domain.to_unit`); a category that differs, and a parameter that
        exists in one of the two configurations only, count 1.
        """
        import numpy as np

        point = np.array(self.space.to_unit(configuration))
        gaps = self._points - point
        squares = gaps * gaps
        if self._categorical.any():
            squares[:, self._categorical] = gaps[:, self._categorical] != 0
        if self.space.conditional:
            squares[np.isnan(gaps)] = 1
            inactive = np.isnan(point)
            squares[:, inactive] = ~np.isnan(self._points[:, inactive])
        return int(squares.sum(axis=1).argmin())


def _read_space(path: Path) -> Space:
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: the search space cannot be read: {error.strerror}") from None
    problems: list[Problem] = []
    space = read_space(read_yaml(text, str(path)), (), problems)
    if space is None:
        raise InputError(problems)
    return space


_CURVE = "curve of this row"
"""The column that numbers the configurations while a table is read."""


def _missing_columns(
    frame: pd.DataFrame, parameters: list[str], metric: str, fidelity: str
) -> Iterator[tuple[str, str]]:
    for name in {metric, fidelity, SECONDS} & set(parameters):
        yield name, "is a parameter of the search space, and another column of the table: rename the parameter"
    roles = dict.fromkeys(parameters, "a parameter of the search space")
    roles |= {
        fidelity: "the fidelity: does another column count progress?",
        metric: "the metric of the objective",
        SECONDS: "cumulative running time",
    }
    for name, role in roles.items():
        if name not in frame:
            yield name, f"the table lacks this column ({role}); it has: {', '.join(map(str, frame.columns))}"
    if not len(frame):
        yield "", "the table has no rows"


def _wrong_numbers(frame: pd.DataFrame, metric: str, fidelity: str) -> Iterator[tuple[str, str]]:
    """Cells that are not numbers, or not allowed ones."""
    import numpy as np
    import pandas as pd

    for name, rule in ((metric, "finite"), (SECONDS, "finite, and not negative"), (fidelity, "whole and above 0")):
        if not pd.api.types.is_numeric_dtype(frame[name]) or pd.api.types.is_bool_dtype(frame[name]):
            yield name, f"the column must hold numbers, not {frame[name].dtype}"
            continue
        numbers = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~np.isfinite(numbers)
        if name == SECONDS:
            bad |= numbers < 0
        elif name == fidelity:
            bad |= (numbers < 1) | (numbers != np.floor(numbers))
        if bad.any():
            row = int(bad.argmax())
            rows = f"{bad.sum()} rows are not" if bad.sum() > 1 else "a row is not"
            yield name, f"must be {rule}; {rows} (row {row}: {numbers[row]:g})"
    if MEASURED in frame and not pd.api.types.is_bool_dtype(frame[MEASURED]):
        yield MEASURED, f"the column must hold true and false, not {frame[MEASURED].dtype}"


def _plain_cells(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Lists as JSON, which is how they may be written too, and by which rows can be compared."""
    import numpy as np
    import pandas as pd

    texts = [name for name in names if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(
        **{name: [encode(v.tolist()) if isinstance(v, np.ndarray) else v for v in frame[name]] for name in texts}
    )


def _curve_numbers(frame: pd.DataFrame, parameters: list[str]) -> NDArray[np.int64]:
    """For each row the number of its configuration, in order of appearance."""
    import numpy as np

    if not parameters:
        return np.zeros(len(frame), dtype=np.int64)
    return np.asarray(frame.groupby(parameters, sort=False, dropna=False).ngroup(), dtype=np.int64)


def _wrong_curves(frame: pd.DataFrame, metric: str, fidelity: str) -> Iterator[tuple[str, str]]:
    """The errors in the curves of ``frame``, which is sorted by curve and fidelity."""
    import numpy as np

    steps, curves = frame[fidelity].to_numpy(), frame[_CURVE].to_numpy()
    same = curves[1:] == curves[:-1]
    twice = same & (steps[1:] == steps[:-1])
    if twice.any():
        row = int(twice.argmax())
        where = f"rows {frame.index[row]} and {frame.index[row + 1]}"
        pair = frame.iloc[[row, row + 1]].drop(columns=[metric, SECONDS])
        if differ := [str(name) for name in pair if pair[name].astype(str).nunique() > 1]:
            where += f", which differ in {', '.join(differ)}: is that a parameter that the search space lacks?"
        yield fidelity, f"a configuration has {fidelity} {steps[row]} more than once ({where})"
        return
    grid = np.unique(steps)
    sizes = np.bincount(curves)
    if (sizes < len(grid)).any():
        curve = int((sizes < len(grid)).argmax())
        lost = sorted(set(grid.tolist()) - set(steps[curves == curve].tolist()))
        rows = f"the configuration of row {frame.index[curves == curve][0]}"
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        short = f"{(sizes < len(grid)).sum()} of {len(sizes)} curves are not complete"
        yield fidelity, f"{short}: {rows} has no {fidelity} {lost[0]}{more}; every configuration must have all of them"
    last = np.append(curves[1:] != curves[:-1], True)
    timeless = last & (frame[SECONDS].to_numpy(np.float64) == 0)
    if timeless.any():
        row = frame.index[int(timeless.argmax())]
        yield SECONDS, f"{timeless.sum()} configurations take no time at all (row {row}): time would stand still"
    falls = same & (np.diff(frame[SECONDS].to_numpy(np.float64)) < 0)
    if falls.any():
        row = int(falls.argmax())
        where = f"rows {frame.index[row]} and {frame.index[row + 1]}, {fidelity} {steps[row]} and {steps[row + 1]}"
        yield SECONDS, f"must be cumulative, but they fall from one {fidelity} to the next ({where})"


def _configuration(space: Space, record: Mapping[Any, Any]) -> Configuration:
    """The configuration that a row describes; what cannot be a value of its domain is left as it is."""
    return space.build(lambda parameter: _value(parameter, record[parameter.name]))


def _value(parameter: Parameter, encode: Any) -> Any:
    """The value of ``parameter`` that a cell means: the category that is meant, a whole number as an int."""
    import numpy as np
    import pandas as pd

    plain = encode.item() if isinstance(encode, np.generic) else encode
    if isinstance(parameter.domain, Choice):
        return _category(parameter.domain, None if pd.isna(plain) else plain)
    if isinstance(parameter.domain, Integer) and isinstance(plain, float) and plain.is_integer():
        return int(plain)
    return plain


def _category(domain: Choice, encode: Any) -> Any:
    """The category that a cell means, be it written as JSON, or rounded to float32."""
    readings = [encode, decode(encode)] if isinstance(encode, str) else [encode]
    for category in domain.categories:
        if any(value_key(category) == value_key(reading) for reading in readings):
            return category
        if is_number(encode) and is_number(category) and math.isclose(encode, category, rel_tol=1e-6):
            return category
    return encode


def _outsiders(space: Space, configurations: list[Configuration]) -> Iterator[tuple[str, str]]:
    """One line for each parameter that has values outside of its domain, and one for forbidden configurations."""
    rule = "take these configurations out of the table, or widen the search space"
    sound = True
    for parameter in (p for p in space.parameters if p.free):
        values = [at(c, parameter.path) for c in configurations if _has(c, parameter)]
        outside = [value for value in values if not _inside(parameter, value)]
        if outside:
            sound = False
            count = f"{len(outside)} of {len(configurations)} configurations are outside {parameter.domain}"
            yield parameter.name, f"{count} (such as {to_inline_yaml(outside[0])}): {rule}"
    forbidden = sound and sum(not space.allows(configuration) for configuration in configurations)
    if forbidden:
        yield "constraints", f"{forbidden} of {len(configurations)} configurations break them: {rule}"


def _inside(parameter: Parameter, value: Any) -> bool:
    if parameter.domain.contains(value):
        return True
    if isinstance(parameter.domain, Choice) or not is_number(value) or not math.isfinite(value):
        return False
    try:
        return -_BEYOND <= parameter.domain.to_unit(value) <= 1 + _BEYOND
    except ValueError:  # the logarithm of a number that is not above 0
        return False


def _has(configuration: Configuration, parameter: Parameter) -> bool:
    try:
        at(configuration, parameter.path)
    except KeyError:
        return False
    return True
