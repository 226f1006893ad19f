"""Reads a Ray Tune ``param_space`` dict, unchanged, as a search space."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import InputError, Place, Problem
from tuner.spec.document import Limits, scalar_problem
from tuner.spec.space.domains import Choice, Computed, Constant, Domain, GridSearch
from tuner.spec.space.model import MAX_PARAMETERS, Space
from tuner.spec.space.parameter import Parameter, Path
from tuner.spec.space.ranges import Float, Integer, Normal

_SOURCE = Place("<python>")


def space_from_param_space(param_space: Mapping[str, Any]) -> Space:
    """The space that Ray Tune would search, given ``param_space``.

    Reads Ray's domains, ``{"grid_search": [...]}``, nested mappings, lists and tuples that hold domains, and
    constants of any type. Raises InputError holding every parameter that cannot be read: custom samplers, the
    deprecated ``{"eval": ...}``, bounds that are wrong.
    """
    _check_limits(param_space)
    problems: list[Problem] = []
    sequences: list[tuple[Path, Any]] = []
    parameters = tuple(_parameters(param_space, (), problems, sequences))
    if not parameters and not problems:
        problems.append(Problem(_SOURCE, "param_space", "the search space is empty"))
    if len(parameters) > MAX_PARAMETERS:
        message = f"a search space has at most {MAX_PARAMETERS:,} parameters, not {len(parameters):,}"
        problems.append(Problem(_SOURCE, "param_space", message))
    if problems:
        raise InputError(problems)
    return Space(parameters, tuple(sequences))


def holds_ray_domain(space: Mapping[str, Any]) -> bool:
    """Whether one of Ray's domains stands in ``space``, so that it is a ``param_space``; imports Ray only if needed."""
    if "ray.tune.search.sample" not in sys.modules:
        return False
    from ray.tune.search.sample import Domain as RayDomain

    left: list[Any] = [space]
    seen: set[int] = set()
    while left:
        value = left.pop()
        if isinstance(value, RayDomain):
            return True
        if id(value) in seen:
            continue
        seen.add(id(value))
        left += value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return False


def _check_limits(param_space: Any) -> None:
    """Raises InputError if it is deeper or larger than a file may be, holds itself, or what no file can hold."""
    from ray.tune.search.sample import Categorical

    limits = Limits()
    left: list[tuple[Any, Path]] = [(param_space, ())]
    while left:
        value, path = left.pop()
        problem = limits.exceeded(value, len(path)) or scalar_problem(value)
        if problem:
            raise InputError([Problem(_SOURCE, ".".join(path), problem)])
        if isinstance(value, Mapping):
            left += [item for key, inner in value.items() for item in ((inner, (*path, str(key))), (key, path))]
        elif isinstance(value, (list, tuple)):
            left += [(inner, (*path, str(i))) for i, inner in enumerate(value)]
        elif isinstance(value, Categorical):
            left += [(inner, (*path, str(i))) for i, inner in enumerate(value.categories)]


def _parameters(
    value: Any, path: Path, problems: list[Problem], sequences: list[tuple[Path, Any]]
) -> Iterator[Parameter]:
    """The parameters at and below ``path``; a list's own path goes to ``sequences`` after those inside it."""
    if isinstance(value, Mapping) and (value or not path) and not _is_grid(value) and not _is_opaque(value):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _parameters(item, (*path, key), problems, sequences)
            else:
                problems.append(Problem(_SOURCE, ".".join(path), f"the key {key!r} is not text"))
    elif isinstance(value, (list, tuple)) and any(_is_searched(item) for item in value):
        for i, item in enumerate(value):
            yield from _parameters(item, (*path, str(i)), problems, sequences)
        sequences.append((path, list if isinstance(value, list) else tuple))
    else:
        try:
            yield Parameter(path, _domain(value))
        except _Unreadable as error:
            problems.append(Problem(_SOURCE, ".".join(path), str(error)))


class _Unreadable(Exception):
    """Why a domain cannot be read."""


def _is_grid(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) == 1 and bool({"grid_search", "eval"} & value.keys())


def _is_searched(value: Any) -> bool:
    """Whether a domain stands in ``value``, however deep."""
    from ray.tune.search.sample import Domain as RayDomain

    if isinstance(value, RayDomain) or _is_grid(value):
        return True
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return any(_is_searched(item) for item in items)


def _is_opaque(value: Mapping[Any, Any]) -> bool:
    """A mapping with other keys than names and nothing to search, such as ``{0: "cat", 1: "dog"}``: a constant."""
    return not all(isinstance(key, str) for key in value) and not _is_searched(value)


def _domain(value: Any) -> Domain:
    """Raises _Unreadable."""
    from ray.tune.search import sample as ray

    if _is_grid(value):
        if "eval" in value:
            raise _Unreadable("{'eval': ...} is deprecated by Ray Tune: use tune.sample_from")
        return _checked(GridSearch(tuple(_plain(item) for item in value["grid_search"])))
    if not isinstance(value, ray.Domain):
        return Constant(_plain(value))
    if isinstance(value, ray.Function):
        return Computed(value)
    sampler: Any = value.sampler or value.default_sampler_cls()
    q = None
    if isinstance(sampler, ray.Quantized):
        sampler, q = sampler.sampler, _plain(sampler.q)
    # exact types: a subclass draws in a way of its own
    if isinstance(value, ray.Categorical) and q is None and type(sampler) in (ray.Categorical._Uniform, ray.Grid):
        values = tuple(_plain(item) for item in value.categories)
        return _checked(GridSearch(values) if type(sampler) is ray.Grid else Choice(values))
    if isinstance(value, ray.Float) and type(sampler) is ray.Float._Normal:
        return _checked(Normal(_plain(sampler.mean), _plain(sampler.sd), q))
    if isinstance(value, ray.Float) and type(sampler) in (ray.Float._Uniform, ray.Float._LogUniform):
        log = type(sampler) is ray.Float._LogUniform
        return _checked(Float(_plain(value.lower), _plain(value.upper), q, log))
    if isinstance(value, ray.Integer) and type(sampler) in (ray.Integer._Uniform, ray.Integer._LogUniform):
        return _integer(value.lower, value.upper, q, type(sampler) is ray.Integer._LogUniform)
    raise _Unreadable(f"its sampler {type(sampler).__name__} is not one of Ray Tune's own: use one of tune's functions")


def _integer(lower: Any, upper: Any, q: Any, log: bool) -> Domain:
    bounds = [lower, upper, 1 if q is None else q]
    if any(bound != int(bound) for bound in bounds):
        raise _Unreadable(f"an integer range needs whole numbers, not {bounds}")
    low, high, step = (int(bound) for bound in bounds)
    if q is not None and step > 1 and low < high:
        # Ray rounds the bounds of an integer range inwards
        low, high = -(-low // step) * step, high // step * step
        if low == high:
            return Choice((low,))
    return _checked(Integer(low, high, None if q is None else step, log))


def _checked(domain: Domain) -> Domain:
    for _, message in domain.problems():
        raise _Unreadable(message)
    return domain


def _plain(value: Any) -> Any:
    """A numpy scalar as the Python number that it holds; anything else as it is."""
    import numpy

    return value.item() if isinstance(value, numpy.generic) else value
