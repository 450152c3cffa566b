"""TOML as a tree with lines: tasks of pixi, poe and others in pyproject.toml, and their variables."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from whichrank.records.settings import SettingsFile
from whichrank.source.formats.manifest import KIND, Manifest
from whichrank.source.formats.yaml_tree import Node

LINES_LIMIT = 3000


def read(text: str, label: str) -> SettingsFile:
    out = SettingsFile.empty(label, KIND)
    try:
        data = import_module("tomllib").loads(text)
    except ImportError:  # Python 3.10
        out.unread, out.note = True, "TOML is read with Python 3.11 and later"
        return out
    except (ValueError, RecursionError) as error:
        out.unread, out.note = True, f"not TOML that can be parsed: {error}"
        return out
    lines = text.split("\n")
    if len(lines) > LINES_LIMIT:
        out.unread, out.note = True, f"longer than {LINES_LIMIT} lines"
        return out
    Manifest(out, lines, _Lines(lines).node(data, 0, ())).read()
    return out


class _Lines:
    """tomllib tells no lines: each key is looked for behind the line of the table that it stands in."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def node(self, value: Any, line: int, path: tuple[str, ...]) -> Node:
        if isinstance(value, dict):
            node = Node("map", line + 1)
            for key, inner in value.items():
                at = self.find(key, line, path)
                node.pairs.append((Node("scalar", at + 1, key, '"'), self.node(inner, at, (*path, key))))
            return node
        if isinstance(value, list):
            return Node("list", line + 1, items=[self.item(item, line, path) for item in value])
        if isinstance(value, str):
            block = "\n" in value
            return Node("scalar", line + 1, value, "|" if block else '"', line + 2 + value.count("\n") if block else 0)
        return Node("scalar", line + 1, str(value).lower() if isinstance(value, bool) else str(value))

    def item(self, value: Any, line: int, path: tuple[str, ...]) -> Node:
        at = line
        if isinstance(value, str):
            quoted = value.split("\n")[0][:60]
            at = next((i for i in range(line, len(self.lines)) if quoted in self.lines[i]), line)
        return self.node(value, at, path)

    def find(self, key: str, start: int, path: tuple[str, ...]) -> int:
        name = re.escape(key)
        header = re.compile(
            r"\s*\[+\s*" + r"\s*\.\s*".join(rf"[\"']?{re.escape(p)}[\"']?" for p in (*path, key)) + r"\b"
        )
        entry = re.compile(rf"(?:^|[\s{{,.])[\"']?{name}[\"']?\s*[=.]")
        for index in range(start, len(self.lines)):
            if header.match(self.lines[index]) or entry.search(self.lines[index]):
                return index
        return start
