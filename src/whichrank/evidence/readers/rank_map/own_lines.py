"""Where ranks run by their own lines: the prefix says the rank, and the host stands there too, or behind it."""

from __future__ import annotations

import re
from collections import Counter

from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock

PREFIXED = 1 << 15
"""Bytes at the beginning in which every rank has spoken."""
_LINE = 400
_PROCESS = re.compile(r"(?!\d\d:)([A-Za-z][\w.-]{0,253}):\d{1,10}:\d{1,10} \[")
"""How NCCL begins its lines."""
_HOST_FIRST = re.compile(r"(?:host|hostname|node)[ =:] ?([A-Za-z][\w.-]{1,62})(?=[\s,;]|$)")
"""What a rank says first behind its prefix: `[rank4] host cedar gpu …`."""
_HOST_LAST = re.compile(
    r"(?:\((?:(?:host|hostname|node)[ =:]{1,2}|on )|[,;|] (?:host|hostname|node)(?:[=:] ?| ))"
    r"(?=\S{0,62}[\d-])([A-Za-z][\w.-]{1,62})[).]?\s{0,8}$"
)
"""What a rank says last: `[rank4] 16 workers (host cedar-2)`, `[rank4] 16 workers, node: cedar-2`."""
_OF_ANOTHER = re.compile(r"(?i:peer|remote|master|store|server|connect|endpoint|rendezvous|rdzv|\bfrom\b|\bto\b|lost)")

_OF_ITSELF = re.compile(r"(?:[A-Z]{4,8}[: ]{1,2})?\[?[Rr]ank[ =:]?(\d{1,7})\]?:? (?!\d|(?:and|of|to|or)\b)")
"""How a process of Ray, whose prefix has its pid and address, begins to speak of itself."""

_OWN_PID = re.compile(r"(?<![\w-])pid[ =:]{1,2}(\d{2,10})\b")

Told = dict[int, tuple[int, str, int | None]]
"""By rank: the line, the host and the pid."""


def by_prefix(head: bytes, clock: Clock) -> Told:
    """The hosts that ranks name as their own; nothing where a rank has two by its prefix."""
    found: Told = {}
    last: Told = {}
    several: set[int] = set()
    itself: dict[tuple[int, str, int], int] = {}
    told = False
    for number, line in enumerate(head[:PREFIXED].split(b"\n"), 1):
        if clock.prefix is None and b"rank" not in line and b"]<std" not in line:
            continue
        voice = listen(line[:_LINE], clock)
        process = _PROCESS.match(voice.text) or _HOST_FIRST.match(voice.text)
        told = told or (process is not None and process.re is _HOST_FIRST)
        host = voice.host or (process[1] if process else None)
        if voice.rank is None:
            own = _OF_ITSELF.match(voice.text) if voice.pid and voice.host and line.startswith(b"(") else None
            if own and voice.pid and voice.host:
                itself.setdefault((int(own[1]), voice.host, voice.pid), number)
            continue
        if host is None:
            host = _named_last(voice.text)
            if host and last.setdefault(voice.rank, (number, host, voice.pid))[1] != host:
                several.add(voice.rank)
        elif found.setdefault(voice.rank, (number, host, voice.pid))[1] != host:
            return {}
    found = {**_each_of_one(itself), **found}
    known = found if told or _on_several(found) else {}
    last = {rank: place for rank, place in last.items() if rank not in several}
    return {**(last if _on_several(last) else {}), **known}


def own_pids(head: bytes, clock: Clock) -> dict[int, tuple[int, int]]:
    """By rank: the line in which it says its pid first, and that; nothing where two say the same."""
    found: dict[int, tuple[int, int]] = {}
    for number, line in enumerate(head[:PREFIXED].split(b"\n"), 1):
        if b"pid" in line and (voice := listen(line[:_LINE], clock)).rank is not None:
            own = None if _OF_ANOTHER.search(voice.text) else _OWN_PID.search(voice.text)
            pid = int(own[1]) if own is not None else voice.pid
            if pid is not None:
                found.setdefault(voice.rank, (number, pid))
    return found if len({pid for _, pid in found.values()}) == len(found) > 1 else {}


def _each_of_one(told: dict[tuple[int, str, int], int]) -> Told:
    """Ranks of processes that speak of one rank only, of which no other process speaks."""
    ranks, processes = Counter(rank for rank, _, _ in told), Counter(told_by[1:] for told_by in told)
    return {
        rank: (number, host, pid)
        for (rank, host, pid), number in told.items()
        if ranks[rank] == processes[host, pid] == 1
    }


def _named_last(text: str) -> str | None:
    """The host in which a line ends, unless it speaks of another process."""
    match = _HOST_LAST.search(text)
    return match[1] if match and not _OF_ANOTHER.search(text, 0, match.start()) else None


def _on_several(told: Told) -> bool:
    """Whether ranks name different hosts: one that all of them name may be that of another process."""
    return len({host for _, host, _ in told.values()}) > 1
