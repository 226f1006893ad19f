"""Reads a run folder back."""

from __future__ import annotations

import contextlib
import csv
import difflib
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import EnvironmentFailure, InputError, did_you_mean
from tuner.redaction import recorded
from tuner.runs.commands import COMMANDS
from tuner.runs.file_shapes import MAX_CONFIG_BYTES, MAX_TABLE_BYTES, Provenance, mapping, spec_of
from tuner.runs.history import journalled, set_ending
from tuner.runs.journal import JOURNAL, first_event, has_lines, last_event
from tuner.runs.results import BY_PEOPLE, EXPERIMENT, FAILURES, LINEAGE, PROVENANCE, REPORTS, TRIALS, ResultSet
from tuner.runs.tables import read_by_people, read_failures, read_lineage, read_reports, read_trials
from tuner.runs.trial import Report, Trial
from tuner.spec.document import read_yaml
from tuner.storage.folder import STORAGE, RunFolder, reason
from tuner.storage.lock import LOCK, claims_of
from tuner.storage.untrusted_json import parsed

_LONGEST = 300
"""Characters of a message about a damaged file at most."""


def is_run(folder: RunFolder) -> bool:
    """Whether a search began there."""
    return folder.exists(EXPERIMENT) or first_event(folder) is not None


def run_exists(folder: RunFolder) -> bool:
    """Whether ``folder`` holds anything of a run.

    One that was killed before its first event left nothing. Commands may wait for a search that has not begun.
    """
    shown = {name for name in folder.names() if not name.startswith(".")}  # the others are what a killed writer left
    return bool(shown - {LOCK, claims_of(LOCK), f"{JOURNAL}.jsonl", COMMANDS}) or has_lines(folder)


def runs(storage: RunFolder) -> list[RunFolder]:
    """The run folders below ``storage``, and the folders that cannot be looked into. Raises EnvironmentFailure."""
    try:
        folders = [storage / name for name in storage.folders()]
    except OSError as error:
        raise EnvironmentFailure(f"storage {storage.location} cannot be listed: {reason(error)}") from None
    return [folder for folder in folders if _may_be_run(folder)]


def _may_be_run(folder: RunFolder) -> bool:
    try:
        return is_run(folder)
    except (OSError, EnvironmentFailure):
        return True


def find_run(run: str | Path, storage: str) -> RunFolder:
    """The folder of ``run``, a path or the name of a run below ``storage``.

    Raises InputError when there is none, EnvironmentFailure where it cannot be looked at.
    """
    candidates = [RunFolder.at(run)]
    if "://" not in str(run) and "/" not in str(run).rstrip("/"):
        candidates.append(RunFolder.at(storage) / str(run).rstrip("/"))
    for candidate in candidates:
        try:
            if is_run(candidate):
                return candidate
        except OSError as error:
            raise EnvironmentFailure(f"run {_short(candidate.location)} cannot be read: {reason(error)}") from None
    known = [folder.path.rpartition("/")[2] for folder in runs(RunFolder.at(storage))]
    looked = ", ".join(candidate.location for candidate in candidates)
    near = difflib.get_close_matches(str(run), known, n=1)
    hint = (
        did_you_mean(str(run), list(dict.fromkeys([*known[-8:], *near])))
        if known
        else f"there are no runs in {storage}"
    )
    raise InputError(f"no run {str(run)!r} (looked at {looked}); {hint}")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def load_run(run: str | Path | RunFolder, storage: str = STORAGE) -> ResultSet:
    """Reads a run folder. Nothing in it is executed.

    Args:
        run: Name or folder of the run.
        storage: The folder or URI in which the name is looked up.

    Returns:
        The results as its tables hold them.

    Raises:
        InputError: There is no such run.
        EnvironmentFailure: One of its files is missing or damaged.

    Example:
        >>> import tuner
        >>> results = tuner.load_run("runs/q")
        >>> results.metric, results.best is not None
        ('val_accuracy', True)
    """
    results = _read(run if isinstance(run, RunFolder) else find_run(run, storage))
    if results.unreadable:
        raise EnvironmentFailure(results.unreadable[0])
    return results


