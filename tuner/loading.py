"""Reads a run folder back."""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tuner.cells import cell_value
from tuner.errors import EnvironmentFailure, InputError, did_you_mean
from tuner.failure import Failure
from tuner.history import History
from tuner.journal import JOURNAL, Event, read_journal
from tuner.lock import LOCK
from tuner.results import (
    EXPERIMENT,
    FAILURES,
    LINEAGE,
    PROVENANCE,
    REPORTS,
    TRIALS,
    Report,
    ResultSet,
    Segment,
    Status,
    Trial,
)
from tuner.spec.document import read_yaml
from tuner.spec.objective import read_objectives
from tuner.storage import STORAGE, RunFolder

if TYPE_CHECKING:
    import pandas as pd


def is_run(folder: RunFolder) -> bool:
    """Whether a search began there."""
    return folder.exists(EXPERIMENT) or bool(read_journal(folder).events)


def begun(folder: RunFolder) -> bool:
    """Whether ``folder`` holds anything: a run that was killed before its first event left nothing but an empty one."""
    from pyarrow.fs import FileSelector

    if not folder.exists():
        return False
    names = {info.base_name for info in folder.filesystem.get_file_info(FileSelector(folder.path))}
    return bool(names - {LOCK, f"{JOURNAL}.jsonl", ".writable"}) or bool(read_journal(folder).events)


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
    import pandas as pd

    folder = run if isinstance(run, RunFolder) else find_run(run, storage)
    reading = EXPERIMENT
    try:
        spec = _checked(read_yaml(folder.read(EXPERIMENT).decode(), EXPERIMENT).value, "objective")
        read_objectives(spec["objective"])
        reading = PROVENANCE
        provenance = _checked(json.loads(folder.read(PROVENANCE)))
        results = ResultSet(folder, spec, provenance)
        reading = TRIALS
        best_steps = _read_trials(results, folder.read(TRIALS).decode())
        reading = REPORTS
        _read_reports(results, pd.read_parquet(io.BytesIO(folder.read(REPORTS))))
        if folder.exists(LINEAGE):
            reading = LINEAGE
            for trial_id, segments in json.loads(folder.read(LINEAGE)).items():
                results.trial(trial_id).segments = [Segment(**segment) for segment in segments]
        if folder.exists(FAILURES):
            reading = FAILURES
            _read_failures(results, json.loads(folder.read(FAILURES)))
        reading = TRIALS
        for trial, step in best_steps:
            trial.best = _report_at(trial, step)
    except FileNotFoundError:
        raise EnvironmentFailure(f"{folder.shown}: {reading} is missing: the run folder is damaged") from None
    except (ValueError, KeyError, TypeError, csv.Error, InputError, OSError) as error:
        raise EnvironmentFailure(f"{folder.shown}: {reading} cannot be read: {type(error).__name__}: {error}") from None
    return results


def last_known(folder: RunFolder, events: Sequence[Event] | None = None) -> ResultSet:
    """What is known of a run, also of one that runs or was killed, whose tables are behind its journal.

    ``events``: the journal's, where they are read already. The experiment is the journal's: half a YAML file may be a
    whole one. Raises EnvironmentFailure where neither the journal nor the files say what it was.
    """
    if events is None:
        events = read_journal(folder).events
    try:
        results = load_run(folder)
    except EnvironmentFailure:
        if not events:
            raise
        results = ResultSet(folder, {}, dict(events[0]["provenance"]))
        if events[-1]["what"] == "left":
            results.provenance["interrupted"] = events[-1]["interrupted"]
    specs = [event["spec"] for event in events if event["what"] in ("began", "extended")]
    results.spec = specs[-1] if specs else results.spec
    if not events or events[-1]["what"] == "left":
        return results
    told = History(ResultSet(folder, results.spec, results.provenance))
    for event in events:
        told.apply(event)
    behind = sum(len(t.reports) for t in results.trials) <= sum(len(t.reports) for t in told.results.trials)
    return told.results if behind else results


def _checked(value: Any, *keys: str) -> dict[str, Any]:
    """``value``, if it is a mapping that holds ``keys``; ValueError otherwise."""
    if not isinstance(value, dict) or not all(key in value for key in keys):
        raise ValueError(f"it must be a mapping{' with ' * bool(keys)}{', '.join(keys)}")
    return value


def _read_trials(results: ResultSet, text: str) -> list[tuple[Trial, int]]:
    """Adds the trials of trials.csv; which step of each is its best."""
    best_steps = []
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
        if row["best_step"]:
            best_steps.append((trial, int(row["best_step"])))
    return best_steps


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


def _read_reports(results: ResultSet, frame: pd.DataFrame) -> None:
    fixed = ["trial_id", "training_iteration", "time_total_s", "timestamp", "checkpoint"]
    for record in frame.to_dict("records"):
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
