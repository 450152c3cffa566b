"""What ranks tell `whichrank run` of themselves: the members of their process groups, the counts and flags that their
training code holds where it stands."""

from __future__ import annotations

import json
from typing import Any

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.dump import GroupMembers, ranks_of_spans
from whichrank.records.variables import HeldFrame, Variables

NAME = "told_by_ranks"

_MOST = 1 << 22
_FRAMES = 64
_GROUPS, _VARIABLES = b'"whichrank_groups"', b'"whichrank_variables"'


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and (_GROUPS in head[:64] or _VARIABLES in head[:64])


def read(item: Item) -> Reading:
    """The groups of one rank, or the frames of its training code."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB is too long for what one rank tells")
    try:
        document = json.loads(item.read())
        told = _variables if "whichrank_variables" in document else _groups
        return Reading([told(document, int(document["rank"]), item.label)])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: not what a rank tells of itself: {error}") from error


def _groups(document: dict[str, Any], rank: int, _label: str) -> GroupMembers:
    members = {str(name): ranks_of_spans(str(text)) for name, text in dict(document["groups"]).items()}
    return GroupMembers(rank, {name: ranks for name, ranks in members.items() if ranks})


def _variables(document: dict[str, Any], rank: int, label: str) -> Variables:
    return Variables(rank, label, tuple(_frame(*row) for row in document["frames"][:_FRAMES]))


def _frame(file: Any, line: Any, function: Any, values: Any) -> HeldFrame:
    plain = {str(name): value for name, value in values.items() if isinstance(value, int)}
    return HeldFrame(str(file), int(line), str(function), plain)
