"""Pickles rewritten opcode by opcode: strings are replaced, lengths follow, nothing is ever built or called."""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from whichrank.evidence.scrubbing.texts import check
from whichrank.evidence.scrubbing.voices import Voice
from whichrank.model.errors import UnreadableError

MOST = 128 << 20
_MEMO = {"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"}
_RECALL = {"BINGET", "LONG_BINGET", "GET"}
_WORDS = {"GLOBAL", "INST", "PERSID"}
_MOST_MEMO = 1 << 20
_LONGEST_INT = 1 << 128
# Protocols 0 and 1 have no mark of their own: dicts, lists and tuples, with what follows them there.
_OLD_STARTS = (b"(d", b"(l", b"(i", b"}q", b"]q", b"}(", b"](", b"(t", b"(S", b"(V", b"(X", b"(U", b"(I", b"(K")


def looks_like_pickle(head: bytes) -> bool:
    """By the protocol's number, or, for protocols 0 and 1, because the first opcodes are some."""
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return True
    if not head.startswith(_OLD_STARTS):
        return False
    count = 0
    try:
        for _ in pickletools.genops(head):
            count += 1
    except ValueError:
        return count >= 5 and (b"\np" in head or b"q\0" in head or b"q\x01" in head)
    return True


def rewrite(source: BinaryIO, target: BinaryIO, voice: Voice) -> None:
    """Copy one pickle after another; what follows the last complete opcode is left away."""
    data = source.read(MOST + 1)
    if len(data) > MOST:
        raise UnreadableError(f"a pickle of more than {MOST >> 20} MiB")
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        if not _one(stream, data, _Writer(target, voice)):
            break
    if not target.tell():
        raise UnreadableError("not a pickle, or damaged from the start")


def _one(stream: io.BytesIO, data: bytes, writer: _Writer) -> bool:
    """Copy one pickle; False where it is damaged, and nothing after that is looked at."""
    try:
        for opcode, argument, place in pickletools.genops(stream):
            writer.copy(opcode, argument, data[place : stream.tell()])
    except (ValueError, struct.error, IndexError, UnicodeError, OverflowError, MemoryError):
        stream.seek(len(data))
        return False
    return True


class _Writer:
    """Writes opcodes, with the key that a string may be the value of."""

    def __init__(self, target: BinaryIO, voice: Voice) -> None:
        self._target, self._voice = target, voice
        self._memo: dict[int, str] = {}
        self._count = 0
        self._last: str | None = None
        """The string that stands just before: the key, if this one is a value."""

    def copy(self, opcode: Any, argument: Any, raw: bytes) -> None:
        name = opcode.name
        if name == "FRAME":
            return  # frames are optional, and their lengths would be wrong
        if name in _MEMO:
            index = self._count if name == "MEMOIZE" else argument
            self._count += name == "MEMOIZE"
            if self._last is not None and len(self._memo) < _MOST_MEMO and len(self._last) < 64:
                self._memo[index] = self._last
        elif name in _RECALL:
            self._last = self._memo.get(argument)
        elif isinstance(argument, str) and name not in _WORDS:
            self._write_string(name, argument)
            return
        elif isinstance(argument, (bytes, bytearray)):
            self._target.write(_LENGTHS[name](_binary(bytes(argument), self._voice)))
            self._last = None
            return
        else:
            self._plain(name, argument)
            self._last = None
        self._target.write(raw)

    def _plain(self, name: str, argument: Any) -> None:
        if isinstance(argument, int) and abs(argument) > _LONGEST_INT:
            raise UnreadableError("a pickle with a number as long as a text")
        if name in _WORDS and self._voice.value(argument) != argument:
            raise UnreadableError("a pickle with names of classes that look like secrets")

    def _write_string(self, name: str, text: str) -> None:
        new = self._voice.value(text, self._last or "")
        self._last = text
        self._target.write(_STRINGS[name](new))


def _binary(raw: bytes, voice: Voice) -> bytes:
    """Bytes that are text are treated as such; others are replaced by zeros."""
    try:
        text = raw.decode("utf-8")
        check(raw)
    except (UnicodeDecodeError, UnreadableError):
        return bytes(len(raw))
    return voice.value(text).encode("utf-8", "surrogateescape")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _unicode(text: str) -> bytes:
    raw = _utf8(text)
    return b"\x8c" + bytes([len(raw)]) + raw if len(raw) < 256 else b"X" + struct.pack("<I", len(raw)) + raw


def _latin(text: str) -> bytes:
    raw = text.encode("latin-1", "replace")
    return b"T" + struct.pack("<i", len(raw)) + raw


def _line(text: str) -> bytes:
    """UNICODE of protocol 0: one line, with what would end it spelled out."""
    for sign, spelled in (
        ("\\", "\\u005c"),
        ("\0", "\\u0000"),
        ("\n", "\\u000a"),
        ("\r", "\\u000d"),
        ("\x1a", "\\u001a"),
    ):
        text = text.replace(sign, spelled)
    return b"V" + text.encode("raw-unicode-escape") + b"\n"


_STRINGS: dict[str, Callable[[str], bytes]] = {
    "STRING": lambda text: b"S" + ascii(text).encode() + b"\n",
    "UNICODE": _line,
    "BINSTRING": _latin,
    "SHORT_BINSTRING": _latin,
    "BINUNICODE": lambda text: b"X" + struct.pack("<I", len(_utf8(text))) + _utf8(text),
    "SHORT_BINUNICODE": _unicode,
    "BINUNICODE8": lambda text: b"\x8d" + struct.pack("<Q", len(_utf8(text))) + _utf8(text),
}
_LENGTHS: dict[str, Callable[[bytes], bytes]] = {
    "SHORT_BINBYTES": lambda raw: (
        b"C" + bytes([len(raw)]) + raw if len(raw) < 256 else b"B" + struct.pack("<I", len(raw)) + raw
    ),
    "BINBYTES": lambda raw: b"B" + struct.pack("<I", len(raw)) + raw,
    "BINBYTES8": lambda raw: b"\x8e" + struct.pack("<Q", len(raw)) + raw,
    "BYTEARRAY8": lambda raw: b"\x96" + struct.pack("<Q", len(raw)) + raw,
}
