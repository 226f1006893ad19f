"""The thread in which a service's queue looks at its cluster, again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tuner.errors import EnvironmentFailure, LockLost
from tuner.service.interface import Queue
from tuner.storage.folder import reason

EVERY_S = 2.0
"""Between two passes."""

END_S = 10.0
"""How long the pass that runs may take when the service is to end; to be cut off does it no harm."""


class Loop:
    """Calls `Queue.step`. It reports a failing storage, cluster or search once, and looks again.

    Any other error ends it.
    """

    def __init__(
        self,
        queue: Queue,
        say: Callable[[str], None],
        failed: Callable[[], None],
        every_s: float = EVERY_S,
        before_pass: Callable[[], None] = lambda: None,
    ) -> None:
        """``say``: gets each line for the operator. ``failed``: called in the thread if the loop cannot continue."""
        self._queue, self._say, self._failed, self._every_s = queue, say, failed, every_s
        self._before_pass = before_pass
        self._over = threading.Event()
        self._told = ""
        self._told_of: Mapping[str, str] = {}
        """What was reported of single searches."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tuner_queue", daemon=True)

    def once(self) -> None:
        """One pass. Raises what no other pass would mend."""
        try:
            self._before_pass()
            found = self._queue.step()
        except LockLost:
            raise
        except (OSError, EnvironmentFailure) as error:
            told = f"the storage fails: {reason(error)}" if isinstance(error, OSError) else str(error)
            if told != self._told:
                self._say(f"NOTICE: {told}; the queue waits, and looks again")
            self._told = told
        else:
            if self._told:
                self._say("NOTICE: the queue continues")
            self._told = ""
            for name, told in found.items():
                if self._told_of.get(name) != told:
                    self._say(f"NOTICE: search {name}: {told}; the others continue")
            self._told_of = found

    def start(self) -> None:
        """Begins the thread."""
        self._thread.start()

    def end(self) -> None:
        """Waits for the end of the pass that runs, but not long. Raises the error that ended the loop before."""
        self._over.set()
        self._thread.join(END_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.wait(self._every_s):
                self.once()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the main thread
            self._error = error
            self._failed()
