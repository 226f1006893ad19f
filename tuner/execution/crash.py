"""What becomes of an exception that nothing foresaw: one line for the user, and its traceback in the run's log."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from tuner.errors import Crashed, EnvironmentFailure, LockLost, TunerError, UserCodeRaised
from tuner.runs.results import LOG
from tuner.storage.folder import RunFolder
from tuner.storage.lock import Lock


@contextlib.contextmanager
def in_one_line(folder: RunFolder, lock: Lock) -> Iterator[None]:
    """Within: any other exception becomes a TunerError, and its traceback is written to the log of ``folder``.

    Nothing is written if another process has the ``lock`` of the folder.

    Raises Crashed for the user's code and for bugs, EnvironmentFailure for errors of the system and of Ray.
    """
    try:
        yield
    except Exception as raised:  # noqa: BLE001 - the outermost place of a search: it is raised again, in words
        error = _beneath_ray(raised)
        if isinstance(error, TunerError) and not isinstance(error, UserCodeRaised):
            raise error from error.__cause__
        raise _in_words(error, folder, lock) from error


def _beneath_ray(error: BaseException) -> BaseException:
    """What Ray Tune's loop has wrapped, as it does with what its callbacks raise."""
    from ray.tune.error import TuneError

    while isinstance(error, TuneError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


def _in_words(error: BaseException, folder: RunFolder, lock: Lock) -> TunerError:
    from ray.exceptions import RayError

    from tuner.execution.failure_classifier import summarize

    raised = (error.__cause__ or error) if isinstance(error, UserCodeRaised) else error
    last = traceback.extract_tb(raised.__traceback__)[-1]
    words = f"{summarize(raised)} ({last.filename}, line {last.lineno}); {_logged(raised, folder, lock)}"
    if isinstance(error, UserCodeRaised):
        return Crashed(f"{error.whose} raised {words}")
    if isinstance(error, OSError | RayError):
        return EnvironmentFailure(words)
    return Crashed(f"unexpected {words}")


def _logged(error: BaseException, folder: RunFolder, lock: Lock) -> str:
    """Writes the traceback of ``error`` to the log of the run, and says where it is."""
    text = "".join(traceback.format_exception(error)).encode()
    try:
        lock.check()
        folder.write(LOG, (folder.read(LOG) if folder.exists(LOG) else b"") + text)
    except (OSError, LockLost) as lost:
        return f"its traceback could not be written to {folder.location}/{LOG}: {lost}"
    return f"traceback: {folder.location}/{LOG}"
