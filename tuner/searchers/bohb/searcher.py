"""BOHB's model (Falkner, Klein and Hutter 2018): suggests what looks like the good configurations seen so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field

from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.bohb.kernel_density import KernelDensity
from tuner.searchers.observations import Observations
from tuner.searchers.unsupported import Problems, unsupported_by_model
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Parameter, Space, at

if TYPE_CHECKING:
    from numpy.random import Generator

_LEAST_DENSITY = 1e-32
"""Densities below it count as it (as in hpbandster): where both are, their ratio means nothing."""

_PRIOR_WEIGHT = 4.0
"""β in Hvarfner et al. 2022, who have 10, at which a wrong prior costs much more. Numbers:
docs/benchmarks/constants.md."""


class Bohb(SearchSpec):
    """Kernel density estimates of the good and of the other configurations at one fidelity b, l(x) and g(x).

    A suggestion is the draw with the largest l(x)/g(x) of ``num_samples`` draws from l. Tree-structured Parzen
    estimators (Bergstra et al. 2011) do the same; here the kernels are over all parameters at once. Fidelity b is the
    highest one at which N_min + 2 trials reported; every reported step is a fidelity. Pair it with
    ``scheduler: {kind: bohb}`` for the paper's method, or with ``asha``.

    Differences from the authors' own program, hpbandster 0.7.4 (numbers: docs/benchmarks/constants.md):

    - The bandwidth rule counts N_min more points, spread over the domain (see `KernelDensity.fit`). Without them the
      search stalls if the first good configurations happen to lie close together.
    - N_s is 16 and rho 0.15; the paper has 64 and 1/3. The best of a few draws stays near the good configurations
      without repeating them, so that fewer draws at random are needed.
    - A trial that failed is in g at every fidelity; hpbandster has it at its own only.
    - A trial that was stopped or waits below b is in g, unless it is better there than the good ones are at b;
      hpbandster has it in neither.
    - At most half of the trials at b are good; hpbandster waits for 2 N_min trials instead.
    - An inactive parameter is integrated out; hpbandster fills it with the value of another configuration.
    - Kernels are truncated to the domain in the densities as in the draws.
    - λ of a category comes from a rule for categories, and not from the deviation of their numbers.
    - Integers are scored at the value that will run.
    - Each density is fitted to at most 256 trials.

    Priors weigh the ratio by density^(β/n) after n trials, with β = 4 (πBO, Hvarfner et al. 2022). Up to half of the
    random draws come from them, with the same decay. So a wrong prior is forgotten.

    Example:
        >>> import tuner
        >>> tuner.searchers.Bohb(seed=0).top_n_percent
        15
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "bohb"}]})

    kind: Literal["bohb"] = "bohb"
    """The name of this search algorithm."""
    min_points_in_model: int | None = Field(default=None, ge=1)
    """N_min: the fewest good configurations in l; the model starts with N_min + 2 trials. Default: the number of free
    parameters plus 1."""
    top_n_percent: float = Field(default=15, gt=0, lt=100)
    """gamma times 100: the percentage of the trials at b that are good, where that is N_min or more."""
    random_fraction: float = Field(default=0.15, ge=0, le=1)
    """rho: the share of suggestions that are drawn at random (the paper: 1/3; see above)."""
    num_samples: int = Field(default=16, ge=1)
    """N_s: draws from l for one suggestion (the paper: 64; see above)."""
    bandwidth_factor: float = Field(default=3, ge=0.01, le=100)
    """b_w: how much wider than in l the kernels are from which these are drawn."""
    min_bandwidth: float = Field(default=1e-3, ge=1e-6, le=1)
    """The least standard deviation of a kernel, as a share of the domain."""

    @property
    def compares_ranks(self) -> bool:
        return True

    def build(self, task: SearchProblem) -> Searcher:
        from numpy.random import PCG64, Generator

        return BohbSearcher(self, task, Generator(PCG64(task.seed)))

    def n_min(self, space: Space) -> int:
        """N_min in ``space``."""
        return self.min_points_in_model or len(space.free) + 1

    def modelled(self, task: SearchProblem, slots: int) -> float:
        return self._after(self.n_min(task.space) + 2, task, slots) * (1 - self.random_fraction)

    def validate_space(self, space: Space) -> Problems:
        return unsupported_by_model(space)


@dataclass(frozen=True)
class _Candidate:
    configuration: Configuration
    point: list[float]
    """By free parameter: its value in unit space; NaN if it is inactive."""
    log_prior: float
    """Logarithm of the density of the priors, relative to the domains', over the active parameters."""


