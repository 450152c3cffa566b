"""Pickles of objects, looked at from outside: nothing is imported, nothing is called, objects come back as their parts.

Checkpoints say in pickles which files they consist of. This decoder is the one for plain data
(`pickle/decoder.py`) with the opcodes of objects added: what would be built is only written down.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from whichrank.evidence.pickle.machine import CutShortError, DamagedError, Limits, Machine, i4, rare, u2, u4
from whichrank.model.errors import UnreadableError

LIMITS = Limits(steps=8_000_000, memo=3_000_000, text=128 << 20, seconds=20.0)
_BATCH = 4096  # opcodes between two looks at the limits
_LONGEST_NAME = 1024


class Pairs(list[tuple[Any, Any]]):
    """A dict as it was written: its keys may be anything, so that hashing them is not safe."""

    def of(self, key: str, otherwise: Any = None) -> Any:
        """The last value with this key."""
        return next((value for name, value in reversed(self) if type(name) is str and name == key), otherwise)


class Thing(Struct):
    """A class, function or object of the pickle; `kind` is its dotted name."""

    kind: str
    arguments: Any = ()
    state: list[Any] = field(default_factory=list)

    def has(self, name: str) -> Any:
        """An attribute, where its state is a plain dict of them."""
        found = (part.of(name) for part in reversed(self.state) if isinstance(part, Pairs))
        return next((value for value in found if value is not None), None)


def decode(data: bytes, limits: Limits = LIMITS) -> Any:
    """The value of a pickle; raises UnreadableError where it is damaged, cut, or beyond the limits."""
    machine = _Inert(data, limits)
    try:
        while machine.batch():
            machine.check_limits()
    except CutShortError:
        raise UnreadableError(f"the pickle ends early, at byte {len(data)}") from None
    except (DamagedError, LookupError, struct.error, ValueError, TypeError, AttributeError):
        raise UnreadableError(f"the pickle is damaged at byte {machine.pos}") from None
    return machine.stack[-1]


class _Inert(Machine):
    """The machine for data, with objects that stay parts."""

    def batch(self) -> bool:
        """Interpret some thousand opcodes; False after STOP."""
        for _ in range(_BATCH):
            op = self.data[self.pos]
            if op == 0x2E:  # STOP
                if self.marks or not self.stack:
                    raise DamagedError
                return False
            handler = _HANDLERS.get(op) or rare(op, self.pos)
            self.pos = handler(self, self.pos)
        self.steps += _BATCH
        return True

    def setitems(self) -> dict[Any, Any]:
        items = self.since_mark()
        target = self.stack[-1]
        if type(target) is Thing:  # a dict of a class of its own
            target.state.append(target := Pairs())
        if type(target) is not Pairs or len(items) % 2:
            raise DamagedError
        target.extend(zip(items[::2], items[1::2], strict=True))
        return {}

    def dict_from_mark(self, pos: int) -> int:
        items = self.since_mark()
        return self.put(pos + 1, Pairs(zip(items[::2], items[1::2], strict=True)))

    def fill(self, items: list[Any]) -> None:
        """Into the list on top; into the object, where that is a list of its own class."""
        target = self.stack[-1]
        if type(target) is list:
            target.extend(items)
        elif type(target) is Thing:
            target.state.append(items)
        else:
            raise DamagedError

    def named(self, pos: int) -> int:
        """GLOBAL: two lines."""
        middle = self.data.find(b"\n", pos + 1, pos + _LONGEST_NAME)
        end = self.data.find(b"\n", middle + 1, middle + _LONGEST_NAME)
        if middle < 0 or end < 0:
            raise CutShortError
        module, name = self.data[pos + 1 : middle], self.data[middle + 1 : end]
        return self.put(end + 1, Thing(f"{module.decode('utf-8', 'replace')}.{name.decode('utf-8', 'replace')}"))

    def named_on_stack(self, pos: int) -> int:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise DamagedError
        return self.put(pos + 1, Thing(f"{module[:_LONGEST_NAME]}.{name[:_LONGEST_NAME]}"))

    def made(self, pos: int, parts: int) -> int:
        """REDUCE, NEWOBJ and NEWOBJ_EX: what would be called, and with what."""
        arguments = [self.stack.pop() for _ in range(parts)]
        maker = self.stack.pop()
        kind = maker.kind if type(maker) is Thing else "?"
        return self.put(pos + 1, Thing(kind, arguments[-1]))

    def built(self, pos: int) -> int:
        state = self.stack.pop()
        if type(self.stack[-1]) is Thing:
            self.stack[-1].state.append(state)
        return pos + 1

    def elsewhere(self, pos: int) -> int:
        """BINPERSID: something that lies in another file."""
        return self.put(pos + 1, Thing("elsewhere", self.stack.pop()))


def _got(machine: Machine, pos: int, index: int) -> int:
    return machine.put(pos, machine.memo[index])


def _kept(machine: Machine, pos: int, index: int) -> int:
    machine.memo[index] = machine.stack[-1]
    return pos


def _marked(machine: Machine, pos: int) -> int:
    machine.marks.append(len(machine.stack))
    return pos + 1


_HANDLERS: dict[int, Callable[[Any, int], int]] = {
    0x68: lambda m, pos: _got(m, pos + 2, m.data[pos + 1]),  # BINGET
    0x6A: lambda m, pos: _got(m, pos + 5, u4(m.data, pos + 1)[0]),  # LONG_BINGET
    0x71: lambda m, pos: _kept(m, pos + 2, m.data[pos + 1]),  # BINPUT
    0x72: lambda m, pos: _kept(m, pos + 5, u4(m.data, pos + 1)[0]),  # LONG_BINPUT
    0x4B: lambda m, pos: m.put(pos + 2, m.data[pos + 1]),  # BININT1
    0x4D: lambda m, pos: m.put(pos + 3, u2(m.data, pos + 1)[0]),  # BININT2
    0x4A: lambda m, pos: m.put(pos + 5, i4(m.data, pos + 1)[0]),  # BININT
    0x8A: lambda m, pos: m.long(pos + 2, m.data[pos + 1]),  # LONG1
    0x28: _marked,  # MARK
    0x5D: lambda m, pos: m.put(pos + 1, []),  # EMPTY_LIST
    0x7D: lambda m, pos: m.put(pos + 1, Pairs()),  # EMPTY_DICT
    0x8F: lambda m, pos: m.put(pos + 1, []),  # EMPTY_SET
    0x91: lambda m, pos: m.put(pos + 1, m.since_mark()),  # FROZENSET
    0x4E: lambda m, pos: m.put(pos + 1, None),  # NONE
    0x88: lambda m, pos: m.put(pos + 1, True),  # NEWTRUE
    0x89: lambda m, pos: m.put(pos + 1, False),  # NEWFALSE
    0x65: lambda m, pos: m.fill(m.since_mark()) or pos + 1,  # APPENDS
    0x90: lambda m, pos: m.fill(m.since_mark()) or pos + 1,  # ADDITEMS
    0x61: lambda m, pos: m.fill([m.stack.pop()]) or pos + 1,  # APPEND
    0x75: lambda m, pos: pos + 1 + len(m.setitems()),  # SETITEMS
    0x64: _Inert.dict_from_mark,  # DICT
    0x63: _Inert.named,  # GLOBAL
    0x93: _Inert.named_on_stack,  # STACK_GLOBAL
    0x52: lambda m, pos: m.made(pos, 1),  # REDUCE
    0x81: lambda m, pos: m.made(pos, 1),  # NEWOBJ
    0x92: lambda m, pos: m.made(pos, 2),  # NEWOBJ_EX
    0x62: _Inert.built,  # BUILD
    0x51: _Inert.elsewhere,  # BINPERSID
}
