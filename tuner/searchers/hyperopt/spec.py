"""HyperOpt's tree-structured Parzen estimator (Bergstra et al. 2011 and 2013), asked and told directly."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from tuner.searchers.base import Searcher, SearchSpec, initial_trials
from tuner.searchers.unsupported import Problems, unsupported_by_model
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space


class HyperOpt(SearchSpec):
    """TPE by HyperOpt: each parameter is modelled by itself, from the trials in which it was active.

    HyperOpt models a space of nested choices so. The model sees the values at one fidelity, the highest at which
    ``n_initial_points`` trials reported. Trials that a scheduler stopped or paused before that are left out. A failed
    trial counts as worse than all others, and so does a running one until it gets there. If a parameter has a prior, a
    share of the trials that shrinks as 1/n draws it from the prior (`PriorDraws`).

    HyperOpt's adaptive TPE is left out. Version 0.3.0 draws from Python's and numpy's global generators, so that it
    neither has a seed nor continues after a restore. It also needs lightgbm, which HyperOpt does not install.

    Example:
        >>> import tuner
        >>> tuner.searchers.HyperOpt(seed=0, gamma=0.2).gamma
        0.2
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "hyperopt", "n_initial_points": 4}]})

    kind: Literal["hyperopt"] = "hyperopt"
    """The name of this search algorithm."""
    n_initial_points: int | None = Field(default=None, ge=1)
    """Trials with a value before anything is modelled; until then it draws at random. Absent: 20, or a third of
    ``budget.trials`` where that is less."""
    gamma: float = Field(default=0.25, gt=0, le=1)
    """Of n trials the best ``gamma`` √n, at most 25, are the good ones (HyperOpt's rule; the paper has a share)."""
    n_EI_candidates: int = Field(default=24, ge=1)
    """Draws from the model of the good ones, of which the one with the largest expected improvement is taken."""
    prior_weight: float = Field(default=1.0, gt=0)
    """Weight of the whole domain in each model, an observation having the weight 1."""
    max_history: int = Field(default=500, ge=50)
    """The most trials with a value that a model is fitted to, so that a suggestion never costs more: when there are
    more, the best quarter of it and the latest. Of these at most a quarter of ``max_history`` failed."""

    @property
    def compares_ranks(self) -> bool:
        return True

    def build(self, task: SearchProblem) -> Searcher:
        from tuner.searchers.hyperopt.searcher import HyperOptSearcher, TpeOptions

        options = TpeOptions(self.gamma, self.n_EI_candidates, self.prior_weight, self.max_history)
        return HyperOptSearcher(task, options, self._initial(task.trials))

    def _initial(self, trials: int) -> int:
        return self.n_initial_points or initial_trials(20, trials)

    def for_trials(self, trials: int) -> HyperOpt:
        return self.model_copy(update={"n_initial_points": self._initial(trials)})

    def modelled(self, task: SearchProblem, slots: int) -> float:
        return self._after(self._initial(task.trials), task, slots)

    def validate_space(self, space: Space) -> Problems:
        return unsupported_by_model(space)
