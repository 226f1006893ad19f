"""A client of the package ``mcp`` speaks with a real ``python -m tuner mcp`` over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from mcp import Client, MCPError, StdioServerParameters

from tests.documents import conforms
from tests.event_loops import in_thread
from tests.runs.test_listing import saved
from tests.runs.test_results import new_run, trial
from tuner.cli import cli
from tuner.errors import InputError
from tuner.mcp.schemas import RESULT

ROOT = Path(__file__).parents[2]
NEVER_S = 300.0
"""Longer than any call of a test lasts."""


def session(use: Callable[[Client], Awaitable[Any]], *options: str, mode: str = "auto") -> Any:
    """What ``use`` returns, of a client that has a server of its own in the working directory."""

    async def connected() -> Any:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "tuner", "mcp", *options],
            env={"PYTHONPATH": str(ROOT)},
            cwd=Path.cwd(),
        )
        async with Client(server, mode=mode, read_timeout_seconds=NEVER_S) as client:
            return await use(client)

    return in_thread(connected())


async def document(client: Client, tool: str, **given: Any) -> Any:
    """The document that a tool returns, which its output schema describes: the client checks that."""
    result = await client.call_tool(tool, given)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def error(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, given)
    assert result.is_error
    found: dict[str, Any] = conforms("error", result.structured_content)
    return found


@pytest.fixture
def runs(user_folder: Path) -> Path:
    """The working directory, with a finished and a dead run below ``runs``, and an experiment."""
    saved(user_folder / "runs/q", "2026-01-01T10:00:00+0000", interrupted=False)
    saved(user_folder / "runs/dead", "2026-01-02T10:00:00+0000")
    (user_folder / "t.py").write_text("print('the training code may print')\ndef train(config): ...\n")
    (user_folder / "e.yaml").write_text(
        "trainable: t.py:train\nobjective: {metric: loss, mode: min}\nsearch_space: {lr: {loguniform: [1e-4, 1e-1]}}\n"
    )
    return user_folder


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools_are_listed_with_what_they_do(mode: str, user_folder: Path) -> None:
    async def use(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in session(use, mode=mode)}
    reads = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert {"show", "status", "validate"} <= reads
    assert not reads & {"run", "stop", "best", "cancel"}
    assert tools["stop"].annotations.destructive_hint
    assert tools["run"].annotations.destructive_hint is False
    assert tools["show"].input_schema["required"] == ["run"]
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    served = {tool.name for tool in session(use, "--read-only", mode=mode)}
    assert served == reads - {"result"}


@pytest.mark.processes
def test_it_looks_at_runs(runs: Path) -> None:
    async def use(client: Client) -> None:
        listed = conforms("list", (await document(client, "list"))[RESULT])
        assert {row["run"]: row["state"] for row in listed} == {"q": "finished", "dead": "dead"}
        shown = conforms("show", await document(client, "show", run="q"))
        assert (shown["best"]["value"], len(shown["all"])) == (0.7, 2)
        assert (await document(client, "show", run="q", brief=True)) == shown | {"all": []}
        assert conforms("status", await document(client, "status", run="dead"))["state"] == "dead"
        compared = await document(client, "compare", runs=["q", "dead"])
        assert [row["run"] for row in compared["runs"]] == ["q", "dead"]
        schema = await document(client, "schema", command="show")
        jsonschema.Draft202012Validator(schema).validate(shown)

    session(use, "--read-only")


def test_training_code_that_prints_does_not_break_the_protocol(runs: Path) -> None:
    async def use(client: Client) -> Any:
        return await document(client, "validate", file="e.yaml", set=["budget.trials=4"])

    assert conforms("validate", session(use))["trials"] == 4


@pytest.mark.processes
def test_an_error_of_a_command_is_an_error_of_its_tool(runs: Path) -> None:
    async def use(client: Client) -> None:
        assert "no run 'nothing'" in (await error(client, "show", run="nothing"))["error"]
        found = await error(client, "validate", file="e.yaml", set=["budget.trials=many"])
        assert [problem["key"] for problem in found["problems"]] == ["budget.trials"]
        assert "Missing argument 'RUN'" in (await error(client, "show"))["error"]
        assert "did you mean 'run'" in (await error(client, "show", rnu="q"))["error"]
        assert (await error(client, "jobs", jobs_address="http://127.0.0.1:9"))["exit_status"] == 4

    session(use)


def test_a_tool_that_is_not_served_is_an_error_of_the_protocol(runs: Path) -> None:
    async def use(client: Client) -> None:
        with pytest.raises(MCPError, match="run is not served: this server is --read-only"):
            await client.call_tool("run", {"file": "e.yaml", "name": "r"})
        assert len((await document(client, "list"))[RESULT]) == 2

    session(use, "--read-only")


def test_the_storage_of_the_server_is_that_of_its_tools(runs: Path) -> None:
    saved(runs / "elsewhere/only", "2026-01-01T10:00:00+0000", interrupted=False)

    async def use(client: Client) -> Any:
        return [row["run"] for row in (await document(client, "list"))[RESULT]]

    assert session(use, "--storage", "elsewhere") == ["only"]


def test_numbers_that_are_not_finite_are_null(user_folder: Path) -> None:
    results = new_run(user_folder / "runs/q")
    trial(results, 0.5, config={"lr": float("inf")})
    results.save()

    async def use(client: Client) -> Any:
        return (await document(client, "show", run="q"))["all"][0]["config"]

    assert session(use) == {"lr": None}


def test_calls_at_the_same_time(runs: Path) -> None:
    async def use(client: Client) -> Any:
        return await asyncio.gather(*(document(client, "status", run=name) for name in ("q", "dead")))

    assert [found["state"] for found in session(use)] == ["finished", "dead"]


def test_an_acting_tool(runs: Path) -> None:
    async def use(client: Client) -> Any:
        return await document(client, "init", folder="mine")

    assert "mine/train.py" in conforms("init", session(use))["files"]


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_program_runs_the_trials_of_a_search_by_itself(user_folder: Path) -> None:
    space = "search_space: {x: {uniform: [0, 1]}}\nobjective: {metric: loss, mode: min}\n"
    (user_folder / "mine.yaml").write_text(f"trainable: none\nbudget: {{trials: 4}}\n{space}")

    async def use(client: Client) -> Any:
        await document(client, "begin", file="mine.yaml", name="mine")
        both = await asyncio.gather(*(document(client, "ask", run="mine") for _ in range(2)))
        assert {asked["number"] for asked in both} == {1, 2}
        for asked in both:
            await document(client, "tell", run="mine", trial=asked["number"], metrics=["loss=2"], finish=True)
        proposed = await document(client, "ask", run="mine", config={"x": 0.25})
        assert proposed["config"] == {"x": 0.25}
        await document(client, "tell", run="mine", trial=proposed["trial"], metrics=["loss=-1"], finish=True)
        while not (asked := await document(client, "ask", run="mine"))["ended"]:
            metrics = [f"loss={asked['config']['x']}"]
            await document(client, "tell", run="mine", trial=asked["trial"], metrics=metrics, finish=True)
        return await document(client, "show", run="mine", brief=True)

    shown = session(use)
    assert (shown["state"], shown["trials"]["completed"]) == ("finished", 5)
    assert shown["best"]["config"] == {"x": 0.25}


def test_what_is_no_message_is_answered_and_the_server_ends_with_its_input(runs: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lasts = {"name": "doctor_experiment", "arguments": {"file": "e.yaml", "wait_s": 600}}
    asked = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": lasts},
    ]
    lines = ["{", *(json.dumps({"jsonrpc": "2.0"} | message) for message in asked)]
    (runs / "t.py").write_text("import time\ndef train(config): time.sleep(1000)\n")
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "mcp"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=NEVER_S,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(answer.get("id") == 1 and answer["result"]["serverInfo"]["name"] == "tuner" for answer in answers)
    assert "Traceback" not in done.stderr


def test_without_the_package_the_command_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "tuner.mcp.server", raising=False)
    with pytest.raises(InputError, match=r"tuner mcp needs the package mcp, version 2: pip install 'tuner\[mcp\]'"):
        CliRunner().invoke(cli, ["mcp"], catch_exceptions=False)


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_search_continues_after_its_client(user_folder: Path) -> None:
    """It is started by one client, and looked at and stopped by another."""

    async def begin(client: Client) -> Any:
        given = {"file": "quickstart", "name": "r", "set": ["budget.trials=2000"], "wait_s": 0}
        return await document(client, "run", **given)

    async def look(client: Client) -> None:
        for _ in range(600):
            found = await client.call_tool("status", {"run": "r"})
            if not found.is_error and found.structured_content["trials"]:
                break
            time.sleep(0.5)
        stopped = conforms("stop", await document(client, "stop", name="r"))
        assert (stopped["was_running"], stopped["state"]) == (True, "interrupted")

    assert session(begin)["run"] == "r"
    session(look)


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_search_from_its_start_to_its_result(user_folder: Path) -> None:
    async def use(client: Client) -> None:
        sets = ["budget.trials=2", "params.epochs=3", "scheduler.max_t=3"]
        found = await document(client, "run", file="quickstart", name="r", set=sets, wait_s=0)
        assert found["command"] == "run"
        done = await document(client, "result", call=found["call"], wait_s=600)
        assert conforms("run", done)["trials"]["completed"] >= 1
        restored = await document(client, "best", run="r", wait_s=600)
        assert conforms("best", restored)["validation"]
        assert (await error(client, "result", call=found["call"]))["exit_status"] == 2
        again = await document(client, "run", file="quickstart", name="s", set=["budget.trials=2000"], wait_s=0)
        cancelled = await error(client, "cancel", call=again["call"], wait_s=600)
        assert cancelled["exit_status"] == 130

    session(use)
