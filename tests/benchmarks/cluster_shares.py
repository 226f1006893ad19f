"""How a team shares a cluster: waiting times, fairness, use and what preemption costs, in virtual time.

    python tests/benchmarks/cluster_shares.py [--seeds 3] [--hours 72] [--gpus 512] [--users 20] [-o PICTURE]

Searches of `--users` users come at random times. Some users submit much more than others, and several at once.
A search has 16 to 512 trials. A trial takes 1, 2, 4 or 8 GPUs, and 5 minutes to 6 hours to its end. It comes to rungs
at a sixteenth and a quarter of that; a quarter of the trials continue at each. A trial that pauses there keeps its
work, and takes 30 seconds to continue. Checkpoints are written at each tenth of a training and at rungs.

- fifo: the searches in their order, each as many trials as it wants.
- equal parts: each user has the same part of the cluster, and his searches share it; nobody may use another's.
- fair: `tuner.service.shares` is asked every 30 seconds. A trial above its search's allotment pauses at its next rung.
- fair, checkpoints: the same, and it pauses at its next checkpoint.
- fair, killed: the same, and it is killed at once, and later continues from its last checkpoint.
- fair, nothing stops: the same, and places are given away only when trials end or are stopped by their scheduler.

The wait of a search is the time until its first trial runs. Slowdown: the time from submission to the end, divided by
what the search takes alone on the cluster. The error of shares is half of the sum over users of |had - fair|, in parts
of what was asked for or is there; the mean over time. Fair is weighted max-min. Use is the part of the GPUs that train,
of those for which there was work. Lost: seconds of training that are done again, and seconds of starts, for each GPU
that was given away; handed over: seconds until it was free. ± is the standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import multiprocessing
import statistics
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tuner.service.shares import Demand, Member, Shares  # noqa: E402

TICK_S = 30.0
RESUME_S = 30.0
RUNGS = (1 / 16, 1 / 4, 1.0)
CHECKPOINTS = 10
REDUCTION = 4
POLICIES = ("fifo", "equal parts", "fair, nothing stops", "fair", "fair, checkpoints", "fair, killed")

Stops = Literal["never", "rung", "checkpoint", "now"]
STOPS: dict[str, Stops] = {"fair": "rung", "fair, checkpoints": "checkpoint", "fair, killed": "now"}


@dataclass(eq=False)
class Trial:
    """One of a search; `done` and `until` are shares of its training."""

    length_s: float
    best_rung: int
    """Up to which its scheduler lets it continue."""
    done: float = 0.0
    started: float = 0.0
    """When its present part began to train."""
    epoch: int = 0
    """Counts its parts, so that an event of an earlier one is known."""
    marked: float | None = None
    """When it was to be given away."""

    @property
    def next_rung(self) -> float:
        return next(rung for rung in RUNGS if rung > self.done + 1e-9)

    @property
    def next_checkpoint(self) -> float:
        return min(self.next_rung, (int(self.done * CHECKPOINTS + 1e-9) + 1) / CHECKPOINTS)

    def at(self, now: float) -> float:
        """How much is done at a time."""
        return self.done + max(0.0, now - self.started) / self.length_s


@dataclass(eq=False)
class Search:
    """Submitted by a user."""

    name: str
    user: str
    submitted: float
    gpus: int
    waiting: list[Trial]
    """New, or paused; the last one is next."""
    alone_s: float = 0.0
    running: set[Trial] = field(default_factory=set)
    first: float | None = None
    ended: float | None = None

    @property
    def demand(self) -> Demand:
        count = len(self.running) + len(self.waiting)
        return Demand(self.name, self.user, count, self.gpus, submitted=self.submitted)


def searches(seed: int, users: int, hours: float, gpus: int) -> list[Search]:
    """Some hundreds; about as much work as the cluster does in the time."""
    rng = np.random.default_rng(seed)
    activity = rng.lognormal(0, 1, users)
    found: list[Search] = []
    work, room = 0.0, 0.8 * gpus * hours * 3600
    while work < room:
        user = f"user {rng.choice(users, p=activity / activity.sum()):02}"
        when = float(rng.uniform(0, 0.75 * hours * 3600))
        for _ in range(int(rng.geometric(0.4))):
            length = float(np.exp(rng.uniform(np.log(300), np.log(6 * 3600))))
            wide = int(rng.choice([1, 2, 4, 8], p=[0.7, 0.15, 0.1, 0.05]))
            count = int(np.exp(rng.uniform(np.log(16), np.log(512))))
            trials = [Trial(length * float(rng.uniform(0.7, 1.4)), _best_rung(rng)) for _ in range(count)]
            spent = sum(trial.length_s * RUNGS[trial.best_rung] for trial in trials)
            longest = max(trial.length_s * RUNGS[trial.best_rung] for trial in trials)
            alone = max(longest, spent * wide / gpus)
            found.append(Search(f"s{len(found):04}", user, when, wide, trials, alone))
            work += spent * wide
    return sorted(found, key=lambda one: (one.submitted, one.name))


def _best_rung(rng: np.random.Generator) -> int:
    rung = 0
    while rung < len(RUNGS) - 1 and rng.random() < 1 / REDUCTION:
        rung += 1
    return rung


@dataclass
class Outcome:
    """Of one policy and seed."""

    waits: list[float]
    slowdowns: list[float]
    share_error: float
    use: float
    lost: float
    handed_over: float
    given_away: int
    had: np.ndarray
    """GPUs of each user at each tick."""


class Cluster:
    """Runs searches under a policy."""

    def __init__(self, policy: str, found: list[Search], users: int, gpus: int) -> None:
        self.policy, self.found, self.gpus = policy, found, gpus
        self.users = [f"user {number:02}" for number in range(users)]
        self.shares = Shares([Member(name) for name in self.users])
        self.stops = STOPS.get(policy, "never")
        self.now, self.free, self.trains = 0.0, float(gpus), 0.0
        self.events: list[tuple[float, int, Search, Trial, int]] = []
        self.count = 0
        self.allotted: dict[str, int] = {}
        self.open: list[Search] = []
        self.lost: list[float] = []
        self.handed: list[float] = []

    def run(self) -> Outcome:
        """Until all searches have ended."""
        coming = list(reversed(self.found))
        errors: list[float] = []
        used: list[tuple[float, float]] = []
        had_by: list[list[float]] = []
        while coming or self.open:
            while coming and coming[-1].submitted <= self.now:
                self.open.append(coming.pop())
            demands = [one.demand for one in self.open]
            fair = self.shares.fair(demands, self.gpus)
            self._allot(demands)
            self._fill()
            had = Counter[str]()
            for one in self.open:
                had[one.user] += len(one.running) * one.gpus
            asked = min(self.gpus, sum(one.trials * one.gpus for one in demands))
            if asked:
                errors.append(sum(abs(had[user] - fair[user]) for user in self.users) / 2 / asked)
                used.append((sum(had.values()), asked))
            had_by.append([had[user] for user in self.users])
            self.shares.pass_time(TICK_S, fair, had)
            self._until(self.now + TICK_S)
        return Outcome(
            [one.first - one.submitted for one in self.found if one.first is not None],
            [(one.ended - one.submitted) / one.alone_s for one in self.found if one.ended is not None],
            statistics.fmean(errors),
            self.trains / (TICK_S * sum(asked for _, asked in used)),
            sum(self.lost) / max(len(self.lost), 1),
            statistics.fmean(self.handed) if self.handed else 0.0,
            len(self.lost),
            np.array(had_by),
        )

    def _allot(self, demands: list[Demand]) -> None:
        if self.policy == "fifo":
            left = float(self.gpus)
            for one in demands:
                self.allotted[one.search] = count = min(one.trials, int(left // one.gpus))
                left -= count * one.gpus
        elif self.policy == "equal parts":
            for user in self.users:
                own = [one for one in demands if one.member == user]
                part = self.gpus // len(self.users)
                running = {one.name: len(one.running) for one in self.open}
                got = Shares([Member(user)]).allot(own, part, running)
                self.allotted.update({name: allotment.trials for name, allotment in got.items()})
        else:
            running = {one.name: len(one.running) for one in self.open}
            got = self.shares.allot(demands, self.gpus, running)
            self.allotted.update({name: allotment.trials for name, allotment in got.items()})
        for one in self.open:
            self._mark(one)

    def _mark(self, search: Search) -> None:
        """Trials above the allotment are given away: those first that have done least since they were saved."""
        surplus = len(search.running) - self.allotted[search.name]
        marked = [trial for trial in search.running if trial.marked is not None]
        for trial in marked[: max(0, len(marked) - max(surplus, 0))]:
            trial.marked = None
        if self.stops == "never" or surplus <= len(marked):
            return
        order = sorted((t for t in search.running if t.marked is None), key=lambda t: self._rest(t), reverse=False)
        for trial in order[: surplus - len(marked)]:
            trial.marked = self.now
            if self.stops == "now":
                self._kill(search, trial)
            elif self.stops == "checkpoint":
                self._schedule(search, trial)

    def _rest(self, trial: Trial) -> float:
        """Seconds until it could be given away for nothing, or that are lost if it is killed."""
        done = trial.at(self.now)
        if self.stops == "now":
            return (done - self._saved(trial)) * trial.length_s
        goal = trial.next_rung if self.stops == "rung" else trial.next_checkpoint
        return (goal - done) * trial.length_s

    def _saved(self, trial: Trial) -> float:
        done = trial.at(self.now)
        rungs = [rung for rung in RUNGS if rung <= done + 1e-9]
        return max(trial.done, int(done * CHECKPOINTS + 1e-9) / CHECKPOINTS, *rungs, 0.0)

    def _kill(self, search: Search, trial: Trial) -> None:
        saved = self._saved(trial)
        self.trains += max(0.0, self.now - trial.started) * search.gpus
        gone = (trial.at(self.now) - saved) * trial.length_s
        self.trains -= gone * search.gpus
        self._give_away(search, trial, gone)
        trial.done = saved
        self._leave(search, trial)
        search.waiting.append(trial)

    def _give_away(self, search: Search, trial: Trial, gone: float) -> None:
        assert trial.marked is not None
        for _ in range(search.gpus):
            self.lost.append(gone + RESUME_S)
            self.handed.append(self.now - trial.marked)

    def _leave(self, search: Search, trial: Trial) -> None:
        trial.epoch += 1
        trial.marked = None
        search.running.discard(trial)
        self.free += search.gpus

    def _fill(self) -> None:
        """Starts trials where the allotment has room."""
        for one in sorted(self.open, key=lambda one: len(one.running) - self.allotted[one.name]):
            self._start(one)

    def _start(self, search: Search) -> None:
        while search.waiting and len(search.running) < self.allotted[search.name] and self.free >= search.gpus:
            trial = search.waiting.pop()
            trial.started = self.now + RESUME_S
            search.first = self.now if search.first is None else search.first
            search.running.add(trial)
            self.free -= search.gpus
            self._schedule(search, trial)

    def _schedule(self, search: Search, trial: Trial) -> None:
        """The next moment at which something is decided about the trial."""
        trial.epoch += 1
        done = trial.at(self.now)
        goal = trial.next_rung
        if trial.marked is not None and self.stops == "checkpoint":
            goal = min(goal, (int(done * CHECKPOINTS + 1e-9) + 1) / CHECKPOINTS)
        due = max(trial.started, self.now) + (goal - done) * trial.length_s
        self.count += 1
        heapq.heappush(self.events, (due, self.count, search, trial, trial.epoch))

    def _until(self, end: float) -> None:
        while self.events and self.events[0][0] <= end:
            self.now, _, search, trial, epoch = heapq.heappop(self.events)
            if trial.epoch == epoch:
                self._arrive(search, trial)
        self.now = end

    def _arrive(self, search: Search, trial: Trial) -> None:
        """The trial is at a rung, or at a checkpoint at which it is given away."""
        self.trains += (self.now - trial.started) * search.gpus
        trial.done, trial.started = min(1.0, trial.at(self.now)), self.now
        for rung in RUNGS:
            if abs(trial.done - rung) < 1e-6:
                trial.done = rung
        if trial.done >= RUNGS[trial.best_rung] - 1e-9:
            self._leave(search, trial)
        elif trial.marked is not None:
            self._give_away(search, trial, 0.0)
            self._leave(search, trial)
            search.waiting.append(trial)
        else:
            self._schedule(search, trial)
            return
        if not search.waiting and not search.running:
            search.ended = self.now
            self.open.remove(search)
        self._start(search)  # the places of others are filled when the service looks next


def outcome(policy: str, seed: int, users: int, hours: float, gpus: int) -> Outcome:
    return Cluster(policy, searches(seed, users, hours, gpus), users, gpus).run()


def told(values: list[float], form: str) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{format(statistics.fmean(values), form)} ± {format(spread, form)}"


def picture(file: str, found: dict[str, Outcome], users: int, until: float) -> None:
    """GPUs of each user over time, in the first ``until`` hours."""
    import matplotlib
    from matplotlib.figure import Figure

    colors = matplotlib.colormaps["tab20"](np.arange(users) % 20)
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(len(found), sharex=True)
    for axis, (policy, one) in zip(axes, found.items(), strict=True):
        hours = np.arange(len(one.had)) * TICK_S / 3600
        axis.stackplot(hours[::10], one.had[::10].T, linewidth=0, colors=colors)
        axis.set_xlim(0, until)
        axis.margins(y=0)
        axis.set_title(policy, loc="left", fontsize=10)
        axis.set_ylabel("GPUs")
    axes[-1].set_xlabel("hours; one colour for each user")
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=72)
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-o", "--output", help="a picture of fifo, equal parts and fair, of the first seed")
    options = parser.parse_args()
    some = [searches(seed, options.users, options.hours, options.gpus) for seed in range(options.seeds)]
    print(f"searches: {[len(one) for one in some]}; trials: {[sum(len(s.waiting) for s in one) for one in some]}\n")
    run = functools.partial(outcome, users=options.users, hours=options.hours, gpus=options.gpus)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        jobs = [(policy, seed) for policy in POLICIES for seed in range(options.seeds)]
        results = pool.starmap(run, jobs, chunksize=1)
    found = {policy: results[k * options.seeds : (k + 1) * options.seeds] for k, policy in enumerate(POLICIES)}
    print(
        "| policy | wait, median | wait, 95 % | slowdown, median | 95 % | error of shares | use | GPUs given away "
        "| lost, s a GPU | handed over after |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for policy, outcomes in found.items():
        cells = [
            policy,
            *(told([float(np.quantile(one.waits, q)) / 60 for one in outcomes], ".0f") + " min" for q in (0.5, 0.95)),
            *(told([float(np.quantile(one.slowdowns, q)) for one in outcomes], ".1f") for q in (0.5, 0.95)),
            told([one.share_error for one in outcomes], ".3f"),
            told([one.use for one in outcomes], ".3f"),
            told([float(one.given_away) for one in outcomes], ".0f"),
            told([one.lost for one in outcomes], ".0f"),
            told([one.handed_over / 60 for one in outcomes], ".1f") + " min",
        ]
        print(f"| {' | '.join(cells)} |")
    if options.output:
        picture(
            options.output,
            {p: found[p][0] for p in ("fifo", "equal parts", "fair, checkpoints")},
            options.users,
            options.hours,
        )


if __name__ == "__main__":
    main()
