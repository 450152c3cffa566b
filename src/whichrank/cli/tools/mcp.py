"""Serve diagnose, explain, env lint, lint, compare and collect to agents (Model Context Protocol)."""

from __future__ import annotations

from importlib.util import find_spec

import click

from whichrank.cli.options.site_rules import rules_option
from whichrank.model.errors import UsageError


@click.command(name="mcp")
@rules_option
def command() -> None:
    """Serve whichrank's tools to an agent over stdin and stdout (needs `pip install whichrank[mcp]`).

    Agents start it themselves. In a client's settings:

    \b
    {"mcpServers": {"whichrank": {"command": "whichrank", "args": ["mcp"]}}}

    Nothing is changed without being asked for twice: collect, which writes a folder, first says what it will do and
    gives a code, and acts only when it is called again with that code.
    """
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise UsageError("the MCP SDK (version 2) is not installed", "Install it: pip install 'whichrank[mcp]'")
    from whichrank.integrations.mcp_server import serve

    serve()
