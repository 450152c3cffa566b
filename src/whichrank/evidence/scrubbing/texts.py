"""Text in pieces of whole lines, in bounded memory; bytes that are no text make the file one that is left out."""

from __future__ import annotations

import re
from typing import BinaryIO

from whichrank.evidence.scrubbing.voices import Voice
from whichrank.model.errors import UnreadableError

PIECE = 1 << 20
LONGEST_LINE = 16 << 20
"""Of JSON on one line; a longer one is cut where no word is."""
_CONTROLS = bytes(set(range(32)) - set(b"\0\t\n\r\x1b\x08\x0c\x0b\x07"))
_WIDE = re.compile(rb"(?:[\x20-\x7e]\0){4,}|(?:\0[\x20-\x7e]){4,}")
_CUT = re.compile(rb"[\s,;\"'}\])]")
_UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}


def rewrite(source: BinaryIO, target: BinaryIO, voice: Voice, encoding: str = "utf-8") -> None:
    """Copy text through the voice, in the encoding it has."""
    if encoding != "utf-8":
        _wide(source, target, voice, encoding)
        return
    rest = b""
    while True:
        data = source.read(PIECE)
        rest += data
        end = _end(rest, last=not data)
        piece, rest = rest[:end], rest[end:]
        if piece:
            check(piece)
            narrow = _is_latin(piece)
            text = piece.decode("latin-1") if narrow else piece.decode("utf-8", "surrogateescape")
            new = voice.text(text)
            target.write(new.encode("latin-1", "replace") if narrow else new.encode("utf-8", "surrogateescape"))
        if not data:
            return


def _is_latin(piece: bytes) -> bool:
    """Not UTF-8, and nothing in it is: letters of one byte, as old editors and Windows write them."""
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return piece.decode("utf-8", "ignore").isascii()
    return False


def _end(data: bytes, *, last: bool) -> int:
    """Where a piece may end: behind a line, or, in a line without end, behind a sign that parts words."""
    if last:
        return len(data)
    end = data.rfind(b"\n") + 1
    if end or len(data) < LONGEST_LINE:
        return end
    nul = data.rfind(b"\0") + 1
    places = [match.end() for match in _CUT.finditer(data, len(data) - (PIECE // 4))]
    return nul or (places[-1] if places else len(data))


def _wide(source: BinaryIO, target: BinaryIO, voice: Voice, encoding: str) -> None:
    unit, rest, newline = _UNITS[encoding], b"", "\n".encode(encoding)
    while True:
        data = source.read(PIECE)
        rest += data
        end = len(rest) // unit * unit
        if data:
            place = rest.rfind(newline, 0, end)
            while place > 0 and place % unit:
                place = rest.rfind(newline, 0, place + unit - 1)
            end = place + unit if place > 0 else 0 if len(rest) < LONGEST_LINE else end
        piece, rest = rest[:end], rest[end:]
        if piece:
            try:
                text = piece.decode(encoding)
            except UnicodeDecodeError as error:
                raise UnreadableError(f"not valid {encoding.upper()}") from error
            target.write(voice.text(text).encode(encoding, "replace"))
        if not data:
            return


def check(piece: bytes) -> None:
    """Raise where a piece is no text: strings in it could not be told from their surroundings."""
    controls = len(piece) - len(piece.translate(None, _CONTROLS))
    if controls * 100 > len(piece) and controls > 2:
        raise UnreadableError("an unknown binary format")
    if b"\0" in piece and _WIDE.search(piece):
        raise UnreadableError("text of several encodings in one file, or a binary format")
    high = len(piece) - len(piece.decode("utf-8", "ignore").encode())
    if high * 10 > len(piece):
        raise UnreadableError("an unknown binary format")
