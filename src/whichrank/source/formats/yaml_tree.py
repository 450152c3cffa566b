"""YAML and JSON as a tree with lines: nothing is constructed, aliases stay references, templates become unknowns.

Built from PyYAML's events rather than its nodes: a document that breaks off is read up to there, and no alias is
ever expanded while reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

TEMPLATE = "\ue000"
"""Stands for what a template ({{ … }}) puts in."""
_TEMPLATE = re.compile(r"\{\{.{0,600}?\}\}|\{%.{0,600}?%\}", re.DOTALL)
_ONLY_TEMPLATE = re.compile(rf"^[ \t-]*{TEMPLATE}[{TEMPLATE} \t]*$", re.MULTILINE)
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
EVENT_LIMIT = 400_000
DEPTH_LIMIT = 200


class Node(Struct, eq=False):
    """A map, a list or a scalar."""

    kind: str
    line: int
    text: str = ""
    style: str = ""
    """Of a scalar: a quote, "|" or ">" of a block, empty for plain text."""
    last_line: int = 0
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)

    def get(self, *keys: str) -> Node | None:
        return next((value for key, value in self.entries() if key.text in keys), None)

    def entries(self) -> Iterator[tuple[Node, Node]]:
        """The pairs of a map; what `<<` merges comes first, without the keys that the map has itself."""
        merges = [value for key, value in self.pairs if key.text == "<<"]
        own = {key.text for key, _ in self.pairs} if merges else set()
        for value in merges:
            for merged in value.items if value.kind == "list" else [value]:
                if merged is not self:
                    yield from (p for p in merged.pairs if p[0].text not in own)
        yield from (pair for pair in self.pairs if pair[0].text != "<<")

    @property
    def plain(self) -> bool:
        return self.kind == "scalar" and not self.style

    @property
    def null(self) -> bool:
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}

    @property
    def bare(self) -> bool:
        """A number or a truth value to YAML, not a string."""
        pattern = r"[-+]?(?:\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|0x[0-9a-fA-F]+|\.\d+)|true|false|yes|no|on|off"
        return self.plain and bool(re.fullmatch(pattern, self.text, re.IGNORECASE))


def parse(text: str, *, json: bool = False) -> tuple[list[Node], str]:
    """The documents, and what went wrong ("" if nothing did)."""
    import yaml

    if json:
        text = _COMMENT.sub(lambda m: m[1] or re.sub(r"[^\n]", " ", m[0]), text)
    else:
        text = _TEMPLATE.sub(lambda m: TEMPLATE * len(m[0].split("\n")[0]) + "\n" * m[0].count("\n"), text)
        text = _ONLY_TEMPLATE.sub("", text)
    # A tab can't indent in YAML; people's files have them in blank lines.
    text = re.sub(r"^[ \t]+$", "", text, flags=re.MULTILINE)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder()
    try:
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            if count > EVENT_LIMIT or len(builder.open) > DEPTH_LIMIT:
                return builder.documents, "too large or nested too deeply to be read whole"
            builder.take(event)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" from line {mark.line + 1} on" if mark is not None else ""
        builder.close()
        return builder.documents, f"not valid {'JSON' if json else 'YAML'}{where}"
    return builder.documents, ""


class _Builder:
    def __init__(self) -> None:
        self.documents: list[Node] = []
        self.open: list[Node] = []
        self.keys: list[Node | None] = []
        self.anchors: dict[str, Node] = {}

    def take(self, event: Any) -> None:
        name = type(event).__name__
        line = event.start_mark.line + 1
        if name == "ScalarEvent":
            last = event.end_mark.line + 1
            style = event.style or ""
            self.put(Node("scalar", line, event.value, style, last), event.anchor)
        elif name in {"MappingStartEvent", "SequenceStartEvent"}:
            node = Node("map" if name[0] == "M" else "list", line)
            self.put(node, event.anchor)
            self.open.append(node)
            self.keys.append(None)
        elif name in {"MappingEndEvent", "SequenceEndEvent"}:
            self.open.pop()
            self.keys.pop()
        elif name == "AliasEvent":
            self.put(self.anchors.get(event.anchor) or Node("scalar", line), None)

    def put(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        if not self.open:
            self.documents.append(node)
            return
        parent = self.open[-1]
        if parent.kind == "list":
            parent.items.append(node)
        elif self.keys[-1] is None:
            self.keys[-1] = node
        else:
            parent.pairs.append((self.keys[-1], node))
            self.keys[-1] = None

    def close(self) -> None:
        self.open, self.keys = [], []
