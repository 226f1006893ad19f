"""Ray's interfaces of 2022 to 2025 in a Tune function, where Ray 2.60 raises or has them no more.

Tutorials and books call ``ray.train.report``, ``ray.train.get_checkpoint``, ``ray.air.session.report``,
``tune.report(accuracy=0.9)`` and ``tune.checkpoint_dir``. While a trial runs, and in its process only, `understood`
puts in their place what does the same by today's interface. `news` tells the user, once, what was used.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

NOTICE = "tuner/old_interfaces"
"""Key under which a trial's process tells the driver."""

_BEGINS = "the trainable uses interfaces of earlier versions of Ray, which run as before: "

_used: dict[str, str] = {}
"""What the trials of this process used, and what to write instead."""
_told: list[int] = [0]
"""How many of these `news` has told."""


def note(old: str, new: str) -> None:
    """A trial used ``old``; ``new`` is today's."""
    _used[old] = new


def news() -> str:
    """What was used, in one line; empty if nothing was since the last call."""
    if len(_used) == _told[0]:
        return ""
    _told[0] = len(_used)
    return _BEGINS + ", ".join(f"write {new} instead of {old}" for old, new in _used.items())


def is_known(notice: str, notices: list[str]) -> bool:
    """Whether ``notices`` holds such a ``notice`` already."""
    return any(known.startswith(_BEGINS) for known in notices) and notice.startswith(_BEGINS)


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Within, a Tune function may use the old interfaces."""
    import ray.air.session
    import ray.train
    from ray import tune

    saved = _SavedFolder()
    report = _reports(tune.report, saved)
    with (
        mock.patch.object(tune, "report", report),
        mock.patch.object(tune, "checkpoint_dir", saved.folder, create=True),
        _replaced(ray.train, "ray.train", report, tune),
        _replaced(ray.air.session, "ray.air.session", report, tune),
        contextlib.closing(saved),
    ):
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, report: Callable[..., None], tune: Any) -> Iterator[None]:
    """Within, ``report``, ``get_checkpoint`` and ``get_context`` of ``module`` are those of Tune."""

    def old_report(metrics: dict[str, Any], checkpoint: Any = None, checkpoint_dir_name: str | None = None) -> None:
        note(f"{name}.report", "ray.tune.report")
        report(metrics, checkpoint=checkpoint)

    def old_get_checkpoint() -> Any:
        note(f"{name}.get_checkpoint", "ray.tune.get_checkpoint")
        return tune.get_checkpoint()

    def old_get_context() -> Any:
        note(f"{name}.get_context", "ray.tune.get_context")
        return tune.get_context()

    with (
        mock.patch.object(module, "report", old_report),
        mock.patch.object(module, "get_checkpoint", old_get_checkpoint),
        mock.patch.object(module, "get_context", old_get_context, create=True),
    ):
        yield


def _reports(report: Callable[..., None], saved: _SavedFolder) -> Callable[..., None]:
    """``ray.tune.report`` that takes metrics as keyword arguments too, and any checkpoint of Ray's."""

    def new_report(metrics: Any = None, /, *, checkpoint: Any = None, **named: Any) -> None:
        if isinstance(named.get("metrics"), Mapping) and metrics is None:  # the argument's own name
            metrics = named.pop("metrics")
        if named:
            note("ray.tune.report(name=value)", "ray.tune.report({'name': value})")
            metrics = {**(metrics or {}), **named}
        with saved.given(checkpoint) as given:
            report(metrics, checkpoint=_of_tune(given))

    return new_report


def _of_tune(checkpoint: Any) -> Any:
    """A checkpoint of ``ray.train`` as one of ``ray.tune``."""
    from ray import train, tune

    if not isinstance(checkpoint, train.Checkpoint) or isinstance(checkpoint, tune.Checkpoint):
        return checkpoint
    note("ray.train.Checkpoint", "ray.tune.Checkpoint")
    return tune.Checkpoint(checkpoint.path, checkpoint.filesystem)


class _SavedFolder:
    """What ``tune.checkpoint_dir`` gave out: the checkpoint of the next report, as in Ray 1."""

    def __init__(self) -> None:
        self._folder: str | None = None

    @contextlib.contextmanager
    def folder(self, step: int | None = None) -> Iterator[str]:
        note("ray.tune.checkpoint_dir", "ray.tune.report(metrics, checkpoint=...)")
        folder = tempfile.mkdtemp(prefix="tuner-checkpoint-")
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.close()
        self._folder = folder

    @contextlib.contextmanager
    def given(self, checkpoint: Any) -> Iterator[Any]:
        """``checkpoint``, or else what was saved since the last report."""
        from ray import tune

        if checkpoint is None and self._folder is not None:
            checkpoint = tune.Checkpoint.from_directory(self._folder)
        try:
            yield checkpoint
        finally:
            self.close()

    def close(self) -> None:
        """Deletes what no report took."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
