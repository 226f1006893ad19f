"""What it costs a trial that its consumption is measured.

    python tests/benchmarks/consumption.py [--threads 80] [--children 8] [--seconds 20]

In one process with torch, as many threads as a process of Ray has, and as many children as a data loader may have,
it says how long a report takes longer (`ConsumptionMeter.read`), how long a look takes that comes once a second
(`ConsumptionMeter.sample`), and which share of a core looks take while a loop in pure Python holds the GIL.

Measured on 2 cores of an AMD EPYC (Python 3.11, torch 2.15, other work ran): without children a report takes 36 us
longer, a look 34 us, looks 0.04 % of a core; with 8 children of 200 MB 35 us, 28 ms, 1.0 % (`SAMPLE_SHARE`).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator

import torch  # noqa: F401 - as in a trial

from tuner.execution.consumption_meter import ConsumptionMeter

CHILD = "import sys; held = bytearray(b'1' * 200_000_000); print(1, flush=True); sys.stdin.read()"


def microseconds(call: Callable[[], object], count: int = 300) -> float:
    return 1e6 * statistics.median(timeit.repeat(call, number=1, repeat=count))


def share_of_looks(seconds: float) -> float:
    """Of a core, while a loop in pure Python holds the GIL: the processor time of all threads but the loop's."""
    begun, all_threads, loop = time.perf_counter(), time.process_time(), time.thread_time()
    while (took := time.perf_counter() - begun) < seconds:
        sum(range(1000))
    return (time.process_time() - all_threads - (time.thread_time() - loop)) / took


@contextlib.contextmanager
def children(count: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            command = [sys.executable, "-c", CHILD]
            child = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            stack.callback(child.kill)
            assert child.stdout is not None
            child.stdout.readline()
        yield


def show(what: str, seconds: float) -> None:
    meter = ConsumptionMeter()
    read, sample = microseconds(meter.read), microseconds(meter.sample, 100)
    idle = share_of_looks(seconds)
    with meter.running():
        share = share_of_looks(seconds)
    print(
        f"{what}: a report {read:.0f} us, a look {sample:.0f} us; looks take {share:.3%} of a core (without {idle:.3%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=80)
    parser.add_argument("--children", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    over = threading.Event()
    for _ in range(options.threads):
        threading.Thread(target=over.wait, daemon=True).start()
    show("no children", options.seconds)
    with children(options.children):
        show(f"{options.children} children", options.seconds)


if __name__ == "__main__":
    main()
