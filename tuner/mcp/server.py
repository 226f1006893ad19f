"""The server: JSON-RPC on stdin and stdout, as the package ``mcp`` speaks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import click
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from tuner.errors import InputError
from tuner.mcp.calls import Answer, Client, calls
from tuner.mcp.schemas import RESULT
from tuner.mcp.tools import Tool, Tools

AT_ONCE = 16
"""Calls that are carried out at once; others wait. A call that waits for a result takes one place."""

INSTRUCTIONS = (
    "tuner searches hyperparameters on Ray Tune. Look with list, show and status. Check an experiment with validate "
    "before run. A search continues in the background: status and show tell how it stands, and stop ends it. Every "
    "tool returns the document that its command prints with --json."
)


def serve(commands: Mapping[str, click.Command], version: str, read_only: bool) -> None:
    """Serves ``commands`` until the client closes stdin. Raises InputError if they cannot be tools."""
    with calls() as started:
        anyio.run(_serve, Tools(commands, started, read_only), version)


async def _serve(tools: Tools, version: str) -> None:
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def list_tools(context: ServerRequestContext[Any], page: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.all])

    async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        client = Client()
        try:
            answer = await anyio.to_thread.run_sync(
                tools.answer, asked.name, asked.arguments or {}, client, abandon_on_cancel=True, limiter=limiter
            )
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except anyio.get_cancelled_exc_class():
            client.go()
            raise
        return _result(answer)

    server = Server(
        "tuner", version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _described(tool: Tool) -> types.Tool:
    reads = tool.effect == "reads"
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input,
        output_schema=tool.output,
        annotations=types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=None if reads else tool.effect == "replaces",
            open_world_hint=tool.is_remote,
        ),
    )


def _result(answer: Answer) -> types.CallToolResult:
    document = {RESULT: answer.document} if isinstance(answer.document, list) else answer.document
    text = types.TextContent(type="text", text=json.dumps(document))
    return types.CallToolResult(content=[text], structured_content=document, is_error=answer.failed)
