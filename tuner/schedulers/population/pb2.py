"""Population-based bandits."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tuner.schedulers.base import Decision, Exploit, Scheduler
from tuner.schedulers.population.exploit import Population, PopulationSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Parameter, Path, at

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_HISTORY = 100
"""How many of the latest observations, and of the latest pending points, are modelled: a decision's cost is flat."""

_CANDIDATES = 250
"""At how many random points, and at how many around the donor's, the acquisition is computed."""

_NEAR = 0.1
"""Standard deviation of the points around the donor's, in units of each domain's range."""

_LENGTH_SCALES = (0.1, 0.2, 0.4, 1.0)
_FORGETTING = (0.0, 0.05, 0.2)
_NOISES = (0.01, 0.1, 0.5)
"""Hyperparameters of the Gaussian process among which the likelihood chooses: l in units of each domain's range,
epsilon an interval, and the variance of the noise as a share of the signal's."""

_C1, _C2 = 0.2, 0.4
"""c_1 and c_2 of beta_t."""


class Pb2(PopulationSpec):
    """PB2 (Parker-Holder et al. 2020, "Provably Efficient Online Hyperparameter Optimization with Population-Based
    Bandits"): explores by a time-varying Gaussian process bandit, which suits small populations.

    It models y, the change of the objective per step over an interval. The inputs are x, the numeric parameters scaled
    to [0, 1], and the time t in intervals. The kernel is
    ``exp(-|x - x'|**2 / (2 l**2)) * (1 - epsilon)**(|t - t'| / 2)``. The new x maximises ``mean + sqrt(beta_t) * sd``
    with ``beta_t = c_1 + max(0, log(c_2 t))``. The sd counts points that other trials are just trying as known
    (Desautels et al. 2014), so that a population does not move to one point. Categorical parameters move as in
    ``pbt``, and ``resample_probability`` applies to them alone. Ray's ``PB2`` is not used: for the reasons of ``pbt``,
    and because it takes continuous parameters on linear scales only.

    Example:
        >>> import tuner
        >>> tuner.schedulers.Pb2(time_attr="epoch", max_t=40, perturbation_interval=5).changes_configurations
        True
    """

    kind: Literal["pb2"] = "pb2"
    """The name of this scheduler."""

    def build(self, task: SearchProblem) -> Scheduler:
        from numpy.random import PCG64, Generator

        return PopulationBandit(self, task, Generator(PCG64(task.seed)))


class PopulationBandit(Population):
    """Records what each interval gained, and chooses where the model expects, or might see, the largest gain."""

    def __init__(self, spec: Pb2, task: SearchProblem, rng: Generator) -> None:
        super().__init__(spec, task, rng)
        self._numeric = [
            p for p in task.space.parameters if p.path in self._mutable and not isinstance(p.domain, Choice)
        ]
        self._history: deque[tuple[float, tuple[float, ...], float]] = deque(maxlen=_HISTORY)
        """(t, x, y) of each interval that a trial has completed."""
        self._pending: dict[str, tuple[float, ...]] = {}
        """x of the trials that were replaced, and have not completed an interval since."""
        self._since: dict[str, tuple[int, float]] = {}
        """(step, quality) of the report from which each trial's present interval counts."""
        self._latest: dict[str, tuple[int, float]] = {}
        self._now = 0.0
        """t of the latest report."""

    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        self._learn(trial_id, step, self._sign * value)
        decision = super().report(trial_id, step, value)
        if isinstance(decision, Exploit):
            quality = self._latest[decision.donor][1]
            self._since[trial_id] = self._latest[trial_id] = self._members[trial_id].step, quality
            self._pending[trial_id] = self._unit(decision.configuration)
        return decision

    def remove(self, trial_id: str) -> None:
        super().remove(trial_id)
        for known in (self._since, self._latest, self._pending):
            known.pop(trial_id, None)

    def _learn(self, trial_id: str, step: int, quality: float) -> None:
        self._latest[trial_id] = step, quality
        self._now = self._time(step)
        start, before = self._since.setdefault(trial_id, (step, quality))
        if step >= self._spec.milestone(start):
            x = self._unit(self._members[trial_id].configuration)
            self._history.append((self._time(start), x, (quality - before) / (step - start)))
            self._since[trial_id] = step, quality
            self._pending.pop(trial_id, None)

    def _time(self, step: int) -> float:
        return step / self._spec.perturbation_interval

    def _unit(self, configuration: Configuration) -> tuple[float, ...]:
        """x of a configuration; an inactive parameter counts as in the middle of its domain."""

        def unit(parameter: Parameter) -> float:
            try:
                return parameter.domain.to_unit(at(configuration, parameter.path))
            except KeyError:
                return 0.5

        return tuple(unit(parameter) for parameter in self._numeric)

    # --- explore ---

    def _proposals(self, base: Configuration) -> Iterator[Configuration]:
        for x in self._by_acquisition(base):
            chosen = {parameter.path: u for parameter, u in zip(self._numeric, x, strict=True)}

            def choose(parameter: Parameter, chosen: Mapping[Path, float] = chosen) -> Any:
                if parameter.path in chosen:
                    return parameter.domain.from_unit(chosen[parameter.path])
                value = self._inherited(parameter, base)
                return self._moved(parameter.domain, value) if parameter.path in self._mutable else value

            yield self._space.build(choose)

    def _by_acquisition(self, base: Configuration) -> Iterator[list[float]]:
        """Points x, the most promising first; without observations those around the donor's."""
        import numpy as np

        here = np.array(self._unit(base))
        near = here + _NEAR * self._rng.standard_normal((_CANDIDATES, len(here)))
        x = np.vstack([np.clip(near, 0, 1), self._rng.random((_CANDIDATES, len(here)))])
        order = list(range(len(x)))
        if self._history:
            pending = list(itertools.islice(reversed(self._pending.values()), _HISTORY))
            bounds = _upper_bounds(self._history, np.array(pending).reshape(len(pending), len(here)), x, self._now)
            order = np.argsort(-bounds, kind="stable").tolist()
        for i in order:
            yield x[i].tolist()


