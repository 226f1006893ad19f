"""The CPUs of a trial, for training code that starts processes or threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_PLANNED: ContextVar[float] = ContextVar("planned CPUs of a trial", default=1.0)


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
    from ray import tune

    resources = tune.get_context().get_trial_resources()
    return _PLANNED.get() if resources is None else float(resources.required_resources.get("CPU", 1))


@contextlib.contextmanager
def planned(cpus: float) -> Iterator[None]:
    """Within, `trial_cpus` answers ``cpus`` outside of trials.

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
