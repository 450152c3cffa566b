"""A trace cut into batches of whole events, without ever holding all of it.

A cut is made where one object ends and the next begins. It may be wrong (objects inside an event's arguments look the
same), and decoding tells: a batch that was cut at the wrong place has unbalanced brackets and is refused. So cuts are
guessed cheaply and the decoder proves them. Files that are not quite JSON (missing values, NaN, broken escapes) are
repaired event by event, and what can't be repaired is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from whichrank.evidence.readers.kineto.json_values import json_value

T = TypeVar("T")

LONGEST_EVENT = 64 << 20
"""A single event that is longer than this is no event."""
_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_CLOSE = re.compile(rb"\}\s*(?:,\s*)?\]")
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_SPACE = b" \t\r\n"
_CUTS, _CLOSES = 8, 64
_WRONG: tuple[type[Exception], ...] = (RecursionError, ValueError)


class Batches(Struct, Generic[T]):
    """Iterate over it for the batches; the attributes say afterwards what else was there."""

    pieces: Iterable[bytes]
    decode: Callable[[bytes], list[T]]
    fast: Callable[[bytes, int], Sized | None] | None = None
    """Reads so many bytes of what it is given faster than `decode`, or leaves them to it."""
    around: dict[str, Any] = field(default_factory=dict)
    """The keys beside the events."""
    refused: int = 0
    """Events that could not be read."""
    unended: bool = False
    """The list of events has no end: the file was cut."""

    def __iter__(self) -> Iterator[Sized]:
        source = iter(self.pieces)
        buffer = self._opening(source)
        while True:
            piece = next(source, None)
            if piece is None:
                yield from self._last(buffer)
                return
            buffer += piece
            batch, buffer, over = self._next(buffer)
            if batch:
                yield batch
            if over:
                self._closing(buffer, source)
                return
            if len(buffer) > LONGEST_EVENT:
                self.unended, self.refused = True, self.refused + 1
                return

    def _opening(self, source: Iterator[bytes]) -> bytes:
        """What comes before the events is parsed; what is left begins with the first of them."""
        buffer = b""
        for piece in source:
            buffer += piece
            plain = buffer.lstrip(b"\xef\xbb\xbf" + _SPACE)
            if plain.startswith(b"["):
                return plain[1:]
            found = _BEGIN.search(buffer)
            if found:
                self._keep(plain[: found.start() - (len(buffer) - len(plain))].rstrip(_SPACE + b",") + b"}")
                return buffer[found.end() :]
            if len(buffer) > LONGEST_EVENT:
                break
        self.unended = True
        return b""

    def _closing(self, rest: bytes, source: Iterator[bytes]) -> None:
        """What comes after the events: kept where it is of sensible size."""
        for piece in source:
            rest += piece
            if len(rest) > LONGEST_EVENT:
                return
        self._keep(b"{" + rest.strip(_SPACE).lstrip(b","))

    def _keep(self, text: bytes) -> None:
        try:
            found = json_value(text)
        except _WRONG:
            found = {key: value for key in _WANTED if (value := _value(text, key)) is not None}
        if isinstance(found, dict):
            self.around.update(found)

    def _batch(self, buffer: bytes, end: int) -> Sized:
        found = self.fast(buffer, end) if self.fast is not None else None
        return found if found is not None else self.decode(b"[" + buffer[:end] + b"]")

    def _next(self, buffer: bytes) -> tuple[Sized, bytes, bool]:
        """A batch, what is left, and whether the events are over."""
        end = len(buffer)
        for _ in range(_CUTS):
            end = _last_cut(buffer, end)
            if end < 0:
                return [], buffer, False
            try:
                return self._batch(buffer, end), buffer[end:].lstrip(_SPACE + b","), False
            except _WRONG:
                over = self._to_the_end(buffer)
                if over is not None:
                    return over
        cut = _last_cut(buffer, len(buffer))
        return self._mended(buffer[:cut]), buffer[cut:].lstrip(_SPACE + b","), False

    def _to_the_end(self, buffer: bytes) -> tuple[Sized, bytes, bool] | None:
        """The batch up to the end of the list, if the list ends in here."""
        for tried, close in enumerate(_CLOSE.finditer(buffer)):
            if tried == _CLOSES:
                break
            try:
                return self._batch(buffer, close.start() + 1), buffer[close.end() :], True
            except _WRONG:
                continue
        return None

    def _last(self, buffer: bytes) -> Iterator[Sized]:
        """What is left when the file has ended."""
        if not buffer.strip(_SPACE + b"]},"):
            self.unended = self.unended or not buffer.strip(_SPACE).startswith((b"]", b"}"))
            return
        over = self._to_the_end(buffer)
        if over is not None:
            yield over[0]
            self._closing(over[1], iter(()))
            return
        ends = [close for close in _CLOSE.finditer(buffer) if not buffer[close.end() :].strip(_SPACE + b"}")]
        if ends:  # whole, but for events that are not valid
            yield self._mended(buffer[: ends[0].start() + 1])
            return
        try:
            yield self.decode(b"[" + buffer.rstrip(_SPACE + b",") + b"]")
        except _WRONG:
            yield self._mended(buffer)
        self.unended = True

    def _mended(self, text: bytes) -> list[T]:
        """Event by event, each repaired where that is possible."""
        found: list[T] = []
        parts = _BETWEEN.split(text)
        index = 0
        while index < len(parts):
            whole, index = parts[index], index + 1
            event = self._one(whole, last=index == len(parts))
            if event is None and index < len(parts):  # objects within its arguments
                event = self._one(whole + b"}," + parts[index], last=index + 1 == len(parts))
                index += event is not None
            if event is None:
                self.refused += 1
            else:
                found += event
        return found

    def _one(self, text: bytes, *, last: bool) -> list[T] | None:
        text = text.strip(_SPACE)
        text = text if last and text.endswith(b"}") else text + b"}"
        for attempt in (text, _repaired(text)):
            try:
                return self.decode(b"[" + attempt + b"]")
            except _WRONG:
                continue
        return None


_WANTED = ("distributedInfo", "baseTimeNanoseconds", "deviceProperties", "host_name", "schemaVersion")


def _value(text: bytes, key: str) -> Any:
    """One value out of a text that is not whole."""
    at = re.search(rb'"' + key.encode() + rb'"\s*:\s*', text)
    if at is None:
        return None
    import json

    try:
        return json.JSONDecoder().raw_decode(text[at.end() : at.end() + (1 << 20)].decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None


def _last_cut(buffer: bytes, end: int) -> int:
    """Where the last complete event before `end` ends; -1 where no event does."""
    for _ in range(4096):
        opened = buffer.rfind(b"{", 0, end)
        if opened < 0:
            return -1
        before = buffer[max(0, opened - 64) : opened].rstrip(_SPACE)
        if before.endswith(b",") and before[:-1].rstrip(_SPACE).endswith(b"}"):
            comma = buffer.rfind(b",", 0, opened)
            return buffer.rfind(b"}", 0, comma) + 1
        end = opened
    return -1


_MISSING = re.compile(rb":\s*(?=[,}])")
_NUMBERS = re.compile(rb"(?<=[:\[,])(\s*)[+-]?(?:nan|inf(?:inity)?)(?:\(ind\))?(?=\s*[,}\]])", re.IGNORECASE)
_ESCAPES = re.compile(rb'\\(?!["\\/bfnrtu])|\\(?=u(?![0-9A-Fa-f]{4}))')
_CONTROL = re.compile(rb"[\x00-\x1f]")


def _repaired(text: bytes) -> bytes:
    """The same event as JSON: values that are missing or no numbers become null, stray backslashes are doubled."""
    text = _CONTROL.sub(b" ", text).decode("utf-8", "replace").encode()
    return _ESCAPES.sub(rb"\\\\", _NUMBERS.sub(rb"\1null", _MISSING.sub(b":null", text)))
