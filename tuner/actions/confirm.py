"""How good the best configurations of a search are when nobody picks the luckiest run of each.

The best value of many trials is partly luck: with its seed, and with the examples of its validation. So it is too good
on average, and the more trials there were, the more (Cawley and Talbot 2010, "On over-fitting in model selection").
Fresh seeds are free of the first part. A test set by which nothing was chosen is free of both.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tuner.actions.intervals import Interval, interval
from tuner.actions.retraining import SEED, Retraining, retraining
from tuner.actions.run import Say, run
from tuner.errors import InputError, NoUsableResult
from tuner.runs.feasibility import no_winner
from tuner.runs.loading import load_latest, run_exists
from tuner.runs.restore import restore_best
from tuner.runs.results import ResultSet, how_to_resume, write_json
from tuner.runs.trial import Trial
from tuner.spec.objective import Objective
from tuner.storage.folder import RunFolder
from tuner.trainable.trainable import load_trainable

if TYPE_CHECKING:
    from tuner.execution.recorder import Listener

CONFIRMATION = "confirmation.json"
"""In the folder of the trials that were trained again: what `Confirmation.as_json` gives."""


@dataclass(frozen=True)
class Confirmed:
    """One configuration, trained again with each seed. Seeds whose trial failed are absent; from ``best`` also those
    whose trial never kept the outcome constraints."""

    trial: str
    """Id of the trial of the search that had this configuration first."""
    number: int
    searched: float
    """The search's own number: the best report of that trial."""
    searched_step: int
    best: dict[int, float]
    """By seed: the best report that has a checkpoint. ``searched`` was taken in the same way, so that the two compare;
    as its epoch is chosen by the validation set, it is still too good for new data."""
    last: dict[int, float]
    """By seed: the last report. Nothing was chosen by it."""
    test: dict[str, dict[int, float]]
    """By metric and seed: the checkpoint of ``best`` on the test set, by which nothing was chosen. Of the three the
    honest one for new data. Empty unless asked for."""


@dataclass(frozen=True)
class Confirmation:
    """What became of the best configurations of a search with fresh seeds."""

    run: str
    folder: str
    """Of the trials that were trained again."""
    objective: Objective
    """The first one, where there are several."""
    seeds: tuple[int, ...]
    configurations: tuple[Confirmed, ...]
    """Best mean first; those of which no trial has a result last."""

    @property
    def winner(self) -> Confirmed:
        """The best mean."""
        return self.configurations[0]

    @property
    def searched(self) -> Confirmed:
        """The one that the search took for the best."""
        return max(self.configurations, key=lambda c: (self.objective.sign * c.searched, -c.number))

    def optimism(self, confirmed: Confirmed) -> Interval | None:
        """By how much the search's own number was too good; None if no seed gave a result."""
        sign = self.objective.sign
        return over_seeds({seed: sign * (confirmed.searched - value) for seed, value in confirmed.best.items()})

    def behind(self, confirmed: Confirmed) -> Interval | None:
        """By how much it is worse than the winner: paired, over the seeds that both have; None if there is none.

        Not corrected for the number of configurations that are compared.
        """
        sign, winner = self.objective.sign, self.winner.best
        shared = {seed: value for seed, value in confirmed.best.items() if seed in winner}
        return over_seeds({seed: sign * (winner[seed] - value) for seed, value in shared.items()})

    def ties(self, confirmed: Confirmed) -> bool:
        """Whether it is another one than the winner, and too close to be separated from it."""
        behind = self.behind(confirmed)
        return confirmed is not self.winner and bool(confirmed.best) and (behind is None or behind.holds_zero)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        configurations = []
        for c in self.configurations:
            means = {"best": over_seeds(c.best), "last": over_seeds(c.last)}
            means |= {metric: over_seeds(values) for metric, values in c.test.items()}
            means |= {"optimism": self.optimism(c), "behind": self.behind(c)}
            told = {name: asdict(mean) if mean else None for name, mean in means.items()}
            configurations.append(asdict(c) | {"intervals": told, "tie": self.ties(c)})
        objective = {"metric": self.objective.metric, "mode": self.objective.mode}
        head = {"run": self.run, "folder": self.folder, "objective": objective, "seeds": list(self.seeds)}
        return head | {"configurations": configurations}


