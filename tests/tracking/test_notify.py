"""Messages to people: the form in which one goes, that none is lost while a service is away, and bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.made_up import made_up_run
from tuner.errors import InputError
from tuner.experiment.notify import Notify, form_of
from tuner.experiment.reader import load_experiment
from tuner.runs.journal import JournalWriter
from tuner.tracking.delivery import Delivery, address, body
from tuner.tracking.follower import follow
from tuner.tracking.messages import Message

EXPERIMENT = """
name: x
trainable: trainables.digits:train
search_space: {lr: {loguniform: [1e-4, 1]}}
objective: {metric: val_accuracy, mode: max}
"""


class Hook(ThreadingHTTPServer):
    """A service that takes messages, and can be away."""

    status = 204
    daemon_threads = True

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"

    def texts(self) -> list[str]:
        return [json.loads(content)["text"] for _, content in self.got]


class _Answers(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status < 300:
            self.server.got.append((self.headers["Content-Type"], content))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


HOSTILE = "x: <!channel> @everyone\n<b>\x1b[31m & co"


class TestForms:
    @pytest.mark.parametrize(
        ("url", "form"),
        [
            ("https://hooks.slack.com/services/T/B/x", "slack"),
            ("https://discord.com/api/webhooks/1/x", "discord"),
            ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", "teams"),
            ("https://ntfy.sh/topic", "ntfy"),
            ("https://example.com/ntfy.sh", "json"),
            ("https://evil-discord.com/", "json"),
        ],
    )
    def test_the_host_tells_the_form(self, url: str, form: str) -> None:
        assert form_of(url) == form

    def test_no_text_of_a_trial_addresses_people_or_is_markup(self) -> None:
        message = Message("failures", HOSTILE)
        slack, discord, teams = (json.loads(body(form, message)[0]) for form in ("slack", "discord", "teams"))
        assert slack == {"text": r"x: &lt;!channel&gt; @everyone &lt;b&gt;\x1b[31m &amp; co"}
        assert discord["allowed_mentions"] == {"parse": []}
        (run,) = teams["attachments"][0]["content"]["body"][0]["inlines"]
        assert run == {"type": "TextRun", "text": r"x: <!channel> @everyone <b>\x1b[31m & co"}
        assert body("ntfy", message) == (run["text"].encode(), "text/plain; charset=utf-8")

    def test_a_long_text_is_cut(self) -> None:
        assert len(json.loads(body("discord", Message("end", "x" * 9000))[0])["content"]) < 2000


class TestDelivery:
    def test_what_a_service_missed_comes_when_it_is_back(self, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, said = [0.0], list[str]()
        monkeypatch.setattr("tuner.tracking.delivery.time.monotonic", lambda: clock[0])
        delivery = Delivery(Notify(url=hook.url), said.append)
        hook.status = 503
        for number in range(3):
            delivery.put([Message("best", f"number {number}")])
            delivery.step()
        assert hook.got == []
        assert said == [
            "notify.url: 127.0.0.1 answers HTTP 503; the search continues, and messages are sent when they can be"
        ]
        hook.status = 200
        delivery.step()
        assert hook.got == []  # it is left alone for a while
        clock[0] += 5
        delivery.step()
        assert hook.texts() == ["number 0", "number 1", "number 2"]

    def test_a_message_that_will_never_be_taken_is_dropped_and_told(self, hook: Hook) -> None:
        said: list[str] = []
        delivery = Delivery(Notify(url=hook.url), said.append)
        hook.status = 404
        delivery.put([Message("best", "lost")])
        delivery.step()
        hook.status = 302  # it may lead anywhere, so nothing is sent there
        delivery.put([Message("best", "lost too")])
        delivery.step()
        hook.status = 204
        delivery.put([Message("end", "found")])
        delivery.close()
        assert hook.texts() == ["found"]
        assert [one.partition(": is")[0] for one in said] == [
            "notify.url: 127.0.0.1 refuses a message (HTTP 404)",
            "notify.url: 127.0.0.1 refuses a message (HTTP 302)",
        ]

    def test_one_that_stays_away_is_told_at_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[str] = []
        monkeypatch.setattr("tuner.tracking.delivery.time.sleep", lambda seconds: None)
        delivery = Delivery(Notify(url="http://127.0.0.1:9/secret-topic"), said.append)
        delivery.put([Message("end", "over")])
        delivery.close()
        assert said[0].startswith("notify.url: nothing answers at 127.0.0.1;")
        assert said[1:] == ["notify.url: 1 not sent, the last of them: over"]
        assert "secret-topic" not in "".join(said)

    def test_one_that_never_answers_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import socket

        monkeypatch.setattr("tuner.tracking.delivery._TIMEOUT_S", 0.2)
        said: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as silent:
            delivery = Delivery(Notify(url=f"http://127.0.0.1:{silent.getsockname()[1]}/"), said.append)
            delivery.put([Message("end", "over")])
            delivery.step()
        assert said[0].startswith("notify.url: 127.0.0.1 does not answer within 0.2 s;")

    def test_a_command_gets_the_text_and_all_fields(self, tmp_path: Path) -> None:
        said: list[str] = []
        command = f'printf "%s %s\\n" "$TUNER_EVENT" "$TUNER_TEXT" >> {tmp_path}/texts; cat > {tmp_path}/json'
        delivery = Delivery(Notify(command=command), said.append)
        delivery.put([Message("end", "it's $HOME\n`over`", {"run": "r"})])
        delivery.close()
        assert (tmp_path / "texts").read_text() == "end it's $HOME `over`\n"
        assert json.loads((tmp_path / "json").read_text()) == {
            "event": "end",
            "text": "it's $HOME\n`over`",
            "run": "r",
        }
        assert said == []

    def test_a_command_that_fails_is_told_and_the_address_still_gets_all(self, hook: Hook) -> None:
        said: list[str] = []
        delivery = Delivery(Notify(url=hook.url, command="echo oh no >&2; exit 3"), said.append)
        delivery.put([Message("end", "over")])
        delivery.close()
        assert said == ["notify.command: it ended with status 3: oh no; this message is dropped: over"]
        assert hook.texts() == ["over"]


class TestBadInput:
    @pytest.mark.parametrize(
        ("notify", "told"),
        [
            ("{}", "notify: has neither url nor command: name an address"),
            ("{url: 'slack'}", "'slack' is neither an address"),
            ("{url: 'https://hooks.slack.com/services/T0/B0/abcdef'}", "is a secret, and every file of the run"),
            ("{url: 'https://discord.com/api/webhooks/12/abcdef'}", "is a secret"),
            ("{url: 'https://x.westus.logic.azure.com/w?sig=abcdef'}", "is a secret"),
            ("{url: 'https://me:abcdef@example.com/'}", "is a secret"),
            ("{url: 'http://x/', on: [finished]}", "notify.on[0]"),
            ("{url: 'http://x/', on: []}", "notify.on"),
            ("{command: 'true', form: slack}", "notify: has a form, and no url"),
            ("{url: 'http://x/', every: never}", "notify.every"),
        ],
    )
    def test_is_named_and_shows_no_secret(self, tmp_path: Path, notify: str, told: str) -> None:
        file = tmp_path / "x.yaml"
        file.write_text(f"{EXPERIMENT}notify: {notify}\n")
        with pytest.raises(InputError) as raised:
            load_experiment(file, ())
        assert told in str(raised.value)
        assert "abcdef" not in str(raised.value)

    def test_a_variable_that_is_not_set_or_holds_no_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_HOOK", raising=False)
        with pytest.raises(InputError, match="environment has no variable NO_HOOK: export it"):
            address(Notify(url="$NO_HOOK"))
        monkeypatch.setenv("NO_HOOK", "abcdef")
        with pytest.raises(InputError, match="variable NO_HOOK holds no address") as raised:
            address(Notify(url="$NO_HOOK"))
        assert "abcdef" not in str(raised.value)

    @pytest.mark.processes
    def test_the_command_line_refuses_before_anything_starts(self, tmp_path: Path) -> None:
        (tmp_path / "x.yaml").write_text(f"{EXPERIMENT}notify: {{url: $NO_HOOK}}\n")
        environment = {name: value for name, value in os.environ.items() if name != "NO_HOOK"}
        command = [sys.executable, "-m", "tuner", "run", str(tmp_path / "x.yaml"), "--storage", str(tmp_path / "runs")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 2
        assert "notify.url: the environment has no variable NO_HOOK" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.fixture
def journal(tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> JournalWriter:
    monkeypatch.setenv("A_HOOK", hook.url)
    results = made_up_run(tmp_path)
    results.folder.filesystem.create_dir(results.folder.path)
    writer = JournalWriter(results.folder)
    spec = results.spec | {"tracking": {}, "notify": {"url": "$A_HOOK", "on": ["end", "best"]}}
    writer.append("began", spec=spec, provenance=results.provenance)
    return writer


def trains(journal: JournalWriter, accuracy: float) -> None:
    values = {"seconds": 1.0, "timestamp": 1.8e9, "checkpoint": None}
    journal.append("suggested", trial="a", config={"lr": 0.1})
    journal.append("started", trial="a")
    journal.append("reported", trial="a", step=1, metrics={"epoch": 1, "acc": accuracy}, **values)


def test_the_process_beside_the_search_sends_them(
    journal: JournalWriter, tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.tracking.follower._EVERY_S", 0.01)
    over = threading.Event()
    following = threading.Thread(target=follow, args=(made_up_run(tmp_path).folder, over, print, True), daemon=True)
    following.start()
    trains(journal, 0.5)
    deadline = time.monotonic() + 20
    while not hook.got and time.monotonic() < deadline:
        time.sleep(0.01)
    assert hook.texts() == ["run: new best: trial #1 (a) with acc 0.5 at step 1"]
    journal.append("left", interrupted=False, reason="")
    over.set()
    following.join()
    assert hook.texts()[1].startswith("run: the search has ended: 1 trial (1 running); best: trial #1 (a) with acc 0.5")


def test_a_search_that_is_killed_is_told(journal: JournalWriter, tmp_path: Path, hook: Hook) -> None:
    """By the process that it had started, which outlives it."""
    trains(journal, 0.5)
    search = (
        "import sys, time\n"
        "from tuner.runs.loading import load_latest\n"
        "from tuner.storage.folder import RunFolder\n"
        "from tuner.tracking.process import TrackingProcess\n"
        "TrackingProcess(print).started(load_latest(RunFolder.at(sys.argv[1])))\n"
        "print('follows', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", search, str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "follows\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 60
    while not hook.got and time.monotonic() < deadline:
        time.sleep(0.05)
    (told,) = hook.texts()
    assert told.startswith("run: the process of the search is gone; to continue: python -m tuner resume ")


def test_a_search_that_is_resumed_without_the_address_continues(
    journal: JournalWriter, tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    trains(journal, 0.5)
    monkeypatch.delenv("A_HOOK")
    over, said = threading.Event(), list[str]()
    over.set()
    assert follow(made_up_run(tmp_path).folder, over, said.append) == ""
    (notice,) = said
    assert notice.startswith("notify.url: the environment has no variable A_HOOK")
    assert notice.endswith("this search sends no messages")
