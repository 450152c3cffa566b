"""Walks big text files quickly: most lines of a log hold none of the words that matter.

Four letters of each word are looked for at every place of a chunk at once. Of the lines that have
them, each shape (the line without its digits) is judged once. Memory does not grow with the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

CHUNK = 1 << 20
LONGEST = 1 << 15
"""Longer lines are cut: no message of torch is longer, and tensors printed on one line are."""
_TAIL = 32 << 20
"""Within this of the end all lines are looked at; before, in chunks dense with bulk, only some."""
_DENSE, _SKIPPED = 2048, 15
_SHAPES_KEPT = 1 << 15
_DIGITS = b"0123456789"
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Rough order of letters in English and in logs, commonest first.
_COMMON = b" etaoinsrhldcumfpgwybv.:,-_/=()[]0123456789kxjqz"
# Words of ordinary lines: four letters that stand here find too much.
_EVERYDAY = (
    b"[rank0]: info warning debug root train step iteration epoch loss time memory gpu learning rate "
    b"grad_norm samples tokens throughput nccl global batch worker process processed file from value elapsed /s "
)

Numbers = npt.NDArray[np.int64]


def is_text(head: bytes) -> bool:
    """True unless the bytes look binary; UTF-16 with a mark counts as text."""
    if head[:2] in _UTF16:
        return True
    if not head:
        return False
    odd = sum(head.count(bytes((code,))) for code in (0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18))
    # A killed process or a hole in a sparse log leaves some zeros; pickles and archives have more.
    return odd * 20 <= len(head)


def chunks(path: Path) -> Iterator[bytes]:
    """The file in pieces that end at a line's end (or anywhere, where no line ends for long), as UTF-8."""
    with path.open("rb") as stream:
        encoding = _UTF16.get(stream.read(2))
        if encoding is None:
            stream.seek(0)
        decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
        rest = b""
        while piece := stream.read(CHUNK):
            block = rest + (decoder.decode(piece).encode("utf-8", "replace") if decoder else piece)
            cut = block.rfind(b"\n") + 1
            if not cut:
                cut = block.rfind(b"\r") + 1 or (len(block) if len(block) > CHUNK else 0)
            rest = block[cut:]
            if cut:
                yield block[:cut]
        if rest:
            yield rest


class Letters:
    """Finds, in one pass over a chunk, the places of the rarest four letters of each of many words."""

    def __init__(self, words: tuple[bytes, ...]) -> None:
        codes = np.array(sorted({int.from_bytes(_rarest(word.lower()), "little") for word in words}), np.uint32)
        # Odd multipliers until no two codes share a slot: then one look tells.
        for multiplier in range(0x9E3779B1, 0x9E3779B1 + 4096, 2):
            self._multiplier = np.uint32(multiplier)
            slots = self._slot(codes)
            if len(np.unique(slots)) == len(codes):
                break
        self._codes = np.zeros(1 << 16, np.uint32)
        self._codes[slots] = codes
        self._taken = self._codes != 0

    def _slot(self, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        slots: npt.NDArray[np.uint32] = (words * self._multiplier) >> np.uint32(16)
        return slots

    def lines(self, chunk: bytes, starts: Numbers) -> Numbers:
        """The numbers of the lines (by their starts) in which one of the words may stand."""
        lower = chunk.lower() + b"\n\n\n\n"
        mask = np.zeros(len(chunk) + 4, np.bool_)
        for shift in range(4):
            words = np.frombuffer(lower, "<u4", (len(lower) - shift) // 4, shift)
            slots = self._slot(words)
            maybe = np.flatnonzero(self._taken.take(slots))
            mask[maybe[self._codes.take(slots[maybe]) == words[maybe]] * 4 + shift] = True
        return np.flatnonzero(np.logical_or.reduceat(mask[: len(chunk)], starts))


def _rarest(word: bytes) -> bytes:
    grams = [word[i : i + 4] for i in range(len(word) - 3)]
    return max(grams, key=lambda gram: (gram not in _EVERYDAY, sum(_COMMON.find(letter) % 64 for letter in gram)))


class Scan:
    """Yields (line number, interest, line) of the lines that matter.

    `judge` says what a line is worth (0: nothing) by its words alone, not by its digits, and sees
    lines that may have one of `words`, or of `bulk`: words of lines that are many and of which the
    newest are enough. While `watching()` is true every line is yielded, with interest 0 where it is
    nothing by itself.
    """

    def __init__(
        self,
        words: tuple[bytes, ...],
        bulk: tuple[bytes, ...],
        judge: Callable[[bytes], int],
        watching: Callable[[], bool],
    ) -> None:
        self._few = Letters(words)
        self._all = Letters((*words, *bulk))
        self._skip = 0
        self._judge = judge
        self._watching = watching
        self._known: dict[bytes, int] = {}
        self._lines = 0
        self.cut = 0

    def lines_of(self, path: Path, size: int) -> Iterator[tuple[int, int, bytes]]:
        for chunk in chunks(path):
            size -= len(chunk)
            yield from self._lines_of_chunk(chunk, ending=size < _TAIL)

    def _hits(self, chunk: bytes, starts: Numbers, ending: bool) -> Numbers:
        if self._skip and not ending:
            self._skip -= 1
            return self._few.lines(chunk, starts)
        hits = self._all.lines(chunk, starts)
        self._skip = _SKIPPED if len(hits) > _DENSE else 0
        return hits

    def _lines_of_chunk(self, chunk: bytes, ending: bool) -> Iterator[tuple[int, int, bytes]]:
        codes = np.frombuffer(chunk, np.uint8)
        # A progress bar redraws itself with \r on one line; only \n counts lines.
        breaks = np.flatnonzero((codes == 10) | (codes == 13))
        starts = np.concatenate(([0], breaks[breaks < len(chunk) - 1] + 1))
        ends = np.append(breaks, len(chunk))
        numbers = np.cumsum(np.concatenate(([0], codes[breaks] == 10))) + (self._lines + 1)
        self._lines = int(numbers[-1]) - 1
        hits = self._hits(chunk, starts, ending)
        at = 0
        for hit, number, start, end in zip(
            hits.tolist(), numbers[hits].tolist(), starts[hits].tolist(), ends[hits].tolist(), strict=True
        ):
            while at < hit and self._watching():
                yield int(numbers[at]), 0, self._bounded(chunk[starts[at] : ends[at]])
                at += 1
            at = hit + 1
            line = chunk[start:end]
            interest = self._worth(line)
            if interest or self._watching():
                yield number, interest, line if len(line) <= LONGEST else self._bounded(line)
        while at < len(starts) and self._watching():
            yield int(numbers[at]), 0, self._bounded(chunk[starts[at] : ends[at]])
            at += 1

    def _worth(self, line: bytes) -> int:
        shape = line.translate(None, _DIGITS)
        interest = self._known.get(shape)
        if interest is None:
            interest = self._judge(line)
            if len(shape) <= 4096:
                if len(self._known) >= _SHAPES_KEPT:
                    self._known.clear()
                self._known[shape] = interest
        return interest

    def _bounded(self, line: bytes) -> bytes:
        if len(line) <= LONGEST:
            return line
        self.cut += 1
        return line[: LONGEST // 2] + b" ... " + line[-LONGEST // 2 :]
