"""The processes of `service_load.py`: the server, what trains, and the clients."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.made_up_run import made_up_run
from tests.service.fake import FakeSearch
from tuner.jobs.client import job_id
from tuner.jobs.record import Job
from tuner.live.http_server import listening
from tuner.runs.journal import JournalWriter
from tuner.service.cluster import Capacity, JobView
from tuner.service.queue import SearchQueue
from tuner.service.serve import serve
from tuner.service.team import Team
from tuner.storage.folder import RunFolder

REPORTS, EVERY_S = 10, 0.25
BEFORE_S = 100_000.0
"""Seconds of a search at which its journal begins to grow: after all that is made up."""

LARGE = 1 << 26


class Jobs:
    """A cluster that only knows which jobs there are. `train` writes what they would write."""

    def __init__(self, gpus: float) -> None:
        self._gpus = gpus
        self._states: dict[str, JobView] = {}

    def capacity(self) -> Capacity:
        return Capacity(self._gpus, 64.0)

    def jobs(self) -> Mapping[str, JobView]:
        return dict(self._states)

    def start(self, job: Job, code: Path, attempt: int) -> bool:
        known_as = job_id(job.name, attempt)
        if known_as in self._states:
            return False
        self._states[known_as] = JobView("running", "", job.storage)
        return True

    def stop(self, job_id: str) -> None:
        self._states[job_id] = replace(self._states[job_id], state="stopped")

    def log(self, job_id: str) -> str:
        return ""


def server(storage: str, port: int, core: int, gpus: float) -> None:
    """`tuner serve` on one core, but for its cluster."""
    os.sched_setaffinity(0, {core})
    folder = RunFolder.at(storage)
    with listening("127.0.0.1", port) as listener, SearchQueue.open(folder, Jobs(gpus), Team()) as queue:
        serve(queue, folder, listener, lambda text: print(text, file=sys.stderr), lambda url: None)


def train(storage: str, names: list[str], trials: int, began: float, is_ready: Event, over: Event) -> None:
    """Runs of ``trials`` trials each, whose journals grow: a report of each in `EVERY_S`."""
    rng = np.random.default_rng(1)
    searches, journals = [], []
    for name in names:
        folder = RunFolder.at(storage) / name
        made_up_run(Path(storage, name), trials, REPORTS)
        one = FakeSearch(folder, "", trials=10**9, ages=[0.0])
        one.begin()
        one.tell()
        searches.append(one)
        journals.append(JournalWriter(folder))
    is_ready.set()
    count = 0
    while not over.wait(EVERY_S / len(names)):
        place = count % len(names)
        _report(journals[place], trials + 1 + count // len(names) // REPORTS, count // len(names) % REPORTS, began, rng)
        if count % (len(names) * 4) == place:
            searches[place].read_commands()
            searches[place].tell()
        count += 1


def _report(journal: JournalWriter, number: int, step: int, began: float, rng: np.random.Generator) -> None:
    trial, at = f"{number:08x}", {"elapsed": BEFORE_S + time.time() - began}
    if step == 0:
        config = {"optimizer": "adamw", "lr": float(rng.uniform()), "weight_decay": 1e-4, "batch_size": 64}
        journal.append("suggested", trial=trial, config=config, **at)
        journal.append("started", trial=trial, **at)
    metrics = {"epoch": step + 1, "val_accuracy": float(rng.uniform(0, 0.8)), "val_loss": float(rng.uniform())}
    told = {"step": step + 1, "seconds": 3.1 * (step + 1), "timestamp": time.time(), "checkpoint": None}
    journal.append("reported", trial=trial, metrics=metrics, decision="continue", **told, **at)
    if step == REPORTS - 1:
        journal.append("ended", trial=trial, status="completed", reason="", rung=None, **at)
    journal.sync()


def request(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def watch(port: int, viewers: list[tuple[str, str]], began: float, over: Event, told: Any) -> None:
    """Live pages that are open: (name of a search, token) of each. Every second it tells what came since."""
    asyncio.run(_watch(port, viewers, began, over, told))


async def _watch(port: int, viewers: list[tuple[str, str]], began: float, over: Event, told: Any) -> None:
    seen: dict[str, Any] = {"time": 0.0, "open": 0, "bytes": 0, "lags": []}
    tasks = [asyncio.create_task(_view(port, name, token, began, seen)) for name, token in viewers]
    while not over.is_set():
        await asyncio.sleep(1)
        told.put({**seen, "time": time.time(), "lags": seen["lags"]})
        seen["bytes"], seen["lags"] = 0, []
    for task in tasks:
        task.cancel()


async def _view(port: int, name: str, token: str, began: float, seen: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LARGE)
    writer.write(request(f"/runs/{name}/events", token))
    is_first = True
    while line := await reader.readline():
        seen["bytes"] += len(line)
        if line.startswith(b"data: {") and b'"rows"' in line:
            seen["open"] += is_first
            if not is_first and (found := re.search(rb'"elapsed":([\d.]+)', line)):
                seen["lags"].append(time.time() - began + BEFORE_S - float(found[1]))
            is_first = False
    seen["open"] -= not is_first


def flood(port: int, token: str, a_second: float, on: Event, over: Event, told: Any) -> None:
    """One user who asks for the list of all searches again and again, over 20 connections, while ``on`` is set."""
    asyncio.run(_flood(port, token, a_second, on, over, told))


async def _flood(port: int, token: str, a_second: float, on: Event, over: Event, told: Any) -> None:
    statuses: Counter[str] = Counter()
    while not over.is_set():
        if not on.is_set():
            await asyncio.sleep(0.1)
            continue
        line: asyncio.Queue[None] = asyncio.Queue(200)
        tasks = [asyncio.create_task(_ask(port, token, line, statuses)) for _ in range(20)]
        due = time.monotonic()
        while on.is_set() and not over.is_set():
            due = max(due + 1 / a_second, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await line.put(None)
        for task in tasks:
            task.cancel()
    told.put(dict(statuses))


async def _ask(port: int, token: str, line: asyncio.Queue[None], statuses: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await line.get()
        writer.write(request("/v1/searches", token))
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        found = re.search(r"content-length: (\d+)", head)
        assert found is not None, head
        await reader.readexactly(int(found[1]))
        statuses[head.split()[1]] += 1


def never_read(port: int, token: str, searches: list[str], on: Event, over: Event) -> None:
    """While ``on`` is set: 50 live pages and 50 lists that are asked for, and of which nothing is read."""
    while not over.is_set():
        if not on.wait(0.2):
            continue
        clients = []
        for number in range(100):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            path = f"/runs/{searches[number % len(searches)]}/events" if number % 2 else "/v1/searches"
            client.sendall(request(path, token))
            clients.append(client)
        while on.is_set() and not over.is_set():
            time.sleep(0.1)
        for client in clients:
            client.close()
