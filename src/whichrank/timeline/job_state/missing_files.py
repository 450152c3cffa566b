"""A file that several ranks miss and rank 0 does not: its folder is local to a host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.statements import Statement

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_WORDS = ("No such file or directory", "FileNotFoundError")
_PATH = re.compile(
    r"No such file or directory: ['\"](/[^'\"]{2,300})['\"]"
    r"|FileNotFoundError: (?!\[Errno)[^/\n]{0,80}?['\"]?(/[^\s'\"]{2,300})"
)
_LOCAL = re.compile(r"/(?:tmp|var/tmp|dev/shm|local|local_?scratch|mnt/(?:local|nvme)\w{0,12})/")
_SEVERAL = 2


def not_shared(case: Case) -> tuple[str, dict[int, Statement]] | None:
    """Its path, and by rank who says so; None where no such file is missed, or rank 0 or its host misses it too."""
    missing: dict[str, dict[int, Statement]] = {}
    for sign in _told(case):
        path = path_in(sign)
        if path and sign.rank is not None:
            missing.setdefault(path, {}).setdefault(sign.rank, sign)
    first = case.people.host_of(0)
    for path, signs in missing.items():
        beside = first is not None and any(case.people.host_of(rank) == first for rank in signs)
        if len(signs) >= _SEVERAL and 0 not in signs and not beside:
            return path, signs
    return None


def in_local_folder(case: Case) -> tuple[str, Statement] | None:
    """A file that is missed in a folder which every host has for itself, in a job of several hosts, and who says so."""
    local = [(path, sign) for sign in _told(case) if sign.rank is None and _LOCAL.match(path := path_in(sign))]
    several = case.shows_many_hosts or any(layout.nodes > 1 for layout in case.layouts)
    several = several or bool(known_messages.seen(case, "told-several-hosts"))
    return local[0] if local and several else None


def _told(case: Case) -> list[Statement]:
    """All that says that a file is not there."""
    told = statements.said(case, *_WORDS)
    return told + statements.beside(told, [s.sign for s in known_messages.seen(case, "bare-exception")])


def path_in(sign: Statement) -> str:
    """The absolute path that a statement says is not there."""
    found = _PATH.search(sign.text) or _PATH.search(sign.ref.quote)
    return (found[1] or found[2]) if found else ""