def over_seeds(values: Mapping[int, float]) -> Interval | None:
    """Of values by seed; None if there is none."""
    return interval([*values.values()]) if values else None


def confirm(
    results: ResultSet,
    *,
    top: int,
    seeds: int,
    test: bool = False,
    address: str | None = None,
    listeners: Sequence[Listener] = (),
    say: Say,
) -> Confirmation:
    """Trains the best ``top`` configurations of a finished search again, each with the same ``seeds`` fresh seeds.

    The trials are a run of their own beside it, ``<run>-confirm``: with the same resources and storage, to the full
    budget; `resume` continues it, and where it is there already nothing is trained again. ``test``: the best
    checkpoint of each trial is scored on the test set, after all else is decided.

    Raises as `tuner.actions.run.run` does, and InputError where the run cannot be confirmed.
    """
    plan = retraining(results, top, seeds)
    trainable = load_trainable(plan.experiment.spec.trainable, plan.experiment.roots, plan.experiment.pickles)
    if test and not trainable.can_evaluate:
        raise InputError(f"{trainable.reference}: its module has no evaluate(config, checkpoint), which --test calls")
    parent, name = posixpath.split(f"{results.folder.location.rstrip('/')}-confirm")
    folder = RunFolder.at(parent) / name
    if run_exists(folder):
        again = _finished(folder, plan)
    else:
        again = run(plan.experiment, name=name, storage=parent, address=address, listeners=listeners, say=say)
    confirmation = compare(results, plan, again, test)
    write_json(again.folder, CONFIRMATION, confirmation.as_json())
    return confirmation


def _finished(folder: RunFolder, plan: Retraining) -> ResultSet:
    """What was trained again before. Raises InputError if that is something else, or not complete."""
    known = load_latest(folder)
    points = [dict(point) for point in plan.experiment.spec.search.points_to_evaluate]
    if known.section("search").get("points_to_evaluate") != points:
        raise InputError(
            f"{folder.location} holds other configurations or seeds: give the --top and --seeds that it was made "
            f"with, or move it away"
        )
    if known.provenance.get("interrupted") is not False:
        raise InputError(
            f"{folder.location} has not come to its end; continue with {how_to_resume(folder)}, then confirm again"
        )
    return known


def compare(results: ResultSet, plan: Retraining, again: ResultSet, test: bool) -> Confirmation:
    """``again``: the trials of ``plan``, which retrained the best of ``results``."""
    trained: dict[str, list[Trial]] = {candidate.id: [] for candidate in plan.candidates}
    for trial in again.trials:
        candidate = plan.candidate(trial)
        if candidate is not None and trial.best is not None:
            trained[candidate.id].append(trial)
    found = [_confirmed(results, candidate, again, trained[candidate.id], test) for candidate in plan.candidates]
    objective = results.objectives[0]
    trials = {candidate: len(of_one) for candidate, of_one in trained.items()}

    def worse(one: Confirmed) -> tuple[int, float]:
        """First how many of its trials never keep the outcome constraints, then the mean of the others."""
        mean = -objective.sign * interval([*one.best.values()]).mean if one.best else math.inf
        return trials[one.trial] - len(one.best), mean

    found.sort(key=worse)
    if not found[0].best:
        shown = again.folder.location
        reason = no_winner(again) or "no trial has a result"
        raise NoUsableResult(f"{shown}: {reason}; python -m tuner show {again.folder.quoted} says why")
    return Confirmation(results.name, again.folder.location, objective, plan.seeds, tuple(found))


def _confirmed(
    results: ResultSet, candidate: Trial, again: ResultSet, trials: Sequence[Trial], test: bool
) -> Confirmed:
    assert candidate.best is not None
    seeded = {trial.config[SEED]: trial for trial in trials}
    scores: dict[str, dict[int, float]] = {}
    for seed, trial in seeded.items() if test else ():
        for metric, value in (restore_best(again, trial=trial.id, test=True).test or {}).items():
            scores.setdefault(metric, {})[seed] = value
    return Confirmed(
        candidate.id,
        candidate.number,
        results.value(candidate.best),
        candidate.best.step,
        {seed: again.value(t.best) for seed, t in seeded.items() if t.best and again.is_feasible(t.best)},
        {seed: again.value(trial.reports[-1]) for seed, trial in seeded.items()},
        scores,
    )
