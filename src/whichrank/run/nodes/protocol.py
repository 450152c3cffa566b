"""What watchers say to each other, whatever carries it."""

from __future__ import annotations

import re
import secrets
import threading
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from whichrank.run.nodes.judgement import Judgement
from whichrank.run.nodes.snapshot import Count, Snapshot

What = Literal["look", "full", "gather", "end", "verdict"]
"""Take a quick look, the whole evidence, or what has been left in files; end the job; hear the verdict."""
UPLOAD_S = 20.0
"""For the evidence of all nodes, once the one that asks has its own."""
SENDS = ("full", "gather")
"""What is answered with an upload."""
Text = Annotated[str, msgspec.Meta(max_length=16_384)]
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z"
Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
"""Of a node, and of a request: nothing that could lead out of a folder."""
M = TypeVar("M")


class Beat(msgspec.Struct, frozen=True):
    """A node is there; with what it sees, where that is new."""

    sent_ns: Count
    snapshot: Snapshot | None = None
    ahead_s: float | None = None
    """Of the leader's clock, as the node has measured it."""
    error_s: float | None = None


class Answer(msgspec.Struct, frozen=True):
    """The leader is there; with the times that tell the difference of two clocks."""

    sent_ns: Count
    arrived_ns: Count
    answered_ns: Count


class Request(msgspec.Struct, frozen=True):
    """What the leader wants of every node."""

    what: What
    token: Name
    """Names what is asked for, opens nothing."""
    attempt: int | None = None
    verdict: Judgement | None = None
    reduced: bool = False
    """Whether a summary of the evidence is enough: in a large job the whole of it would be too much."""
    within_s: float = UPLOAD_S
    """For the nodes that report to the one that is asked."""


class Leads(msgspec.Struct, frozen=True):
    """A node takes others in its leader's place, at this port of its own address."""

    port: Annotated[int, msgspec.Meta(gt=0, lt=1 << 16)]


class Listed(msgspec.Struct, frozen=True):
    """A node and its ranks, as the leader tells everybody."""

    name: Name
    ranks: list[Count]


Listing = list[Listed]


class Opening(msgspec.Struct, frozen=True):
    """An upload follows."""

    token: Name
    final: bool = False
    """The job has ended on this node: there will be no other."""
    note: Text = ""


class Closing(msgspec.Struct, frozen=True):
    """The upload is complete; where not, why."""

    size: Count
    why: Text = ""


class Receipt(msgspec.Struct, frozen=True):
    """What became of an upload."""

    token: Name
    why: Text = ""
    """Why it could not be kept; empty where it was."""


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_ONE_AT_A_TIME = threading.Lock()
"""msgspec (0.22) may crash where two threads decode a type for the first time."""


def _decoder(kind: type[M]) -> msgspec.json.Decoder[M]:
    with _ONE_AT_A_TIME:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        return _DECODERS[kind]


def read(kind: type[M], data: bytes) -> M | None:
    """A message; None for what is none."""
    try:
        return _decoder(kind).decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return None


def write(message: msgspec.Struct | Listing) -> bytes:
    return msgspec.json.encode(message)


def new_token(what: str) -> str:
    return f"{what}-{secrets.token_hex(4)}"


def plain(name: str) -> bool:
    """Whether it may name a node."""
    return re.match(_NAME, name) is not None
