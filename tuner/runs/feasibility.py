"""Which results keep the outcome constraints of their search, in words."""

from __future__ import annotations

from tuner.experiment.repeat import REPETITION
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.spec.quantities import counted
from tuner.spec.values import format_number


def broken(results: ResultSet, report: Report) -> str:
    """``breaks latency_ms <= 10``; empty if ``report`` keeps all constraints of the experiment."""
    limits = [one for one in results.outcome_constraints if one.metric != REPETITION]  # that it has few is seen
    found = [str(one) for one in limits if one.violation(report.number(one.metric))]
    return f"breaks {' and '.join(found)}" if found else ""


def why(results: ResultSet, trial: Trial) -> str:
    """Why the trial ended, and which constraints its best report breaks."""
    return "; ".join(filter(None, [trial.why, broken(results, trial.best) if trial.best else ""]))


def no_winner(results: ResultSet) -> str:
    """Why no trial is the best, where some have results; empty if one is, or if none has a result."""
    nearest = next(iter(results.rank(results.trials)), None)
    if results.front or nearest is None or nearest.best is None:
        return ""
    values = ", ".join(f"{name} {format_number(value)}" for name, value in results.values(nearest.best).items())
    limits = " and ".join(map(str, results.outcome_constraints))
    return f"no trial keeps {limits}; nearest comes trial {nearest.label} ({values})"


def share_feasible(results: ResultSet) -> str:
    """How many trials break a constraint at their best; empty if there are no constraints."""
    bests = [trial.best for trial in results.trials if trial.best]
    if not results.spec.get("outcome_constraints") or not bests:
        return ""
    infeasible = sum(not results.is_feasible(best) for best in bests)
    limits = " and ".join(map(str, results.outcome_constraints))
    return f"{infeasible} of {counted(len(bests), 'trial')} with a result never keep {limits}"
