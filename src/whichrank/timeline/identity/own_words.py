"""Where a rank runs by its own words: what it says of its failure may name its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whichrank.records.events.messages import KnownMessage
from whichrank.timeline.identity.who import People


def note_named_nodes(people: People, messages: Iterable[KnownMessage], names: Mapping[str, str]) -> None:
    """Say on which host the rank is that a message is about, where the message names both; `names` are those of
    addresses. Of a rank with two hosts none is said."""
    told: dict[int, set[str]] = {}
    for message in messages:
        node, culprit = message.captures.get("node"), message.captures.get("culprit")
        if node and culprit:
            told.setdefault(int(culprit), set()).add(names.get(node, node))
    for rank, hosts in told.items():
        if len(hosts) == 1:
            people.note(rank, host=hosts.pop())
