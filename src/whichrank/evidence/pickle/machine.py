"""The machine that a pickle of plain data runs on: its stack, memo and limits, and the rarer opcodes."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from whichrank.model.errors import UnreadableError

# Opcodes that import, call, or look something up outside the file.
_REFUSED = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x62: "BUILD", 0x69: "INST", 0x6F: "OBJ",
    0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2",
    0x84: "EXT4", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}  # fmt: skip
_LONGEST_INT = 16  # bytes
_LONGEST_LINE = 256  # bytes of the text opcodes of protocol 0

u2 = struct.Struct("<H").unpack_from
i4 = struct.Struct("<i").unpack_from
u4 = struct.Struct("<I").unpack_from
u8 = struct.Struct("<Q").unpack_from
f8 = struct.Struct(">d").unpack_from


class Limits(Struct, frozen=True):
    """What one pickle may cost. A step leaves at most some 80 bytes behind (an empty container)."""

    steps: int = 4_000_000
    memo: int = 500_000
    depth: int = 128
    text: int = 48 << 20
    """Bytes of all strings together, four times the length of those that are not ASCII."""
    seconds: float = 6.0
    """Of this thread's CPU time, so that a busy machine changes nothing."""


class DamagedError(Exception):
    """The bytes are no pickle from here on."""


class CutShortError(Exception):
    """The bytes end inside an opcode."""


