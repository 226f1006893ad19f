"""What a service of `tuner serve` takes: how soon it answers while many people look at it, and while one floods it.

    python tests/benchmarks/service_load.py [--rounds 3] [--seconds 20] [--queued 1000] [--viewers 200]

A real server with its queue, its door and its storage, held to one core; only the cluster is one in memory. 10 searches
run; each has 1,000 trials with 10 reports, and a new report every 0.25 s. `--queued` searches of 10 users wait.

1. Time of one `SearchQueue.step`, `entries`, `entry` and `submit` with `--queued` searches that wait and 50 that run.
2. Requests of one user, one at a time, up to four a second: the list of all searches, one search, and the cluster; at
   the end of each phase a search is submitted, which the service checks in a process of its own, on the same core. From
   the request to the end of the answer:
   - alone: nobody else asks;
   - viewers: `--viewers` live pages of the 10 running searches are open (`/runs/NAME/events`);
   - viewers, flood: and another user asks for the list 10,000 times a minute, over 20 connections;
   - viewers, unread: and that user has 50 live pages and 50 lists of which he reads nothing.
   Viewers, flood and unread come in turn, `--rounds` times, so that what else the machine does meets all alike.

CPU: of the server's process, without the processes that check experiments; 1 is the whole core. Lag: from the event in
the journal to its arrival at a viewer. The clients and what trains share the other cores.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks import service_load_parts as parts  # noqa: E402
from tests.service.fake import FakeCluster  # noqa: E402
from tests.tracking.servers import free_port  # noqa: E402
from tuner.service.interface import Submission  # noqa: E402
from tuner.service.queue import SearchQueue  # noqa: E402
from tuner.service.team import Team  # noqa: E402
from tuner.service.tokens import Tokens  # noqa: E402
from tuner.storage.folder import RunFolder  # noqa: E402

RUNNING, TRIALS, USERS = 10, 1000, 10
EXPERIMENT = (ROOT / "experiments/quickstart.yaml").read_text()
PATHS = ("/v1/searches", "/v1/searches/s0001", "/v1/cluster")
SUBMIT = "submit, with check"
FLOOD_A_SECOND = 10_000 / 60


def submission(number: int, users: int) -> Submission:
    per_trial = {"CPU": 1.0, "GPU": 1.0}
    user, name = f"user-{number % users:02}", f"s{number:04}"
    return Submission(user, name, f"r{number}", experiment=EXPERIMENT, per_trial=per_trial, trials=TRIALS)


def ms(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begun)


def of_queue(queued: int, running: int = 50) -> None:
    """Prints how long the queue takes."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = FakeCluster(float(running), trials=10**6)
        with SearchQueue.open(RunFolder.at(folder), cluster, Team()) as queue:
            some = [submission(number, running) for number in range(queued + running)]
            took = {
                "submit": [ms(functools.partial(queue.submit, one)) for one in some],
                "first step": [ms(queue.step)],
            }
            cluster.advance(20)
            queue.step()
            assert sum(entry.state == "running" for entry in queue.entries()) == running
            took |= {"step": [], "entries": [], "entry": []}
            for _ in range(30):
                took["step"].append(ms(queue.step))
                took["entries"].append(ms(queue.entries))
                took["entry"].append(ms(lambda: queue.entry(some[-1].name)))
    print(f"\n| the queue, {queued} wait, {running} run | median | 95 % |\n|---|---|---|")
    for name, times in took.items():
        print(f"| {name} | {statistics.median(times):.1f} ms | {quantile(times, 0.95):.1f} ms |")


def quantile(values: list[float], share: float) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(share * len(found)))]


