"""The merged stacks for programs; the schema is `stacks`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from whichrank import __version__
from whichrank.model.views import StackNode, StackReport
from whichrank.report._safe_json import safe_json

NAME = "json"
SCHEMA_VERSION = 1


def render(report: StackReport) -> Iterator[str]:
    """The document, indented by two."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "whichrank", "version": __version__},
        "tree": [_node(node) for node in report.tree],
        "ranks": list(report.ranks),
        "pids": [max(pid, 0) for pid in report.pids],
        "missing": [{"pid": one.pid, "rank": one.rank, "why": _writable(one.why)} for one in report.missing],
    }
    yield safe_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def _node(node: StackNode) -> dict[str, Any]:
    return {
        "frame": {"file": _writable(node.file), "line": node.line or None, "function": _writable(node.function)},
        "ranks": list(node.ranks),
        "pids": [max(pid, 0) for pid in node.pids],
        "children": [_node(child) for child in node.children],
    }


def _writable(text: str) -> str:
    """What UTF-8 can't hold is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
