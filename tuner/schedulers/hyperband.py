"""HyperBand: successive halving from several first rungs in turn."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tuner.schedulers.base import Decision, Resume, Scheduler, Stop, StoppingSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem

_ROUNDING = 1e-9
"""Powers of η that miss a whole number by less are that number."""


class Brackets(StoppingSpec):
    """The brackets of HyperBand, whatever search fills them.

    Bracket s starts n = ⌈(s_max + 1) / (s + 1) · η^s⌉ trials, which pause at R η^-s. When all of them are there, the
    best 1/η continue to a rung η times as high, and so forth up to R; the others end. New trials fill bracket s_max,
    then s_max - 1, …, 0 (which stops nothing early), and then s_max again: budgets below the sizes' sum never see the
    last ones. A bracket that no more trials can fill decides with those it has. While a rung waits for its last trials,
    free resources go to new trials. A trial that fails is the worst of its rung, and blocks nobody.
    """

    max_t: Annotated[int, Field(ge=1)] = 81
    """R in the paper: the value of ``time_attr`` at which a trial is complete."""
    reduction_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """η in the paper: the best 1/η of a rung continue."""
    stop_last_trials: bool = True
    """Whether a trial ends at ``max_t`` (or runs on until its function returns)."""
    grace_period: Annotated[int, Field(ge=1)] = 1
    """No rung is below this value of ``time_attr``: 1 in the paper (b_min in Falkner et al. 2018). Ray has it not."""

    @model_validator(mode="after")
    def _check(self) -> Brackets:
        self.check_grace_period(self.grace_period)
        self.check_rungs(self._rungs(), self.reduction_factor)
        return self

    @property
    def pauses(self) -> bool:
        return True

    @property
    def ends_at_max_t(self) -> bool:
        return self.stop_last_trials

    @property
    def compares_ranks(self) -> bool:
        return True

    @property
    def s_max(self) -> int:
        """⌊log_η(R / r)⌋: the number of times that the trials of the first bracket are halved."""
        return int(math.log(self.max_t / self.grace_period, self.reduction_factor) + _ROUNDING)

    def size(self, s: int) -> int:
        """n of bracket ``s``: with how many trials it starts."""
        return math.ceil((self.s_max + 1) / (s + 1) * self.reduction_factor**s - _ROUNDING)

    def rungs(self) -> tuple[int, ...]:
        """Of bracket s_max; those of bracket s are the last s + 1."""
        return tuple(self._rungs())

    def _rungs(self) -> Iterator[int]:
        for s in range(self.s_max, 0, -1):
            yield max(round(self.max_t * self.reduction_factor**-s), self.grace_period)
        yield self.max_t

    def expected_at_rungs(self, trials: int) -> tuple[float, ...]:
        """Exact: a synchronous halving does not depend on who is the best."""
        rounds, left = divmod(trials, sum(self.size(s) for s in range(self.s_max + 1)))
        pairs = zip(self._reached(trials - left), self._reached(left), strict=True)
        return self.with_audit((float(rounds * whole + rest) for whole, rest in pairs), trials)

    def _reached(self, trials: int) -> list[int]:
        """How many of ``trials`` reach each rung in one round of all brackets, which takes no more than it can."""
        reached, left = [0] * (self.s_max + 1), trials
        for s in range(self.s_max, -1, -1):
            started = min(left, self.size(s))
            for k in range(self.s_max + 1):
                reached[k] += _survivors(started, self.reduction_factor, max(0, k - (self.s_max - s)))
            left -= started
        return reached

    def build(self, task: SearchProblem) -> Scheduler:
        return Halving(self, task.sign)


class HyperBand(Brackets):
    """HyperBand (Li et al. 2018, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization").

    Ray's ``HyperBandScheduler`` is not used.

    - It starts at the bracket that halves least: its first ``log_η(R) + 1`` trials run to the end.
    - It halves a bracket only after every place was taken and all trials there have reported at once. It counts a trial
      that ended as one that still has to come. So with short trials and few slots nothing is stopped: trials end before
      there are others to compare them with.
    - It rounds the survivors up, and never decides for a bracket that stays unfilled.
    - It acts on Ray's trials only, and forgets its brackets in a restore.

    Example:
        >>> import tuner
        >>> tuner.schedulers.HyperBand(time_attr="epoch", max_t=27).rungs()
        (1, 3, 9, 27)
    """

    kind: Literal["hyperband"] = "hyperband"
    """The name of this scheduler."""


def _survivors(started: int, eta: float, halvings: int) -> int:
    """n_i in the paper: how many of ``started`` trials are left after ``halvings``; the best one always."""
    return max(1, int(started * eta**-halvings + _ROUNDING)) if started else 0


class _Bracket:
    """One successive halving on ``levels``, its rungs below R."""

    def __init__(self, levels: Sequence[int], size: int, eta: float) -> None:
        self._levels = levels
        self._size = size
        self._eta = eta
        self._started = 0
        self._closed = False
        self._halvings = 0
        self._running: set[str] = set()
        """Trials on their way to the current rung."""
        self._waiting: dict[str, float] = {}
        """Quality of the trials that arrived there, in the order of arrival."""

    @property
    def full(self) -> bool:
        return self._started >= self._size

    def join(self, trial_id: str) -> None:
        self._started += 1
        self._running.add(trial_id)
        self._closed = self.full

    def close(self) -> None:
        """No more trials join."""
        self._closed = True

    def arrives(self, trial_id: str, step: int, quality: float) -> bool:
        """Whether ``step`` is at or beyond the current rung, where the trial then waits."""
        if self._halvings == len(self._levels) or step < self._levels[self._halvings]:
            return False
        self._running.discard(trial_id)
        self._waiting[trial_id] = quality
        return True

    def leave(self, trial_id: str) -> None:
        self._running.discard(trial_id)
        self._waiting.pop(trial_id, None)

    def halve(self) -> tuple[list[str], list[str]]:
        """(those that continue, those that end), once nobody is missing at the current rung; until then nobody."""
        if not self._closed or self._running:
            return [], []
        self._halvings += bool(self._waiting)
        places = _survivors(self._started, self._eta, self._halvings)
        ranked = sorted(self._waiting, key=lambda trial_id: -self._waiting[trial_id])
        self._running, self._waiting = set(ranked[:places]), {}
        return ranked[:places], ranked[places:]


class Halving(Scheduler):
    """Fills brackets in turn, and halves each of them on its own."""

    def __init__(self, spec: Brackets, sign: int) -> None:
        self._spec = spec
        self._sign = sign
        self._opened = 0
        """How many brackets."""
        self._filling: _Bracket | None = None
        self._brackets: dict[str, _Bracket] = {}
        """Of each trial that has not ended."""
        self._verdicts: OrderedDict[str, Resume | Stop] = OrderedDict()
        """What is to become of paused trials, by trial."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        if self._filling is None or self._filling.full:
            skipped = self._opened % (self._spec.s_max + 1)  # s_max - s in the paper
            s, levels = self._spec.s_max - skipped, self._spec.rungs()[skipped:-1]
            self._filling = _Bracket(levels, self._spec.size(s), self._spec.reduction_factor)
            self._opened += 1
        self._filling.join(trial_id)
        self._brackets[trial_id] = self._filling

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        """It joins no bracket, whose trials have all trained alike: nothing stops it early."""

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        if step >= self._spec.max_t:
            return Decision.STOP if self._spec.stop_last_trials else Decision.CONTINUE
        bracket = self._brackets.get(trial_id)
        if bracket is None or not bracket.arrives(trial_id, step, self._sign * value):
            return Decision.CONTINUE
        self._halve(bracket)
        verdict = self._verdicts.pop(trial_id, None)  # the last to arrive need not pause to learn it
        if verdict is None:
            return Decision.PAUSE
        return Decision.CONTINUE if isinstance(verdict, Resume) else Decision.STOP

    def remove(self, trial_id: str) -> None:
        self._verdicts.pop(trial_id, None)
        bracket = self._brackets.pop(trial_id, None)
        if bracket:
            bracket.leave(trial_id)
            self._halve(bracket)

    def next_action(self, more: bool) -> Resume | Stop | None:
        if self._filling and not more:
            self._filling.close()
            self._halve(self._filling)
            self._filling = None
        return self._verdicts.popitem(last=False)[1] if self._verdicts else None

    def _halve(self, bracket: _Bracket) -> None:
        good, bad = bracket.halve()
        self._verdicts.update((trial_id, Stop(trial_id)) for trial_id in bad)
        self._verdicts.update((trial_id, Resume(trial_id)) for trial_id in good)
