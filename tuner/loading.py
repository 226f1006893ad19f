"""Reads a run folder back."""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from tuner.cells import cell_value
from tuner.errors import EnvironmentFailure, InputError, did_you_mean
from tuner.failure import Failure
from tuner.history import journalled
from tuner.journal import JOURNAL, first_event, last_event
from tuner.lock import LOCK
from tuner.results import EXPERIMENT, FAILURES, LINEAGE, PROVENANCE, REPORTS, TRIALS, ResultSet
from tuner.spec.document import read_yaml
from tuner.spec.objective import read_objectives
from tuner.storage import STORAGE, RunFolder
from tuner.trial import Report, Segment, Status, Trial


def is_run(folder: RunFolder) -> bool:
    """Whether a search began there."""
    return folder.exists(EXPERIMENT) or first_event(folder) is not None


def begun(folder: RunFolder) -> bool:
    """Whether ``folder`` holds anything: a run that was killed before its first event left nothing but an empty one."""
    from pyarrow.fs import FileSelector

    if not folder.exists():
        return False
    names = {info.base_name for info in folder.filesystem.get_file_info(FileSelector(folder.path))}
    return bool(names - {LOCK, f"{JOURNAL}.jsonl", ".writable"}) or first_event(folder) is not None


def find_run(run: str | Path, storage: str) -> RunFolder:
    """The folder of ``run``, a path or the name of a run below ``storage``. Raises InputError when there is none."""
    candidates = [RunFolder.at(run)]
    if "://" not in str(run) and "/" not in str(run).rstrip("/"):
        candidates.append(RunFolder.at(storage) / str(run).rstrip("/"))
    for candidate in candidates:
        if is_run(candidate):
            return candidate
    known = [name for name in RunFolder.at(storage).folders() if is_run(RunFolder.at(storage) / name)]
    looked = ", ".join(candidate.shown for candidate in candidates)
    near = difflib.get_close_matches(str(run), known, n=1)
    hint = (
        did_you_mean(str(run), list(dict.fromkeys([*known[-8:], *near])))
        if known
        else f"there are no runs in {storage}"
    )
    raise InputError(f"no run {str(run)!r} (looked at {looked}); {hint}")


def load_run(run: str | Path | RunFolder, storage: str = STORAGE) -> ResultSet:
    """Reads a run folder.

    Raises InputError when there is no such run, EnvironmentFailure when one of its files is missing or damaged.
    """
    results = _read(run if isinstance(run, RunFolder) else find_run(run, storage))
    if results.unreadable:
        raise EnvironmentFailure(results.unreadable[0])
    return results


def last_known(folder: RunFolder, partial: bool = False) -> ResultSet:
    """What is known of a run, also of one that runs or was killed, whose tables are behind its journal.

    The experiment is the journal's: half a YAML file may be a whole one. ``partial``: what can be read will do, and
    `ResultSet.unreadable` says what cannot. Raises EnvironmentFailure where neither the journal nor the files say what
    the run was.
    """
    last = last_event(folder)
    results = _read(folder)
    if last is None:
        if results.unreadable and not (partial and results.spec):
            raise EnvironmentFailure(results.unreadable[0])
        return results
    if last["what"] == "left" and not results.unreadable:
        return results
    history, reader = journalled(folder, results.provenance)
    told = history.results
    told.spec = told.spec or results.spec
    if not told.spec:
        raise EnvironmentFailure(results.unreadable[0])
    told.unreadable = results.unreadable
    if not reader.damage:
        return told
    told.unreadable.append(f"{folder.shown}: the journal: {reader.damage}")
    results.provenance = told.provenance
    behind = sum(len(t.reports) for t in results.trials) <= sum(len(t.reports) for t in told.trials)
    return told if behind or not results.spec else results


def at_a_glance(folder: RunFolder) -> ResultSet:
    """What a run came to, read in milliseconds: of each trial the best report alone.

    As trials.csv has it, which is some seconds behind where the search runs or was killed. `ResultSet.unreadable` says
    what cannot be read.
    """
    return _read(folder, reports=False)


