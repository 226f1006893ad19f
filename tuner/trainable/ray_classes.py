"""Subclasses of ``ray.tune.Trainable``, looked at without running them, and without importing Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

_DONE = ("done", "DONE")
"""How a class names the key by which it ends a trial: ``{"done": True}``, or ``ray.tune.result.DONE``."""


def tune_class() -> Any:
    """``ray.tune.Trainable``; None where nobody has imported it, so that nothing derives from it."""
    return getattr(sys.modules.get("ray.tune.trainable.trainable"), "Trainable", None)


def is_tune_class(train: Any) -> bool:
    """Whether it is a subclass of ``ray.tune.Trainable``."""
    base = tune_class()
    return base is not None and issubclass(type(train), type) and issubclass(train, base)


def users(cls: type) -> Iterator[type]:
    """``cls`` and its bases without Ray's: ``with_parameters`` and ``with_resources`` derive from the user's."""
    return (base for base in cls.__mro__ if base is not object and base.__module__.partition(".")[0] != "ray")


def may_end_itself(cls: type) -> bool:
    """Whether anything in the class, as it was written, names ``done``.

    A class may also get such a result from elsewhere, which cannot be seen here.
    """
    functions = (value for base in users(cls) for value in vars(base).values())
    return any(text in _DONE for function in functions for text in _texts(_code(function)))


def _code(function: Any) -> Any:
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _texts(value: Any) -> Iterator[str]:
    """Names and texts in the code of a function, those of functions inside it too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):  # the keys of a dict, the names of arguments
        for item in value:
            yield from _texts(item)
    elif isinstance(value, CodeType):
        yield from _texts((value.co_names, value.co_consts))
