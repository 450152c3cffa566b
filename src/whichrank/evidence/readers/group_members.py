"""The process groups of a rank and who is in them, as `whichrank run` takes it from the process."""

from __future__ import annotations

import json

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.dump import GroupMembers, ranks_of_spans

NAME = "group_members"

_MOST = 1 << 22


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_groups"' in head[:64]


def read(item: Item) -> Reading:
    """The members of every group that the rank knows."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB is too long for a list of groups")
    try:
        document = json.loads(item.read())
        rank, groups = int(document["rank"]), dict(document["groups"])
        members = {str(name): ranks_of_spans(str(text)) for name, text in groups.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: not a list of groups: {error}") from error
    return Reading([GroupMembers(rank, {name: ranks for name, ranks in members.items() if ranks})])
