"""The client of the service, and the commands that use it, over a real network."""

from __future__ import annotations

import contextlib
import http.server
import io
import shutil
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.documents import conforms
from tests.live.journals import Journal
from tests.runs.test_listing import saved
from tests.service.http import EXPERIMENT
from tests.service.http import Service as Server
from tests.service.test_code_store import files_below
from tuner.actions.control import sender
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.service.client import Service
from tuner.service.code_store import pack
from tuner.service.files import stream, unpack
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    found = Server(tmp_path_factory.mktemp("storage"))
    with found.running() as url:
        yield found, url


@pytest.fixture
def ada(server: tuple[Server, str]) -> Service:
    service, url = server
    service.queue.found.clear()
    return Service(url, service.token("ada"))


@pytest.fixture
def project(user_folder: Path) -> Path:
    (user_folder / "t.py").write_text("def train(config): ...\n")
    (user_folder / "e.yaml").write_text(EXPERIMENT)
    return user_folder


def test_every_method(ada: Service, server: tuple[Server, str], project: Path) -> None:
    queue = server[0].queue
    assert ada.me()["user"] == "ada"
    code = pack(project, [Path("t.py"), Path("e.yaml")])
    assert ada.submit(file="e.yaml", code=code, name="q", overrides=["budget.trials=3"])["state"] == "queued"
    assert queue.entry("q").submission.trials == 3
    assert ada.submit(EXPERIMENT, code=code)["name"].startswith("experiment-")
    assert ada.search("q")["position"] == 1
    assert {search["name"] for search in ada.searches(user="ada")} > {"q"}
    assert ada.searches(state="running") == []
    queue.logs["q"] = "trial #1\n"
    told: list[str] = []
    assert ada.logs("q", told.append) == "queued"
    assert told == ["trial #1\n"]
    saved(server[0].storage / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    copy = ada.fetch("q", project / "runs")
    assert (copy / "trials.csv").read_bytes() == (server[0].storage / "q/trials.csv").read_bytes()
    assert ada.stop("q")
    assert not ada.stop("q")
    assert ada.resume("q")["state"] == "queued"
    assert ada.cluster()["gpus"] == 8.0


def test_a_log_is_followed_to_the_end(
    ada: Service, server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server[0].search("q", state="running")
    queue, told = server[0].queue, list[str]()
    queue.logs["q"] = "one\n"

    def later(seconds: float) -> None:
        queue.logs["q"] += "two\n"
        queue.set("q", state="failed")

    monkeypatch.setattr("tuner.service.client.time.sleep", later)
    assert ada.logs("q", told.append, follow=True) == "failed"
    assert told == ["one\n", "two\n"]


@pytest.mark.processes
def test_refusals_are_the_errors_of_the_command_line(ada: Service, server: tuple[Server, str]) -> None:
    server[0].search("bobs", user="bob")
    with pytest.raises(InputError, match=r"experiment\.yaml:4:1: budgett: unknown key") as wrong:
        ada.submit(EXPERIMENT + "budgett: 3\n")
    assert wrong.value.problems[0].place.line == 4
    with pytest.raises(InputError, match="no search 'nothing'"):
        ada.search("nothing")
    with pytest.raises(InputError, match="only bob or an admin"):
        ada.stop("bobs")
    with pytest.raises(InputError, match="the token is nobody's"):
        Service(server[1], "tuner_wrong").me()
    server[0].queue.broken = OSError(28, "No space left on device")
    try:
        with pytest.raises(EnvironmentFailure, match="No space left on device"):
            ada.submit(file="quickstart")
    finally:
        server[0].queue.broken = None


def test_unchanged_code_travels_once(ada: Service, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    asked = Service._open

    def counted(self: Service, verb: str, path: str, body: object = None) -> object:
        sent.append(verb)
        return asked(self, verb, path, body)

    monkeypatch.setattr(Service, "_open", counted)
    bundle = pack(project, [Path("t.py")])
    assert ada.send_code(bundle) == ada.send_code(bundle)
    assert sent.count("PUT") == 1


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://h", "http://", "http://h:99999", "http://h/?a=b", "http://a b", "http://me:pw@h:1", "http://h\n"],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match="--service") as error:
        Service(url, "tuner_x")
    assert "pw" not in str(error.value)


@pytest.mark.parametrize("token", ["", "a b", "a\nX-Evil: 1", "ä", "\x00"])
def test_a_token_that_is_none(token: str) -> None:
    with pytest.raises(InputError, match="is malformed") as error:
        Service("http://127.0.0.1:1", token)
    assert "Evil" not in str(error.value)


def test_nothing_listens_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(EnvironmentFailure, match="Connection refused; does `tuner serve` run there"):
            Service(f"http://127.0.0.1:{unused.getsockname()[1]}", "tuner_x").submit(file="quickstart")


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Another server, and what it answers."""

    answer: tuple[int, dict[str, str], bytes]

    def do_GET(self) -> None:
        status, headers, body = self.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None: ...


@contextlib.contextmanager
def elsewhere(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    handler = type("Handler", (Elsewhere,), {"answer": (status, headers, body)})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{found.server_port}"
        finally:
            found.shutdown()
            thread.join()


def test_the_token_is_for_one_server(server: tuple[Server, str]) -> None:
    token, there = server[0].token("ada"), {"Location": server[1] + "/v1/me"}
    with elsewhere(302, there, b"") as url, pytest.raises(InputError, match="it leads elsewhere"):
        Service(url, token).me()


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"[]"), (404, b"<html>"), (500, b"{}"), (200, b"\xff"), (502, b"")]
)
def test_something_else_answers(status: int, body: bytes) -> None:
    with elsewhere(status, {}, body) as url, pytest.raises(EnvironmentFailure, match=r"127\.0\.0\.1") as told:
        Service(url, "tuner_x").me()
    assert ("does not answer now" in str(told.value)) == (status >= 500)


def test_a_proxy_that_finds_no_service_is_asked_again(
    ada: Service, server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with elsewhere(502, {}, b"<html>Bad Gateway") as url:
        service = Service(url, server[0].token("ada"))

        ask = service._open

        def ask_here_then_there(*request: Any) -> Any:
            asked.append(service.url)
            try:
                return ask(*request)
            finally:
                service.url = server[1]

        monkeypatch.setattr(service, "_open", ask_here_then_there)
        assert service.submit(file="quickstart")["state"] == "queued"
        assert asked == [url, server[1]]


def tar(*members: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, to, 9 if kind == tarfile.REGTYPE else 0
    return info


@pytest.mark.parametrize(
    "body",
    [
        tar(member("../x")),
        tar(member("/x/../../y")),
        tar(member("link", tarfile.SYMTYPE, "/etc")),
        tar(member("pipe", tarfile.FIFOTYPE)),
        tar(member("a"))[:515],
        b"",
        b"no archive" * 100,
    ],
    ids=["up", "absolute", "link", "pipe", "cut off", "nothing", "text"],
)
def test_a_copy_that_is_hostile_or_cut_off(body: bytes, tmp_path: Path) -> None:
    with elsewhere(200, {}, body) as url, pytest.raises(EnvironmentFailure, match="the copy is not complete"):
        Service(url, "tuner_x").fetch("q", tmp_path / "to")
    assert files_below(tmp_path) == set()


def test_a_checkpoint_that_goes_while_a_run_is_copied_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "run/ray" / name).mkdir(parents=True)
        (tmp_path / "run/ray" / name / "model").write_text(name)
    sent = stream(RunFolder.at(tmp_path / "run"))
    first = next(sent)
    shutil.rmtree(tmp_path / "run/ray/b")
    unpack(io.BytesIO(b"".join([first, *sent])), tmp_path / "copy")
    assert files_below(tmp_path / "copy") == {"ray/a/model", "ray/c/model"}


def test_a_copy_goes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "to/q").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "to/q/ray").symlink_to(tmp_path / "outside")
    with (
        elsewhere(200, {}, tar(member("ray/x"))) as url,
        pytest.raises(EnvironmentFailure, match="outside the destination"),
    ):
        Service(url, "tuner_x").fetch("q", tmp_path / "to")
    assert [*(tmp_path / "outside").iterdir()] == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "to").write_text("")
    with elsewhere(200, {}, tar(member("x"))) as url, pytest.raises(EnvironmentFailure, match="cannot be written"):
        Service(url, "tuner_x").fetch("q", tmp_path / "to")


# Commands


def asked(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, words)
    if isinstance(done.exception, TunerError):
        return done.exception.exit_status, done.stdout, str(done.exception)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_the_storage_of_a_service_is_a_path_from_the_root(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr(
        "tuner.service.serve.serve", lambda queue, storage, *rest, **more: told.append(storage.location)
    )
    for words in ((), ("--storage", "./runs"), ("--storage", f"file://{user_folder}/runs")):
        assert asked("serve", "--port", "0", *words) == (0, "", "")
    assert told == [f"{user_folder}/runs"] * 2 + [f"file://{user_folder}/runs"]


@pytest.fixture
def environment(ada: Service, server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_SERVICE", server[1])
    monkeypatch.setenv("TUNER_TOKEN", server[0].token("ada"))


@pytest.mark.processes
@pytest.mark.usefixtures("environment")
def test_the_commands(server: tuple[Server, str], project: Path) -> None:
    queue = server[0].queue
    status, out, told = asked("submit", "e.yaml", "--name", "mine", "--set", "budget.trials=2")
    assert (status, out, told) == (0, "mine\n", "queued, place 1: waits for a share\n")
    assert queue.entry("mine").submission.versions["ray"]
    conforms("submit", asked("submit", "quickstart", "--json", "--priority", "2")[1])
    assert {row["name"] for row in conforms("jobs", asked("jobs", "--json")[1])} > {"mine"}
    assert "waits for a share" in asked("jobs")[1]
    queue.problem = "nothing answers"
    assert asked("jobs")[2] == "NOTICE: nothing answers; the queue waits\n"
    queue.problem = ""
    assert asked("jobs")[2] == ""
    queue.logs["mine"] = "trial #1\n"
    assert asked("logs", "mine") == (0, "trial #1\n", "")
    assert conforms("logs", asked("logs", "mine", "--json")[1])["log"] == "trial #1\n"
    saved(server[0].storage / "mine", "2026-01-01T10:00:00+0000", interrupted=False)
    assert asked("fetch", "mine")[1] == "runs/mine\n"
    assert Path("runs/mine/trials.csv").exists()
    assert conforms("stop", asked("stop", "mine", "--service", server[1], "--json")[1])["was_running"]
    assert asked("resume", "mine", "--service", server[1]) == (0, "mine\n", "queued, place 1: resumed by ada\n")
    told = "job mine: asked to stop; `tuner jobs` says when it has\n"
    assert asked("stop", "mine", "--service", server[1]) == (0, "", told)
    assert conforms("resume", asked("resume", "mine", "--service", server[1], "--json")[1])["state"] == "queued"
    assert asked("stop", "mine", "--service", server[1])[0] == 0
    assert asked("logs", "mine", "-f")[0] == 0
    queue.set("mine", state="failed")
    assert asked("logs", "mine", "-f")[0] == 1


@pytest.mark.usefixtures("environment")
def test_a_search_is_controlled(server: tuple[Server, str], user_folder: Path) -> None:
    server[0].search("controlled", state="running")
    journal = Journal(server[0].storage, "controlled")
    assert "no process works on this run" in asked("control", "controlled", "pause")[2]
    with locked(journal.folder):
        with journal.answers_a_command() as answered:
            status, out, told = asked("control", "controlled", "clone", "1", "lr=0.5", "--checkpoint")
        assert (status, out, told) == (0, "", "controlled: clone: done\n")
        assert answered[0].by == "ada"
        assert answered[0].arguments == {"trial": "1", "changes": {"lr": 0.5}, "checkpoint": True}
        with journal.answers_a_command():
            assert conforms("control", asked("control", "controlled", "pause", "--json")[1])["run"] == "controlled"
        with journal.answers_a_command(done=False, reason="no trial '7'"):
            refused = asked("control", "controlled", "stop-trial", "7")
    assert refused == (2, "", "stop-trial: refused: no trial '7'")
    assert "only the queue limits searches" in asked("control", "controlled", "slots", "2")[2]
    assert "name is not an argument of it" in asked("control", "controlled", "budget", "name=5")[2]


def test_a_run_of_this_machine_is_controlled_here(
    server: tuple[Server, str], environment: None, user_folder: Path
) -> None:
    server[0].search("here", state="running")
    journal = Journal(user_folder / "runs", "here")
    with locked(journal.folder), journal.answers_a_command() as answered:
        assert asked("control", "here", "pause") == (0, "", "runs/here: pause: done\n")
    assert answered[0].by == sender()
    assert asked("control", "runs/here", "pause")[2].startswith("pause: runs/here: no process works on this run")
    server[0].queue.set("here", state="failed")
    told = "pause: search 'here' (failed) takes commands only while it runs; to continue it: tuner resume here --serv"
    assert asked("control", "here", "pause")[2].startswith(told)


@pytest.mark.parametrize(
    "words",
    [("--trust",), ("--project", "."), ("--storage", "x"), ("--cluster", "x"), ("--jobs-address", "x")],
    ids=" ".join,
)
def test_options_that_say_nothing_of_a_search_of_a_service(words: tuple[str, ...]) -> None:
    status, _, told = asked("resume", "q", "--service", "http://127.0.0.1:1", *words)
    assert (status, told) == (2, f"{words[0]}: a search of a service continues there as it was submitted: leave it out")


@pytest.mark.usefixtures("environment")
def test_wrong_input_of_the_commands(
    server: tuple[Server, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ["--service", server[1]]
    assert "leave out --cluster" in asked("jobs", *place, "--jobs-address", "http://h:1")[2]
    assert "a service keeps all runs" in asked("submit", "e.yaml", "--storage", "/x")[2]
    (project / "e.yaml").write_text(EXPERIMENT + "budgett: 3\n")
    assert asked("submit", "e.yaml")[2].startswith("e.yaml:4:1: budgett: unknown key")
    assert asked("fetch", "nothing")[0] == 2
    assert (
        asked("jobs", "--token-file", "nothing")[2] == "--token-file nothing: cannot be read: No such file or directory"
    )
    (project / "token").write_text("tuner_wrong\n")
    assert "the token is nobody's" in asked("jobs", "--token-file", "token")[2]
    (project / "token").write_text(server[0].token("bob") + "\n")
    assert asked("jobs", "--token-file", "token")[0] == 0
    monkeypatch.delenv("TUNER_TOKEN")
    assert "it needs your token" in asked("jobs")[2]
