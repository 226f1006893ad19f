"""A search space as coordinates in which a Gaussian process measures distances."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tuner.spec.space import Choice, Domain, Parameter, Path, Space
from tuner.spec.values import is_number

Array = NDArray[np.float64]

_MOST_VALUES = 1000
"""A range of more separate values is searched as if it were continuous."""


class Encoding:
    """Makes the points of `Space.to_unit` features, between which distances are measured.

    A number has its place in the domain. So has each value of a choice among ascending numbers, which is ordered. Any
    other choice has one feature a category: two categories are as far apart as the two ends of a range. A parameter
    with a condition has one more, which says that it is inactive.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._domains = {parameter.path: parameter.domain for parameter in space.parameters}
        self._centres = [_centres(parameter.domain) for parameter in space.free]
        self.parameter = np.repeat(np.arange(len(space.free)), [_width(parameter) for parameter in space.free])
        """Of each feature: the number of its parameter."""

    def snapped(self, points: Array) -> Array:
        """Points of configurations: separate values at their centres, and inactive parameters left out."""
        found = points.copy()
        for j, centres in enumerate(self._centres):
            if centres is not None:
                found[:, j] = centres[np.searchsorted((centres[1:] + centres[:-1]) / 2, points[:, j])]
        if self._space.conditional:
            found[~self._active(found)] = math.nan
        return found

    def _active(self, points: Array) -> NDArray[np.bool_]:
        """Of each coordinate, whether its parameter is active, as `Space.build` decides for one configuration."""
        number = {parameter.path: j for j, parameter in enumerate(self._space.free)}
        active: dict[Path, NDArray[np.bool_]] = {}
        for parameter in self._space.parameters:
            here = np.ones(len(points), dtype=bool)
            for condition in parameter.when:
                domain = self._domains[condition.path]
                coordinates = points[:, number[condition.path]] if condition.path in number else np.zeros(len(points))
                places, which = np.unique(coordinates, return_inverse=True)
                holds = [condition.holds({condition.path: domain.from_unit(u)}) for u in places.tolist()]
                here &= active[condition.path] & np.array(holds)[which]
            active[parameter.path] = here
        return np.stack([active[parameter.path] for parameter in self._space.free], axis=1)

    def features(self, points: Array) -> Array:
        """One row a point."""
        columns: list[Array] = []
        for parameter, coordinates in zip(self._space.free, points.T, strict=True):
            inactive = np.isnan(coordinates)
            if _is_nominal(parameter.domain):
                count = parameter.domain.count or 1
                category = np.minimum((np.nan_to_num(coordinates) * count).astype(int), count - 1)
                hot = np.eye(count)[category] / math.sqrt(2)
                hot[inactive] = 0
                columns.append(hot)
            else:
                columns.append(np.where(inactive, 0.5, coordinates)[:, None])
            if parameter.when:
                columns.append(inactive[:, None].astype(np.float64))
        return np.concatenate(columns, axis=1)


def _width(parameter: Parameter) -> int:
    """How many features a parameter has."""
    return ((parameter.domain.count or 1) if _is_nominal(parameter.domain) else 1) + bool(parameter.when)


def _is_nominal(domain: Domain) -> bool:
    if not isinstance(domain, Choice):
        return False
    numbers = all(is_number(category) for category in domain.categories)
    return not numbers or any(a >= b for a, b in zip(domain.categories, domain.categories[1:], strict=False))


def _centres(domain: Domain) -> Array | None:
    """The places of separate values, ascending; None for a continuous range, or one of very many values."""
    if domain.count is None or domain.count > _MOST_VALUES:
        return None
    return np.array(sorted(domain.to_unit(domain.value(i)) for i in range(domain.count)))
