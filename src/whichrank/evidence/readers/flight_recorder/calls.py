"""What the entries of a flight-recorder dump share: calls and process groups, each made once.

Everything here comes from a file that nobody vouches for: lists may be shared a million times, nested
in themselves or of the wrong type. Only lists of the expected depth are walked, up to a length, and what
is walked is paid for out of one budget.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.errors import UnreadableError
from whichrank.records.dump import OTHER_STATE, STATES, Call, Frame

_MAX_FRAMES = 256
_MAX_TENSORS = 4096
_MAX_DIMS = 64
_MAX_GROUPS = 32_000  # the column of groups has 16 bits
_BUDGET = 10_000_000  # items of all lists walked; 2000 calls of 24 frames are 100,000
INT64 = (1 << 63) - 1


Shared = tuple[int, int, int, bool]
"""The part of an entry that is not a number of its own: its call, its group, its state, whether it is retired."""


def integer(value: object, default: int = 0) -> int:
    """An int of 64 bits out of what stands in a dump; JSON writes some of them as strings."""
    if type(value) is int:
        return value if -INT64 <= value <= INT64 else default
    if type(value) is str and len(value) < 20 and value.lstrip("-").isdecimal() and value.isascii():
        return int(value) if value.count("-") <= 1 else default
    return int(value) if isinstance(value, bool) else default


def optional_integer(value: object) -> int | None:
    """As `integer`, None where there is none."""
    return integer(value) if type(value) is int else None


def text(value: object) -> str:
    """A string as it stands; anything else is none."""
    return value if type(value) is str else ""


class Calls:
    """Numbers the distinct calls and groups of one dump in order of appearance."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.groups: list[tuple[int, str, str]] = []
        self._call_numbers: dict[tuple[Any, ...], int] = {}
        self._group_numbers: dict[tuple[int, str, str], int] = {}
        self._frames: dict[int, Frame] = {}
        self._stacks: dict[tuple[int, ...], tuple[Frame, ...]] = {}
        self._same: dict[Any, Any] = {}
        self._budget = _BUDGET

    def shared(self, entry: dict[Any, Any]) -> Shared:
        """Number the call and the group of one entry."""
        name, timeout = text(entry.get("profiling_name")), entry.get("timeout_ms")
        backend, colon, op = name.partition(":")
        op, backend = (op, backend) if colon else (name, "")
        sizes = self._sizes(entry.get("input_sizes")), self._sizes(entry.get("output_sizes"))
        dtypes = self._names(entry.get("input_dtypes")), self._names(entry.get("output_dtypes"))
        stack = self._stack(entry.get("frames"))
        rest = op, backend, text(entry.get("thread_name")), entry.get("is_p2p") is True, optional_integer(timeout)
        # Equal parts are the same object by now, so their identities do as a key, and hash faster.
        key = (*rest, id(sizes[0]), id(sizes[1]), id(dtypes[0]), id(dtypes[1]), id(stack))
        number = self._call_numbers.get(key)
        if number is None:
            number = self._call_numbers[key] = len(self.calls)
            _, _, thread, p2p, timeout_ms = rest
            self.calls.append(Call(op, backend, *sizes, *dtypes, stack, thread, p2p, timeout_ms))
        return self._with_parts(number, entry)

    def known(self, call: Call, parts: dict[Any, Any]) -> Shared:
        """The same for a call that other dumps had too: the same object, so that its identity does as a key."""
        number = self._call_numbers.get((id(call),))
        if number is None:
            number = self._call_numbers[id(call),] = len(self.calls)
            self.calls.append(call)
        return self._with_parts(number, parts)

    def _with_parts(self, number: int, entry: dict[Any, Any]) -> Shared:
        state = entry.get("state")
        code = STATES.get(state, OTHER_STATE) if type(state) is str else OTHER_STATE
        return number, self._group(entry), code, entry.get("retired") is True

    def _group(self, entry: dict[Any, Any]) -> int:
        pair = entry.get("process_group")
        name, desc = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (pair, "")
        key = (integer(entry.get("pg_id"), -1), text(name), text(desc))
        number = self._group_numbers.get(key)
        if number is None:
            number = self._group_numbers[key] = len(self.groups)
            self.groups.append(key)
            if number > _MAX_GROUPS:
                raise UnreadableError(f"the dump names more than {_MAX_GROUPS} process groups")
        return number

    def _spend(self, count: int) -> None:
        self._budget -= count
        if self._budget < 0:
            raise UnreadableError("the lists of the dump are larger than any job makes them")

    def _list(self, value: object, most: int) -> list[Any] | tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            return ()
        kept = value[:most]
        self._spend(1 + len(kept))
        return kept

    def _sizes(self, value: object) -> tuple[tuple[int, ...], ...]:
        tensors = []
        for dims in self._list(value, _MAX_TENSORS):
            shape = tuple([integer(size) for size in self._list(dims, _MAX_DIMS)])
            tensors.append(self._same.setdefault(shape, shape))
        sizes = tuple(tensors)
        shared: tuple[tuple[int, ...], ...] = self._same.setdefault(sizes, sizes)
        return shared

    def _names(self, value: object) -> tuple[str, ...]:
        names = tuple([text(name) for name in self._list(value, _MAX_TENSORS)])
        shared: tuple[str, ...] = self._same.setdefault(names, names)
        return shared

    def _stack(self, value: object) -> tuple[Frame, ...]:
        """Frames are shared objects, so a stack is known by their identities (the dump keeps them alive)."""
        frames = self._list(value, _MAX_FRAMES)
        identity = tuple(map(id, frames))
        stack = self._stacks.get(identity)
        if stack is None:
            made = tuple([self._frame(frame) for frame in frames if type(frame) is dict])
            stack = self._stacks[identity] = self._same.setdefault(tuple(map(id, made)), made)
        return stack

    def _frame(self, frame: dict[Any, Any]) -> Frame:
        known = self._frames.get(id(frame))
        if known is None:
            key = text(frame.get("name")), text(frame.get("filename")), integer(frame.get("line"), -1)
            known = self._frames[id(frame)] = self._same.get(key) or Frame(*key)
            self._same[key] = known
        return known


PARTS = ("pg_id", "process_group", "state", "retired")
"""What an entry has beside its call and its numbers."""
_MOST_CALLS = 20_000


class CallsOfRanks:
    """Calls that the ranks of a job share, by what the decoder in C says of an entry: each exists once."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[Call, bool]] = {}
        """By the bytes that an entry has beside PARTS and numbers: its call, and whether it has frames."""
        self._same: dict[Call, Call] = {}

    def call(self, key: bytes | None, entry: dict[Any, Any]) -> tuple[Call, bool]:
        """The call of an entry that was not known."""
        one = Calls()
        one.shared(entry)
        made = self._same.setdefault(one.calls[0], one.calls[0]), "frames" in entry
        if key is not None:
            if len(self.known) >= _MOST_CALLS:
                self.known.clear()
                self._same.clear()
            self.known[key] = made
        return made
