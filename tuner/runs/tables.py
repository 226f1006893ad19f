"""Reads the tables of a run folder back, whoever wrote them: its trials, their reports, lineage and failures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from tuner.runs.commands import Commanded
from tuner.runs.consumption import COLUMNS, Consumption, consumption_of
from tuner.runs.csv_codec import decode
from tuner.runs.events import Compared
from tuner.runs.failure import Failure
from tuner.runs.file_shapes import (
    MAX_SECONDS,
    MAX_STEP,
    MAX_TIMESTAMP,
    ByPeople,
    Failures,
    Segments,
    checked,
    inside,
    is_id,
)
from tuner.runs.reports_frame import FIXED
from tuner.runs.results import ResultSet
from tuner.runs.trial import Origin, Report, Segment, Status, Trial

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_GROUPS = 60
"""Upper bound on the nesting of a configuration."""

_UNPACKS_TO = 32
"""Upper bound on what a byte of results.parquet may unpack to, beyond `_FREE_BYTES`: pages of real runs hold numbers
that hardly compress."""

_FREE_BYTES = 2**26

_COLUMNS = ("id", "number", "status", "reason", "rung", "best_step", "seconds", "checkpoint")
"""Of trials.csv."""


def read_trials(results: ResultSet, text: str) -> list[tuple[Trial, Report]]:
    """Adds the trials of trials.csv. Returns the best report of each, if the file has it. Raises ValueError, csv.Error.

    Such a report has its objectives, and no time.
    """
    bests = []
    compared = Compared(Compared.by(results.spec).values)
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or [])]:
        raise ValueError(f"it has no column {missing[0]}")
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"line for trial {row.get('id')!r} has not as many cells as the heading")
        trial = _trial(row)
        if results.get(trial.id) is not None:
            raise ValueError(f"trial {trial.id!r} has two lines")
        results.add(trial)
        if row["best_step"]:
            bests.append((trial, _best(compared, row)))
    return bests


def _trial(row: Mapping[str, str]) -> Trial:
    name, number, status = row["id"], int(row["number"]), row["status"]
    if not is_id(name):
        raise ValueError(f"{name!r} is not the id of a trial")
    if status not in get_args(Status):
        raise ValueError(f"status {status!r} of trial {name!r} is unknown")
    if not 1 <= number <= MAX_STEP:
        raise ValueError(f"trial {name!r} has the number {number}")
    reason, rung = str(decode(row["reason"])) if row["reason"] else "", _step(row["rung"]) if row["rung"] else None
    micro_batch = _step(row.get("micro_batch") or 0) or None
    host = row.get("host", "")
    return Trial(name, number, _config(row), status, reason, rung, micro_batch=micro_batch, host=host)  # type: ignore[arg-type]


def _config(row: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for column, cell in row.items():
        if not column.startswith("config.") or not cell:
            continue
        *groups, name = column.removeprefix("config.").split(".", _MAX_GROUPS)
        target = config
        for group in groups:
            target = target.setdefault(group, {})
            if not isinstance(target, dict):
                raise ValueError(f"{column} lies in {group}, which is a value")
        target[name] = decode(cell)
    return config


def _best(compared: Compared, row: Mapping[str, str]) -> Report:
    values = {
        name.removeprefix("best_"): float(cell) for name, cell in row.items() if name.startswith("best_") and cell
    }
    if wrong := compared.wrong(values):
        raise ValueError(f"trial {row['id']!r} has no finite best_{wrong}, an objective of experiment.yaml")
    return Report(
        row["id"],
        _step(row["best_step"]),
        _seconds(float(row["seconds"] or 0)),
        math.nan,
        values,
        inside(row["checkpoint"]) if row["checkpoint"] else None,
    )


def _step(value: int | str) -> int:
    step = int(value)
    if not 0 <= step <= MAX_STEP:
        raise ValueError(f"{step} is not the number of a report")
    return step


def _seconds(value: float) -> float:
    if not 0 <= value <= MAX_SECONDS:
        raise ValueError(f"{value} is not a running time in seconds")
    return value


def read_reports(results: ResultSet, data: bytes) -> None:
    """Adds the reports of results.parquet to the trials that ``results`` holds. Raises ValueError."""
    import pyarrow as pa

    try:
        table = _unpacked(data)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise ValueError(str(error)) from None
    if not table.num_rows:  # of no report the writer knows no kind
        return
    compared = Compared.by(results.spec)
    _check_columns(compared, table)
    metrics = [name for name in table.column_names if name not in FIXED and name not in COLUMNS]
    columns = [_values(table[name]) for name in (*FIXED, *metrics)]
    consumed = _consumed(table)
    for i, (trial_id, step, seconds, timestamp, checkpoint, *values) in enumerate(zip(*columns, strict=True)):
        trial = results.get(trial_id)
        if trial is None:
            continue
        if step is None or not trial.steps < step <= MAX_STEP:
            raise ValueError(f"trial {trial_id!r} has a report {step} after its report {trial.steps}")
        if seconds is None or not 0 <= seconds <= MAX_SECONDS:
            raise ValueError(f"report {step} of trial {trial_id!r} came after {seconds} seconds")
        if timestamp is None or not (0 <= timestamp <= MAX_TIMESTAMP or math.isnan(timestamp)):
            raise ValueError(f"report {step} of trial {trial_id!r} came at {timestamp} seconds since 1970")
        known = {name: v for name, v in zip(metrics, values, strict=True) if v is not None and v == v}
        if wrong := compared.wrong(known):
            told = f"{known[wrong]!r} as {wrong}" if wrong in known else f"no {wrong}"
            raise ValueError(f"report {step} of trial {trial_id!r} has {told}, by which reports are compared")
        kept = None if checkpoint is None else inside(checkpoint)
        trial.reports.append(Report(trial_id, step, seconds, timestamp, known, kept, consumed[i] if consumed else None))


def _consumed(table: pa.Table) -> list[Consumption | None]:
    """What was consumed up to each report; empty if the table has no such columns. Raises ValueError."""
    columns = [name for name in COLUMNS if name in table.column_names]
    found: list[Consumption | None] = []
    for row in zip(*(table[name].to_pylist() for name in columns), strict=True):
        values = zip(columns, row, strict=True)
        told = {COLUMNS[column]: value for column, value in values if value is not None and value == value}
        consumed = consumption_of(told) if told else None
        found.append(found[-1] if found and found[-1] == consumed else consumed)  # many have it in common
    return found


def _unpacked(data: bytes) -> pa.Table:
    """The table of a parquet file, after a look at what it would unpack to."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(pa.BufferReader(data)) as file:
        told, texts = file.metadata, [f.name for f in file.schema_arrow if _is_text(f.type)]
        size = sum(told.row_group(i).total_byte_size for i in range(told.num_row_groups))
        most = _FREE_BYTES + _UNPACKS_TO * len(data)
        if not 0 <= told.num_rows <= len(data):  # a time of its own takes more than a byte
            raise ValueError(f"{len(data)} bytes say that they hold {told.num_rows} reports")
        if not 0 <= size <= most:
            raise ValueError(f"{len(data)} bytes say that they unpack to {size}")
    with ParquetFile(pa.BufferReader(data), read_dictionary=texts) as file:  # each text once, however often it comes
        # A thread of Arrow's may hold ``data`` for longer than this, and then end the process by SIGABRT at its exit.
        return file.read(use_threads=False)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _check_columns(compared: Compared, table: pa.Table) -> None:
    import pyarrow as pa

    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    if len(kinds) < table.num_columns:
        raise ValueError("two columns have the same name")
    if missing := [name for name in FIXED if name not in kinds]:
        raise ValueError(f"it has no column {missing[0]}")
    numbers = ["training_iteration", "time_total_s", "timestamp", *compared.values, *COLUMNS]
    for name, kind in kinds.items():
        if name in ("trial_id", "checkpoint") and not _is_text(kind):
            raise ValueError(f"the column {name} holds {kind}, not text")
        if name in numbers and not (_is_number(kind) or (name not in FIXED and pa.types.is_boolean(kind))):
            raise ValueError(f"the column {name} holds {kind}, not numbers")
        if not (_is_text(kind) or _is_number(kind) or pa.types.is_boolean(kind)):
            raise ValueError(f"the column {name} holds {kind}, which is not a metric")
    if not pa.types.is_integer(kinds["training_iteration"]):
        raise ValueError("the column training_iteration holds no whole numbers")


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As Python's own; texts of a dictionary are shared."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    found: list[Any] = []
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        found += [None if i is None else words[i] for i in chunk.indices.to_pylist()]
    return found


