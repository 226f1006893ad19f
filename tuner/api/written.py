"""Python objects as an experiment file writes them, and pickles of objects that it cannot name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tuner.spec.algorithm import AlgorithmSpec, spec_as_mapping
from tuner.spec.space import python_only, to_yaml
from tuner.spec.space.from_ray import holds_ray_domain, space_from_param_space
from tuner.storage.pickled import Pickled
from tuner.trainable.own_loop import REFERENCE
from tuner.trainable.trainable import importable_name, pickle_function

_TRAINABLE, _SPACE = "code/trainable.pkl", "code/search_space.pkl"


def named(trainable: Callable[..., Any] | str | None) -> tuple[str, tuple[Path, ...], list[Pickled]]:
    """The trainable's name in an experiment, the folders to look it up in, and what no name imports."""
    here = (Path.cwd(),)
    if trainable is None:
        return REFERENCE, here, []
    if isinstance(trainable, str):
        return trainable, here, []
    if named := importable_name(trainable):
        reference, folder = named
        return reference, tuple(dict.fromkeys([*here, *filter(None, [folder])])), []
    return f"{_TRAINABLE}:{default_name(trainable)}", here, [pickle_function(trainable, _TRAINABLE)]


def default_name(trainable: Callable[..., Any] | str | None) -> str:
    """A name for the search: the trainable's own, if it has one."""
    text = trainable if isinstance(trainable, str) else getattr(trainable, "__name__", "")
    name = re.sub(r"\W", "_", text.rpartition(":")[2])
    return name if re.match(r"[A-Za-z]", name) else "search"


def space_of(search_space: Mapping[str, Any] | str) -> tuple[Any, list[Pickled]]:
    """The search space as an experiment writes it, and what no name imports."""
    if isinstance(search_space, str) or not holds_ray_domain(search_space):
        return search_space, []
    space = space_from_param_space(search_space)
    if python_only(space):
        return f"{_SPACE}:param_space", [Pickled.of(dict(search_space), _SPACE)]
    return to_yaml(space), []


def as_written(block: BaseModel) -> dict[str, Any]:
    """A block as an experiment file writes it: what was given, and which algorithm it is."""
    if isinstance(block, AlgorithmSpec):
        return spec_as_mapping(block)
    return block.model_dump(mode="json", by_alias=True, exclude_unset=True)
