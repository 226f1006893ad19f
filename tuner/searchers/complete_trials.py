"""How much a search has trained: what the weight of a prior decays with."""

from __future__ import annotations


class CompleteTrials:
    """Counts in complete trials: steps of all trials over ``max_t``, or ended trials where None says what is complete.

    In πBO (Hvarfner et al. 2022) n counts full evaluations. Were it to count the trials that started, a scheduler that
    stops most of them after one step would spend a prior before it was ever tried.
    """

    def __init__(self, max_t: int | None) -> None:
        self._max_t = max_t
        self._steps: dict[str, int] = {}
        """Of each trial that has not ended: its latest step."""
        self._total = 0.0

    @property
    def count(self) -> float:
        """As many complete trials cost as much."""
        return self._total if self._max_t is None else self._total / self._max_t

    def on_report(self, trial_id: str, step: int) -> None:
        """A trial reported at ``step``."""
        if self._max_t is not None:
            reached, before = min(step, self._max_t), self._steps.get(trial_id, 0)
            self._total += max(0, reached - before)
            self._steps[trial_id] = max(reached, before)

    def end(self, trial_id: str, step: int) -> None:
        """A trial ended whose last report, if there was one, was at ``step``."""
        self.on_report(trial_id, step)
        self._steps.pop(trial_id, None)
        if self._max_t is None:
            self._total += 1
