"""The CPUs of a trial, for training code that starts processes or threads."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

_PLANNED: ContextVar[float | None] = ContextVar("planned CPUs of a trial", default=None)


def trial_cpus() -> float:
    """The CPUs that the trial may use.

    Returns:
        In a trial, those that it holds (of one process, if it has several). In ``prepare``, those that each trial will
        hold. Elsewhere 1.

    Example:
        >>> from tuner.training.trial_cpus import trial_cpus
        >>> trial_cpus()
        1.0
    """
    if (planned_cpus := _PLANNED.get()) is not None:
        return planned_cpus
    from ray import tune

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Ray's, outside of a trial
        resources = tune.get_context().get_trial_resources()
    return 1.0 if resources is None else float(resources.bundles[0].get("CPU", 1))


@contextlib.contextmanager
def planned(cpus: float) -> Iterator[None]:
    """Within, `trial_cpus` answers ``cpus``.

    Args:
        cpus: Those that each trial will hold.

    Example:
        >>> from tuner.training.trial_cpus import planned, trial_cpus
        >>> with planned(4):
        ...     trial_cpus()
        4
    """
    token = _PLANNED.set(cpus)
    try:
        yield
    finally:
        _PLANNED.reset(token)
