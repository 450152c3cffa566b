"""The nodes of a job as its watchers saw each other: `nodes.json` of a bundle."""

from __future__ import annotations

import json
from typing import Any

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.model.moments import rfc3339_ns
from whichrank.records.events.launchers import NodeSilent
from whichrank.records.host import HostClock

NAME = "nodes"

_MOST = 16 << 20
_MOST_NODES = 1 << 16
_MOST_RANKS = 1 << 20


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_nodes"' in head[:64]


def read(item: Item) -> Reading:
    """Nodes that fell silent, and how far clocks are apart."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are no list of nodes")
    try:
        content = json.loads(item.read().decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: no valid JSON ({error})") from error
    rows = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise UnreadableError(f"{item.label}: no nodes in it")
    by = str(content.get("by") or "another node")[:100]
    records: list[Any] = []
    for index, row in enumerate(rows[:_MOST_NODES]):
        if isinstance(row, dict) and isinstance(row.get("name"), str) and row["name"]:
            records += _silence(item.label, index, row, by) + _clock(item.label, index, row)
    return Reading(records, "complete")


def _silence(label: str, index: int, row: dict[str, Any], by: str) -> list[NodeSilent]:
    if row.get("state") != "silent":
        return []
    name, heard = row["name"][:100], row.get("heard_ns")
    heard_ns = heard if isinstance(heard, int) and 0 < heard < 1 << 62 else None
    last = f", last heard at {rfc3339_ns(heard_ns)}" if heard_ns else ""
    ranks = row.get("ranks")
    numbers = [r for r in ranks if isinstance(r, int) and 0 <= r < _MOST_RANKS] if isinstance(ranks, list) else []
    quote = f"{by}: nothing is heard of {name} any more{last} ({row.get('how') or 'no answer'})"
    ref, how = Ref(label, f"node {index}", quote, None, name), str(row.get("how") or "")[:40]
    return [NodeSilent(ref=ref, time_ns=heard_ns, host=name, how=how, ranks=tuple(numbers[:_MOST_NODES]))]


def _clock(label: str, index: int, row: dict[str, Any]) -> list[HostClock]:
    ahead, error = row.get("clock_ahead_s"), row.get("clock_error_s")
    if not isinstance(ahead, int | float) or not isinstance(error, int | float) or not abs(ahead) + abs(error) < 1e9:
        return []
    quote = f"{row['name'][:100]} is {ahead:+.6f} s ahead, give or take {error:.6f} s"
    ref = Ref(label, f"node {index}", quote, None, row["name"][:100])
    return [HostClock(ref, row["name"][:100], int(ahead * 1e9), int(abs(error) * 1e9))]
