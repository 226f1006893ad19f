"""Bayesian optimisation by a Gaussian process that learns from every report."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from tuner.searchers.base import Searcher, SearchSpec, initial_trials
from tuner.searchers.unsupported import Problems, unsupported_by_model
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

_ENUMERATED = 2000
"""A space of so many configurations is gone through as a whole, and each of them is asked once."""


class Gp(SearchSpec):
    """Expected improvement under a Gaussian process over the final values of all trials, the stopped ones included.

    - A trial that was stopped, that waits or that still runs counts with the value that it is expected to reach. A
      chain of regressions, from each level of fidelity to the next, gives that value and its variance. The variance is
      noise of the trial to the process.
    - The process has a Matérn 5/2 kernel with a length scale for each parameter, of which the prior grows with the
      number of parameters (Hvarfner et al. 2024).
    - The first trial is the middle of all ranges, if there are no defaults, priors or earlier trials.
    - Trials that have not reported yet count with their predicted value, so that many workers do not ask the same.
    - A trial that failed counts as one of the worst.
    - Values that are much worse than the median count as less bad, so that a diverged trial hides no differences.

    - A process of its own gives the probability that a configuration keeps an outcome constraint, which multiplies the
      expected improvement over the best feasible trial (Gardner et al. 2014). Until a trial is feasible, only these
      probabilities count.

    Conditional parameters, choices and integers are searched as they are. Choices among ascending numbers are ordered.
    Priors multiply the expected improvement by density^(β/n) after n complete trials (πBO, Hvarfner et al. 2022).

    Example:
        >>> import tuner
        >>> tuner.searchers.Gp(seed=0).max_history
        200
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "gp", "n_initial_points": 4}]})

    kind: Literal["gp"] = "gp"
    """The name of this search algorithm."""
    n_initial_points: int | None = Field(default=None, ge=1)
    """Trials with a report before anything is modelled; until then a scrambled Sobol sequence spreads them evenly.
    Absent: 8, or a third of ``budget.trials`` where that is less."""
    max_history: int = Field(default=200, ge=50, le=1000)
    """The most trials that the process is fitted to, so that a suggestion never costs more: half of them are those
    with the best predicted values."""

    def build(self, task: SearchProblem) -> Searcher:
        from tuner.searchers.gp.searcher import GpSearcher

        return GpSearcher(task, self._initial(task.trials), self.max_history, not self.repeats(task.space))

    def for_trials(self, trials: int) -> Gp:
        return self.model_copy(update={"n_initial_points": self._initial(trials)})

    def _initial(self, trials: int) -> int:
        return self.n_initial_points or initial_trials(8, trials)

    def repeats(self, space: Space) -> bool:
        return not isinstance(space.size, int) or space.size > _ENUMERATED

    @property
    def models_margins(self) -> bool:
        return True

    def modelled(self, task: SearchProblem, slots: int) -> float:
        return self._after(self._initial(task.trials), task, slots)

    def validate_space(self, space: Space) -> Problems:
        return unsupported_by_model(space)