class Machine:
    """One stack, the positions of the open marks in it, and the memo."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.limits = limits
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.memoized = 0
        self.text = limits.text
        self.steps = 0
        self.deadline = time.thread_time() + limits.seconds
        self.pos = 0

    def check_limits(self) -> None:
        limits = self.limits
        if self.steps > limits.steps:
            raise UnreadableError(f"the pickle needs more than {limits.steps} steps")
        if len(self.memo) > limits.memo:
            raise UnreadableError(f"the pickle memoises more than {limits.memo} objects")
        if len(self.marks) > limits.depth:
            raise UnreadableError(f"the pickle nests deeper than {limits.depth} levels")
        if time.thread_time() > self.deadline:
            raise UnreadableError(f"the pickle takes more than {limits.seconds:g} s to decode")

    def setitems(self) -> dict[Any, Any]:
        """SETITEMS; only keys that are safe to hash are let in."""
        stack = self.stack
        mark = self.marks.pop()
        keys, values = stack[mark::2], stack[mark + 1 :: 2]
        target = stack[mark - 1]
        if type(target) is not dict or len(keys) != len(values) or not mark:
            raise DamagedError
        if set(map(type, keys)) != {str}:
            _check_keys(keys)
        target.update(zip(keys, values, strict=True))
        del stack[mark:]
        return target

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def put(self, pos: int, value: object) -> int:
        self.stack.append(value)
        return pos

    def bytes_at(self, pos: int, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - pos:
            raise CutShortError
        return self.data[pos : pos + count]

    def string(self, pos: int, count: int, encoding: str = "utf-8") -> int:
        """Push a string of `count` bytes; what is no valid text in it is replaced."""
        raw = self.bytes_at(pos, count)
        self.spend(count if raw.isascii() else 4 * count)
        self.stack.append(raw.decode(encoding, "replace"))
        return pos + count

    def binary(self, pos: int, count: int) -> int:
        raw = self.bytes_at(pos, count)
        self.spend(count)
        self.stack.append(raw)
        return pos + count

    def spend(self, count: int) -> None:
        self.text -= count
        if self.text < 0:
            raise UnreadableError(f"the strings of the pickle take more than {self.limits.text >> 20} MiB")

    def long(self, pos: int, count: int) -> int:
        if count > _LONGEST_INT:
            raise UnreadableError(f"the pickle holds an integer of {count} bytes")
        self.stack.append(int.from_bytes(self.bytes_at(pos, count), "little", signed=True))
        return pos + count

    def tuple_of(self, pos: int, count: int) -> int:
        items = self.stack[-count:]
        if len(items) != count:
            raise DamagedError
        self.stack[-count:] = [tuple(items)]
        return pos

    def memoize(self, pos: int) -> int:
        self.memo[self.memoized] = self.stack[-1]
        self.memoized += 1
        return pos + 1

    def setitem(self, pos: int) -> int:
        self.marks.append(len(self.stack) - 2)
        self.setitems()
        return pos + 1

    def append(self, pos: int) -> int:
        item = self.stack.pop()
        self.stack[-1].append(item)
        return pos + 1

    def dict_from_mark(self, pos: int) -> int:
        self.stack.insert(self.marks[-1], {})
        self.marks[-1] += 1
        self.setitems()
        return pos + 1

    def pop(self, pos: int) -> int:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()
        return pos + 1

    def line(self, pos: int) -> int:
        """The opcodes of protocol 0 that end with a newline."""
        end = self.data.find(b"\n", pos, pos + _LONGEST_LINE)
        if end < 0:
            raise CutShortError
        op, text = self.data[pos], self.data[pos + 1 : end]
        if op == 0x70:  # PUT
            self.memo[int(text)] = self.stack[-1]
        elif op == 0x67:  # GET
            self.stack.append(self.memo[int(text)])
        elif op == 0x46:  # FLOAT
            self.stack.append(float(text))
        elif op == 0x56:  # UNICODE
            self.stack.append(text.decode("raw-unicode-escape", "replace"))
        elif text in (b"00", b"01"):
            self.stack.append(text == b"01")
        else:  # INT, LONG
            self.stack.append(int(text.rstrip(b"L")))
        return end + 1


def _check_keys(keys: list[Any]) -> None:
    """Hashing a tuple walks all of it, shared parts again and again; large ints collide by choice."""
    for key in keys:
        kind = type(key)
        if kind is int and abs(key) < 1 << 60:
            continue
        if kind not in (str, bytes, bool, type(None)):
            raise UnreadableError("the pickle has a dict key that is neither text nor a small number")


def rare(op: int, pos: int) -> Callable[[Machine, int], int]:
    handler = _RARE.get(op)
    if handler is not None:
        return handler
    if op in _REFUSED:
        raise UnreadableError(
            f"the pickle wants to run code or load objects (opcode {_REFUSED[op]} at byte {pos}): refused",
            hint="What is read here is plain data in every genuine file; find out who wrote this one.",
        )
    raise DamagedError


def _pop_mark(machine: Machine, pos: int) -> int:
    machine.since_mark()
    return pos + 1


_RARE: dict[int, Callable[[Machine, int], int]] = {
    0x80: lambda _, pos: pos + 2,  # PROTO
    0x95: lambda _, pos: pos + 9,  # FRAME
    0x55: lambda m, pos: m.string(pos + 2, m.data[pos + 1], "latin-1"),  # SHORT_BINSTRING
    0x54: lambda m, pos: m.string(pos + 5, i4(m.data, pos + 1)[0], "latin-1"),  # BINSTRING
    0x58: lambda m, pos: m.string(pos + 5, u4(m.data, pos + 1)[0]),  # BINUNICODE
    0x8C: lambda m, pos: m.string(pos + 2, m.data[pos + 1]),  # SHORT_BINUNICODE
    0x8D: lambda m, pos: m.string(pos + 9, u8(m.data, pos + 1)[0]),  # BINUNICODE8
    0x43: lambda m, pos: m.binary(pos + 2, m.data[pos + 1]),  # SHORT_BINBYTES
    0x42: lambda m, pos: m.binary(pos + 5, u4(m.data, pos + 1)[0]),  # BINBYTES
    0x8B: lambda m, pos: m.long(pos + 5, i4(m.data, pos + 1)[0]),  # LONG4
    0x47: lambda m, pos: m.put(pos + 9, f8(m.data, pos + 1)[0]),  # BINFLOAT
    0x29: lambda m, pos: m.put(pos + 1, ()),  # EMPTY_TUPLE
    0x85: lambda m, pos: m.tuple_of(pos + 1, 1),  # TUPLE1
    0x86: lambda m, pos: m.tuple_of(pos + 1, 2),  # TUPLE2
    0x87: lambda m, pos: m.tuple_of(pos + 1, 3),  # TUPLE3
    0x74: lambda m, pos: m.put(pos + 1, tuple(m.since_mark())),  # TUPLE
    0x6C: lambda m, pos: m.put(pos + 1, m.since_mark()),  # LIST
    0x32: lambda m, pos: m.put(pos + 1, m.stack[-1]),  # DUP
    0x94: Machine.memoize,
    0x64: Machine.dict_from_mark,  # DICT
    0x73: Machine.setitem,
    0x61: Machine.append,
    0x30: Machine.pop,
    0x31: _pop_mark,
    0x49: Machine.line,  # INT
    0x4C: Machine.line,  # LONG
    0x46: Machine.line,  # FLOAT
    0x56: Machine.line,  # UNICODE
    0x70: Machine.line,  # PUT
    0x67: Machine.line,  # GET
}
