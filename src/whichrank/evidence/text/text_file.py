"""Text files of any size: whether they are text, and their lines within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from whichrank.evidence.text import shared_pass
from whichrank.evidence.text.chunks import UTF16
from whichrank.evidence.text.lines import Pieces
from whichrank.evidence.text.words import Words

_ODD = bytes((*range(7), *range(14, 19)))
"""Bytes that text does not have."""
LONGEST = 1 << 15
"""Longer lines are cut: no message of torch is longer, and tensors printed on one line are."""


@lru_cache(maxsize=4)
def is_text(head: bytes) -> bool:
    """True unless the bytes look binary; UTF-16 with a mark counts as text."""
    if head[:2] in UTF16:
        return True
    if not head:
        return False
    odd = len(head) - len(head.translate(None, _ODD))
    # A killed process or a hole in a sparse log leaves some zeros; pickles and archives have more.
    return odd * 20 <= len(head)


@lru_cache(maxsize=2)
def lowered(head: bytes) -> bytes:
    """The beginning of a file in lower case: many ask for it."""
    return head.lower()


def at_line_start(*shapes: bytes) -> re.Pattern[bytes]:
    """What finds one of these shapes at the start of a line, by `begins_line`.

    Python tries `^` at every byte; a search that begins with a line break jumps from one to the next."""
    return re.compile(b"\n(?:" + b"|".join(shapes) + b")", re.MULTILINE)


def begins_line(shapes: re.Pattern[bytes], head: bytes) -> bool:
    """Whether a line begins with one of the shapes."""
    return shapes.search(_below_a_break(head)) is not None


@lru_cache(maxsize=2)
def _below_a_break(head: bytes) -> bytes:
    return b"\n" + head


def chunks(path: Path) -> Iterator[bytes]:
    """The file in pieces that end at a line's end (or anywhere, where no line ends for long), as UTF-8."""
    for chunk in shared_pass.chunks_of(path):
        yield bytes(chunk.view[: chunk.size])


def bounded(line: bytes) -> bytes:
    """The line, or both ends of one that is too long."""
    return line if len(line) <= LONGEST else line[: LONGEST // 2] + b" ... " + line[-LONGEST // 2 :]


def lines_with(path: Path, words: Iterable[bytes]) -> Iterator[tuple[int, bytes, tuple[bytes, ...]]]:
    """Number and text of every line with one of the words in it, and those words."""
    finder = Words(words)
    for chunk in shared_pass.chunks_of(path):
        pieces = Pieces(chunk, finder.find(chunk))
        while piece := pieces.told():
            yield piece.number, bounded(bytes(chunk.view[piece.start : piece.end])), piece.words
