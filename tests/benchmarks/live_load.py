"""The load of live pages: `python tests/benchmarks/live_load.py --runs 10 --trials 1000 --viewers 200`.

Journals of made-up searches grow while viewers read the events of all of them. Then Chromium shows the page of one, and
the list of all at a service, while all grow. Prints the time to the first page and its size, the processor time of the
server, how late events come, how busy the main thread of each page is, and its longest task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from report_page import started  # noqa: E402

from tests.benchmarks.made_up_run import made_up_run  # noqa: E402
from tests.live.journals import Journal  # noqa: E402
from tests.live.servers import served  # noqa: E402
from tests.service.http import Service  # noqa: E402
from tuner.service.auth import COOKIE  # noqa: E402

CLOCK_S = 100.0
"""A value of a curve has six digits: it holds the time modulo this."""

LONG_TASKS = """
window.tasks = [];
const note = (found) => window.tasks.push(...found.getEntries().map((one) => one.duration));
new PerformanceObserver(note).observe({type: "longtask"});
"""
"""Notes the milliseconds of each task of 50 ms or more."""

REPORTS, EVENTS_A_SECOND, WATCHED_S = 30, 20, 20.0


def serve(storage: Path, pipe: Connection) -> None:
    """A server, in a process of its own, until its parent says something; then its processor time."""
    with served(storage) as address:
        pipe.send(address)
        pipe.recv()
        before = time.process_time()
        pipe.recv()
        pipe.send(time.process_time() - before)
        pipe.recv()


def serve_list(storage: Path, pipe: Connection) -> None:
    """A service whose searches are these runs, as `serve`; tells its address and a token."""
    service = Service(storage)
    for run in sorted(storage.glob("run*")):
        service.search(run.name, state="running")
    with service.running() as address:
        pipe.send((address, service.token("ada")))
        pipe.recv()


async def view(address: str, run: str, late: list[float]) -> None:
    """A viewer, who notes how old the newest report of each event is."""
    host, port = address.removeprefix("http://").split(":")
    since = ""
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
    writer.write(f"GET /runs/{run}/events?since={since} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    while line := await reader.readline():
        if line.startswith(b"data: {") and b'"whole":false' in line:
            told = json.loads(line[6:])
            late += [(time.time() - ys[-1]) % CLOCK_S for _, _, _, ys in told.get("curves", [])]


async def watch(address: str, journals: list[Journal], viewers: int) -> list[float]:
    """Lets journals grow while viewers read."""
    late: list[float] = []
    names = [journal.folder.path.rpartition("/")[2] for journal in journals]
    tasks = [asyncio.create_task(view(address, names[i % len(names)], late)) for i in range(viewers)]
    await asyncio.sleep(5)
    late.clear()
    end, step = time.time() + WATCHED_S, REPORTS
    while time.time() < end:
        step += 1
        for journal in journals:
            journal.append("reported", **report(step))
        await asyncio.sleep(1 / EVENTS_A_SECOND)
    for task in tasks:
        task.cancel()
    return late


def report(step: int) -> dict[str, Any]:
    """A report whose value tells when it was made."""
    fields = {"trial": f"{1:08x}", "step": step, "seconds": 3.0 * step, "timestamp": time.time(), "checkpoint": None}
    return fields | {"metrics": {"epoch": step, "val_accuracy": time.time() % CLOCK_S}, "elapsed": 1e5 + step}


def page(address: str, name: str, token: str = "") -> dict[str, float]:
    """Seconds until a browser has drawn the page; while events come: how busy its main thread is, its longest task."""
    with started() as browser:
        tab = browser.new_context(viewport={"width": 1300, "height": 900}).new_page()
        if token:
            tab.context.add_cookies([{"name": COOKIE, "value": token, "url": address}])
        begin = time.monotonic()
        tab.goto(address)
        tab.wait_for_selector("html[data-drawn]", state="attached", timeout=120_000)
        drawn = time.monotonic() - begin
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

        tab.evaluate(LONG_TASKS)
        before, begin = busy(), time.monotonic()
        tab.wait_for_timeout(10_000)
        share = (busy() - before) / (time.monotonic() - begin)
        longest = float(tab.evaluate("Math.max(0, ...window.tasks)"))
        return {f"{name}_drawn_s": drawn, f"{name}_busy_share": share, f"{name}_longest_task_ms": longest}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("runs", 10), ("trials", 1000), ("viewers", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    of = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder)
        journals = [Journal.of(made_up_run(storage / f"run{i}", of.trials, REPORTS).folder) for i in range(of.runs)]
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.Process(target=serve, args=[storage, theirs])
        server.start()
        address = ours.recv()
        begin = time.monotonic()
        request = urllib.request.Request(f"{address}/runs/run0/data", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            size = len(answer.read())
        told: dict[str, float] = {"first_data_s": time.monotonic() - begin, "first_data_kb": size / 1e3}
        for i in range(of.runs):
            urllib.request.urlopen(f"{address}/runs/run{i}/data", timeout=300).close()
        ours.send("begin")
        late = asyncio.run(watch(address, journals, of.viewers))
        ours.send("end")
        told |= {"server_cpu_share": ours.recv() / (WATCHED_S + 5), "events": len(late)}
        told |= {"late_median_s": statistics.median(late), "late_p99_s": statistics.quantiles(late, n=100)[-1]}
        writer = multiprocessing.Process(target=grow, args=[journals])
        writer.start()
        told |= page(f"{address}/runs/run0", "run")
        ours.send("leave")
        server.join()
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.Process(target=serve_list, args=[storage, theirs])
        server.start()
        address, token = ours.recv()
        told |= page(address, "list", token)
        writer.terminate()
        ours.send("leave")
        server.join()
    print(json.dumps(vars(of) | {"cores": os.cpu_count()} | {k: round(v, 3) for k, v in told.items()}, indent=2))


def grow(journals: list[Journal]) -> None:
    """Has journals grow until it is ended."""
    step = 10_000
    while True:
        step += 1
        for journal in journals:
            journal.append("reported", **report(step))
        time.sleep(1 / EVENTS_A_SECOND)


if __name__ == "__main__":
    main()
