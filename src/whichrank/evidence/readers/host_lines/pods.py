"""On which node each pod runs: `kubectl get pods -o wide`, `kubectl describe pod`, `kubectl get events`."""

from __future__ import annotations

import re

from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.host import PodPlace

_MOST_BYTES, _MOST, _LONGEST = 1 << 20, 10_000, 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
_POD = re.compile(r"Name: {2,40}([a-z0-9][a-z0-9.-]{0,252})\s{0,8}$")
_NODE = re.compile(r"Node: {2,40}([a-z0-9][a-z0-9.-]{0,252})/\d{1,3}(?:\.\d{1,3}){3}\s{0,8}$")
_ASSIGNED = re.compile(
    r"\bSuccessfully assigned [a-z0-9-]{1,63}/([a-z0-9][a-z0-9.-]{0,252}) to ([a-z0-9][a-z0-9.-]{0,252})"
)
"""What the scheduler of Kubernetes says of every pod."""


def fits(head: bytes) -> bool:
    """Whether the beginning has such a table or description."""
    listed = b"NAME " in head and b" READY " in head and b" NODE" in head
    return listed or b"Successfully assigned " in head or (b"Node: " in head and b"Name: " in head)


def read(item: Item) -> list[PodPlace]:
    """One for each pod that has a node."""
    found: list[PodPlace] = []
    begins: int | None = None
    pod = ""
    for number, whole in plain_lines(item) if item.size <= _MOST_BYTES else ():
        line, place = whole[:_LONGEST], None
        if line.startswith("NAME ") and " READY " in line and " NODE" in line:
            begins = line.index(" NODE") + 1
        elif begins is not None:
            place = _row(line, begins)
            begins = begins if line.strip() else None
        if named := _POD.match(line):
            pod = named[1]
        elif pod and (node := _NODE.match(line)):
            place = (pod, node[1])
        elif "assigned " in line and (told := _ASSIGNED.search(line)):
            place = (told[1], told[2].rstrip("."))
        if place is not None and len(found) < _MOST:
            found.append(PodPlace(Ref(item.label, f"line {number}", line.strip()[:200]), *place))
    return found


def _row(line: str, begins: int) -> tuple[str, str] | None:
    """The pod and the node of a row: what stands below the titles."""
    pod, node = line[:begins].split(None, 1)[:1], line[begins:].split(None, 1)[:1]
    if not pod or not node or line[begins - 1 : begins] != " " or not line[:1].strip():
        return None
    return (pod[0], node[0]) if _NAME.fullmatch(pod[0]) and _NAME.fullmatch(node[0]) else None
