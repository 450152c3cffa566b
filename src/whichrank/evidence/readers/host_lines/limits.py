"""Rows of a check before a job, one for each host, that say how much memory may be locked there."""

from __future__ import annotations

import re

from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.host import UNLIMITED, HostState

_MOST_BYTES, _LONGEST, _MOST = 1 << 18, 400, 4096
_MARK = b"memlock"
_ROW = re.compile(
    r"\[?(?=\S{0,62}[\d-])([A-Za-z][\w.-]{1,62})\]?(?::| \||\t| (?=memlock))(?: .{0,300}?)??"
    r"\bmemlock[ =:]{1,3}(unlimited|-1|\d{1,15})(?: ?[kK]i?B)?(?=[\s,;|]|$)"
)
"""`node7: nofile 1048576 | memlock 8192`, `node7 memlock=8192`: in KiB, as `ulimit -l` says it."""


def fits(head: bytes) -> bool:
    """Whether the beginning speaks of that limit."""
    return _MARK in head


def read(item: Item) -> list[HostState]:
    """One `HostState` per row; none where fewer than two hosts have one."""
    found: dict[str, HostState] = {}
    clock = clock_of(item)
    for number, line in plain_lines(item, _MOST_BYTES):
        if "memlock" not in line[:_LONGEST] or len(found) >= _MOST:
            continue
        # A launcher may have put the rank before it: `[1,16]<stdout>:node7 memlock=8192`.
        row = _ROW.match(line[:_LONGEST]) or _ROW.match(listen(line[:_LONGEST].encode(), clock).text)
        if row is None:
            continue
        limit = int(row[2]) << 10 if row[2].isdecimal() else UNLIMITED
        words = line.strip()[:300]
        ref = Ref(item.label, f"line {number}", words, None, row[1])
        found[row[1]] = HostState(ref, row[1], limits={"memlock": limit}, places={"memlock": (number, words)})
    return list(found.values()) if len(found) > 1 else []
