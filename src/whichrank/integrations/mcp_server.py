"""The tools for agents over the Model Context Protocol, with the official SDK (`pip install whichrank[mcp]`)."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from whichrank import __version__
from whichrank.integrations.agent_tools import AgentTool, tools
from whichrank.model.errors import WhichrankError

INSTRUCTIONS = (
    "whichrank finds out why a distributed training job hung, crashed, was slow or went wrong, and which rank did it. "
    "Start with diagnose on whatever the job left. An answer of 'unknown' names the evidence that is missing. Quote "
    "the proof. Ranks that only wait are not the cause."
)


def server() -> Server[Any]:
    """The server, not yet connected to anybody."""
    known = {tool.name: tool for tool in tools()}
    told = [_tool(tool) for tool in known.values()]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=told)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = known.get(params.name)
        if tool is None:
            return _failed(f"there is no tool '{params.name}'; there are {', '.join(known)}")
        # Reading evidence takes seconds: the connection stays alive meanwhile.
        return await anyio.to_thread.run_sync(_called, tool, dict(params.arguments or {}))

    return Server(
        "whichrank", version=__version__, title="whichrank", instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def _tool(tool: AgentTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.reads_only,
            destructive_hint=False,
            idempotent_hint=tool.reads_only,
            open_world_hint=False,
        ),
    )


def _called(tool: AgentTool, arguments: dict[str, Any]) -> types.CallToolResult:
    unknown = sorted(arguments.keys() - tool.inputs.keys())
    if unknown:
        return _failed(f"{tool.name} has no argument '{unknown[0]}'; it takes {', '.join(tool.inputs)}")
    try:
        text, document = tool.run(arguments)
    except WhichrankError as error:
        return _failed(f"{error.message}. {error.hint}".strip())
    except (KeyError, TypeError, ValueError, OSError) as error:
        return _failed(f"{type(error).__name__}: {error}")
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=document)


def _failed(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=why)], is_error=True)


def serve() -> None:
    """Over stdin and stdout, until the client goes."""

    async def connected() -> None:
        made = server()
        async with stdio_server() as (read, write):
            await made.run(read, write, made.create_initialization_options())

    anyio.run(connected)
