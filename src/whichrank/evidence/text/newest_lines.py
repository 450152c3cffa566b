"""The lines of a file that have certain words in them, from the end backwards: who asks stops when it is enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from whichrank.evidence.text.chunks import PADDING, UTF16, Chunk
from whichrank.evidence.text.words import Words

BLOCK = 1 << 17
_LONGEST = 1 << 20
"""A line that is longer than this is left out."""
_SHORT = 1 << 13
"""Up to here lines are looked at one after the other."""

Line = tuple[int, bytes]


def newest_lines(stream: BinaryIO, size: int, breaks: int, words: Words) -> Iterator[Line]:
    """Number and text, the last line first; `breaks` lines end in the stream. Words are in lower case."""
    end, rest, number = size, b"", breaks + 1
    while end:
        begin = max(0, end - BLOCK)
        stream.seek(begin)
        block = stream.read(end - begin) + rest
        end = begin
        cut = block.find(b"\n") + 1 if begin else 0
        if begin and not cut:
            rest = block if len(block) < _LONGEST else b""
            continue
        rest, body = block[:cut], block[cut:]
        number -= body.count(b"\n")
        yield from reversed(list(_with_words(body, number, words)))


def oldest_lines(stream: BinaryIO, most: int, words: Words) -> Iterator[Line]:
    """Those in the first `most` bytes, in their order."""
    stream.seek(0)
    number = 1
    while stream.tell() < most and (block := stream.read(BLOCK) + stream.readline()):
        yield from _with_words(block, number, words)
        number += block.count(b"\n")


def decoded(item: BinaryIO) -> bytes | None:
    """The last megabytes of a UTF-16 file as UTF-8; None for other files."""
    encoding = UTF16.get(item.read(2))
    if encoding is None:
        return None
    size = item.seek(0, 2)
    item.seek(max(2, size - 8 * _LONGEST) & ~1)
    return item.read().decode(encoding, "replace").encode("utf-8", "replace")


def _with_words(body: bytes, number: int, words: Words) -> Iterator[Line]:
    if len(body) <= _SHORT:
        yield from _in_short(body, number, words.literals)
        return
    chunk = Chunk(bytearray(body.lower() + bytes(PADDING)), len(body), 0, number)
    found = chunk.index(words.find(chunk).places)
    for at in dict.fromkeys(found.tolist()):
        line = body[chunk.starts[at] : chunk.ends[at]]
        for drawn in line.split(b"\r"):
            yield number + at, drawn


def _in_short(body: bytes, number: int, literals: Sequence[bytes]) -> Iterator[Line]:
    """As `_with_words`; for a few lines no index pays."""
    for at, line in enumerate(body.split(b"\n"), number):
        if any(map(line.lower().__contains__, literals)):
            for drawn in line.split(b"\r"):
                yield at, drawn
