"""Hosts that stand beside the rank at the beginning of a line: `[node1] rank 0: ready`, `12:00:01 node1 rank 0: ready`,
`INFO - train - node node1 rank 0 saves`, `node1: [INFO] init_distributed rank=0 local_rank=0`."""

from __future__ import annotations

import re

from whichrank.evidence.readers.rank_map.ranks_of_hosts import HOST, NO_HOST
from whichrank.evidence.text.own_prefix import NO_HOST as NO_NAME

_LINE = 240
_FIRST = 140
"""Letters of a line within which the rank stands."""
_STAMP = r"(?:[\[(]?[\d/.,:TZ+ -]{8,40}[\])]?[ |-]{1,4})?"
_NUMBERED = rf"(?=[\w.]{{0,60}}[\d-])({HOST})"
_ALIKE = re.compile(
    rf"{_STAMP}[\[(]?{_NUMBERED}[\])]?[ :/|,]{{1,2}}[\[(]?(?:global[_ ])?[Rr]ank[ _=:#]{{0,2}}(\d{{1,7}})"
    r"(?:/\d{1,7})?(?=[\s:|,)\]>]|$)"
)
"""The host comes first, and the rank just behind it."""
_WORDED = re.compile(
    rf"\b(?:[Nn]ode|[Hh]ost|[Hh]ostname|[Pp]od)[ =:]{{1,2}}{_NUMBERED}[ ,:/|]{{1,2}}"
    r"\(?(?:global[_ ])?[Rr]ank[ =:#]{0,2}(\d{1,7})(?=[\s:|,)\]>]|$)"
)
"""A word says that it is a host."""
_SPEAKER = re.compile(
    rf"{_STAMP}\[?{_NUMBERED}(?:\]:?|:)? (?:(?!\b(?i:for|from|peer|remote|to)\b)[^\n]){{0,110}}?"
    r"(?<![\w-])(?:global[_ ])?[Rr]ank[ =:]{1,2}(\d{1,7})(?:/\d{1,7})?[,;]? "
    r"\(?(?:local[_ ]rank|gpu|device|cuda|pid)[ =:]"
)
"""The rank says its place behind the host whose line it is."""

_PLACED = re.compile(
    rf"{_STAMP}[>\[( -]{{0,3}}(?:global[_ ])?[Rr]ank[ =:#]{{0,2}}(?P<rank>\d{{1,7}})(?:/\d{{1,7}})?\]?"
    rf"(?: ?@ ?| \(| (?:is|runs|sits|lives) (?:on|at) )(?:(?:host|node|pod|machine) )?{_NUMBERED}(?=[\s:,;)\].]|$)"
)
"""The host stands behind the rank: `rank 0 @ node1: ready`, `rank 0 (node1): ready`, `rank 0 is on host node1`."""
_MEMBER = re.compile(rf"{_STAMP}\[?{_NUMBERED}(?:\]:?|:) [^\n]{{0,60}}GLOBAL_RANK: (\d{{1,7}}), MEMBER: \d")
"""As Lightning begins, behind the host whose line it is."""


def beside(text: str) -> dict[int, tuple[int, str]]:
    """By rank: the line and the host. Nothing where a rank has two, or where one name, which may be that of the run or
    of a program, is never called a host."""
    found: dict[int, tuple[int, str]] = {}
    sure = False
    for number, line in enumerate(text.split("\n"), 1):
        match = _told(line[:_LINE]) if _names_a_rank(line) else None
        if match is None:
            continue
        rank, host = (match[1], match[2]) if match.re is _PLACED else (match[2], match[1])
        if NO_HOST.fullmatch(host) or NO_NAME.match(host):
            continue
        sure = sure or match.re is _WORDED
        if found.setdefault(int(rank), (number, host))[1] != host:
            return {}
    hosts = {host for _, host in found.values()}
    return found if sure or len(hosts) > 1 or any(_called_host(host, text) for host in hosts) else {}


def begins_beside(text: str) -> bool:
    """Whether a line of a text says so."""
    return any(_names_a_rank(line) and _told(line[:_LINE]) for line in text.split("\n"))


def _names_a_rank(line: str) -> bool:
    return "ank" in line[:_FIRST] or "RANK" in line[:_FIRST]


def _told(line: str) -> re.Match[str] | None:
    found = _ALIKE.match(line) or _WORDED.search(line, 0, _FIRST) or _SPEAKER.match(line) or _PLACED.match(line)
    return found or (_MEMBER.match(line) if "MEMBER" in line else None)


def _called_host(name: str, text: str) -> bool:
    return re.search(rf"(?i:\bhost(?:name)?)\s{{0,8}}[:=]\s?{re.escape(name)}\b", text) is not None
