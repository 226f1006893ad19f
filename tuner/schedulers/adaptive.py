"""Asynchronous successive halving whose first rung follows the trust that early ranks deserve."""

from __future__ import annotations

from tuner.schedulers.base import Decision, Scheduler
from tuner.schedulers.halving import Promotion, quantile
from tuner.schedulers.trust import Trust


class AdaptiveStopping(Scheduler):
    """`Stopping` at the rungs that `Trust` chooses; at the other levels a trial is only looked at."""

    def __init__(self, max_t: int, eta: float, sign: int, stop_last_trials: bool) -> None:
        self.trust = Trust(eta, max_t)
        self._max_t = max_t
        self._eta = eta
        self._sign = sign
        self._stop_last_trials = stop_last_trials

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        level, quality = self.trust.reached(trial_id, step), self._sign * value
        goes_on = step < self._max_t or not self._stop_last_trials
        if level is not None and self.trust.compares_at(level):
            goes_on = quality > quantile(self.trust.qualities[level], 1 - 1 / self._eta)
        if level is not None:
            self.trust.record(trial_id, level, quality)
        return Decision.CONTINUE if goes_on else Decision.STOP


class AdaptivePromotion(Promotion):
    """`Promotion` at the rungs that `Trust` chooses; a trial that waits at a rung of before is promoted as ever."""

    def __init__(self, max_t: int, eta: float, sign: int, stop_last_trials: bool) -> None:
        self.trust = Trust(eta, max_t)
        super().__init__(self.trust.levels[:-1], max_t, eta, sign, stop_last_trials)

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        decision = super().report(trial_id, step, value)
        level = self.trust.reached(trial_id, step)
        if level is not None:
            self.trust.record(trial_id, level, self._sign * value)
        return decision

    def _compares_at(self, level: int) -> bool:
        return self.trust.compares_at(level)
