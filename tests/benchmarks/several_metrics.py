"""How good searches are that look at two metrics: with two objectives, and with a limit on one of them.

    python tests/benchmarks/several_metrics.py objectives|limit|late_limit [--families PATTERN …]
        [--part development|decision|report] [--methods PATTERN …] [--seeds 2] [--workers 8] [--full-trials 40]
        [--processes 2]

The formulas of ``tasks.py`` without "costs", in pairs of neighbours: a trial of task n reports the curves of task n, as
"score", and of task n + 1, as "other", which has another optimum in the same space. The searcher and the scheduler are
driven by the state of a live search, in virtual time. A search may use the time in which random search without early
stopping completes ``--full-trials`` trials.

- objectives: both are to be made large. The measure is the hypervolume of the complete trials' final values without
  noise and rounding, above chance, divided by that of the front of 20,000 random configurations.
- limit: "score" is to be made large, and "other" must reach a level that a third of the space reaches. Each report has
  the final value of "other" without noise and rounding, as with a latency. The measure is the regret of the
  best-looking complete trial that keeps the limit: (best - its score) / (best - median), where best and median are
  those of the configurations of 20,000 that keep it. A search without such a trial has the regret of the worst of
  them.
- late_limit: the same, and "other" rises while a trial trains, so that early reports break the limit.

± is the standard error over tasks. The last column is the difference at the end to the first method, paired by task,
with a 95 % bootstrap interval over tasks.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import argparse
import fnmatch
import functools
import heapq
import multiprocessing
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from regret import ASHA, BOHB, FIFO, GP, RANDOM, TPE, interval  # noqa: E402
from tasks import EPOCHS, FORMULAS, PARTS, Task, task  # noqa: E402

from tuner.schedulers import AnyScheduler  # noqa: E402
from tuner.schedulers.base import Decision, Resume, SchedulerSpec  # noqa: E402
from tuner.schedulers.build import build_scheduler  # noqa: E402
from tuner.search.state import SearchState  # noqa: E402
from tuner.searchers import AnySearch  # noqa: E402
from tuner.searchers.base import SearchSpec  # noqa: E402
from tuner.searchers.build import build_searcher  # noqa: E402
from tuner.simulator.comparison import full_time  # noqa: E402
from tuner.spec.configuration import Configuration  # noqa: E402
from tuner.spec.objective import Objective  # noqa: E402
from tuner.spec.outcome_constraints import OutcomeConstraint  # noqa: E402
from tuner.spec.problem import SearchProblem  # noqa: E402

SHARES = (0.25, 1.0)
CHANCE = 0.1
"""Of the formulas."""
_DRAWS, _BUNCH = 20_000, 2_000
_UNLIMITED = 1_000_000_000

NSGA2, OPTUNA_GP = {"kind": "optuna", "sampler": "nsga2"}, {"kind": "optuna", "sampler": "gp"}
PROMOTION = ASHA | {"variant": "promotion"}


@dataclass(frozen=True)
class Method:
    search: dict[str, Any]
    scheduler: dict[str, Any]
    weights: bool = False
    """Whether the two objectives are compared by their sum."""
    first_alone: bool = False
    """Whether the second metric is reported, and nobody looks at it."""


OBJECTIVES = {
    "random": Method(RANDOM, FIFO),
    "random + MO-ASHA": Method(RANDOM, ASHA),
    "random + MO-ASHA promotion": Method(RANDOM, PROMOTION),
    "random + ASHA, one objective": Method(RANDOM, ASHA, first_alone=True),
    "random + ASHA, weights": Method(RANDOM, ASHA, weights=True),
    "gp + ASHA, weights": Method(GP, ASHA, weights=True),
    "NSGA-II": Method(NSGA2, FIFO),
    "TPE": Method(TPE, FIFO),
    "TPE + MO-ASHA": Method(TPE, ASHA),
    "TPE + MO-ASHA promotion": Method(TPE, PROMOTION),
    "Optuna's GP": Method(OPTUNA_GP, FIFO),
    "Optuna's GP + MO-ASHA": Method(OPTUNA_GP, ASHA),
}
LIMIT = {
    "gp + ASHA": Method(GP, ASHA),
    "gp + ASHA promotion": Method(GP, PROMOTION),
    "gp": Method(GP, FIFO),
    "gp + ASHA, the limit looked at afterwards": Method(GP, ASHA, first_alone=True),
    "BOHB + ASHA": Method(BOHB, ASHA),
    "TPE + ASHA": Method(TPE, ASHA),
    "TPE": Method(TPE, FIFO),
    "random + ASHA": Method(RANDOM, ASHA),
    "random": Method(RANDOM, FIFO),
}

Pair = tuple[Task, Task]
Values = NDArray[np.float64]
Reached = tuple[float, Configuration, tuple[float, float]]
"""A complete trial: when it was, its configuration, and what it reported last."""


@functools.cache
def pair(family: str, number: int, part: str) -> Pair:
    """A task and its neighbour in the same part."""
    numbers = PARTS[part]  # type: ignore[index]
    other = numbers[(numbers.index(number) + 1) % len(numbers)]
    return task(f"{family} {number}", None), task(f"{family} {other}", None)


@functools.cache
def finals(family: str, number: int, part: str) -> Values:
    """The final values of random configurations: score and other, without noise and rounding."""
    tasks = pair(family, number, part)
    rng = np.random.default_rng(0)
    drawn = [tasks[0].true.space.sample(rng) for _ in range(_DRAWS)]
    return np.concatenate([true_finals(tasks, drawn[at : at + _BUNCH]) for at in range(0, _DRAWS, _BUNCH)])


def true_finals(tasks: Pair, configurations: list[Configuration]) -> Values:
    return np.column_stack([one.true.function(configurations)[0][:, -1] for one in tasks])


def limit_of(final: Values) -> float:
    """What "other" must reach."""
    return round(float(np.quantile(final[:, 1], 2 / 3)), 4)


def complete_trials(
    method: Method, tasks: Pair, limit: float | None, late: bool, workers: int, seed: int, seconds: float
) -> Iterator[Reached]:
    """Searches in virtual time, and gives each complete trial when it is."""
    search: SearchSpec = TypeAdapter(AnySearch).validate_python(method.search)
    scheduler: SchedulerSpec = TypeAdapter(AnyScheduler).validate_python(method.scheduler)
    weight = 1.0 if method.weights else None
    objectives: tuple[Objective, ...] = (Objective(metric="score", mode="max", weight=weight),)
    if limit is None and not method.first_alone:
        objectives += (Objective(metric="other", mode="max", weight=weight),)
    constraints: tuple[OutcomeConstraint, ...] = ()
    if limit is not None and not method.first_alone:
        constraints = (OutcomeConstraint("other", False, limit),)
    scalarised = len(objectives) > search.max_objectives
    modes = tuple(one.mode for one in objectives)
    space = tasks[0].seen.space
    problem = SearchProblem(space, modes, _UNLIMITED, EPOCHS, seed)
    state = SearchState(
        build_searcher(search, SearchProblem(space, modes[:1], _UNLIMITED, EPOCHS, seed) if scalarised else problem),
        build_scheduler(scheduler, problem),
        space,
        objectives,
        "epoch",
        scalarised=scalarised,
        constraints=constraints,
        models_margins=bool(constraints) and search.models_margins,
    )
    curves: dict[str, tuple[Values, Values, Configuration]] = {}
    reached: dict[str, int] = {}
    running: list[tuple[float, int, str]] = []
    scheduled, now = 0, 0.0

    def start_or_resume() -> str:
        action = state.next_action(True)
        while action is not None and not isinstance(action, Resume):
            state.end(action.trial_id, failed=False)
            action = state.next_action(True)
        if action is not None:
            return action.trial_id
        trial_id = f"{len(curves) + 1:05}"
        configuration = state.suggest(trial_id)
        assert configuration is not None
        values = [one.seen.function([configuration]) for one in tasks]
        reported = np.array([v[0][0] for v in values])
        if limit is not None and not late:
            reported[1] = true_finals(tasks, [configuration])[0, 1]
        curves[trial_id] = reported, values[0][1][0], configuration
        reached[trial_id] = 0
        state.add(trial_id, configuration)
        return trial_id

    def schedule(trial_id: str) -> None:
        nonlocal scheduled
        scheduled += 1
        spent, at = curves[trial_id][1], reached[trial_id]
        heapq.heappush(running, (now + spent[at] - (spent[at - 1] if at else 0.0), scheduled, trial_id))

    for _ in range(workers):
        schedule(start_or_resume())
    while running[0][0] <= seconds:
        now, _, trial_id = heapq.heappop(running)
        values, spent, configuration = curves[trial_id]
        score, other = values[:, reached[trial_id]]
        at = reached[trial_id] = reached[trial_id] + 1
        metrics = {"score": score, "other": other, "epoch": at}
        decision = state.report(trial_id, at, metrics, float(spent[at - 1]))
        if at == EPOCHS:
            yield now, configuration, (float(score), float(other))
        if decision is Decision.CONTINUE and at < EPOCHS:
            schedule(trial_id)
            continue
        if decision is not Decision.PAUSE:
            state.end(trial_id, failed=False)
        schedule(start_or_resume())


def hypervolume(points: Values) -> float:
    """The area that the points, to be made large, dominate above chance (Zitzler and Thiele 1998)."""
    area, top = 0.0, CHANCE
    for x, y in points[np.argsort(-points[:, 0])]:
        if y > top and x > CHANCE:
            area, top = area + (x - CHANCE) * (y - top), float(y)
    return area


def run(what: str, name: str, family: str, number: int, part: str, seed: int, workers: int, full: int) -> list[float]:
    """The measure at `SHARES`, and the number of complete trials."""
    tasks, final = pair(family, number, part), finals(family, number, part)
    seconds = full_time(tasks[0].seen, full, workers)
    limit = None if what == "objectives" else limit_of(final)
    drawn = zlib.crc32(f"{family} {number} {seed}".encode())
    found = list(complete_trials(METHODS[what][name], tasks, limit, what == "late_limit", workers, drawn, seconds))
    judge = front_found if limit is None else functools.partial(regret, limit=limit)
    measures = [judge([one for one in found if one[0] <= share * seconds], tasks, final) for share in SHARES]
    return [*measures, len(found)]


def front_found(found: list[Reached], tasks: Pair, final: Values) -> float:
    """The hypervolume of ``found``, in that of random configurations."""
    return hypervolume(true_finals(tasks, [one[1] for one in found])) / hypervolume(final) if found else 0.0


def regret(found: list[Reached], tasks: Pair, final: Values, limit: float) -> float:
    """Of the best-looking one that keeps the limit, both as reported."""
    feasible = final[final[:, 1] >= limit, 0]
    kept = [one for one in found if one[2][1] >= limit]
    score = feasible.min()
    if kept:
        score, other = true_finals(tasks, [max(kept, key=lambda one: one[2][0])[1]])[0]
        if other < limit - 0.05:  # more than noise and rounding explain
            raise AssertionError(f"a trial that reported {limit} or more is worth {other}")
    return float((feasible.max() - score) / (feasible.max() - np.median(feasible)))


METHODS: dict[str, dict[str, Method]] = {"objectives": OBJECTIVES, "limit": LIMIT, "late_limit": LIMIT}


def table(names: list[str], found: Values) -> str:
    """Markdown; ``found``: by method, task, seed, and what `run` returns."""
    lines = ["| method | at 25 % | at 100 % | complete trials | difference at 100 % |", "|---|---|---|---|---|"]
    means = found.mean(axis=2)
    for k, name in enumerate(names):
        error = means[k].std(axis=0, ddof=1) / np.sqrt(means.shape[1])
        cells = [name, *(f"{means[k, :, i].mean():.3f} ± {error[i]:.3f}" for i in range(2))]
        cells += [f"{means[k, :, 2].mean():.0f}", interval(means[k, :, 1] - means[0, :, 1]) if k else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=METHODS)
    parser.add_argument("--families", nargs="+", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("--part", choices=("development", "decision", "report"), default="development")
    parser.add_argument("--methods", nargs="+", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--full-trials", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()

    def matching(names: Any, patterns: list[str]) -> list[str]:
        return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]

    families = [family for family in matching(FORMULAS, options.families) if family != "costs"]
    names = matching(METHODS[options.what], options.methods)
    everything = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for family in families:
            numbers = PARTS[options.part]
            jobs = [
                (options.what, name, family, number, options.part, seed, options.workers, options.full_trials)
                for name in names
                for number in numbers
                for seed in range(options.seeds)
            ]
            found = np.array(pool.starmap(run, jobs, chunksize=1)).reshape(len(names), len(numbers), options.seeds, -1)
            everything.append(found)
            print(f"\n{family}\n\n{table(names, found)}", flush=True)
    print(f"\nall families\n\n{table(names, np.concatenate(everything, axis=1))}")


if __name__ == "__main__":
    main()
