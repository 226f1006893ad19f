"""Trials of earlier runs, which a searcher learns from before it suggests anything: ``search.from_runs``.

They are written into the new run folder, so that a resumed search knows the same of them, whatever became of the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.plan.plan import Plan
from tuner.runs.events import Compared
from tuner.runs.file_shapes import MAX_TABLE_BYTES, Number, Step, checked
from tuner.runs.loading import find_run, load_latest
from tuner.runs.results import ResultSet, write_json
from tuner.search.state import Reading
from tuner.spec.configuration import flat
from tuner.spec.outcome_constraints import metrics_read
from tuner.spec.quantities import counted
from tuner.spec.values import brief, is_number, value_key
from tuner.storage.folder import STORAGE, RunFolder
from tuner.storage.untrusted_json import parsed

EARLIER_TRIALS = "earlier_trials.json"
"""The file of a run folder that holds them."""


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of an earlier run."""

    name: str
    """Run and id."""
    point: tuple[float, ...]
    """In the unit cube of the new search space."""
    readings: tuple[Reading, ...]
    """Its reports, in order, in the fidelity, the objectives and the outcome constraints of the new search."""
    failed: bool


def with_earlier_trials(plan: Plan) -> tuple[Plan, list[EarlierTrial]]:
    """The plan with a note on each of its ``search.from_runs``, and their trials.

    Raises InputError if one of them is not a run, has not reported what the search compares, or has no trial in its
    space.
    """
    trials: list[EarlierTrial] = []
    notes: list[str] = []
    runs = plan.spec.search.from_runs
    for i, run in enumerate(runs):
        if run in runs[:i]:
            raise InputError([plan.experiment.problem(("search", "from_runs", i), f"{run} is there twice")])
        try:
            results = load_latest(find_run(run, STORAGE))
            found, note = _of_run(results, plan)
        except TunerError as error:
            raise InputError([plan.experiment.problem(("search", "from_runs", i), str(error))]) from None
        trials += found
        notes.append(f"search.from_runs: {results.folder.location}: {note}")
    return replace(plan, earlier=len(trials), notes=(*plan.notes, *notes)), trials


def _of_run(results: ResultSet, plan: Plan) -> tuple[list[EarlierTrial], str]:
    """The trials of a run that the searcher of ``plan`` can learn from, and what the user should know of them."""
    space = plan.spec.search_space
    found: list[EarlierTrial] = []
    outside: list[str] = []
    for trial in results.trials:
        if any(segment.donor for segment in trial.segments) or not (trial.reports or trial.status == "failed"):
            continue  # a schedule is no point, and a trial without a report tells nothing
        configuration, problem = space.project(results.full_config(trial))
        if problem:
            outside.append(problem)
            continue
        readings = tuple(_readings(results, [report.metrics for report in trial.reports], plan))
        point = tuple(space.to_unit(configuration))
        found.append(EarlierTrial(f"{results.folder.location}/{trial.id}", point, readings, trial.status == "failed"))
    if not found:
        raise InputError(": ".join(["none of its trials can be learned from", *outside[:1]]))
    note = f"the search learns from {counted(len(found), 'trial')}"
    if outside:
        note += f", and not from {len(outside)} outside of its space ({outside[0]})"
    changed = _changed(results.section("params"), plan.spec.params)
    return found, note + (f"; its params had {changed}" if changed else "")


def _readings(results: ResultSet, reports: Sequence[Mapping[str, Any]], plan: Plan) -> Iterator[Reading]:
    """Raises InputError if a report lacks what the search compares."""
    fidelity = plan.spec.scheduler.fidelity
    counts = fidelity[0] if fidelity and fidelity[0] != "training_iteration" else ""
    read = metrics_read(plan.spec.objectives, plan.spec.outcome_constraints)
    compared = Compared(read, counts, bool(counts))
    for number, metrics in enumerate(reports, 1):
        if missing := compared.wrong(metrics):
            has = ", ".join(sorted(name for name, value in metrics.items() if is_number(value)))
            raise InputError(f"its trials report no {missing!r}, which the search compares; they report {has}")
        yield int(metrics[counts]) if counts else number, tuple(float(metrics[name]) for name in read)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The fixed parameters of both that differ: ``epochs 9 (here 27)``."""
    old, new = dict(flat(before)), dict(flat(now))
    differ = [name for name in old if name in new and value_key(old[name]) != value_key(new[name])]
    return ", ".join(f"{name} {brief(old[name])} (here {brief(new[name])})" for name in differ)


# --- in the run folder -----------------------------------------------------------------------------------------------


class _Stored(BaseModel):
    """A trial as JSON."""

    model_config = ConfigDict(strict=True, extra="ignore")
    name: str
    point: list[Annotated[float, Field(ge=0, le=1)] | None]
    """null where a parameter is inactive."""
    steps: list[Step]
    values: list[list[Number]]
    failed: bool


def store(folder: RunFolder, trials: Sequence[EarlierTrial]) -> None:
    """Writes the file, if there are any."""
    if trials:
        stored = [
            {
                "name": trial.name,
                "point": [None if math.isnan(u) else u for u in trial.point],
                "steps": [step for step, _ in trial.readings],
                "values": [values for _, values in trial.readings],
                "failed": trial.failed,
            }
            for trial in trials
        ]
        write_json(folder, EARLIER_TRIALS, stored)


def read_stored(folder: RunFolder, plan: Plan) -> list[EarlierTrial]:
    """What the file of a run holds. Raises EnvironmentFailure if the search had earlier runs, and it cannot be read."""
    if not plan.spec.search.from_runs:
        return []
    try:
        stored = checked(list[_Stored], parsed(folder.read(EARLIER_TRIALS, MAX_TABLE_BYTES)))
        values = len(plan.spec.objectives) + len(plan.spec.outcome_constraints)
        return [_trial(trial, len(plan.spec.search_space.free), values) for trial in stored]
    except FileNotFoundError:
        problem = "is missing"
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {' '.join(str(error).split())}"
    raise EnvironmentFailure(f"{folder.location}: {EARLIER_TRIALS} {problem}: the run folder is damaged")


def _trial(stored: _Stored, parameters: int, width: int) -> EarlierTrial:
    """Raises ValueError if it is none of this search."""
    if len(stored.point) != parameters or any(len(values) != width for values in stored.values):
        raise ValueError(f"{stored.name} is a trial of another search")
    point = tuple(math.nan if u is None else u for u in stored.point)
    readings = zip(stored.steps, map(tuple, stored.values), strict=True)
    return EarlierTrial(stored.name, point, tuple(readings), stored.failed)
