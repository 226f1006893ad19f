"""Asynchronous successive halving whose first rung follows the trust that early ranks deserve."""

from __future__ import annotations

from tuner.schedulers.asha.first_rung import FirstRungSelector
from tuner.schedulers.asha.halving import PromotionAsha, signed
from tuner.schedulers.asha.rungs import Cut
from tuner.schedulers.base import Decision, Resume, Scheduler, Stop
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Point


class AdaptiveStopping(Scheduler):
    """`StoppingAsha` at the rungs that `FirstRungSelector` chooses; at the other levels a trial is only looked at."""

    def __init__(self, max_t: int, eta: float, sign: int, stop_last_trials: bool) -> None:
        self.trust = FirstRungSelector(eta, max_t)
        self._max_t = max_t
        self._cuts = {level: Cut(eta) for level in self.trust.levels}
        self._sign = sign
        self._stop_last_trials = stop_last_trials

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        self.trust.begin_at(trial_id, step)

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        level, quality = self.trust.reached(trial_id, step), self._sign * value
        goes_on = step < self._max_t or not self._stop_last_trials
        if level is not None and self.trust.compares_at(level, quality):
            goes_on = self._cuts[level].continues(quality, self.trust.qualities[level])
        if level is not None:
            self.trust.record(trial_id, level, quality)
        return Decision.CONTINUE if goes_on else Decision.STOP


class AdaptivePromotion(PromotionAsha):
    """`PromotionAsha` at the rungs that `FirstRungSelector` chooses.

    A trial that waits at an earlier rung is promoted as usual. If that rung is below the present first one, its rank
    there says too little: such trials are resumed in the order of arrival, before any new trial starts.
    """

    def __init__(self, max_t: int, eta: float, sign: int, stop_last_trials: bool) -> None:
        self.trust = FirstRungSelector(eta, max_t)
        super().__init__(self.trust.levels[:-1], max_t, eta, (sign,), stop_last_trials)

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        super().add_at(trial_id, configuration, step)
        self.trust.begin_at(trial_id, step)

    def report_all(self, trial_id: str, step: int, values: tuple[float, ...]) -> Decision:
        decision = super().report_all(trial_id, step, values)
        level = self.trust.reached(trial_id, step)
        if level is not None:
            self.trust.record(trial_id, level, *signed(self._signs, values))
        return decision

    def next_action(self, more: bool) -> Resume | Stop | None:
        action = super().next_action(more)
        if action is not None:
            return action
        for rung in self._rungs:
            trial_id = rung.release() if rung.level < self.trust.first_rung else None
            if trial_id is not None:
                return Resume(trial_id)
        return None

    def _compares_at(self, level: int, point: Point) -> bool:
        return self.trust.compares_at(level, *point)
