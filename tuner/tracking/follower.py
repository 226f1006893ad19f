"""The process that sends a running search to trackers and people: it reads the journal, so the search never waits.

    python -m tuner.tracking.follower [MODULE …]

It is a process and not a thread: importing MLflow and writing to it takes seconds of one core, in which a thread would
hold up the loop that drives the search. The journal is its spool: it keeps all that an absent server does not get.
After it has imported the modules, it reads one JSON object from stdin: the run ``folder``, and whether the search
``is_new`` or resumed. Stdin ends when that folder is complete, or when the search's process is killed. On stdout it
writes one JSON object a line. A ``notice`` is for the user. The last one is ``missing``: the reason why some reports
could not be sent, or ''.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tuner.errors import EnvironmentFailure, InputError
from tuner.experiment.notify import Notify
from tuner.experiment.tracking import Tracking
from tuner.runs.events import Event
from tuner.runs.history import journalled
from tuner.runs.loading import load_latest, load_summary
from tuner.runs.results import LOG, ResultSet
from tuner.runs.trial import Trial
from tuner.search.emitted_events import known_events
from tuner.storage.folder import RunFolder, open_own
from tuner.storage.lock import locked
from tuner.tracking import backends_of
from tuner.tracking.backends.base import TrackingBackend
from tuner.tracking.delivery import Delivery
from tuner.tracking.messages import Watch

TRACKING_LOCK = "tracking.lock"

_EVERY_S = 1.0
"""How often the journal is looked at."""

_RETRY_S = 5.0
"""How long a backend that failed is left alone."""

_TRIES = 2
"""How often the last word is tried."""

_PATIENCE_S = 60.0
"""How long a follower waits for the one of the same run before it."""


@dataclass
class Outbox:
    """What one backend has not got yet."""

    backend: TrackingBackend
    say: Callable[[str], None]
    waiting: set[str] = field(default_factory=set)
    """Trials of which something is new."""
    trouble: str = ""
    """Why it failed last; empty if it works."""
    _opened: bool = False
    _not_before: float = 0.0

    def send(self, results: ResultSet) -> None:
        """Sends what waits, unless it failed just now."""
        if not self.waiting or time.monotonic() < self._not_before:
            return
        sending = [trial for name in self.waiting if (trial := results.get(name))]
        if self._try(results, lambda: self.backend.send(results, sending)):
            self.waiting.clear()

    def close(self, results: ResultSet) -> str:
        """Sends all; why that failed, or ''."""
        for left in range(_TRIES - 1, -1, -1):
            if self._try(results, lambda: self.backend.close(results)):
                return ""
            time.sleep(_RETRY_S if left else 0)
        return self.trouble

    def _try(self, results: ResultSet, act: Callable[[], None]) -> bool:
        try:
            if not self._opened:
                self.backend.open(results)
                self._opened = True
            act()
        except EnvironmentFailure as error:
            if not self.trouble:
                self.say(f"{error}; the search continues, and what is missing is sent when it can be")
            self.trouble, self._opened = str(error), False  # a request may have been answered, and the answer lost
            self._not_before = time.monotonic() + _RETRY_S
            return False
        if self.trouble:
            self.say(f"{self.backend.name} is back; what was missing is sent")
        self.trouble = ""
        return True


class Notices:
    """The messages of a search to people."""

    def __init__(self, options: Notify, results: ResultSet, say: Callable[[str], None], is_new: bool) -> None:
        self._delivery = Delivery(options, say)
        events = known_events(results)
        if is_new:
            self._watch = Watch(options, replace(results, trials=[]), time.monotonic())
            for event in events:
                self.saw(event)
        else:
            self._watch = Watch(options, results, time.monotonic(), events)

    def saw(self, event: Event) -> None:
        """An event that the results have taken in."""
        self._watch.saw(event, time.monotonic())

    def send(self, results: ResultSet) -> None:
        """Sends what is due, and what waits."""
        self._delivery.put(self._watch.due(results, time.monotonic()))
        self._delivery.step()

    def close(self, results: ResultSet) -> None:
        """Sends the last ones."""
        self._delivery.put(self._watch.end(results))
        self._delivery.close()


def _notices(results: ResultSet, say: Callable[[str], None], is_new: bool) -> Notices | None:
    """Those that the experiment asks for; without an address it sends none, and a notice says so."""
    options = results.section("notify")
    try:
        return Notices(Notify.model_validate(options), results, say, is_new) if options else None
    except InputError as error:
        say(f"{error}; this search sends no messages")
        return None


class JournalFollower:
    """Plays the journal of a run as it grows."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None], is_new: bool = False) -> None:
        """``is_new``: as of `follow`."""
        self._folder = folder
        self._history, self._reader = journalled(folder, load_summary(folder).provenance)
        self._results = self._history.results
        tracking = Tracking.model_validate(self._results.section("tracking"))
        self._outboxes = [Outbox(backend, say) for backend in backends_of(tracking, self._results)]
        self._changed(trial for trial in self._results.trials)
        self._notices = _notices(self._results, say, is_new)

    def _changed(self, trials: Iterable[Trial]) -> None:
        names = {trial.id for trial in trials}
        for outbox in self._outboxes:
            outbox.waiting |= names

    def step(self) -> None:
        """Reads on, and sends what is new."""
        touched = {}
        for event in self._reader.new():
            self._history.apply(event)
            if trial := self._results.get(event.get("trial", "")):
                touched[trial.id] = trial
            if self._notices:
                self._notices.saw(event)
        self._changed(touched.values())
        for outbox in self._outboxes:
            outbox.send(self._results)
        if self._notices:
            self._notices.send(self._results)

    def finish(self) -> str:
        """Sends all that the run folder holds; what could not be sent and why, or ''."""
        results = load_latest(self._folder)
        if self._notices:
            self._notices.close(results)
        return "; ".join(filter(None, [outbox.close(results) for outbox in self._outboxes]))


def main() -> None:
    """Follows the run that stdin names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search, which says when it is over
    os.nice(19)  # trials come first
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")  # what was lost is sent again with all that waits
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    for module in sys.argv[1:]:  # what takes longest, before it is known where to look
        importlib.import_module(module)
    line = sys.stdin.readline()
    if not line:  # the search came to nothing before it began
        return
    told = json.loads(line)
    folder = RunFolder.at(told["folder"])
    if folder.is_local:
        log = open_own(folder.local_path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()

    def answer(what: str, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the search was killed: nobody reads
            answers.write(json.dumps({what: text}) + "\n")

    try:
        missing = follow(folder, over, lambda text: answer("notice", text), told["is_new"])
    except (EnvironmentFailure, InputError) as error:
        missing = str(error)
    answer("missing", missing)
    gc.freeze()  # the search waits for its end, in which Python would go through all of MLflow once more


def follow(folder: RunFolder, over: threading.Event, say: Callable[[str], None], is_new: bool = False) -> str:
    """Sends the search of ``folder`` until it is ``over``; what could not be sent and why, or ''.

    ``is_new``: whether all that the journal tells is news to people. Of a resumed search, only what follows is.
    """
    with locked(
        folder, TRACKING_LOCK, _PATIENCE_S
    ) as lock:  # another one may still be sending what a killed search left
        follower = JournalFollower(folder, say, is_new)
        while not over.wait(_EVERY_S):
            with contextlib.suppress(OSError):  # a storage that fails for a while is read on when it is back
                lock.renew()
                follower.step()
        return follower.finish()


if __name__ == "__main__":
    main()
