"""Commands as processes: their documents, also of those that end without one, or do not end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import InputError
from tuner.mcp.calls import Answer, Call, Calls, Client, finite

SLEEPS = "import sys, time\nprint('begins', file=sys.stderr, flush=True)\nwhile True: time.sleep(0.1)\n"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Calls of a stand-in for tuner: a command is a module of that name in a package in the working directory."""
    (tmp_path / "tuner").mkdir()
    (tmp_path / "tuner/__init__.py").touch()
    (tmp_path / "tuner/__main__.py").write_text("import runpy, sys\nrunpy.run_path(f'{sys.argv[1]}.py')\n")
    (tmp_path / "calls").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = Calls(tmp_path / "calls")
    yield started
    started.close()


def program(name: str, text: str) -> str:
    Path(f"{name}.py").write_text(text)
    return name


def settled(calls: Calls, call: Call, seconds: float | None) -> Answer:
    return calls.settle(call, seconds, Client())


def test_a_document(calls: Calls) -> None:
    call = calls.start(program("good", "print('{\"a\": [1, NaN, -Infinity]}')"), [])
    answer = settled(calls, call, None)
    assert (answer.document, answer.failed) == ({"a": [1, None, None]}, False)
    assert list(Path("calls").iterdir()) == []
    with pytest.raises(InputError, match="is not pending here; pending: none"):
        calls.find(call.id)


def test_a_document_of_an_error_and_one_with_a_status(calls: Calls) -> None:
    error = {"error": "no run 'x'", "exit_status": 2, "problems": []}
    failed = settled(calls, calls.start(program("bad", f"print({json.dumps(error)!r}); raise SystemExit(2)"), []), None)
    assert (failed.document, failed.failed) == (error, True)
    differs = settled(
        calls, calls.start(program("other", "print('{\"agrees\": false}'); raise SystemExit(5)"), []), None
    )
    assert (differs.document, differs.failed) == ({"agrees": False}, False)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
        ("import os; os.kill(os.getpid(), 9)", 1, "the command ended by signal 9"),
        ("raise SystemExit(4)", 4, "the command ended with exit status 4"),
        ("print('{\"a\": ')", 1, "the command ended with exit status 0"),
    ],
)
def test_an_end_without_a_document_is_an_error(calls: Calls, text: str, status: int, said: str) -> None:
    answer = settled(calls, calls.start(program("dies", text), []), None)
    assert answer.failed
    assert answer.document["exit_status"] == status
    assert said in answer.document["error"]


def test_a_command_that_lasts_is_pending_until_it_is_interrupted(calls: Calls) -> None:
    call = calls.start(program("sleeps", SLEEPS), [], run="q", lasts=True)
    answer = settled(calls, call, 0)
    while not answer.document["said"]:
        answer = settled(calls, call, 0.1)
    assert answer.document == {"call": call.id, "command": "sleeps", "run": "q", "said": ["begins"]}
    assert calls.find(call.id) is call
    call.give_up()
    assert call.process.poll() is None
    call.interrupt()
    assert settled(calls, call, None).failed


def test_a_command_that_was_not_to_last_ends_if_the_client_gives_up(calls: Calls) -> None:
    call = calls.start(program("sleeps", SLEEPS), [])
    while not settled(calls, call, 0).document["said"]:
        pass
    call.give_up()
    ended = settled(calls, call, None)
    assert ended.failed
    assert (ended.document["error"], ended.document["exit_status"]) == ("interrupted", 130)


def test_the_answer_waits_for_another_request_if_a_client_is_gone(calls: Calls) -> None:
    call = calls.start(program("good", "print('{\"a\": 1}')"), [], lasts=True)
    gone = Client()
    gone.go()
    calls.settle(call, None, gone)
    call.process.wait()
    calls.settle(call, None, gone)
    assert settled(calls, call, None).document == {"a": 1}
    with pytest.raises(InputError, match="is not pending here"):
        settled(calls, call, None)


def test_a_client_that_is_gone_before_his_command_starts_interrupts_it(calls: Calls) -> None:
    client = Client()
    client.go()
    call = calls.start(program("sleeps", SLEEPS), [])
    client.has_started(call)
    assert calls.settle(call, None, client).failed


def test_the_end_of_the_server_ends_what_does_not_survive_it(calls: Calls) -> None:
    call = calls.start(program("sleeps", SLEEPS), [], lasts=True)
    search = calls.start("sleeps", [], lasts=True, survives=True)
    for one in (call, search):
        while not settled(calls, one, 0).document["said"]:
            pass
    calls.close()
    call.process.wait()
    assert search.process.poll() is None
    assert settled(calls, search, None).document["call"] == search.id, "after the end nobody waits"
    search.process.kill()
    search.process.wait()


def test_only_numbers_that_are_not_finite_become_null() -> None:
    value = {"a": [1.5, float("nan"), {"b": float("inf")}], "c": "NaN", "d": True}
    assert finite(value) == {"a": [1.5, None, {"b": None}], "c": "NaN", "d": True}


def test_stdin_is_closed_to_a_command(calls: Calls) -> None:
    assert sys.executable
    call = calls.start(program("reads", "import json, sys\nprint(json.dumps({'read': sys.stdin.read()}))"), [])
    assert settled(calls, call, None).document == {"read": ""}
