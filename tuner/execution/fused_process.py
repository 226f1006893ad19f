"""The process in which several trials of a machine train as one model, by the trainable's ``train_many``.

Each trial keeps a process of its own, in which Ray Tune starts, stops, pauses and saves it as every other. That process
has a seat here: a connection, which the system closes however the process ends. Trials that wait on their seats train
together, if their configurations have one shape and they continue from the same report. One group trains at a time. So
a group begins when the one before has ended, and nobody waits for a trial that may never come for more than seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import cloudpickle

from tuner.execution.consumption_meter import ConsumptionMeter
from tuner.execution.failure_classifier import BadReport, print_traceback, user_error
from tuner.execution.process_reset import ProcessState, output_to
from tuner.execution.trial_context import TrialContext, ready, with_micro_batch
from tuner.runs.consumption import DIGITS, Consumption
from tuner.spec.configuration import merge
from tuner.trainable.trainable import Trainable

FIRST_GATHER_S = 10.0
"""How long the first group waits for one more trial: their processes start one after the other."""
GATHER_S = 1.0
"""The same of later groups: the trials that follow those that have ended come within milliseconds."""
LINGER_S = 5.0
"""After so long without a seat the process ends; also if it still trains a group that everybody has left."""
LOOK_EVERY_S = 0.5
MEASURE_EVERY_S = 1.0

SOCKET, TASK, OUTPUT = "socket", "task.pickle", "output"
"""Files of the process in its folder."""


@dataclass(frozen=True)
class Start:
    """What a trial gives when it begins."""

    config: dict[str, Any]
    """As Ray Tune has it."""
    step: int
    """The report from which it continues; 0 if it begins."""
    checkpoint: Path | None
    """Of that report, in a folder that stays until the trial ends."""


@dataclass(frozen=True)
class Reported:
    """A report of one of the trials."""

    metrics: dict[str, Any]
    checkpoint: Path | None
    """A folder that whoever reads this removes."""
    output: str
    """What the process has printed since the last message to this trial."""
    consumed: Consumption | None
    """The trial's part of what the process consumes."""


@dataclass(eq=False)
class _Member:
    """A trial on its seat."""

    connection: Connection
    number: int
    """Of the trial among those of its seat: what comes late of the one before is not of this one."""
    start: Start
    position: int = 0
    """How much of the output it has."""
    answered: threading.Event = field(default_factory=threading.Event)
    """Whether it has answered to its latest report, or has left."""
    left: bool = False

    def leave(self) -> None:
        """It takes no report any more, and nobody waits for its answer."""
        self.left = True
        self.answered.set()

    def new_output(self, folder: Path) -> str:
        """What the process has printed since the last call."""
        sys.stdout.flush()
        with contextlib.suppress(OSError), (folder / OUTPUT).open("rb") as file:
            file.seek(self.position)
            text = file.read()
            self.position += len(text)
            return text.decode(errors="replace")
        return ""

    def send(self, kind: str, value: Any = None) -> None:
        with contextlib.suppress(OSError):  # its process is gone, which its seat finds out
            self.connection.send((kind, self.number, value))


class _AllLeft(BaseException):
    """Ends a ``train_many`` for which nobody waits any more; no ``except Exception`` of the user's takes it."""


