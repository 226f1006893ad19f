"""How many trials a machine trains the fastest at once: what ``share`` in ``resources`` stands for.

Before the search begins, processes train the configuration of its first trial: one alone, then 2, 4 and more at once.
All do the same work, so their reports an hour can be compared without a model of what configurations cost. Their
reports are thrown away.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray import cloudpickle

from tuner.execution.trial_context import TrialContext
from tuner.experiment.resources import SHARE, Resources
from tuner.plan.cluster import Cluster, Node, mig_slices
from tuner.runs.consumption import gib
from tuner.spec.quantities import counted

MOST_ON_GPU = 8
"""Trials on one GPU at most."""
LEAST_CPU = 0.25
"""Of a core, for each trial of ``cpu: share``."""
START_S = 180.0
"""How long the processes of a level may take to their first reports, imports and the reading of data included."""
MEASURE_S = 60.0
"""How long the reports of a level are counted at most."""
SETTLED_S, SETTLED_REPORTS = 3.0, 4
"""They are counted for no longer than this if each process has made so many in the meantime."""
CLOSE = 0.05
"""A level is taken if none with more trials is faster by more than this share: fewer at once are known earlier."""


@dataclass(frozen=True)
class Level:
    """A way to share a machine, or a GPU of it."""

    trials: int
    """At once: on the machine, or on each GPU if that is shared."""
    cpu: float
    """Cores of each."""
    gpu: float | None = None
    """Of each, the part of a GPU; None if no GPU is shared."""
    gpus: int = 1
    """How many GPUs of the machine are shared at once."""

    def __str__(self) -> str:
        on = " on a GPU" if self.gpu else ""
        each = "" if self.trials == 1 else " each"
        return f"{counted(self.trials, 'trial')} at once{on} with {self.cpu:g} CPU{each}"


@dataclass(frozen=True)
class Measured:
    """What came out of a level."""

    level: Level
    rate: float
    """Reports an hour of all its trials together; 0 if that is not known."""
    memory: int = 0
    """Bytes of host memory of the trial that has most."""
    problem: str = ""
    """Why there is no rate."""


def levels(resources: Resources, machine: Mapping[str, float], trials: int) -> list[Level]:
    """The levels to measure on a ``machine`` with these resources, from one trial on; the search has ``trials``.

    One level, if nothing can be chosen. On the machine is room for a trial at least.
    """
    cores, gpus = int(machine.get("CPU", 1)), int(machine.get("GPU", 0))
    shares_gpu, shares_cpu = resources.gpu == SHARE and gpus > 0, resources.cpu == SHARE
    if not (shares_gpu or shares_cpu):
        return [Level(1, resources.cpus)]
    shared = [name for name, is_shared in (("CPU", shares_cpu), ("GPU", shares_gpu)) if is_shared]
    fixed = {name: amount for name, amount in resources.request(gpus > 0).items() if name not in shared}
    room = Cluster((Node("", machine),)).slots(fixed) if fixed else int(cores / LEAST_CPU)
    most = min(room, trials, resources.max_concurrent_trials or trials)
    used = min(gpus, most) if shares_gpu else 1
    most = min(MOST_ON_GPU, -(-most // used)) if shares_gpu else min(cores, most)
    found = []
    for at_once in sorted({most, *(2**k for k in range(most.bit_length()) if 2**k <= most)}):
        on_machine = at_once * used
        cpu = _part(cores, on_machine) if shares_cpu else resources.cpus
        if at_once == 1 or (on_machine <= room and not (shares_cpu and cpu < LEAST_CPU)):
            found.append(Level(at_once, cpu, _part(1, at_once) if shares_gpu else None, used))
    return found


def _part(whole: int, parts: int) -> float:
    """So that all parts fit, as Ray counts in ten-thousandths."""
    return math.floor(10_000 * whole / parts) / 10_000


def measure(task: TrialContext, config: dict[str, Any], to_measure: Sequence[Level], memory: float) -> list[Measured]:
    """Measures one level after the other, until more trials at once are slower.

    ``memory``: bytes of host memory for trials; a level that would need more is not tried.
    """
    known: list[Measured] = []
    for level in to_measure:
        needed = max((one.memory for one in known), default=0) * level.trials * level.gpus
        if needed > memory:
            need = f"{gib(needed):g} GiB of host memory, and there are {gib(int(memory)):g} for trials"
            return [*known, Measured(level, 0, problem=f"they would need {need}")]
        known.append(_measure_level(task, config, level))
        if known[-1].problem or known[-1].rate < max(one.rate for one in known) * (1 - CLOSE):
            break
    return known


def fastest(measured: Iterable[Measured]) -> Measured | None:
    """The first level that none with more trials beats by more than `CLOSE`; None if no level has a rate."""
    known = [one for one in measured if not one.problem]
    return next((one for one in known if all(other.rate <= one.rate * (1 + CLOSE) for other in known)), None)


def applied(resources: Resources, level: Level) -> Resources:
    """``resources`` with numbers in place of ``share``."""
    cpu = level.cpu if resources.cpu == SHARE else resources.cpu
    gpu = (level.gpu or 0) if resources.gpu == SHARE else resources.gpu
    has_parts = resources.gpu != SHARE or (level.gpu or 1) < 1
    return resources.model_copy(update={"cpu": cpu, "gpu": gpu, "mps": resources.mps and has_parts})


@dataclass
class _Probe:
    """A process that trains the configuration again and again."""

    process: subprocess.Popen[bytes]
    times: list[float] = field(default_factory=list)
    """Of its reports, on the clock of `time.monotonic`."""
    memory: int = 0
    error: str = ""
    _rest: bytes = b""

    def read(self) -> None:
        """Takes what it has written."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            self.error = self.error or f"its process ended with status {self.process.wait()}"
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            what, _, rest = line.decode(errors="replace").partition(" ")
            if what == "error":
                self.error = rest
            else:
                self.times.append(float(what))
                self.memory = max(self.memory, int(rest))


