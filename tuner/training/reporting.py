"""``tuner.report`` and ``tuner.get_checkpoint``: the two functions that training code calls."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_SESSION = "ray.train._internal.session"
"""Ray's module of the session of a trial. A process that has not imported it runs no trial."""


class ProcessGroupNotFormed(ValueError):
    """The processes of a trial do not train one model: no trial of this run can succeed."""


def report(
    metrics: Mapping[str, Any] | None = None, /, *, checkpoint: str | os.PathLike[str] | None = None, **values: Any
) -> None:
    """Reports metrics of the running trial, and a checkpoint if there is one.

    The scheduler may stop or pause the trial here, as in `ray.tune.report`. Outside of a trial the function prints the
    metrics as one line and does nothing else, so that a script also runs by hand.

    Args:
        metrics: Metrics by name. Use it for names that are not Python identifiers.
        checkpoint: A folder. Its files are copied to the storage before the function returns.
        **values: Metrics by name, added to ``metrics``. Scalars of numpy, torch and JAX become plain numbers.

    Raises:
        TypeError: There is no metric.
        ValueError: ``checkpoint`` is not a folder.

    Example:
        >>> import tuner
        >>> tuner.report(epoch=1, loss=0.25)
        epoch 1  loss 0.25
    """
    found = {name: to_number(value) for name, value in {**(metrics or {}), **values}.items()}
    if not found:
        raise TypeError("tuner.report needs at least one metric, as in tuner.report(loss=0.25)")
    if checkpoint is not None and not Path(checkpoint).is_dir():
        raise ValueError(f"tuner.report: checkpoint {os.fspath(checkpoint)!r} is not a folder")
    if not in_trial():
        print("  ".join(f"{name} {_short(value)}" for name, value in found.items()), flush=True)
        return
    from ray import tune

    tune.report(found, checkpoint=None if checkpoint is None else tune.Checkpoint.from_directory(checkpoint))


def will_decide(metrics: Mapping[str, Any]) -> bool:
    """Whether the scheduler decides at the next report, if it has these metrics; False outside of a trial."""
    if not in_trial():
        return False
    reporter = getattr(sys.modules[_SESSION].get_session().report, "__self__", None)  # ours, in a trial of a search
    decides: Callable[[dict[str, Any]], bool] | None = getattr(reporter, "will_decide", None)
    return decides is None or decides(dict(metrics))


def get_checkpoint() -> Path | None:
    """The folder of the checkpoint that the running trial must continue from.

    Returns:
        A folder with the files that `report` was given, to be read only; None if the trial starts from the beginning,
        and outside of a trial.

    Example:
        >>> import tuner
        >>> tuner.get_checkpoint() is None
        True
    """
    if not in_trial():
        return None
    from pyarrow.fs import LocalFileSystem
    from ray import tune

    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return None
    is_local = isinstance(checkpoint.filesystem, LocalFileSystem)
    return Path(checkpoint.path if is_local else checkpoint.to_directory())


def trial_number() -> int:
    """A number of the running trial, which no other trial of the run has; 0 outside of a trial."""
    if not in_trial():
        return 0
    try:
        return int(trial_id(), 16)
    except ValueError:  # an id of Ray's own form
        return 0


def trial_id() -> str:
    """The id of the running trial; call it within one."""
    from ray import tune

    return str(tune.get_context().get_trial_id())


def trial_folder() -> Path:
    """The folder of the running trial, for files other than checkpoints; call it within one.

    It is in the run folder, beside the trial's log, if that is on a file system of this node; else a temporary one.
    """
    from pyarrow.fs import LocalFileSystem

    session = sys.modules[_SESSION].get_session()
    storage: Any = getattr(session, "storage", None)
    if storage is not None and isinstance(storage.storage_filesystem, LocalFileSystem):
        return Path(storage.trial_fs_path)
    return Path(session.trial_dir)


def in_trial() -> bool:
    """Whether this process runs a trial of Ray Tune, or is one of several that train the model of one."""
    session = sys.modules.get(_SESSION)
    return session is not None and session.get_session() is not None


@contextlib.contextmanager
def counted_reports() -> Iterator[Callable[[], int]]:
    """Yields a function that returns the number of reports made within, by whatever name the code calls `report`."""
    if not in_trial():
        yield lambda: 0
        return
    session, count = sys.modules[_SESSION].get_session(), 0
    original = session.report

    def counted(*args: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        original(*args, **options)

    session.report = counted
    try:
        yield lambda: count
    finally:
        session.report = original


def to_number(value: Any) -> Any:
    """A scalar array or tensor as the number that it holds; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
