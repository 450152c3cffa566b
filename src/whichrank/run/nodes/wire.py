"""What goes over a connection between two watchers: bounded frames, each with a proof of who sent it.

Both sides prove that they know the token before anything else is heard, by answering a number that the other side made
up; the token itself is never sent. Each later frame carries a checksum that only they can make, with its number, so
that nothing can be changed, left out or sent again on the way. What is sent can be read on the way.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated

import msgspec

VERSION = 3
NONCE = 32
_HEAD = struct.Struct("!IB")
_PROOF = 32
PIECE = 128 << 10


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    JOIN = 2
    WELCOME = 3
    REFUSED = 4
    BEAT = 5
    ANSWER = 6
    ROSTER = 7
    REQUEST = 8
    OPENING = 9
    PIECE = 10
    CLOSING = 11
    RECEIPT = 12
    BYE = 13
    LEAD = 14
    LEADS = 15
    GUARD = 16


MOST = {
    Kind.HELLO: 512, Kind.JOIN: 2048, Kind.WELCOME: 2048, Kind.REFUSED: 1024, Kind.BEAT: 8 << 20, Kind.ANSWER: 512,
    Kind.ROSTER: 4 << 20, Kind.REQUEST: 512 << 10, Kind.OPENING: 4096, Kind.PIECE: PIECE, Kind.CLOSING: 512,
    Kind.RECEIPT: 4096, Kind.BYE: 512, Kind.LEAD: 512, Kind.LEADS: 512, Kind.GUARD: PIECE,
}  # fmt: skip
"""Bytes that a frame may have."""


class WireError(Exception):
    """What the other side sends is not what was agreed on."""


class RefusedError(WireError):
    """The other side does not know the token, or does not take ours."""


class Stream:
    """Bytes in, frames out, and the other way round; touches no socket."""

    def __init__(self) -> None:
        self._inbox = bytearray()
        self._signs = self._expects = b""
        self._sent = self._heard = 0

    def seal(self, signs: bytes, expects: bytes) -> None:
        """From now on every frame carries a proof."""
        self._signs, self._expects = signs, expects

    def pack(self, kind: Kind, payload: bytes) -> bytes:
        if len(payload) > MOST[kind]:
            raise WireError(f"a {kind.name.lower()} of {len(payload):,} bytes is too long")
        head = _HEAD.pack(len(payload), kind)
        if not self._signs:
            return head + payload
        self._sent += 1
        return b"".join((head, payload, _proof(self._signs, self._sent, head, payload)))

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """The frames that are whole by now."""
        self._inbox += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> tuple[Kind, bytes] | None:
        if len(self._inbox) < _HEAD.size:
            return None
        length, number = _HEAD.unpack_from(self._inbox)
        try:
            kind = Kind(number)
        except ValueError:
            raise WireError("what it says is no frame") from None
        if length > MOST[kind]:
            raise WireError(f"a {kind.name.lower()} of {length:,} bytes is too long")
        end = _HEAD.size + length
        whole = end + (_PROOF if self._expects else 0)
        if len(self._inbox) < whole:
            return None
        head, payload, proof = (bytes(self._inbox[a:b]) for a, b in ((0, _HEAD.size), (_HEAD.size, end), (end, whole)))
        del self._inbox[:whole]
        if self._expects:
            self._heard += 1
            if not hmac.compare_digest(proof, _proof(self._expects, self._heard, head, payload)):
                raise WireError("a frame was changed on the way")
        return kind, payload


def _proof(key: bytes, number: int, head: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, b"".join((struct.pack("!Q", number), head, payload)), "sha256")


class Referral(msgspec.Struct, frozen=True):
    """A node that takes others in its leader's place; nobody yet where the host is empty."""

    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    host: Annotated[str, msgspec.Meta(max_length=100)] = ""
    port: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0

    @property
    def side(self) -> str:
        """What the leader's proof is about: where nodes are sent can't be changed on the way."""
        return f"leader {self.name} {self.host} {self.port}"


class Hello(msgspec.Struct, frozen=True):
    """The leader begins."""

    nonce: str
    version: int = VERSION


class Join(msgspec.Struct, frozen=True):
    """A node wants to join."""

    name: str
    instance: str
    """Made up by its watcher: two nodes of one name are two."""
    nonce: str
    proof: str
    avoid: Annotated[list[Annotated[str, msgspec.Meta(max_length=100)]], msgspec.Meta(max_length=8)] = []
    """Nodes that it was referred to, and could not reach."""


class Welcome(msgspec.Struct, frozen=True):
    """It may; this is what it is called from now on."""

    leader: str
    name: str
    proof: str
    above: list[str] = []
    """Instances of the nodes from the root down to this leader: nobody follows itself."""
    referral: Referral | None = None
    """It has enough nodes of its own: go to this one."""


def nonce() -> str:
    return secrets.token_hex(NONCE // 2)


def proof(token: str, side: str, hello: str, join: str, name: str, instance: str) -> str:
    """What only somebody who knows the token can say, about this one connection."""
    words = "\0".join((f"whichrank {VERSION} {side}", hello, join, name, instance)).encode("utf-8", "surrogatepass")
    return hmac.new(token.encode(), words, hashlib.sha256).hexdigest()


def keys(token: str, hello: str, join: str) -> tuple[bytes, bytes]:
    """With which the leader and the node prove their frames."""
    made = [
        hmac.new(token.encode(), f"whichrank {VERSION} frames {side}\0{hello}\0{join}".encode(), hashlib.sha256)
        for side in ("leader", "node")
    ]
    return made[0].digest(), made[1].digest()


def same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