def load_latest(folder: RunFolder, partial: bool = False) -> ResultSet:
    """The results of a run, also while it runs or after it was killed, when its tables are behind its journal.

    The experiment is the journal's: half a YAML file may be a whole one. ``partial``: the readable part is enough, and
    `ResultSet.unreadable` lists the rest. Raises EnvironmentFailure if neither the journal nor the files describe the
    run.
    """
    last = last_event(folder)
    results = _read(folder)
    if last is None:
        if results.unreadable and not (partial and results.spec):
            raise EnvironmentFailure(results.unreadable[0])
        return results
    if last["what"] == "left" and not results.unreadable:
        set_ending(results, last)
        return results
    history, reader = journalled(folder, results.provenance)
    told = history.results
    damage = reader.damage or ("" if told.spec else "it does not tell an experiment that can be used")
    told.spec = told.spec or results.spec
    if not told.spec:
        raise EnvironmentFailure(results.unreadable[0])
    told.unreadable = results.unreadable
    if not damage:
        return told
    told.unreadable.append(f"{folder.location}: the journal: {damage}")
    results.provenance = told.provenance
    behind = sum(len(t.reports) for t in results.trials) <= sum(len(t.reports) for t in told.trials)
    return told if behind or not results.spec else results


def load_summary(folder: RunFolder) -> ResultSet:
    """What a run came to, read in milliseconds: of each trial the best report alone.

    As trials.csv has it, which is some seconds behind where the search runs or was killed; whether it has ended is the
    last event's to say. `ResultSet.unreadable` says what cannot be read.
    """
    results = _read(folder, reports=False)
    try:
        last = last_event(folder)
    except EnvironmentFailure as error:
        results.unreadable.append(str(error))
        return results
    if last:
        set_ending(results, last)
    return results


def _read(folder: RunFolder, reports: bool = True) -> ResultSet:
    """The readable contents of the files of a run folder; `ResultSet.unreadable` lists the rest.

    Without ``reports``, or if results.parquet cannot be read, trials.csv still has the best report of each trial.
    """
    problems: list[str] = []
    results = ResultSet(folder, {}, {}, unreadable=problems)

    @contextlib.contextmanager
    def reading(name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            problems.append(f"{folder.location}: {name} is missing: the run folder is damaged")
        except (ValueError, csv.Error, InputError, OSError) as error:
            problems.append(f"{folder.location}: {name} cannot be read: {type(error).__name__}: {_line(error)}")

    bests: list[tuple[Trial, Report]] = []
    with reading(EXPERIMENT):
        text = folder.read(EXPERIMENT, MAX_CONFIG_BYTES).decode()
        results.spec = recorded(spec_of(read_yaml(text, EXPERIMENT).value))
    with reading(PROVENANCE):
        results.provenance, wrong = mapping(Provenance, folder.read(PROVENANCE, MAX_CONFIG_BYTES))
        problems += [f"{folder.location}: {PROVENANCE}: {text}: it is left out" for text in wrong]
    with reading(TRIALS):
        bests = read_trials(results, folder.read(TRIALS, MAX_TABLE_BYTES).decode())
    whole = False
    if reports:
        with reading(REPORTS):
            read_reports(results, folder.read(REPORTS, MAX_TABLE_BYTES))
            whole = True
    if folder.exists(LINEAGE):
        with reading(LINEAGE):
            read_lineage(results, parsed(folder.read(LINEAGE, MAX_TABLE_BYTES)))
    if folder.exists(FAILURES):
        with reading(FAILURES):
            read_failures(results, parsed(folder.read(FAILURES, MAX_TABLE_BYTES)))
    if folder.exists(BY_PEOPLE):
        with reading(BY_PEOPLE):
            read_by_people(results, parsed(folder.read(BY_PEOPLE, MAX_TABLE_BYTES)))
    with reading(TRIALS):
        for trial, told in bests:
            trial.reports = trial.reports if whole else [told]
            trial.best = _report_at(trial, told.step)
    return results


def _line(error: Exception) -> str:
    """What an error says, in one line that a terminal can hold."""
    return _short(" ".join(str(error).split()))


def _report_at(trial: Trial, step: int) -> Report:
    for report in trial.reports:
        if report.step == step:
            return report
    raise ValueError(f"the best step of trial {trial.id!r}, {step}, was never reported")