class FusedProcess:
    """Trains one group of trials after the other. ``folder`` has its socket, its output and its checkpoints."""

    def __init__(self, task: TrialContext, folder: Path, listener: Listener) -> None:
        self._task, self._folder, self._listener = task, folder, listener
        self._process = ProcessState()
        self._meter = ConsumptionMeter()
        self._changed = threading.Condition()
        self._seats = 0
        self._waiting: list[_Member] = []
        self._training: list[_Member] = []
        self._moved = time.monotonic()
        """When somebody came or left last."""

    def serve(self) -> None:
        """Does not return: the process ends when no seat is taken, or when it is not fit for another group."""
        for thread in (self._accept, self._watch):
            threading.Thread(target=thread, name=f"ray_{thread.__name__}", daemon=True).start()
        gather = FIRST_GATHER_S
        while True:
            fit = self._train(self._next_group(gather))
            if not fit or self._process.find_leaks():
                self._end()
            gather = GATHER_S

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            with self._changed:
                is_free = self._seats < self._task.fused
                self._seats += is_free
                self._moved = time.monotonic()
            with contextlib.suppress(OSError):  # it is gone already, which its seat finds out
                connection.send(is_free)
            if is_free:
                threading.Thread(target=self._serve, args=(connection,), name="ray_seat", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """Takes what the processes of trials send, until theirs ends."""
        member: _Member | None = None
        try:
            while True:
                kind, number, value = connection.recv()
                with self._changed:
                    if kind == "begin":
                        member = _Member(connection, number, value)
                        self._waiting.append(member)
                        self._moved = time.monotonic()
                        self._changed.notify_all()
                    elif member is not None and member.number == number:
                        if kind == "leave":
                            self._remove(member)
                        member.answered.set()
        except (EOFError, OSError):
            pass
        with self._changed:
            self._seats -= 1
            self._moved = time.monotonic()
            if member is not None:
                self._remove(member)

    def _remove(self, member: _Member) -> None:
        member.leave()
        if member in self._waiting:
            self._waiting.remove(member)

    def _watch(self) -> None:
        """Ends the process if nobody needs it: also one whose training does not come to a report."""
        needed = time.monotonic()
        while True:
            time.sleep(LOOK_EVERY_S)
            with self._changed:
                is_needed = self._seats and not (self._training and all(member.left for member in self._training))
            if is_needed:
                needed = time.monotonic()
            elif time.monotonic() - needed > LINGER_S:
                self._end()

    def _end(self) -> None:
        """Ends the process; those that wait go to another one."""
        with locked(self._folder.parent):  # who comes now finds no socket, and starts another process
            shutil.rmtree(self._folder, ignore_errors=True)
        with self._changed:
            for member in self._waiting:
                member.send("again")
            os._exit(0)  # threads of the user's may still run

    def _next_group(self, gather: float) -> list[_Member]:
        with self._changed:
            while len(self._waiting) < self._task.fused:
                rest = gather - (time.monotonic() - self._moved)
                if self._waiting and rest <= 0:
                    break
                self._changed.wait(rest if self._waiting else None)
            found, self._waiting = self._waiting, []
            self._training = found
        return found

    def _train(self, found: list[_Member]) -> bool:
        """Trains those of ``found`` that are like the first one; the others wait on. Whether all went well."""
        error: BaseException | None = None
        output = self._folder / OUTPUT
        output.write_bytes(b"")
        with output_to(output), self._meter.running():
            try:
                with ready(self._process, self._task, found[0].start.config) as trainable:
                    members = self._alike(trainable, found)
                    configs = [self._config(member) for member in members]
                    starts = [member.start.checkpoint for member in members if member.start.checkpoint is not None]
                    trainable.train_many(configs, _Reports(members, self._meter, self._folder).report, starts or None)
            except _AllLeft:
                pass
            except Exception as raised:  # noqa: BLE001 - the user's code may raise anything
                print_traceback(raised)
                error = raised if isinstance(raised, BadReport) else user_error(raised)
            sys.stdout.flush()
        with self._changed:
            members, self._training = self._training, []
        for member in members:
            member.send("failed" if error else "end", (member.new_output(self._folder), error))
        return error is None

    def _config(self, member: _Member) -> dict[str, Any]:
        return merge(self._task.params, with_micro_batch(member.start.config))

    def _alike(self, trainable: Trainable, found: Sequence[_Member]) -> list[_Member]:
        def kind(member: _Member) -> Hashable:
            return trainable.shape(self._config(member)), member.start.step

        kinds = [kind(member) for member in found]
        members = [member for member, one in zip(found, kinds, strict=True) if one == kinds[0]]
        with self._changed:
            self._training = members
            self._waiting[:0] = [member for member in found if member not in members and not member.left]
        for member in members:
            member.send("started")
        return members


class _Reports:
    """Passes the reports of a group on to its trials."""

    def __init__(self, members: Sequence[_Member], meter: ConsumptionMeter, folder: Path) -> None:
        self._members, self._meter, self._folder = members, meter, folder
        self._consumed: Consumption | None = None
        self._measured = -MEASURE_EVERY_S

    def report(self, number: int, metrics: Mapping[str, Any], save: Callable[[str], Any] | None = None) -> bool:
        """As ``train_many`` calls it. Returns when the trial has taken the report before, and if the scheduler decides
        at this one, when it has decided."""
        if not 0 <= number < len(self._members):
            raise BadReport(f"train_many reported number {number}, and there are {len(self._members)} configurations")
        member = self._members[number]
        member.answered.clear()
        if not member.left:
            folder = None
            if save is not None:
                folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder))
                save(str(folder))
            output = member.new_output(self._folder)
            member.send("report", Reported(dict(metrics), folder, output, self._part()))
            member.answered.wait()
        if all(one.left for one in self._members):
            raise _AllLeft
        return not member.left

    def _part(self) -> Consumption | None:
        """Of one trial: an equal part of the memory and the power."""
        if time.monotonic() - self._measured >= MEASURE_EVERY_S:
            self._measured = time.monotonic()
            found, count = self._meter.read(), sum(not member.left for member in self._members) or 1
            amounts = {name: getattr(found, name) for name in _AMOUNTS}
            self._consumed = replace(
                found, **{name: round(one / count, DIGITS) for name, one in amounts.items() if one is not None}
            )
        return self._consumed


_AMOUNTS = ("host_gib", "peak_host_gib", "gpu_gib", "peak_gpu_gib", "peak_gpu_reserved_gib", "gpu_watts")


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Within: nobody else looks for a process in ``place``, starts or ends one."""
    with (place / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Leaves a child, which is not of the process that started this one: Ray ends the children of a process with it."""
    if os.fork():
        os._exit(0)
    folder = Path(sys.argv[1])
    with Listener(str(folder / SOCKET), "AF_UNIX") as listener:
        FusedProcess(cloudpickle.loads((folder / TASK).read_bytes()), folder, listener).serve()
