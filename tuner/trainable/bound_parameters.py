"""``tune.with_parameters`` in a process that runs trial after trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def parameters_released() -> Iterator[None]:
    """After it, Ray holds the values of no ``tune.with_parameters`` that ran within.

    Ray keeps a hook for each, for ever, with what it put into the object store. A user's module is imported anew for
    each trial, so that a process would hold the data of all its trials.
    """
    import ray

    hooks = ray._private.worker._post_init_hooks
    before = list(hooks)
    try:
        yield
    finally:
        hooks[:] = before
