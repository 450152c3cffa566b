"""Which lines of a document are quotations: what people paste into tickets and posts between their own words."""

from __future__ import annotations

import re

from whichrank.evidence.text.chunks import Chunk

DOCUMENTS = (".md", ".rst")
_FENCES = (b"```", b"~~~", b"{code", b"{noformat")
_OPENED, _CLOSED = (b"<pre", b"<code"), (b"</pre", b"</code")
_INDENTED = (b"    ", b"\t")
_HEAD = 160
_PRINTED = re.compile(
    rb"[\s>]{0,8}(?:`(?![^`]*`))?(?:"
    rb"(?:\[?\d{4}-\d\d-\d\d[ T_][\d:.,]{4,16}\]? )?(?:[\w.-]{1,60}:\d{1,10}:\d{1,10} )?(?:\[-?\d{1,4}\] )?"
    rb"(?:[\w/.-]{1,60}:\d{1,6} )?NCCL (?:INFO|WARN)\b"
    rb"|\[(?:default)?rank ?\d{1,6}\]:|\[[EWIF]\d{0,4} ?[\d:. ]{0,24} ?\w{1,40}\.cpp:\d"
    rb"|[EWIF]\d{4} \d\d:\d\d:\d\d|\[?\d{4}-\d\d-\d\d[ T_]\d\d:\d\d"
    rb"|\[ {0,8}\d{1,9}\.\d{6}\] |(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} \d\d:\d\d:\d\d "
    rb"|Traceback \(most recent|File \"[^\"]{1,120}\", line \d|(?:[\w.]{1,60}\.)?[A-Z]\w{1,40}(?:Error|Exception): "
    rb"|(?:srun|slurmstepd|torchrun|mpirun): (?:error|warning)"
    rb")"
)
"""How lines begin that a program printed: people paste them without a fence, too."""


_RAISED = re.compile(r"(?:[A-Z]\w{1,40}(?:Error|Exception)|\b[Ee]rror|ERROR)\W{0,4}$")
_QUOTES = (("`", "`"), ("'", "'"), ('"', '"'), ("“", "”"), ("«", "»"))
_CLAUSE = 60
_WORD = re.compile(r"\w")
_HEADINGS = ("#", "|")
"""What titles and tables begin with: they name a message, and need not have seen it."""


_NONE_OF_IT = re.compile(
    r"(?i)\b(?:no|not|without|nor|neither|never|n[’']t)\b[\s:(]{0,4}(?:any |an? |the )?(?:[`'\"“][^`'\"”\n]{0,60})?$"
)


def denied(line: str, start: int) -> bool:
    """Whether a person says that there is nothing of what begins there: ``no `GPU has fallen off the bus` ``."""
    return _NONE_OF_IT.search(line[max(0, start - _CLAUSE) : start]) is not None


def set_off(line: str, start: int, end: int) -> bool:
    """Whether a person quotes `line[start:end]`: it is between quotation marks, behind an `Error:`, or all of
    the line."""
    around = line[:start] + line[end:]
    if not line.lstrip().startswith(_HEADINGS) and not _WORD.search(around):
        return True
    for opening, closing in _QUOTES:
        if opening == closing:
            if opening in "'\"" and not line[:start].rstrip().endswith(opening):
                continue  # apostrophes
            inside = line.count(opening, 0, start) % 2 == 1
        else:
            inside = line.rfind(opening, 0, start) > line.rfind(closing, 0, start)
        if inside and closing in line[end:]:
            return True
    return _RAISED.search(line[max(0, start - _CLAUSE) : start]) is not None


class Quotations:
    """Fed with the chunks of a document in order; a fence stays open until it is closed."""

    def __init__(self) -> None:
        self._fence = b""

    def lines(self, chunk: Chunk) -> set[int]:
        """The lines of the chunk, counted from 0, that are within fences, `<pre>`, `{code}`, indented, or printed."""
        found = set()
        for number, (start, end) in enumerate(zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True)):
            line = bytes(chunk.view[start : min(end, start + _HEAD)])
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
        return line.startswith(_INDENTED) or _PRINTED.match(line) is not None
