"""What the name of a dump says: the global rank, and perhaps the host."""

from __future__ import annotations

import re

from whichrank.model.late_pattern import late

_SUFFIX = re.compile(
    r"(?:\.(?:json|pkl|pickle|bin|pt|dump|dmp|fr|trace|txt|gz|zst|xz|bz2)| ?\(\d{1,3}\))$", re.IGNORECASE
)
_RANK = re.compile(r"(?<![a-z])(local|node|group)?[_.\-]?rank[_.\-=]?(\d{1,7})(?!\d)", re.IGNORECASE | re.ASCII)
_LAST = late(r"(?:^|[^\d])(\d{1,7})$")
_DATE_OR_VERSION = late(r"\d[.:\-]\d+$|\d{4}_\d\d_\d\d$")
_HOST = re.compile(
    r"(?:node|host|worker|server|compute|dgx|hgx|ip)(?:[.\-][a-z0-9.\-]{0,60})?\d[a-z0-9.\-]{0,60}",
    re.IGNORECASE | re.ASCII,
)
_LONGEST = 4096


def rank_from_name(name: str) -> int | None:
    """The number after "rank", else the number at the end: torch appends the global rank to a prefix.

    A number that belongs to a host, a date, a version or a local rank is none. Where the file name says
    nothing, a folder may, if it says "rank".
    """
    parts = name[-_LONGEST:].replace("\\", "/").split("/")
    stem = _stem(parts[-1])
    rank = _said(stem)
    if rank is not None:
        return rank
    last = _LAST.search(stem)
    token = re.split(r"[_/]", stem)[-1]
    other = _DATE_OR_VERSION.search(stem) or _HOST.fullmatch(token) or _RANK.search(stem)
    if last is not None and not other:
        return int(last[1])
    for folder in reversed(parts[:-1]):
        rank = _said(folder)
        if rank is not None:
            return rank
    return None


def host_from_name(name: str) -> str | None:
    """A part of the file name, or a folder, that is plainly a host: node7, host-12, ip-10-0-0-5."""
    parts = name[-_LONGEST:].replace("\\", "/").split("/")
    for token in [*_stem(parts[-1]).split("_"), *reversed(parts[:-1])]:
        if _HOST.fullmatch(token):
            return token
    return None


def _said(text: str) -> int | None:
    ranks = [match[2] for match in _RANK.finditer(text) if not match[1]]
    return int(ranks[-1]) if ranks else None


def _stem(name: str) -> str:
    while (match := _SUFFIX.search(name)) is not None and match.start() > 0:
        name = name[: match.start()]
    return name
