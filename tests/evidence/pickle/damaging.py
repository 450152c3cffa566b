"""Dumps to try decoders on: of torch's shape and of Python's, with values that no torch writes, and damaged."""

from __future__ import annotations

import pickle
import random
from typing import Any

from tests.evidence.readers.torchlike import dump, torch_pickle

WRITERS = ("torch", 2, 4, 5)
ODD = (
    None, True, False, -1, 0, 255, 256, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**70, 1.5,
    float("inf"), "", "12", "-3", "completed", "nccl:all_reduce", ":x", "\udcff".encode("utf-8", "replace").decode(),
    "é" * 9, [], [[]], [[1, 2], [3]], [["1"]], (), ("0",), ("0", "default_pg"), ("1", "x", "y"), {}, {"name": "f"},
    [{"name": "f", "filename": "g.py", "line": 3}], [{"line": "x"}], b"bytes", 10**18,
)  # fmt: skip
OPCODES = b"hKMJ\x8aGN\x88\x89X\x8c\x8d(]})\x85\x86\x87te\x61us\x80\x95q\x94r.}(](0122\x93c"


def made(chance: random.Random, entries: int = 40) -> bytes:
    """A well-formed dump, perhaps with odd values, keys and entries."""
    top, shared = dump(chance.randrange(entries))
    for one in top["entries"]:
        if chance.random() < 0.15:
            _change(chance, one)
    listed: list[Any] = top["entries"]
    if chance.random() < 0.2 and listed:
        listed.insert(chance.randrange(len(listed) + 1), chance.choice([*ODD, chance.choice(listed)]))
    if chance.random() < 0.1:
        top[chance.choice(["version", "pg_config", "pg_status", "entries", "more"])] = chance.choice(ODD)
    whole: Any = top["entries"] if chance.random() < 0.1 else top
    writer = chance.choice(WRITERS)
    if writer == "torch" and not _has_bytes(whole):
        return torch_pickle(whole, shared)
    return pickle.dumps(whole, 2 if writer == "torch" else writer)


def _change(chance: random.Random, entry: dict[Any, Any]) -> None:
    key = chance.choice([*entry, "duration_ms", "seq_id", "time_created_us", "extra", 7])
    if chance.random() < 0.3:
        entry.pop(key, None)
    else:
        entry[key] = chance.choice(ODD)


def _has_bytes(value: Any) -> bool:
    """Whether torch's writer, as the tests have it, can't write this."""
    if isinstance(value, dict):
        return any(_has_bytes(one) for pair in value.items() for one in pair)
    if isinstance(value, tuple):
        return len(value) != 2 or any(map(_has_bytes, value))
    if isinstance(value, list):
        return any(map(_has_bytes, value))
    return isinstance(value, bytes) or (isinstance(value, int) and abs(value) > 2**63 - 1)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The bytes cut, changed, doubled, spliced, or with opcodes put in."""
    raw = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(raw) + 1)
        length = chance.choice([1, 1, 2, 4, 9, 40, 200])
        kind = chance.randrange(6)
        if kind == 0:
            del raw[at:]
        elif kind == 1:
            del raw[at : at + length]
        elif kind == 2:
            raw[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 3:
            raw[at:at] = bytes(chance.choice(OPCODES) for _ in range(length))
        elif kind == 4:
            raw[at:at] = raw[at : at + length]
        else:
            other = chance.randrange(len(raw) + 1)
            raw[at : at + length] = raw[other : other + length]
    return bytes(raw)


def soup(chance: random.Random) -> bytes:
    """Opcodes without sense."""
    body = [bytes([chance.choice(OPCODES)]) + chance.choice([b"", b"\0", b"\1\0\0\0", b"\2ab"]) for _ in range(60)]
    return b"\x80\x02" + b"".join(body) + b"."


def any_of(chance: random.Random) -> bytes:
    """One input of any kind."""
    kind = chance.random()
    if kind < 0.1:
        return soup(chance)
    data = made(chance)
    return damaged(chance, data) if kind < 0.6 else data