def _measure_level(task: TrialContext, config: dict[str, Any], level: Level) -> Measured:
    request = {**task.request, "CPU": level.cpu} | ({"GPU": level.gpu} if level.gpu else {})
    probes: list[_Probe] = []
    # all their files lie there: processes that are killed remove none
    with tempfile.TemporaryDirectory(prefix="tuner-share-", ignore_cleanup_errors=True) as folder:
        trial = Path(folder, "trial.pickle")
        trial.write_bytes(cloudpickle.dumps((replace(task, cpu=level.cpu, request=request), config)))
        try:
            for number in range(level.trials):
                gpus = {"CUDA_VISIBLE_DEVICES": gpus_of(number, request["GPU"])} if request.get("GPU") else {}
                probes.append(_started(trial, gpus))
            return _watch_level(probes, level)
        finally:
            for probe in probes:
                _ended(probe.process)


def _watch_level(probes: Sequence[_Probe], level: Level) -> Measured:
    if not _watched(probes, lambda: all(probe.times for probe in probes), START_S):
        return Measured(level, 0, problem=_why(probes, f"no report within {START_S:.0f} s"))
    start = max(probe.times[0] for probe in probes)

    def settled() -> bool:
        enough = all(len(since(probe.times, start)) >= SETTLED_REPORTS for probe in probes)
        return enough and time.monotonic() > start + SETTLED_S

    _watched(probes, settled, MEASURE_S)
    memory = max(probe.memory for probe in probes)
    found = rate([since(probe.times, start) for probe in probes])
    if found is None or any(probe.error for probe in probes):
        return Measured(level, 0, memory, _why(probes, f"no two reports within {MEASURE_S:.0f} s"))
    return Measured(level, found, memory)


def gpus_of(number: int, amount: float) -> str:
    """The GPUs, or slices of GPUs, of the process ``number`` of a level, by UUIDs or numbers; each has ``amount``."""
    seen = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    first = int(number * amount + 1e-6)
    known = seen or mig_slices() or tuple(map(str, range(first + math.ceil(amount))))
    return ",".join(known[first : first + math.ceil(amount)] or known[:1])


def _started(trial: Path, environment: Mapping[str, str]) -> _Probe:
    """Its standard input stays open as long as this process lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner.execution.sharing_probe", str(trial)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    return _Probe(process)


def _ended(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _watched(probes: Sequence[_Probe], done: Callable[[], bool], seconds: float) -> bool:
    """Reads what ``probes`` write until ``done``; whether that came before one failed, and within ``seconds``."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for probe in probes:
            assert probe.process.stdout is not None
            selector.register(probe.process.stdout, selectors.EVENT_READ, probe)
        while not done():
            left = deadline - time.monotonic()
            if left <= 0 or any(probe.error for probe in probes):
                return False
            for key, _ in selector.select(min(left, 0.5)):
                key.data.read()
    return True


def _why(probes: Sequence[_Probe], otherwise: str) -> str:
    return next((probe.error for probe in probes if probe.error), otherwise)


def since(times: Sequence[float], start: float) -> list[float]:
    """Those of ``times`` from ``start`` on."""
    return [one for one in times if one >= start]


def rate(times: Sequence[Sequence[float]]) -> float | None:
    """Reports an hour of all processes together, from the ``times`` of each; None if one has fewer than two."""
    if any(len(own) < 2 for own in times):
        return None
    return sum(3600 * (len(own) - 1) / max(own[-1] - own[0], 1e-9) for own in times)
