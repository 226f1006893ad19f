"""Writes a search space as the plain mapping that YAML holds; `tuner.spec.space.reader` reads it back."""

from __future__ import annotations

from typing import Any

from tuner.spec.space.domains import Choice, Computed, Constant
from tuner.spec.space.grammar import ATTRIBUTES, BELIEF, DEFAULT, FORMS, RESERVED, key_problem
from tuner.spec.space.model import Space
from tuner.spec.space.parameter import Condition, Parameter, Path
from tuner.spec.values import value_key


def to_yaml(space: Space) -> dict[str, Any]:
    """The plain mapping that `tuner.spec.space.reader.read_space` reads back as an equal space.

    Raises ValueError if `python_only` finds something.
    """
    if found := python_only(space):
        raise ValueError("; ".join(f"{'.'.join(path)} {why}" for path, why in found))
    return _mapping(space, (), space.parameters, 0)


def python_only(space: Space) -> list[tuple[Path, str]]:
    """What YAML cannot express, so that this space must be loaded from Python again: (path, why)."""
    found = [(path, f"is a {sequence.__name__} that holds domains") for path, sequence in space.sequences]
    for parameter in space.parameters:
        domain = parameter.domain
        if isinstance(domain, Computed):
            found.append((parameter.path, "is computed by a Python function"))
        elif isinstance(domain, Constant) and not _is_yaml_constant(domain.constant):
            found.append((parameter.path, f"is a Python object ({type(domain.constant).__name__})"))
        elif isinstance(domain, Choice) and not all(_is_plain(value) for value in domain.categories):
            found.append((parameter.path, "chooses among Python objects"))
        elif isinstance(domain, Choice) and len({value_key(v) for v in domain.categories}) < len(domain.categories):
            found.append((parameter.path, "repeats a value"))
        is_misread = isinstance(domain, Constant) and len(parameter.path) > 1 and parameter.path[-1] in ATTRIBUTES
        if is_misread or any(key in FORMS or key_problem(key) for key in parameter.path):
            found.append((parameter.path, "has a name that YAML does not allow"))
    return found


def _is_plain(value: Any) -> bool:
    """Whether YAML gives back exactly ``value``."""
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, str)


def _is_yaml_constant(value: Any) -> bool:
    """A mapping reads as a group, and a mapping in a list may read as a domain: neither stays a constant."""
    return _is_plain(value) and not (isinstance(value, dict) and value) and not holds_domain(value)


def holds_domain(value: Any) -> bool:
    """Whether a mapping that looks like a domain stands in ``value``, a list or what such a list holds."""
    if isinstance(value, dict):
        return any(key in FORMS for key in value) or any(holds_domain(item) for item in value.values())
    return isinstance(value, list) and any(holds_domain(item) for item in value)


def _mapping(space: Space, scope: Path, parameters: tuple[Parameter, ...], told: int) -> dict[str, Any]:
    """The mapping at ``scope``, whose ``parameters`` have their first ``told`` conditions written further out."""
    mapping: dict[str, Any] = {}
    for key in dict.fromkeys(parameter.path[len(scope)] for parameter in parameters):
        path = (*scope, key)
        inside = tuple(parameter for parameter in parameters if parameter.path[: len(path)] == path)
        leaf = inside[0].path == path
        shared = told + _shared(inside, told, space, scope)
        when = {".".join(condition.path): _alternatives(condition) for condition in inside[0].when[told:shared]}
        content = inside[0].domain.to_yaml() if leaf else _mapping(space, path, inside, shared)
        if leaf and (prior := inside[0].prior):
            content = {**content, **dict(zip(BELIEF, (prior.value, prior.confidence), strict=True))}
        if leaf and (default := inside[0].default):
            content = {**content, DEFAULT: default.value}
        if when:
            content = {**content, RESERVED: when} if leaf else {RESERVED: when, **content}
        mapping[key] = content
    return mapping


def _alternatives(condition: Condition) -> Any:
    """One value as itself, unless it is a list, which would read as several."""
    alone = len(condition.values) == 1 and not isinstance(condition.values[0], list)
    return condition.values[0] if alone else list(condition.values)


def _shared(inside: tuple[Parameter, ...], told: int, space: Space, scope: Path) -> int:
    """How many of the next conditions all parameters ``inside`` share and a ``when`` in ``scope`` can name."""
    parameters = {parameter.path for parameter in space.parameters}
    names: set[Path] = set()
    for count, conditions in enumerate(zip(*(p.when[told:] for p in inside), strict=False)):
        path = conditions[0].path
        shadowed = len(path) == 1 and scope and (*scope, path[0]) in parameters
        if len(set(map(repr, conditions))) > 1 or shadowed or path in names:
            return count
        names.add(path)
    return min(len(p.when) for p in inside) - told
