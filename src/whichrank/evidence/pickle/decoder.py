"""A bounded decoder for pickles that hold data only.

CPython's Unpickler runs what it reads and bounds neither memo, depth, memory nor time. This one knows
the opcodes of plain data (dict, list, tuple, str, bytes, numbers, None), refuses all others, keeps
shared objects shared, and stops at its limits. A file that ends early yields what was complete by then.
"""

from __future__ import annotations

import struct
from typing import Any

from msgspec import Struct, field

from whichrank.evidence.pickle.machine import CutShortError, DamagedError, Limits, Machine, i4, rare, u2, u4
from whichrank.evidence.pickle.repeats import Repeats, Shape

_BATCH = 4096  # opcodes between two looks at the limits
_ROW_STEPS = 8  # charged for a record taken by comparison: its bytes are kept, some 250 of memory
_LONGEST_OPERAND = 9  # bytes, opcode included
_DEFAULT = Limits()


class Decoded(Struct):
    """What came out of a pickle, complete or not."""

    value: Any
    complete: bool
    why: str = ""
    """Why it is not complete."""
    unfinished: list[Any] = field(default_factory=list)
    """Containers that were still open at the end."""


def decode(data: bytes, shape: Shape | None = None, limits: Limits = _DEFAULT) -> Decoded:
    """Decode plain data; with a `shape`, records that repeat come back as their `Site`."""
    repeats = Repeats(data, shape) if shape is not None else None
    decoder = _Decoder(data, repeats, limits)
    decoder.run()
    if decoder.why and repeats is not None and repeats.memo_skipped:
        # Perhaps a reference into a record taken by comparison: read again, opcode by opcode.
        decoder = _Decoder(data, None, limits)
        decoder.run()
    return decoder.result()


class _Decoder(Machine):
    """The machine with its loop over the frequent opcodes."""

    def __init__(self, data: bytes, repeats: Repeats | None, limits: Limits) -> None:
        super().__init__(data, limits)
        self.repeats = repeats
        self.why = ""

    def run(self) -> None:
        """Interpret until STOP, a limit, or bytes that make no sense."""
        try:
            while self.batch():
                self.check_limits()
        except CutShortError:
            self.why = f"the file ends early, at byte {len(self.data)}"
        except (DamagedError, LookupError, struct.error, ValueError, TypeError, AttributeError):
            left = len(self.data) - self.pos
            self.why = (
                f"the file ends early, at byte {len(self.data)}"
                if left <= _LONGEST_OPERAND
                else f"the file is damaged at byte {self.pos}"
            )

    def batch(self) -> bool:  # noqa: C901, PLR0912, PLR0915 - one loop, for speed
        """Interpret some thousand opcodes; False after STOP."""
        data, stack, marks, memo, repeats = self.data, self.stack, self.marks, self.memo, self.repeats
        push = stack.append
        pos, row, known = self.pos, -1, 0
        try:
            for _ in range(_BATCH):
                op = data[pos]
                if op == 0x68:  # BINGET
                    push(memo[data[pos + 1]])
                    pos += 2
                elif op == 0x4B:  # BININT1
                    push(data[pos + 1])
                    pos += 2
                elif op == 0x6A:  # LONG_BINGET
                    push(memo[u4(data, pos + 1)[0]])
                    pos += 5
                elif op == 0x28:  # MARK
                    marks.append(len(stack))
                    pos += 1
                elif op == 0x5D:  # EMPTY_LIST
                    push([])
                    pos += 1
                elif op == 0x65:  # APPENDS
                    mark = marks.pop()
                    stack[mark - 1].extend(stack[mark:])
                    del stack[mark:]
                    pos += 1
                elif op == 0x71:  # BINPUT
                    memo[data[pos + 1]] = stack[-1]
                    pos += 2
                elif op == 0x72:  # LONG_BINPUT
                    memo[u4(data, pos + 1)[0]] = stack[-1]
                    pos += 5
                elif op == 0x4D:  # BININT2
                    push(u2(data, pos + 1)[0])
                    pos += 3
                elif op == 0x4A:  # BININT
                    push(i4(data, pos + 1)[0])
                    pos += 5
                elif op == 0x8A:  # LONG1
                    pos = self.long(pos + 2, data[pos + 1])
                elif op == 0x7D:  # EMPTY_DICT
                    if repeats is not None and len(marks) == repeats.depth:
                        row, known = self.take(repeats, pos), len(memo)
                        if row != pos:
                            pos = row
                            continue
                    push({})
                    pos += 1
                elif op == 0x75:  # SETITEMS
                    record = self.setitems()
                    pos += 1
                    if repeats is not None and repeats.shape.marker in record:
                        if row >= 0 and len(marks) == repeats.depth:
                            repeats.learn(row, pos, record, defines=len(memo) > known)
                        repeats.depth, row = len(marks), -1
                elif op == 0x4E:  # NONE
                    push(None)
                    pos += 1
                elif op in (0x88, 0x89):  # NEWTRUE, NEWFALSE
                    push(op == 0x88)
                    pos += 1
                elif op == 0x2E:  # STOP
                    if marks or not stack:
                        raise DamagedError
                    return False
                else:
                    pos = rare(op, pos)(self, pos)
        finally:
            self.pos = pos
        self.steps += _BATCH
        return True

    def take(self, repeats: Repeats, pos: int) -> int:
        """Take the records at `pos` that are known already."""
        before = len(self.stack)
        pos, memoized = repeats.take(pos, self.stack)
        self.memoized += memoized
        self.steps += _ROW_STEPS * (len(self.stack) - before)
        if self.steps > self.limits.steps:
            self.check_limits()
        return pos

    def result(self) -> Decoded:
        """The decoded value; where the bytes ended early, open containers are closed with what they have."""
        if not self.why:
            return Decoded(self.stack[-1], complete=True)
        stack, unfinished = self.stack, []
        for mark in reversed(self.marks):
            items = stack[mark:]
            del stack[mark:]
            target = stack[-1] if mark and stack else None
            if type(target) is list:
                target.extend(items)
            elif type(target) is dict:
                pairs = zip(items[::2], items[1::2], strict=False)
                target.update((key, value) for key, value in pairs if type(key) is str)
            unfinished.append(target)
        return Decoded(stack[0] if stack else None, complete=False, why=self.why, unfinished=unfinished)
