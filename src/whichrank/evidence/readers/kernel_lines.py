"""Lines of the kernel's GPU driver among other output: a watcher of nodes, or a launcher, wrote them there."""

from __future__ import annotations

from whichrank.evidence.readers import kernel_log
from whichrank.evidence.text.chunks import Chunk
from whichrank.evidence.text.lines import Pieces
from whichrank.evidence.text.words import Found
from whichrank.model.contracts import Item, Reading

NAME = "kernel_lines"
_MOST, _LONGEST = 10_000, 4096
"""Lines, and bytes of each."""


def sniff(head: bytes, name: str) -> bool:
    """It claims nothing: it listens to what nobody else reads as a kernel log."""
    del head, name
    return False


def read(item: Item) -> Reading:
    """Nothing: without other listeners there is no running text."""
    del item
    return Reading([], "ignored", "no lines of the kernel in it")


class Listener:
    """Hears what the driver says about GPUs and switches; other lines of the kernel have no such unmistakable words."""

    words = frozenset({b"NVRM: Xid", b"SXid ("})

    def __init__(self, item: Item) -> None:
        self._item = item
        self._heard: list[tuple[int, bytes, tuple[bytes, ...]]] = []

    def take(self, chunk: Chunk, found: Found) -> None:
        """Keep the lines with these words."""
        pieces = Pieces(chunk, found)
        while (piece := pieces.told()) and len(self._heard) < _MOST:
            line = bytes(chunk.view[piece.start : min(piece.end, piece.start + _LONGEST)])
            self._heard.append((piece.number, line, piece.words))

    def finish(self) -> Reading:
        """The events, unless the file is read as a kernel log anyway."""
        name = self._item.label.rsplit("/", 1)[-1]
        if not self._heard or kernel_log.sniff(self._item.head(), name):
            return read(self._item)
        from whichrank.evidence.readers.kernel_log.log import Log

        log = Log(self._item)
        for number, line, words in self._heard:
            log.hear(number, line, words)
        return log.finish()
