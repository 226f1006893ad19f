"""Functions in a wrapping: ``tune.with_parameters``, ``functools.partial``, ``checkpoint_dir`` as a second argument.

A wrapped function keeps the module and the annotations of the one inside, so that its Config is checked, and the
optional functions beside it (``evaluate``, ``prepare``) are found.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tuner.trainable.old_interfaces import note

_CHECKPOINT_DIR = "checkpoint_dir"

_WRAPPERS = "ray.tune.trainable.util"
"""The module of Ray whose functions stand for the user's."""


def unwrapped(train: Any) -> Callable[[Any], Any]:
    """``train``, where it is wrapped as a function of the configuration with the name and module of the inner one."""
    called: Callable[[Any], Any] = _opened(train)
    inner = _innermost(called)
    parameters = inspect.signature(called).parameters
    checkpoint = parameters.get(_CHECKPOINT_DIR)
    if checkpoint is not None and checkpoint.default in (None, checkpoint.empty):
        called = _from_folder(called)
    if called is inner or not inspect.isroutine(inner):
        return called
    return _named(called, inner, list(_open(parameters.values())), getattr(train, "_resources", None))


class _WithParameters:
    """The result of ``tune.with_parameters``: its own signature hides the arguments that are still open."""

    def __init__(self, train: Callable[..., Any], values: Callable[[str], Any], names: frozenset[str]) -> None:
        self.func = train
        self._values, self._names = values, names
        self.__signature__ = inspect.signature(functools.partial(train, **dict.fromkeys(names)))

    def __call__(self, config: Any, **others: Any) -> Any:
        return self.func(config, **{name: self._values(name) for name in self._names}, **others)


def _opened(train: Any) -> Any:
    """``train`` without a function of Ray around it."""
    if not inspect.isfunction(train) or train.__module__ != _WRAPPERS:
        return train
    inside = inspect.getclosurevars(train).nonlocals
    if "parameter_registry" not in inside:
        return inside.get("trainable", train)
    registry, prefix = inside["parameter_registry"], inside["prefix"]
    return _WithParameters(_opened(inside["trainable"]), lambda k: registry.get(prefix + k), frozenset(inside["keys"]))


def _innermost(train: Any) -> Any:
    while isinstance(train, functools.partial | _WithParameters):
        train = _opened(train.func)
    return train


def _open(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """The first, which takes the configuration, and those that have no value yet."""
    for number, parameter in enumerate(parameters):
        optional = parameter.default is not parameter.empty or parameter.name == _CHECKPOINT_DIR
        if number == 0 or not optional:
            yield parameter


def _from_folder(train: Callable[..., Any]) -> Callable[[Any], Any]:
    """``train``, called with the folder of the checkpoint that the trial continues from; None at its start."""

    def resumed(config: Any) -> Any:
        from ray import tune

        note("checkpoint_dir= of the function", "ray.tune.get_checkpoint()")
        if (checkpoint := tune.get_checkpoint()) is None:
            return train(config, checkpoint_dir=None)
        with checkpoint.as_directory() as folder:
            return train(config, checkpoint_dir=folder)

    return resumed


def _named(
    train: Callable[[Any], Any], inner: Callable[..., Any], parameters: list[inspect.Parameter], resources: Any
) -> Callable[[Any], Any]:
    """A function that calls ``train``, and looks like ``inner`` with ``parameters``."""

    @functools.wraps(inner)
    def function(config: Any) -> Any:
        return train(config)

    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    if resources is not None:
        function._resources = resources  # type: ignore[attr-defined]
    return function
