"""The routes of a run's live page, on a real server: events that resume, many viewers, what is asked wrongly."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.live.journals import Journal
from tests.live.servers import WITHIN_S, Events, app_of, get, served
from tests.live.test_changes import Copy, whole
from tuner.live import event_stream, hub
from tuner.live.live_run import LiveRun
from tuner.runs.commands import waiting_commands

Watch = Callable[..., Events]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path)
    made.start("a")
    made.report("a", 1, 0.5)
    return made


@pytest.fixture
def server(tmp_path: Path, journal: Journal) -> Iterator[str]:
    with served(tmp_path) as address:
        yield address


@pytest.fixture
def watch() -> Iterator[Callable[..., Events]]:
    """Makes viewers, who leave in the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(contextlib.closing(Events(*arguments, **options)))


def read(journal: Journal) -> Copy:
    run = LiveRun(journal.folder)
    run.read()
    return whole(run)


def until(copy: Copy, events: Events, journal: Journal) -> None:
    """Has ``copy`` take in events until it has all that the journal tells."""
    last = vars(read(journal))
    while vars(copy) != last:
        copy.take(events.next())


def test_two_viewers_see_the_same_as_it_happens(server: str, journal: Journal, watch: Watch) -> None:
    viewers = [(Copy(), watch(server)) for _ in range(2)]
    for step in range(2, 6):
        journal.report("a", step, 0.1 * step)
        for copy, events in viewers:
            until(copy, events, journal)
            assert vars(copy) == vars(read(journal))


def test_a_viewer_resumes_at_another_server_without_losing_or_repeating(
    tmp_path: Path, journal: Journal, watch: Watch
) -> None:
    copy = Copy()
    with served(tmp_path) as address:
        events = watch(address)
        until(copy, events, journal)
        assert events.id == copy.id
    journal.report("a", 2, 0.7)
    journal.fail("a", 2, "oom")
    with served(tmp_path) as address:
        told = watch(address, since="x.1", last=copy.id).next()
    assert not told["whole"]
    assert (told["curves"], len(told["failures"])) == ([[1, 1, [2.0], [0.7]]], 1)
    copy.take(told)
    assert vars(copy) == vars(read(journal))


def test_how_the_search_stands_comes_with_the_state_of_the_moment_not_with_each_event(journal: Journal) -> None:
    """It takes a look at all trials, which is slow."""
    watched = hub.Watched(journal.folder)
    watched.look(also_now=True)
    first = watched.message("", -1)
    assert first is not None
    assert json.loads(first.data)["head"]["epochs"] == 1
    journal.report("a", 2, 0.7)
    watched.look(also_now=False)
    second = watched.message(first.id, first.moment)
    assert second is not None
    assert json.loads(second.data).keys() >= {"rows"}
    assert "head" not in json.loads(second.data)
    watched.look(also_now=True)
    third = watched.message(second.id, second.moment)
    assert third is not None
    assert json.loads(third.data)["head"]["epochs"] == 2
    watched.look(also_now=True)
    assert watched.message(third.id, third.moment) is None


