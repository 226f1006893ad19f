"""The findings of a search as text: the winner, by how much it won, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tuner.runs.feasibility import no_winner, share_feasible
from tuner.runs.results import ResultSet, how_to_continue, why_and_remedy
from tuner.runs.trial import Trial
from tuner.search.usage import unit_of
from tuner.spec.quantities import format_duration
from tuner.spec.values import format_number
from tuner.storage.lock import holder
from tuner.visualization.text_tables import objectives_line

_TAIL = 3
"""The last third of a trial's reports tell how much its value still moves."""

_SURE = 2.0
"""A lead of so many times what values move from one report to the next is taken for more than chance.

Were all of it noise of standard deviation s, values would move by 1.13 s, and two differ by 2.3 s in a tenth of cases.
"""

_FEWEST = 4
"""Reports that a trial must have for that."""


def ranked(results: ResultSet) -> list[Trial]:
    """The trials whose best report is a finite number, best first; the winner before all others."""
    finite = [t for t in results.trials if t.best and all(map(math.isfinite, results.point(t.best)))]
    best = results.best
    found = results.rank(finite)
    return found if results.has_front else sorted(found, key=lambda trial: trial is not best)


def state(results: ResultSet, elapsed: float) -> str:
    """How the run stands."""
    provenance, after = results.provenance, f" after {format_duration(elapsed)}" if elapsed else ""
    interrupted = provenance.get("interrupted")
    if interrupted is False:
        by = provenance.get("ended_by")
        return f"The search came to its end{after}{f' ({by})' if by else ''}."
    if interrupted:
        return f"The search was interrupted{after}{why_and_remedy(results)}"
    if holder(results.folder) is not None:
        return f"The search still runs: this page shows it {format_duration(elapsed)} into it."
    resume = how_to_continue(results)
    return f"The search did not come to its end: its process is gone{after}; to continue: {resume}"


def summarize(results: ResultSet) -> list[str]:
    """Sentences, the most important first."""
    trials = ranked(results)
    if reason := no_winner(results):
        return [f"No result that can be used: {reason}."]
    trials = [trial for trial in trials if trial.best and results.is_feasible(trial.best)]
    if not trials:
        failed = results.count("failed")
        if failed and failed == len(results.trials):
            return [f"No result: all {failed} trials failed; the table of failures says why."]
        return ["No result yet: no trial has reported a number that can be compared."]
    if results.has_front:
        return _front(results, trials)
    said = [_winner(results, trials[0])]
    if len(trials) == 1:
        said.append("It is the only trial with a result, so that there is nothing to compare it with.")
    else:
        said += _lead(results, trials)
    limits = [f"{text}." for text in [share_feasible(results)] if text]
    return [*said, *limits, *_still_rising(results, trials[0]), _confirm(results, trials)]


def _front(results: ResultSet, trials: Sequence[Trial]) -> list[str]:
    front = results.front
    first = f"{len(front)} of {len(trials)} trials are on the Pareto front of {objectives_line(results)}: "
    return [
        f"{first}none of the others is as good as one of them in every objective and better in one.",
        "Each configuration was trained once: with another seed neighbours on the front may change places.",
    ]


def _value(results: ResultSet, trial: Trial) -> float:
    assert trial.best is not None
    return results.value(trial.best)


def _winner(results: ResultSet, trial: Trial) -> str:
    assert trial.best is not None
    unit = unit_of(results)
    at = trial.best.metrics.get(unit, trial.best.step)
    name = "report" if unit == "training_iteration" else unit
    value = format_number(_value(results, trial))
    so_far = "" if all(t.has_ended for t in results.trials) else " so far"
    best = f"Trial {trial.label} is the best of {len(results.trials)}{so_far}"
    return f"{best}, with {results.metric} {value} at {name} {at}."


def movement(results: ResultSet, trial: Trial) -> float | None:
    """Mean change of the objective from one report to the next in the last third of a trial; None of a short one."""
    values = [results.value(report) for report in trial.reports if results.metric in report.metrics]
    tail = [value for value in values if math.isfinite(value)][-max(_FEWEST - 1, len(values) // _TAIL) :]
    if len(values) < _FEWEST or len(tail) < 2:
        return None
    return sum(abs(b - a) for a, b in pairwise(tail)) / (len(tail) - 1)


def _lead(results: ResultSet, trials: Sequence[Trial]) -> list[str]:
    """By how much the best leads, beside how much its value and the runner-up's still move."""
    best, second = trials[:2]
    top, sign = _value(results, best), results.objectives[0].sign
    lead = sign * (top - _value(results, second))
    if lead < 0:
        kept = f"trial {second.label} reported {format_number(_value(results, second))}, which is better, but"
        return [f"It is the best whose checkpoint is kept: {kept} its checkpoint is not."]
    if not lead:
        ties = [f"#{trial.number}" for trial in trials[1:] if _value(results, trial) == top]
        return [f"That is a tie: {_some(ties)} reached the very same value."]
    said = [
        f"It leads by {format_number(lead)}: the runner-up, trial {second.label}, "
        f"has {format_number(_value(results, second))}."
    ]
    moves = [moved for moved in (movement(results, trial) for trial in (best, second)) if moved]
    if not moves:
        return [
            *said,
            "The certainty is unknown: their curves are too short to show how much their values move.",
        ]
    moved = max(moves)
    near = [f"#{trial.number}" for trial in trials[1:] if sign * (top - _value(results, trial)) <= _SURE * moved]
    still = (
        f"their values still moved from one report to the next in the last third of training ({format_number(moved)})"
    )
    if near:
        others = f"trials {_some(near)} are" if len(near) > 1 else f"trial {near[0]} is"
        return [*said, f"Not sure: {others} no further behind than twice what {still}. Take it for a tie."]
    return [*said, f"That is {lead / moved:.1f} times as much as {still}."]


def _some(labels: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(labels) - shown} more" if len(labels) > shown else ""
    return ", ".join(labels[:shown]) + more


def _still_rising(results: ResultSet, best: Trial) -> list[str]:
    if best.status != "completed" or len(best.reports) < _FEWEST or best.best is not best.reports[-1]:
        return []
    has_limit = results.section("scheduler").get("max_t")
    how = f" (python -m tuner extend {results.folder.quoted} --max-t N)" if has_limit else ""
    return [f"It was best at its last report: a longer training may give more{how}."]


def _confirm(results: ResultSet, trials: Sequence[Trial]) -> str:
    count = len(trials)
    optimistic = f"the best of {count} looks better than it is" if count > 1 else "a number from one seed may be luck"
    if trials[0].segments:
        return f"Its configuration changed on the way (best/schedule.json tells how); {optimistic}."
    command = f"python -m tuner confirm {results.folder.quoted} --top {min(3, count)} --seeds 5"
    return f"Each configuration was trained once, and {optimistic}. To be sure, train it with new seeds: {command}"
