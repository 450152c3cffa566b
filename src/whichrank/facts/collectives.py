"""Which calls are collective, over which group, and what makes a value differ between ranks."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Literal, NamedTuple

from whichrank.facts.tables import rows

CallKind = Literal["collective", "send", "recv", "isend", "irecv", "batch", "group", "init"]


class Argument(NamedTuple):
    """One argument of a call: by keyword or by place."""

    keyword: str
    place: int


class Collective(NamedTuple):
    """One call that other ranks have to match."""

    call: str
    on: str
    """A module prefix, "*" for any receiver, or "@tag" for a receiver that is known to be such a thing."""
    kind: CallKind
    group: Argument | None
    root: Argument | None
    op: Argument | None
    uniform: frozenset[str]
    """What is the same on all ranks afterwards: argument places, "result"."""
    payload: int | None
    """The argument whose shape and type all ranks have to agree on."""
    needs: str
    """A keyword that makes it collective: "sync_dist=True"."""
    source: str


class RankSource(NamedTuple):
    """A name whose value differs between ranks."""

    name: str
    how: str
    """call, attribute, environment, function, path method, queue method or local directory."""
    kind: str
    """rank, first, last, part, host, time, random, file, queue or memory."""
    axis: str
    source: str


@cache
def collectives() -> dict[str, tuple[Collective, ...]]:
    """Last name of the call -> the calls of that name."""
    found: dict[str, list[Collective]] = defaultdict(list)
    for row in rows("collectives.csv"):
        found[row["call"]].append(
            Collective(
                row["call"],
                row["on"],
                row["kind"],  # type: ignore[arg-type]
                _argument(row["group"]),
                _argument(row["root"]),
                _argument(row["op"]),
                frozenset(row["uniform"].split()),
                int(row["payload"]) if row["payload"] else None,
                row["needs"],
                row["source"],
            )
        )
    return {name: tuple(calls) for name, calls in found.items()}


@cache
def rank_sources(how: str) -> dict[str, RankSource]:
    """Name -> source, of one way of writing it."""
    return {row["name"]: RankSource(**row) for row in rows("rank_sources.csv") if row["how"] == how}


def _argument(text: str) -> Argument | None:
    keyword, _, place = text.partition(":")
    return Argument(keyword, int(place)) if keyword else None
