"""Lines that whichrank itself wrote into a job's output: its own trouble is no evidence about the job."""

from __future__ import annotations

import numpy as np

from whichrank.evidence.text.chunks import Chunk
from whichrank.evidence.text.words import Found

SIGN = b"whichrank: "
_EVIDENCE = (b"the verdict: ", b"the evidence, verdict.json")
"""Where a report begins and ends: by these lines it is recognised as one."""
_BEFORE = 160
"""Bytes that a collector of logs may have put before it."""


def is_own(line: bytes) -> bool:
    """Whether whichrank wrote this line."""
    at = line.find(SIGN, 0, _BEFORE + len(SIGN))
    return at == 0 or (at > 0 and line[at - 1] in b" |]\t\r:")


def without_own_lines(chunk: Chunk, found: Found, sign: int) -> Found:
    """The places that are not in a line of whichrank's own; its sign is the word of this number."""
    own: list[tuple[int, int]] = []
    behind = 0
    for at in found.places[found.which == sign].tolist():
        if at < behind:
            continue
        begin = chunk.buffer.rfind(b"\n", 0, at) + 1
        end = chunk.buffer.find(b"\n", at, chunk.size)
        behind = chunk.size if end < 0 else end
        said = at + len(SIGN)
        alone = at == begin or chunk.buffer[at - 1] in b" |]\t\r:"
        if alone and at - begin <= _BEFORE and not chunk.buffer.startswith(_EVIDENCE, said):
            own.append((begin, behind))
    if not own:
        return found
    begins, ends = np.array(own, np.int64).T
    line = np.searchsorted(begins, found.places, side="right") - 1
    return found.where((line < 0) | (found.places >= ends[line]))