def _read(folder: RunFolder, reports: bool = True) -> ResultSet:
    """What the files of a run folder hold, as far as they can be read; `ResultSet.unreadable` says what cannot.

    Without ``reports``, or where results.parquet cannot be read, trials.csv still tells the best report of each trial.
    """
    problems: list[str] = []

    @contextlib.contextmanager
    def reading(name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            problems.append(f"{folder.shown}: {name} is missing: the run folder is damaged")
        except (ValueError, KeyError, TypeError, csv.Error, InputError, OSError) as error:
            problems.append(f"{folder.shown}: {name} cannot be read: {type(error).__name__}: {error}")

    results = ResultSet(folder, {}, {}, unreadable=problems)
    bests: list[tuple[Trial, Report]] = []
    with reading(EXPERIMENT):
        spec = _checked(read_yaml(folder.read(EXPERIMENT).decode(), EXPERIMENT).value, "objective")
        read_objectives(spec["objective"])
        results.spec = spec
    with reading(PROVENANCE):
        results.provenance = _checked(json.loads(folder.read(PROVENANCE)))
    with reading(TRIALS):
        _read_trials(results, folder.read(TRIALS).decode(), bests)
    whole = False
    if reports:
        with reading(REPORTS):
            _read_reports(results, folder.read(REPORTS))
            whole = True
    if folder.exists(LINEAGE):
        with reading(LINEAGE):
            for trial_id, segments in json.loads(folder.read(LINEAGE)).items():
                results.trial(trial_id).segments = [Segment(**segment) for segment in segments]
    if folder.exists(FAILURES):
        with reading(FAILURES):
            _read_failures(results, json.loads(folder.read(FAILURES)))
    with reading(TRIALS):
        for trial, told in bests:
            trial.reports = trial.reports if whole else [told]
            trial.best = _report_at(trial, told.step)
    return results


def _checked(value: Any, *keys: str) -> dict[str, Any]:
    """``value``, if it is a mapping that holds ``keys``; ValueError otherwise."""
    if not isinstance(value, dict) or not all(key in value for key in keys):
        raise ValueError(f"it must be a mapping{' with ' * bool(keys)}{', '.join(keys)}")
    return value


def _read_trials(results: ResultSet, text: str, bests: list[tuple[Trial, Report]]) -> None:
    """Adds the trials of trials.csv, and to ``bests`` the best report of each, as far as it tells."""
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    if "id" not in (rows.fieldnames or []):
        raise ValueError("it has no heading")
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"line for trial {row.get('id')!r} has not as many cells as the heading")
        config: dict[str, Any] = {}
        for column, cell in row.items():
            if column.startswith("config.") and cell:
                *groups, name = column.removeprefix("config.").split(".")
                target = config
                for group in groups:
                    target = target.setdefault(group, {})
                target[name] = cell_value(cell)
        rung = int(row["rung"]) if row["rung"] else None
        status, reason = row["status"], str(cell_value(row["reason"])) if row["reason"] else ""
        if status not in get_args(Status):
            raise ValueError(f"status {status!r} of trial {row['id']!r} is unknown")
        trial = results.add(Trial(row["id"], int(row["number"]), config, status, reason, rung))  # type: ignore[arg-type]
        trial.host = row.get("host", "")
        if row["best_step"]:
            bests.append((trial, _best_told(row)))


def _best_told(row: Mapping[str, str]) -> Report:
    """The best report of a trial as trials.csv has it: with its objectives, and not when it came."""
    values = {
        name.removeprefix("best_"): float(cell) for name, cell in row.items() if name.startswith("best_") and cell
    }
    step, seconds = int(row["best_step"]), float(row["seconds"] or 0)
    return Report(row["id"], step, seconds, math.nan, values, row["checkpoint"] or None)


def _read_failures(results: ResultSet, failures: dict[str, list[dict[str, Any]]]) -> None:
    for trial_id, entries in failures.items():
        if trial := results.get(trial_id):
            trial.failures = [Failure(**entry) for entry in entries]
            reduced = [failure.micro_batch for failure in trial.failures if failure.micro_batch is not None]
            trial.micro_batch = reduced[-1] if reduced else None


def _report_at(trial: Trial, step: int) -> Report:
    for report in trial.reports:
        if report.step == step:
            return report
    raise ValueError(f"the best step of trial {trial.id!r}, {step}, was never reported")


def _read_reports(results: ResultSet, data: bytes) -> None:
    import pandas as pd

    fixed = ["trial_id", "training_iteration", "time_total_s", "timestamp", "checkpoint"]
    for record in pd.read_parquet(io.BytesIO(data)).to_dict("records"):
        trial = results.get(record["trial_id"])
        if trial is None:
            continue
        metrics = {str(k): v for k, v in record.items() if k not in fixed and not _missing(v)}
        checkpoint = None if _missing(record["checkpoint"]) else record["checkpoint"]
        values = trial.id, int(record["training_iteration"]), record["time_total_s"], record["timestamp"]
        trial.reports.append(Report(*values, metrics, checkpoint))


def _missing(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))