def read_lineage(results: ResultSet, content: Any) -> None:
    """Adds the segments of lineage.json to their trials. Raises ValueError."""
    found = {name: [Segment(**dict(s)) for s in segments] for name, segments in checked(Segments, content).items()}
    for name, segments in found.items():
        if any(results.get(each) is None for each in (name, *(s.donor for s in segments)) if each is not None):
            raise ValueError(f"the segment of trial {name!r} names a trial that trials.csv does not have")
        if segments and segments[0].after != 0:
            raise ValueError(f"the segment of trial {name!r} has no beginning")
    _check_ends(found)
    for name, segments in found.items():
        results.trial(name).segments = segments


def _check_ends(courses: Mapping[str, list[Segment]]) -> None:
    """Raises ValueError if a trial continues from itself, over others: the way back over donors has no end."""
    ends: set[tuple[str, int]] = set()
    for name, segments in courses.items():
        for k in range(len(segments)):
            at, path = (name, k), {(name, k)}
            while at not in ends and (donor := courses[at[0]][at[1]].donor) is not None:
                theirs, step = courses.get(donor, []), courses[at[0]][at[1]].donor_step
                before = [i for i, segment in enumerate(theirs) if segment.after < step]
                if not before:
                    break
                at = donor, before[-1]
                if at in path:
                    raise ValueError(f"trial {donor!r} continues from its own checkpoint of a later report")
                path.add(at)
            ends |= path


def read_failures(results: ResultSet, content: Any) -> None:
    """Adds the failed attempts of failures.json to their trials. Raises ValueError."""
    for trial_id, entries in checked(Failures, content).items():
        if trial := results.get(trial_id):
            trial.failures = [Failure(**dict(entry)) for entry in entries]
            reduced = [failure.micro_batch for failure in trial.failures if failure.micro_batch is not None]
            trial.micro_batch = reduced[-1] if reduced else trial.micro_batch


def read_by_people(results: ResultSet, content: Any) -> None:
    """Adds what commands.json tells: the commands, and of added trials where they come from. Raises ValueError."""
    told = checked(ByPeople, content)
    results.commands = [Commanded(**dict(entry) | {"trials": tuple(entry.trials)}) for entry in told.commands]
    for trial_id, origin in told.origins.items():
        if trial := results.get(trial_id):
            trial.origin = Origin(**dict(origin))
