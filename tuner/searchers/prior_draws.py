"""How a searcher whose library knows no priors makes use of them."""

from __future__ import annotations

from typing import Any

from tuner.spec.space import Path
from tuner.spec.task import Task

_SALT = 0x7072696F72
"""Keeps these draws apart from other ones with the same seed."""


class PriorDraws:
    """Draws the parameters that have a prior from it, in a share of the trials that shrinks as 1/n.

    The n-th trial does so with probability min(1/2, β/n). The weight of a belief thus decays as in πBO (Hvarfner et al.
    2022, where the prior π enters as π^(β/n)), and half of the early draws are left to the searcher as in PriorBand
    (Mallik et al. 2023): a wrong prior costs about β (1 + ln(n / 2β)) of n trials, and a model then knows better.
    """

    def __init__(self, task: Task, beta: int) -> None:
        from numpy.random import default_rng

        self._believed = [p for p in task.space.parameters if p.prior is not None]
        self._beta = beta
        self._asked = 0
        self._rng = default_rng([task.seed, _SALT])

    def draw(self) -> dict[Path, Any]:
        """The values of the next trial that come from priors, active or not; mostly none."""
        self._asked += 1
        if not self._believed or self._rng.random() >= min(0.5, self._beta / self._asked):
            return {}
        return {p.path: p.prior.sample(p.domain, self._rng) for p in self._believed if p.prior is not None}
