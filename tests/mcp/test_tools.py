"""Tools are made from commands: which ones, with what input and output, and the words that a call becomes."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from tests.mcp.commands import commands, has_json
from tuner.errors import InputError
from tuner.mcp import schemas
from tuner.mcp.calls import Calls, Client
from tuner.mcp.tools import PENDING, Tools
from tuner.mcp.verbs import LEFT_OUT, PEOPLE_ONLY, VERBS

COMMANDS = commands()


def tools(folder: Path, read_only: bool = False) -> Tools:
    return Tools(COMMANDS, Calls(folder), read_only)


def test_every_command_is_a_tool_or_left_out_with_a_reason() -> None:
    """A new command needs a line in VERBS, or one in LEFT_OUT."""
    served = {verb.command or name for name, verb in VERBS.items()}
    assert set(COMMANDS) - served - set(LEFT_OUT) == set()
    assert served <= set(COMMANDS)
    assert not served & set(LEFT_OUT)
    assert all(LEFT_OUT.values())


def test_every_tool_prints_json() -> None:
    assert [name for name, verb in VERBS.items() if not has_json(COMMANDS[verb.command or name])] == ["schema"]


@pytest.mark.parametrize("name", VERBS)
def test_schemas_are_valid_and_describe_each_argument(name: str, tmp_path: Path) -> None:
    (tool,) = [tool for tool in tools(tmp_path).all if tool.name == name]
    for schema in (tool.input, tool.output):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    assert [key for key, found in tool.input["properties"].items() if not found["description"].strip()] == []
    assert set(tool.input["required"]) <= set(tool.input["properties"])
    assert "Example:" not in tool.description
    assert "\b" not in tool.description


@pytest.mark.parametrize("name", VERBS)
def test_no_tool_gives_consent_for_a_person_or_waits_without_end(name: str) -> None:
    verb = VERBS[name]
    given = {parameter.name for parameter in schemas.parameters(COMMANDS[verb.command or name], verb).values()}
    assert not given & set(PEOPLE_ONLY)
    assert {*PEOPLE_ONLY} <= {parameter.name for command in COMMANDS.values() for parameter in command.params}
    assert set(verb.without) <= {parameter.name for parameter in COMMANDS[verb.command or name].params}


def test_read_only_serves_what_changes_nothing(tmp_path: Path) -> None:
    served = {tool.name for tool in tools(tmp_path, read_only=True).all}
    assert {"list", "show", "status", "compare", "validate"} <= served
    assert not served & {"run", "stop", "best", "submit", *PENDING}
    everything = {tool.name for tool in tools(tmp_path).all}
    assert everything == {*VERBS, *PENDING}


@pytest.mark.parametrize("name", ["run", "result", "cancel"])
def test_an_acting_tool_is_refused_if_read_only(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{name} is not served: this server is --read-only"):
        tools(tmp_path, read_only=True).answer(name, {}, Client())


def test_an_unknown_tool_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tool 'stauts'; .*did you mean 'status'"):
        tools(tmp_path).answer("stauts", {}, Client())


def words(name: str, /, **given: object) -> list[str]:
    return schemas.words(COMMANDS[VERBS[name].command or name], VERBS[name], given)


def test_words() -> None:
    assert words("list") == []
    assert words("show", run="-r", brief=True) == ["--brief", "--", "-r"]
    assert words("show", run="r", brief=False) == ["--", "r"]
    assert words("replay", trial=5, run="r") == ["--", "r", "5"]
    assert words("compare", runs=["a", "b"], target=0.5) == ["--target=0.5", "--", "a", "b"]
    searched = words("run", file="e.yaml", name="q", set=["a=1", "b=--x"])
    assert searched == ["--name=q", "--set=a=1", "--set=b=--x", "--", "e.yaml"]
    proposed = words("ask", run="r", config={"net": {"depth": 2}, "act": "relu"})
    assert proposed == ['--config={"net": {"depth": 2}, "act": "relu"}', "--", "r"]
    assert words("ask", run="r", config="{x: 1}") == ["--config={x: 1}", "--", "r"]
    assert words("extend", run="r", trials=9, storage=None) == ["--trials=9", "--", "r"]


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("show", {"rnu": "q"}, r"rnu: no such argument; .*did you mean 'run'"),
        ("show", {"run": "q", "brief": "yes"}, "brief: 'yes': give true or false"),
        ("show", {"run": {"name": "q"}}, "run: {'name': 'q'}: give text or a number"),
        ("show", {"run": "a\0b"}, "run: .*a character that a command line cannot hold"),
        ("show", {"run": "\ud800"}, "run: .*a character that a command line cannot hold"),
        ("show", {"run": "q", "wide": True}, "wide: no such argument"),
        ("resume", {"run": "q", "trust": True}, "trust: no such argument"),
        ("run", {"file": "e.yaml"}, "name: missing: choose the name of the run"),
    ],
)
def test_input_that_is_wrong(name: str, given: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        words(name, **given)


@pytest.mark.parametrize("seconds", [-1, 601, "5", True, float("nan")])
def test_a_time_to_wait_that_is_wrong(seconds: object, tmp_path: Path) -> None:
    answer = tools(tmp_path).answer("run", {"file": "e.yaml", "name": "q", "wait_s": seconds}, Client())
    assert answer.failed
    assert answer.document["error"] == f"wait_s: {seconds!r}: give seconds from 0 to 600"
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_is_not_known(tmp_path: Path) -> None:
    answer = tools(tmp_path).answer("result", {"call": "run-1"}, Client())
    assert "call: 'run-1' is not pending here; pending: none" in answer.document["error"]


def test_the_default_of_an_option_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def default() -> object:
        return schemas.input_schema(COMMANDS["list"], VERBS["list"])["properties"]["storage"]["default"]

    assert default() == "runs"
    monkeypatch.setenv("TUNER_STORAGE", "s3://bucket/runs")
    assert default() == "s3://bucket/runs"
