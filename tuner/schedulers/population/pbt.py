"""Population-based training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tuner.schedulers.base import Scheduler
from tuner.schedulers.population.exploit import Population, PopulationSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Domain, Float, Integer, Normal, Parameter

if TYPE_CHECKING:
    from numpy.random import Generator

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Pbt(PopulationSpec):
    """PBT (Jaderberg et al. 2017, "Population Based Training of Neural Networks"): explores by small random steps.

    A numeric parameter is multiplied by one of ``perturbation_factors``, and stays inside its domain. If rounding would
    undo that, it moves by one step of its ``q``, or by 1. A parameter at 0 is drawn anew. A choice moves to a
    neighbouring value. A parameter that becomes active is drawn from its domain.

    Ray's ``PopulationBasedTraining`` is not used. It leaves domains when it multiplies, has no conditions, requires the
    space a second time (``hyperparam_mutations``), and loses the population in a restore.

    Example:
        >>> import tuner
        >>> tuner.schedulers.Pbt(time_attr="epoch", max_t=40, perturbation_interval=5).changes_configurations
        True
    """

    kind: Literal["pbt"] = "pbt"
    """The name of this scheduler."""
    perturbation_factors: Annotated[tuple[Factor, ...], Field(min_length=1, strict=False)] = (1.2, 0.8)
    """By one of them, drawn at random, a mutated number is multiplied."""

    @property
    def compares_ranks(self) -> bool:
        return True

    def build(self, task: SearchProblem) -> Scheduler:
        from numpy.random import PCG64, Generator

        return PopulationTraining(self, task, Generator(PCG64(task.seed)))


class PopulationTraining(Population):
    """Perturbs each mutable parameter on its own."""

    def __init__(self, spec: Pbt, task: SearchProblem, rng: Generator) -> None:
        super().__init__(spec, task, rng)
        self._factors = spec.perturbation_factors

    def _proposals(self, base: Configuration) -> Iterator[Configuration]:
        def choose(parameter: Parameter) -> Any:
            value = self._inherited(parameter, base)
            return self._perturbed(parameter.domain, value) if parameter.path in self._mutable else value

        while True:
            yield self._space.build(choose)

    def _perturbed(self, domain: Domain, value: Any) -> Any:
        if isinstance(domain, Choice):
            return self._moved(domain, value)
        if self._rng.random() < self._spec.resample_probability:
            return domain.sample(self._rng)
        moved = multiplied(domain, value, self._factors[int(self._rng.integers(len(self._factors)))])
        stuck = value == 0 and isinstance(domain, (Float, Normal)) and domain.q is None  # no factor leads away from 0
        return domain.sample(self._rng) if stuck else moved


def multiplied(domain: Domain, value: float, factor: float) -> float:
    """The value of a numeric ``domain`` next to ``value * factor``, and another one than ``value`` where there is."""
    match domain:
        case Integer() | Float(q=float() | int()):
            step = round(value / (domain.q or 1))
            moved = round(step * factor)
            if moved == step and factor != 1:
                moved += 1 if (factor > 1) == (value >= 0) else -1
            return domain.at(moved)
        case Float():
            return float(min(max(value * factor, domain.lower), domain.upper))
        case Normal():
            return domain.from_unit(domain.to_unit(value * factor))
        case _:
            raise TypeError(f"{domain} holds no numbers")