class BohbSearcher(Searcher):
    """Knows each trial's configuration as a point in unit space; `Observations` knows how good it was."""

    def __init__(self, options: Bohb, task: SearchProblem, rng: Generator) -> None:
        self._options = options
        self._space = task.space
        self._sign = task.sign
        self._rng = rng
        self._free = task.space.free
        self._column = {parameter.path: j for j, parameter in enumerate(self._free)}
        self._categories = tuple(len(p.domain.categories) if isinstance(p.domain, Choice) else 0 for p in self._free)
        self._n_min = options.n_min(task.space)
        self._points: list[list[float]] = []
        """Of every trial ever started, in order."""
        self._pending: dict[str, int] = {}
        """Indices in ``_points`` of the trials that have not ended."""
        self._observations = Observations(task.max_t, enough=self._n_min + 2)

    def suggest(self, trial_id: str) -> Configuration:
        configuration = None
        if self._free and self._rng.random() >= self._options.random_fraction:
            configuration = self._best_candidate()
        if configuration is None:
            configuration = self._random()
        self.register(trial_id, configuration)
        return configuration

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self._pending[trial_id] = len(self._points)
        self._observations.start(len(self._points))
        self._points.append(self._candidate(lambda parameter: at(configuration, parameter.path)).point)

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._pending:
            self._observations.report(self._pending[trial_id], step, -self._sign * value)

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        if trial_id in self._pending:
            self._observations.pause(self._pending[trial_id], step, -self._sign * values[0])

    def on_resume(self, trial_id: str) -> None:
        if trial_id in self._pending:
            self._observations.resume(self._pending[trial_id])

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        trial = self._pending.pop(trial_id, None)
        if trial is None:
            return
        if values is None:
            self._observations.fail(trial)
        else:
            self._observations.end(trial, step, -self._sign * values[0])

    def _best_candidate(self) -> Configuration | None:
        """The allowed draw from l with the largest l(x)/g(x); None if there is no model yet, or no such draw."""
        import numpy as np

        split = self._observations.split(self._n_min, self._options.top_n_percent / 100, self._rng)
        if split is None:
            return None
        good, others = (self._density(trials) for trials in split)
        candidates = [
            candidate
            for draw in good.sample(self._rng, self._options.num_samples, self._options.bandwidth_factor).tolist()
            if self._space.allows((candidate := self._decoded(draw)).configuration)
        ]
        if not candidates:
            return None
        points = np.array([candidate.point for candidate in candidates])
        log_l, log_g = (np.maximum(d.log_density(points), math.log(_LEAST_DENSITY)) for d in (good, others))
        log_prior = np.array([candidate.log_prior for candidate in candidates])
        return candidates[int(np.argmax(log_l - log_g + self._prior_exponent * log_prior))].configuration

    def _density(self, trials: Sequence[int]) -> KernelDensity:
        import numpy as np

        points = np.array([self._points[trial] for trial in trials])
        return KernelDensity.fit(points, self._categories, self._n_min, self._options.min_bandwidth)

    def _random(self) -> Configuration:
        """A draw from the domains, or, early in the search, sometimes from the priors."""
        believe = self._rng.random() < min(self._prior_exponent, 1.0) / 2

        def choose(parameter: Parameter) -> Any:
            if believe and parameter.prior is not None:
                return parameter.prior.sample(parameter.domain, self._rng)
            return parameter.domain.sample(self._rng)

        return self._space.first_allowed(lambda: self._space.build(choose))

    @property
    def _prior_exponent(self) -> float:
        """β/n, with n the number of trials so far.

        With n complete trials, or as many steps, a right prior gained little and a wrong one cost much. Numbers:
        docs/benchmarks/constants.md.
        """
        return _PRIOR_WEIGHT / max(len(self._points), 1)

    def _decoded(self, draw: list[float]) -> _Candidate:
        """The configuration at a point of the unit cube; its own point is the centre of what rounds to its values."""
        return self._candidate(lambda parameter: parameter.domain.from_unit(draw[self._column[parameter.path]]))

    def _candidate(self, choose: Callable[[Parameter], Any]) -> _Candidate:
        point = [math.nan] * len(self._free)
        log_prior = 0.0

        def note(parameter: Parameter) -> Any:
            nonlocal log_prior
            value = choose(parameter)
            point[self._column[parameter.path]] = parameter.domain.to_unit(value)
            if parameter.prior is not None:
                log_prior += math.log(max(parameter.prior.density(parameter.domain, value), _LEAST_DENSITY))
            return value

        return _Candidate(self._space.build(note), point, log_prior)
