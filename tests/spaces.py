"""Search spaces from a few lines of YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuner.errors import Problem
from tuner.spec.document import read_yaml
from tuner.spec.space import Space, read_space
from tuner.spec.space.constraints import read_constraint


def space(text: str, *constraints: str, params: dict[str, Any] | None = None) -> Space:
    """The space that ``text`` writes, with ``constraints`` that may also name ``params``."""
    problems: list[Problem] = []
    read = read_space(read_yaml(text, "space.yaml"), (), problems)
    assert read is not None, problems
    paths = [parameter.path for parameter in read.parameters]
    return replace(read, constraints=tuple(read_constraint(c, paths, params or {}) for c in constraints))
