"""How priors are used by any searcher, and by one whose library knows none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.searchers.complete_trials import CompleteTrials
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import GridSearch, Parameter, Path, Space

_SALT = 0x7072696F72
"""Keeps these draws apart from other ones with the same seed."""

_TRIES = 1000
"""Draws in search of a point with the believed values that the constraints allow."""


def first_points(task: SearchProblem) -> dict[str, Configuration | None]:
    """The defaults, and the mode of the priors; the other parameters are drawn so that the constraints hold.

    In the first point priors stand in for missing defaults, and in the second one defaults for missing priors. A point
    is None where no draw satisfies the constraints. There are no points where no parameter has such a value, and where
    ``grid_search`` parameters are to be gone through in turn.
    """
    from numpy.random import default_rng

    parameters = task.space.parameters
    if any(isinstance(p.domain, GridSearch) for p in parameters):
        return {}
    rng = default_rng([task.seed, _SALT, 1])

    def default(parameter: Parameter) -> Any:
        return parameter.default.value if parameter.default else believed(parameter)

    def believed(parameter: Parameter) -> Any:
        if parameter.prior:
            return parameter.prior.mode(parameter.domain)
        return parameter.default.value if parameter.default else parameter.domain.sample(rng)

    found: dict[str, Configuration | None] = {}
    if any(p.default for p in parameters):
        found["all defaults"] = _allowed(task.space, default)
    if any(p.prior for p in parameters):
        found["the mode of all priors"] = _allowed(task.space, believed)
    return found


def _allowed(space: Space, choose: Callable[[Parameter], Any]) -> Configuration | None:
    """The first of `_TRIES` configurations that satisfies the constraints."""
    return next(filter(space.allows, (space.build(choose) for _ in range(_TRIES))), None)


class PriorDraws:
    """Draws the parameters that have a prior from it, in a share of the trials that shrinks as 1/n.

    After the training of n complete trials, a trial does so with probability min(1/2, β/n). The weight of a belief
    decays as in πBO (Hvarfner et al. 2022), where the prior π enters as π^(β/n). Half of the early draws are left to
    the searcher as in PriorBand (Mallik et al. 2023). So of n complete trials a wrong prior costs about β (1 + ln(n /
    2β)).
    """

    def __init__(self, task: SearchProblem, beta: int) -> None:
        from numpy.random import default_rng

        self._with_prior = [p for p in task.space.parameters if p.prior is not None]
        self._beta = beta
        self.trained = CompleteTrials(task.max_t)
        self._rng = default_rng([task.seed, _SALT])

    def draw(self) -> dict[Path, Any]:
        """The values of the next trial that come from priors, active or not; mostly none."""
        if not self._with_prior or self._rng.random() >= min(0.5, self._beta / max(self.trained.count, 1)):
            return {}
        return {p.path: p.prior.sample(p.domain, self._rng) for p in self._with_prior if p.prior is not None}
