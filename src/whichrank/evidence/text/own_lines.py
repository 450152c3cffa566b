"""Lines that whichrank itself wrote into a job's output: its own trouble is no evidence about the job."""

from __future__ import annotations

from whichrank.evidence.text.chunks import Chunk
from whichrank.evidence.text.words import Place

SIGN = b"whichrank: "
_EVIDENCE = (b"the verdict: ", b"the evidence, verdict.json")
"""Where a report begins and ends: by these lines it is recognised as one."""
_BEFORE = 160
"""Bytes that a collector of logs may have put before it."""


def is_own(line: bytes) -> bool:
    """Whether whichrank wrote this line."""
    at = line.find(SIGN, 0, _BEFORE + len(SIGN))
    return at == 0 or (at > 0 and line[at - 1] in b" |]\t\r:")


def without_own_lines(chunk: Chunk, found: list[Place]) -> list[Place]:
    """The places that are not in a line of whichrank's own; its sign is among the words that were looked for."""
    at = next((place for place, word in found if word == SIGN), -1)
    if at < 0:
        return found
    own: list[tuple[int, int]] = []
    while at >= 0:
        begin = chunk.buffer.rfind(b"\n", 0, at) + 1
        end = chunk.buffer.find(b"\n", at, chunk.size)
        end = chunk.size if end < 0 else end
        said = at + len(SIGN)
        alone = at == begin or chunk.buffer[at - 1] in b" |]\t\r:"
        if alone and at - begin <= _BEFORE and not chunk.buffer.startswith(_EVIDENCE, said):
            own.append((begin, end))
        at = chunk.buffer.find(SIGN, end, chunk.size)
    return [place for place in found if not any(begin <= place[0] < end for begin, end in own)] if own else found