class Asker:
    """The user whose requests are timed."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: dict[str, Any] | None = None) -> None:
        told = None if body is None else json.dumps(body)
        self._connection.request("GET" if body is None else "POST", path, told, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 201), (answer.status, text[:1000])

    def during(self, seconds: float) -> dict[str, list[float]]:
        """Milliseconds of each request, by what it asks for."""
        took: dict[str, list[float]] = {path: [] for path in (*PATHS, SUBMIT)}
        until = time.monotonic() + seconds
        self._connection.close()  # the server closes one that was idle for some seconds
        while time.monotonic() < until:
            for path in PATHS:
                took[path].append(ms(functools.partial(self.ask, path)))
                time.sleep(0.25)
        took[SUBMIT].append(ms(lambda: self.ask("/v1/searches", {"file": "quickstart"})))
        return took


def cpu_s(pid: int | None) -> float:
    """Of the process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], object], what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Load:
    """The server, and all around it."""

    def __init__(self, storage: str, queued: int, viewers: int) -> None:
        self._processes: list[multiprocessing.context.SpawnProcess] = []
        self._spawn = multiprocessing.get_context("spawn")
        self._over, self._flood, self._unread = (self._spawn.Event() for _ in range(3))
        self._seen, self._told = self._spawn.Queue(), self._spawn.Queue()
        self._storage, self._port, self._began = storage, free_port(), time.time()
        self._cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, set(self._cores[1:] or self._cores))
        folder = RunFolder.at(storage)
        with SearchQueue.open(folder, FakeCluster(0.0), Team()) as queue:
            for number in range(queued + RUNNING):
                queue.submit(submission(number, USERS))
        tokens = Tokens(folder)
        self._people = [tokens.add(f"viewer-{number:02}") for number in range(20)]
        self._flooder, self._viewers = tokens.add("mallory"), viewers
        self._names = [f"s{number:04}" for number in range(RUNNING)]
        ready = self._spawn.Event()
        self._start(parts.train, storage, self._names, TRIALS, self._began, ready, self._over)
        until(ready.is_set, "the journals were not written")
        self._server = self._start(parts.server, storage, self._port, self._cores[0], float(RUNNING))
        until(lambda: answers(self._port), "the server does not answer")
        self._start(parts.flood, self._port, self._flooder, FLOOD_A_SECOND, self._flood, self._over, self._told)
        self._start(parts.never_read, self._port, self._flooder, self._names, self._unread, self._over)
        self._asker = Asker(self._port, tokens.add("zoe"))
        self._lags: list[float] = []

    def _start(self, what: Callable[..., None], *arguments: Any) -> multiprocessing.context.SpawnProcess:
        process = self._spawn.Process(target=what, args=arguments, daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def open_pages(self) -> float:
        """Seconds until all viewers have all."""
        begun = time.monotonic()
        pages = [(self._names[k % RUNNING], self._people[k % len(self._people)]) for k in range(self._viewers)]
        self._start(parts.watch, self._port, pages, self._began, self._over, self._seen)
        until(lambda: self._seen.get()["open"] == self._viewers, "not all pages have opened")
        return time.monotonic() - begun

    def phase(self, name: str, seconds: float) -> dict[str, Any]:
        """What was seen in that time."""
        for event, is_on in ((self._flood, "flood" in name), (self._unread, "unread" in name)):
            event.set() if is_on else event.clear()
        time.sleep(2)
        while not self._seen.empty():
            self._seen.get()
        begun, cpu = time.monotonic(), cpu_s(self._server.pid)
        took = self._asker.during(seconds)
        share = (cpu_s(self._server.pid) - cpu) / (time.monotonic() - begun)
        seen = []
        while not self._seen.empty():
            seen.append(self._seen.get())
        for event in (self._flood, self._unread):
            event.clear()
        lags = [lag for one in seen for lag in one["lags"]]
        open_ = min((one["open"] for one in seen), default=0)
        median = statistics.median(took[PATHS[0]])
        print(f"{name}: load {os.getloadavg()[0]:.0f}, {median:.0f} ms a list, CPU {share:.2f}", flush=True)
        return {"took": took, "cpu": [share], "lags": lags, "open": [open_]}

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        """Within: all of it runs."""
        try:
            yield self
            self._over.set()
            print(f"\nanswers to the flood, by status: {self._told.get(timeout=60)}")
        finally:
            self._over.set()
            for process in self._processes:
                process.terminate()
                process.join(60)


def joined(parts_: list[dict[str, Any]]) -> dict[str, Any]:
    took = {path: [ms for part in parts_ for ms in part["took"][path]] for path in parts_[0]["took"]}
    return {"took": took} | {key: [one for part in parts_ for one in part[key]] for key in ("cpu", "lags", "open")}


def row(name: str, times: list[float], more: str = "") -> None:
    cells = [f"{quantile(times, share):.0f}" for share in (0.5, 0.95, 0.99)]
    print(f"| {name} | {len(times)} | {' | '.join(cells)} |{more}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase of a round")
    parser.add_argument("--queued", type=int, default=1000)
    parser.add_argument("--viewers", type=int, default=200)
    options = parser.parse_args()
    print(f"cores: {os.cpu_count()}; load of the machine at the start: {os.getloadavg()[0]:.1f}", flush=True)
    of_queue(options.queued)
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as storage, Load(storage, options.queued, options.viewers).running() as load:
        found["alone"] = [load.phase("alone", options.seconds)]
        print(f"\n{options.viewers} live pages were open after {load.open_pages():.1f} s", flush=True)
        for _ in range(options.rounds):
            for name in ("viewers", "viewers, flood", "viewers, unread"):
                found.setdefault(name, []).append(load.phase(name, options.seconds))
    print("\n| phase | requests | median, ms | 95 % | 99 % | beside viewers | CPU | lag; 99 %, s | pages open |")
    print("|---|---|---|---|---|---|---|---|---|")
    usual = None
    for name, phases in found.items():
        one = joined(phases)
        times = [ms for path in PATHS for ms in one["took"][path]]
        median = statistics.median(times)
        usual = median if name == "viewers" else usual
        lag = f"{statistics.median(one['lags']):.2f}; {quantile(one['lags'], 0.99):.2f}" if one["lags"] else ""
        beside = f"{median / usual:.2f}" if usual else ""
        row(name, times, f" {beside} | {statistics.fmean(one['cpu']):.2f} | {lag} | {min(one['open'])} |")
    print("\n| request | count | median, ms | 95 % | 99 % |\n|---|---|---|---|---|")
    for name, phases in found.items():
        for path, times in joined(phases)["took"].items():
            row(f"{name}: {path}", times)
    print(f"\nload of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
