"""Calls of the ranks, and whether those that must fit together do."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Call:
    """One operation that one rank handed in."""

    number: int
    rank: int
    group: str
    seq: int
    signature: dict[str, Any]
    at: list[Any]
    payload: bytearray
    waited_at: list[Any] | None = None

    @property
    def op(self) -> str:
        return str(self.signature["op"])

    def told(self) -> dict[str, Any]:
        """For the record."""
        hidden = ("out_bytes",)
        signature = {key: value for key, value in self.signature.items() if key not in hidden}
        return {"group": self.group, "seq": self.seq, "sig": signature, "at": self.at, "waits_at": self.waited_at}


@dataclass(slots=True)
class Group:
    """The calls of one group that are not complete yet, one queue for each member."""

    name: str
    members: list[int]
    timeout_s: float
    backend: str
    queues: dict[int, deque[Call]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    sends: list[Call] = field(default_factory=list)
    receives: list[Call] = field(default_factory=list)
    broken: dict[str, Any] | None = None

    def front(self) -> list[Call] | None:
        """The oldest calls of all members, if every member has one."""
        if self.broken is not None or any(not self.queues.get(member) for member in self.members):
            return None
        return [self.queues[member][0] for member in self.members]


def disagreement(calls: Sequence[Call]) -> str | None:
    """What keeps these calls from being one collective: op, root, dtype, reduce, size; None if they fit."""
    signatures = [call.signature for call in calls]
    for key in ("op", "root", "dtype", "reduce"):
        if len({str(signature.get(key)) for signature in signatures}) > 1:
            return key
    return None if sizes_fit(signatures) else "size"


def sizes_fit(signatures: Sequence[dict[str, Any]]) -> bool:
    op = signatures[0]["op"]
    counts = [signature.get("count", 0) for signature in signatures]
    if op in ("broadcast", "all_reduce", "reduce"):
        return len(set(counts)) == 1
    if op == "all_gather":
        return all(signature["outs"] == counts for signature in signatures)
    if op == "gather":
        root = signatures[signatures[0]["root"]]
        return bool(root["outs"] == counts)
    if op == "scatter":
        root = signatures[signatures[0]["root"]]
        return bool(root["ins"] == counts)
    if op == "reduce_scatter":
        wanted = [signature["out"] for signature in signatures]
        return all(signature["ins"] == wanted for signature in signatures)
    if op == "all_to_all":
        return all(
            giver["splits_in"][j] == taker["splits_out"][i]
            for i, giver in enumerate(signatures)
            for j, taker in enumerate(signatures)
        )
    return True


def matches(send: Call, receive: Call, group: Group) -> bool:
    """Whether a receive takes this send; the first that matches is the one."""
    me, peer = group.members.index(receive.rank), group.members.index(send.rank)
    wants = receive.signature["peer"]
    return (
        send.signature["peer"] == me
        and wants in (peer, -1)
        and send.signature.get("tag", 0) == receive.signature.get("tag", 0)
    )


def made_up(call: Call, size: int) -> bytes:
    """A result for a call that will never be complete, to see what its rank does next."""
    wanted = int(call.signature.get("out_bytes", 0))
    own = bytes(call.payload[:wanted])
    return own + bytes(wanted - len(own)) if size else own