def test_data_is_the_same_as_the_first_event(server: str, journal: Journal, watch: Watch) -> None:
    told = get(f"{server}/runs/run/data")
    assert told == watch(server).next()
    zipped = urllib.request.Request(f"{server}/runs/run/data", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(zipped, timeout=WITHIN_S) as answer:
        assert json.loads(gzip.decompress(answer.read())) == told
    assert "curves" not in get(f"{server}/runs/run/data?since={told['id']}")


def test_one_thread_reads_a_run_for_all_its_viewers(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    monkeypatch.setattr(hub, "KEPT_S", 0.1)
    viewers = [watch(server) for _ in range(20)]
    for events in viewers:
        events.next()

    def readers() -> int:
        return sum(thread.name == f"live page of {tmp_path}/run" for thread in threading.enumerate())

    assert readers() == 1
    for events in viewers:
        events.close()
    deadline = time.monotonic() + WITHIN_S
    while readers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert readers() == 0
    watch(server).next()


def test_a_viewer_that_does_not_read_is_dropped(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    monkeypatch.setattr(event_stream, "GIVEN_UP_AFTER_S", 1.0)
    counted: list[hub.Hub] = []
    monkeypatch.setattr("tuner.live.app.Hub", lambda: counted.append(hub.Hub()) or counted[-1])
    with served(tmp_path) as address:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(b"GET /runs/run/events HTTP/1.1\r\nHost: x\r\n\r\n")
        deadline = time.monotonic() + WITHIN_S
        while not counted[0].viewers and time.monotonic() < deadline:
            time.sleep(0.01)
        assert counted[0].viewers == 1
        other = watch(address)
        number = 0
        while counted[0].viewers > 1 and time.monotonic() < deadline:
            for _ in range(500):
                number += 1
                journal.start(f"t{number}", big="x" * 250)
            other.next()
        assert counted[0].viewers == 1, "the one that reads"
        client.close()


def test_a_folder_may_vanish_and_come_back(server: str, tmp_path: Path, journal: Journal, watch: Watch) -> None:
    events = watch(server)
    events.next()
    (tmp_path / "run").rename(tmp_path / "away")
    assert events.until(lambda told: told.get("now", {}).get("state") == "gone")["whole"] is False
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{server}/runs/run/data")
    (tmp_path / "away").rename(tmp_path / "run")
    assert events.until(lambda told: "now" in told)["now"]["state"] == "dead"
    journal.report("a", 2, 0.9)
    assert events.until(lambda told: "curves" in told)["curves"] == [[1, 1, [2.0], [0.9]]]


def test_another_run_in_its_place_begins_anew(server: str, tmp_path: Path, journal: Journal, watch: Watch) -> None:
    events = watch(server)
    events.next()
    shutil.rmtree(tmp_path / "run")
    other = Journal(tmp_path, objective={"metric": "loss", "mode": "min"})
    other.append("suggested", trial="z", config={})
    told = events.until(lambda told: "trials" in told)
    assert told["whole"]
    assert (told["run"]["metrics"], told["trials"]) == (["loss"], [[1, "z", [], ""]])


def test_a_run_that_has_not_begun_says_so(server: str, tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "empty").mkdir()
    events = watch(server, "empty")
    told = events.next()
    assert told["now"]["state"] == "unreadable"
    assert "does not tell an experiment yet" in told["now"]["words"]
    journal = Journal(tmp_path, "empty")
    journal.start("a")
    assert events.until(lambda told: "trials" in told)["whole"]


def test_a_trial_is_told_in_full(server: str, tmp_path: Path, journal: Journal, watch: Watch) -> None:
    journal.report("a", 2, 0.6, metrics={"loss": 0.25, "note": "text", "odd": float("nan")})
    watch(server).until(lambda told: told["id"] == read(journal).id)
    told = get(f"{server}/runs/run/trials/1")
    assert (told["id"], told["config"], told["values"]) == ("a", {"lr": "0.1"}, {"lr": 0.1})
    assert told["metrics"] == ["val_accuracy", "epoch", "loss", "odd"]
    assert (told["x"], told["y"][0], told["y"][2]) == ([1.0, 2.0], [0.5, 0.6], [None, 0.25])


def test_the_output_of_a_trial_is_read_on(server: str, tmp_path: Path) -> None:
    assert get(f"{server}/runs/run/trials/1/log") == {"text": "", "begin": 0, "end": 0, "more": False}
    printed = tmp_path / "run" / "ray" / "a" / "output.log"
    printed.parent.mkdir(parents=True)
    printed.write_bytes(b"x" * 100_000 + b"epoch 1 \xff\n")
    told = get(f"{server}/runs/run/trials/1/log")
    assert (told["end"], len(told["text"]), told["text"][-10:]) == (100_010, 1 << 16, "epoch 1 �\n")
    with printed.open("ab") as file:
        file.write(b"epoch 2\n")
    more = get(f"{server}/runs/run/trials/1/log?after={told['end']}")
    assert more == {"text": "epoch 2\n", "begin": 100_010, "end": 100_018, "more": False}
    with printed.open("ab") as file:
        file.write("°".encode() * (1 << 16) + b"\xc2")  # the first half of another one
    texts, after = [], 100_017
    for is_more in (True, True, False):
        told = get(f"{server}/runs/run/trials/1/log?after={after}")
        assert told["more"] == is_more
        texts.append(told["text"])
        after = told["end"]
    assert "".join(texts) == "\n" + "°" * (1 << 16)
    secret = tmp_path / "secret"
    secret.write_text("token")
    printed.unlink()
    printed.symlink_to(secret)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        get(f"{server}/runs/run/trials/1/log")


@pytest.mark.parametrize("number", ["0", "2", "-1", "x", "1" * 30, "٣"])
def test_a_trial_that_there_is_not(tmp_path: Path, journal: Journal, number: str) -> None:
    answer = TestClient(app_of(tmp_path)).get(f"/runs/run/trials/{number}")
    assert answer.status_code == 404
    assert answer.json()["error"]["exit_status"] == 2


def test_a_run_that_there_is_not(tmp_path: Path) -> None:
    client = TestClient(app_of(tmp_path, lambda request: "ada"))
    page = client.get("/runs/<b>no</b>")
    assert page.status_code == 404
    assert "<b>" not in page.text
    for address in ("data", "events", "trials/1", "trials/1/log"):
        assert client.get(f"/runs/no/{address}").json()["error"]["message"] == "there is no run 'no'"
    answer = client.post("/runs/no/commands", json={"do": "pause", "arguments": {}})
    assert answer.status_code == 404


def test_the_page_holds_names_as_text_and_loads_only_its_own_files(tmp_path: Path) -> None:
    name = '"><script>alert(1)<'
    (tmp_path / name).mkdir()
    client = TestClient(app_of(tmp_path, lambda request: '<i>"ada'))
    page = client.get(f"/runs/{name.replace('<', '%3C').replace('>', '%3E')}")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "<i>" not in page.text
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for start in ("../live/",):
        address = page.text.partition(f'"{start}')[2].partition('"')[0]
        asset = client.get(f"/live/{address}")
        assert asset.status_code == 200
        assert "immutable" in asset.headers["Cache-Control"]
    assert client.get("/live/x/app.py").status_code == 404
    assert client.get("/live/x/style.css").headers["Cache-Control"] == "no-cache"


def test_a_command_is_sent_by_who_may(tmp_path: Path, journal: Journal) -> None:
    users: list[str | None] = [None]
    client = TestClient(app_of(tmp_path, lambda request: users[0]))
    told: dict[str, Any] = {"do": "stop-trial", "arguments": {"trial": 1}}
    assert client.post("/runs/run/commands", json=told).status_code == 403
    users[0] = "ada"
    for wrong in (b"", b"[]", b'{"do": 1, "arguments": {}}', b"[" * 10_000):
        headers = {"Content-Type": "application/json"}
        assert client.post("/runs/run/commands", content=wrong, headers=headers).status_code == 422
    form = client.post("/runs/run/commands", content=json.dumps(told), headers={"Content-Type": "text/plain"})
    assert form.status_code == 422
    assert client.post("/runs/run/commands", json=told | {"do": "x" * (1 << 20)}).status_code == 422
    assert waiting_commands(journal.folder) == ([], [])
