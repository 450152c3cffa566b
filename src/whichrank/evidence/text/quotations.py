"""Which lines of a document are quotations: what people paste into tickets and posts between their own words."""

from __future__ import annotations

from whichrank.evidence.text.chunks import Chunk

DOCUMENTS = (".md", ".rst")
_FENCES = (b"```", b"~~~", b"{code", b"{noformat")
_OPENED, _CLOSED = (b"<pre", b"<code"), (b"</pre", b"</code")
_INDENTED = (b"    ", b"\t")


class Quotations:
    """Fed with the chunks of a document in order; a fence stays open until it is closed."""

    def __init__(self) -> None:
        self._fence = b""

    def lines(self, chunk: Chunk) -> set[int]:
        """The lines of the chunk, counted from 0, that are within fences, `<pre>`, `{code}`, or indented."""
        found = set()
        for number, (start, end) in enumerate(zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True)):
            line = bytes(chunk.view[start : min(end, start + 64)])
            if self._inside(line):
                found.add(number)
        return found

    def _inside(self, line: bytes) -> bool:
        text = line.lstrip(b" \t>").lower()
        if self._fence:
            closed = text.startswith(self._fence) or (self._fence == b"<" and any(mark in text for mark in _CLOSED))
            self._fence = b"" if closed else self._fence
            return not closed
        self._fence = next((mark for mark in _FENCES if text.startswith(mark)), b"")
        if text.startswith(_OPENED) and not any(mark in text for mark in _CLOSED):
            self._fence = b"<"
        return line.startswith(_INDENTED)