def _upper_bounds(
    history: Collection[tuple[float, tuple[float, ...], float]], pending: Array, x: Array, now: float
) -> Array:
    """mean + sqrt(beta_t) * sd of y, standardised, at each row of ``x`` at time ``now``."""
    import numpy as np
    from scipy.linalg import cho_solve, cholesky, solve_triangular

    t, seen, gains = (np.array(column) for column in zip(*history, strict=True))
    y = (gains - gains.mean()) / (gains.std() or 1.0)

    def similar(a: Array, b: Array, scale: float) -> Array:
        closeness: Array = np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (2 * scale**2))
        return closeness

    def remembered(at_a: Array, at_b: Array, epsilon: float) -> Array:
        shares: Array = (1 - epsilon) ** (np.abs(at_a[:, None] - at_b[None]) / 2)
        return shares

    def fitted(kernel: Array, noise: float) -> tuple[float, float]:
        """(log likelihood at the best variance of the signal, that variance)."""
        root = cholesky(kernel + noise * np.eye(len(y)), lower=True)
        variance = max(float(y @ cho_solve((root, True), y)) / len(y), 1e-12)
        return -len(y) / 2 * math.log(variance) - float(np.log(np.diag(root)).sum()), variance

    in_space = {scale: similar(seen, seen, scale) for scale in _LENGTH_SCALES}
    in_time = {epsilon: remembered(t, t, epsilon) for epsilon in _FORGETTING}
    (_, variance), scale, epsilon, noise = max(
        (fitted(in_space[scale] * in_time[epsilon], noise), scale, epsilon, noise)
        for scale, epsilon, noise in itertools.product(_LENGTH_SCALES, _FORGETTING, _NOISES)
    )
    root = cholesky(in_space[scale] * in_time[epsilon] + noise * np.eye(len(y)), lower=True)
    times = np.full(len(x), now)
    mean = similar(x, seen, scale) * remembered(times, t, epsilon) @ cho_solve((root, True), y)
    known, when = np.vstack([seen, pending]), np.concatenate([t, np.full(len(pending), now)])
    kernel = similar(known, known, scale) * remembered(when, when, epsilon)
    root = cholesky(kernel + noise * np.eye(len(known)), lower=True)
    cross = similar(known, x, scale) * remembered(when, times, epsilon)
    explained = (solve_triangular(root, cross, lower=True) ** 2).sum(axis=0)
    beta = _C1 + max(0.0, math.log(_C2 * max(now, 1.0)))
    bounds: Array = mean + np.sqrt(beta * variance * np.maximum(1 - explained, 0))
    return bounds
