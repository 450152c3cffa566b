"""One pass over a text for several readers: it is cut into chunks once, and searched once for the words of all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from whichrank.evidence.text.chunks import CHUNK, PADDING, UTF16, Chunk, Chunks, Decoded
from whichrank.evidence.text.own_lines import SIGN, without_own_lines
from whichrank.evidence.text.tail import remember_breaks
from whichrank.evidence.text.words import Flags, Found, Words
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError

MANY = 5_000
"""Telling words of a file above which it may be worth leaving lines out."""


class Listener(Protocol):
    """What one reader does with a text that it shares with others."""

    words: frozenset[bytes]
    """Literals: it is told where they stand."""

    def take(self, chunk: Chunk, found: Found) -> None:
        """One chunk, behind those before it, and where its words stand, ascending."""
        ...

    def finish(self) -> Reading:
        """The answer, when all chunks were taken."""
        ...


def read(item: Item, listeners: Sequence[Listener], telling: frozenset[bytes] = frozenset()) -> list[Reading]:
    """The file through all of them; one answer each. None at all where it has more lines with telling words than
    are worth reading, or may have them since nobody listens to such a word."""
    words = prepare(listeners)
    if telling and not telling.issubset(words.literals):
        return []
    told = 0
    sign = words.numbers[SIGN]
    heard = [_heard(words, listener.words) for listener in listeners]
    telling_ones = _heard(words, telling)
    chunk: Chunk | None = None
    for chunk in _chunks_in(item):
        found = without_own_lines(chunk, words.find(chunk), sign)
        if telling:
            told += int(np.count_nonzero(telling_ones[found.which]))
            expected = told * item.size / chunk.size / 2 if chunk.first == 1 else told
            if expected > MANY:
                return []
        for listener, flags in zip(listeners, heard, strict=True):
            listener.take(chunk, found.where(flags[found.which]))
    if chunk is not None and not item.is_small and item.head(2) not in UTF16:
        beyond = chunk.offset + chunk.size - item.size  # a last line without an end got one
        if beyond in (0, 1):
            remember_breaks(item, chunk.first - 1 + chunk.breaks - beyond)
    return [listener.finish() for listener in listeners]


def prepare(listeners: Sequence[Listener]) -> Words:
    """What finds the words of all of them."""
    return _common_finder(tuple(listener.words for listener in listeners))


def _chunks_in(item: Item) -> Iterator[Chunk]:
    """As `chunks_of`; a small file is one chunk, and need not be opened again."""
    if not item.is_small or item.head(2) in UTF16:
        return chunks_of(item.path)
    text = item.read()
    text = text if text.endswith(b"\n") else text + b"\n"
    return iter([Chunk(bytearray(text + bytes(PADDING)), len(text), 0, 1)])


def chunks_of(path: Path) -> Iterator[Chunk]:
    """The chunks of a file, as UTF-8."""
    try:
        with path.open("rb", buffering=0) as stream:
            encoding = UTF16.get(stream.read(2))
            if encoding is None:
                stream.seek(0)
            # A small file needs no big buffer: filling that with zeros takes longer than reading it.
            size = None if encoding else min(CHUNK, max(1 << 12, os.fstat(stream.fileno()).st_size + 1))
            yield from Chunks(Decoded(stream, encoding) if encoding else stream, size)
    except OSError as error:
        raise UnreadableError(f"{path.name}: {error.strerror or error}") from error


@lru_cache(maxsize=64)
def _heard(words: Words, some: frozenset[bytes]) -> Flags:
    return words.among(some)


@lru_cache(maxsize=16)
def _common_finder(words: tuple[frozenset[bytes], ...]) -> Words:
    return finder(frozenset((SIGN,)).union(*words))


@lru_cache(maxsize=16)
def finder(words: frozenset[bytes]) -> Words:
    """What finds these words; made once."""
    return Words(words)
