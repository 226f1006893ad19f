"""The values that ``tune.with_parameters`` binds to a trainable.

Ray puts them into the object store of a session as soon as there is one, and a trainable then holds references only.
Such a reference is worth nothing in another session: not in that of a later search, and not after a resume.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_STORE = "ray.tune.registry"
"""Ray's module of what holds the values. A process that has not imported it has bound none."""

_PATIENCE_S = 10.0
"""How long a value may take out of the object store: one of a session that has ended never comes."""


class BoundValues:
    """The values themselves, in place of Ray's ``_ParameterRegistry``, of which `get` is called, in a pickle."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def get(self, key: str) -> Any:
        """The value that was bound as ``key``."""
        return self._values[key]


def reducers() -> dict[type, Callable[[Any], Any]]:
    """How to pickle a trainable with its values: a function for each type, as in ``copyreg``."""
    if _STORE not in sys.modules:
        return {}
    from ray.tune.registry import _ParameterRegistry

    return {_ParameterRegistry: _reduced}


def _reduced(registry: Any) -> tuple[type[BoundValues], tuple[dict[str, Any]]]:
    values = dict(registry.to_flush)
    for key, reference in registry.references.items():
        values[key] = _value(reference)
    return BoundValues, (values,)


def _value(reference: Any) -> Any:
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        if ray.is_initialized():
            return ray.get(reference, timeout=_PATIENCE_S)
    raise ValueError("its values were in a Ray session that has ended; call tune.with_parameters again")


@contextlib.contextmanager
def parameters_kept() -> Iterator[None]:
    """A Ray session that starts within takes no values over: at its end they would be lost."""
    kinds = tuple(reducers())
    with parameters_released() as hooks:
        hooks[:] = [hook for hook in hooks if not isinstance(getattr(hook, "__self__", None), kinds)]
        yield


@contextlib.contextmanager
def parameters_released() -> Iterator[list[Any]]:
    """After it, Ray holds the values of no ``tune.with_parameters`` that ran within. Yields Ray's hooks.

    Ray keeps a hook for each, for ever, with what it put into the object store. A user's module is imported anew for
    each trial, so that a process would hold the data of all its trials.
    """
    import ray

    hooks = ray._private.worker._post_init_hooks
    before = list(hooks)
    try:
        yield hooks
    finally:
        hooks[:] = before
