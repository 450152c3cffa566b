"""How the one rank whose output a file is introduces itself: `rank=3 host=node2`, `|r3|host node2 pid 6797`,
`<4> up on node2 pid 13699`, `node2[4] in group, pid 15117`, `[node2 r4] starting`."""

from __future__ import annotations

import re

from whichrank.evidence.readers.rank_map.ranks_of_hosts import HOST, NO_HOST
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock

HEAD = 1 << 13
"""Bytes within which a program says what it is."""
_LINE, _MOST = 400, 60
_NUMBERED = rf"(?=[\w.]{{0,60}}[\d-])({HOST}?)"
_IS = r"[\"']?\s?[=:]?\s?[\"']?"
_RANK = re.compile(
    rf"(?<![\w-])(?:global_?|world_)?rank{_IS}(\d{{1,6}})(?=[\s\"',;:|\])/]|$)"
    r"|(?:^|[\s|\[(<,])r(\d{1,6})(?=[|\]):>,]|\s)"
    r"|(?:^|\s)<(\d{1,6})>\s"
    r"|(?:^|\s)[A-Za-z][\w.-]{0,60}\[(\d{1,6})\]:? ",
    re.IGNORECASE,
)
_PID = re.compile(rf"(?<![\w-])pid{_IS}(\d{{2,10}})\b", re.IGNORECASE)
_TAGGED = re.compile(
    rf"(?:^|\s)\[?{_NUMBERED}(?:\[|[ :/|](?:r|rank ?)?)\d{{1,6}}\]:? "
    rf"|(?:^|[\s\[(<])(?:r|rank ?)?\d{{1,6}}@{_NUMBERED}(?=[\s\]):>|])"
)
"""The host in the tag before the words: `node2[4]`, `[node2 r4]`, `r4@node2`."""
_CALLED = re.compile(
    rf"(?<![\w-])(?:(?:host(?:name)?|node(?:name)?|machine){_IS}|on ){_NUMBERED}(?=[\s\"',;:|\])]|$)", re.IGNORECASE
)
_BEHIND = re.compile(rf"\s{_NUMBERED}(?=\s|$)")
"""A name that stands right behind the rank: `r2 node2 torch 2.13 pid 11733`."""
_OF_ANOTHER = re.compile(
    r"(?i:peer|remote|master|store|server|connect|endpoint|rendezvous|rdzv|\bfrom\b|\bto\b|lost|kill)"
)
_WORDS = (b"pid", b"host", b"node", b" on ")
"""One of these stands in every such line without a tag."""
_TAG = re.compile(rb"\[[A-Za-z][\w.-]{1,60}[ :/|]r\d{1,6}\]")
_SPOKEN = re.compile(rb"(?i)(?<![\w-])rank[\"']?[ =:]{0,2}(\d{1,6})\b")

Told = tuple[int, int, str | None, int | None]
"""The rank, the line, the host and the pid."""


def begins_tagged(head: bytes) -> bool:
    """Whether lines have a host and a rank before them: `[node2 r4] `."""
    return _TAG.search(head) is not None


def introduction(head: bytes, clock: Clock) -> Told | None:
    """What the first line says that tells a rank with its host or pid, if the lines around it are of no other rank."""
    if not _may_tell(head):
        return None
    spoken = {int(number) for number in _SPOKEN.findall(head)}
    if len(spoken) > 1:
        return None
    for number, line in enumerate(head.split(b"\n")[:_MOST], 1):
        told = _told(line[:_LINE], clock) if _may_tell(line) else None
        if told is not None and spoken <= {told[0]}:
            return told[0], number, told[1], told[2]
    return None


def _may_tell(text: bytes) -> bool:
    return any(map(text.__contains__, _WORDS)) or begins_tagged(text)


def _told(line: bytes, clock: Clock) -> tuple[int, str | None, int | None] | None:
    voice = listen(line, clock)
    if voice.pid is not None and voice.rank is None:
        return None  # a process of Ray may speak of another
    text = line.decode("utf-8", "replace") if voice.rank is None else voice.text
    ranks = {int(next(filter(None, found.groups()))) for found in _RANK.finditer(text)}
    ranks |= {voice.rank} if voice.rank is not None else set()
    pid = _PID.search(text)
    if len(ranks) != 1 or (pid and _OF_ANOTHER.search(text, 0, pid.start())):
        return None
    (rank,) = ranks
    host = _tag(text) or _called(text) or (_beside(text) if pid else None) or voice.host
    return (rank, host, int(pid[1]) if pid else None) if pid or host else None


def _tag(text: str) -> str | None:
    match = _TAGGED.search(text)
    return _host(match[1] or match[2]) if match else None


def _called(text: str) -> str | None:
    match = _CALLED.search(text)
    return _host(match[1]) if match and not _OF_ANOTHER.search(text, 0, match.start()) else None


def _beside(text: str) -> str | None:
    rank = _RANK.search(text)
    match = _BEHIND.match(text, rank.end()) if rank else None
    return _host(match[1]) if match else None


def _host(name: str) -> str | None:
    return None if NO_HOST.fullmatch(name) else name
