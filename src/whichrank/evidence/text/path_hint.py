"""Who wrote a file, by its path."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

_PATH_RANK = re.compile(r"(?:^|[^a-z0-9])(?:([a-z]+)[_-])?rank[_-]?(\d{1,7})(?![0-9])", re.IGNORECASE)
_PATH_ATTEMPT = re.compile(r"(?:^|[/\\])attempt_(\d{1,6})[/\\](\d{1,6})(?=[/\\])")
_PATH_REDIRECTED = re.compile(r"(?:^|[/\\])(\d{1,4})[/\\]std(?:out|err)\.log$")
"""What is left of that where somebody copied the folders of the ranks alone."""


class PathHint(Struct, frozen=True):
    """Who wrote a file, by its path. A lone number in a file name is not a rank: it may be a pid."""

    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None


@lru_cache(maxsize=16)
def hint_of_path(path: str) -> PathHint:
    """`logs/rank13/…` names the global rank; torchrun's own `attempt_0/3/…` the local one."""
    rank = local = attempt = None
    for match in _PATH_RANK.finditer(path[-1024:]):
        scope = (match[1] or "").lower()
        if scope == "local":
            local = int(match[2])
        elif scope not in ("node", "machine", "group", "tp", "pp", "dp", "cp", "ep"):
            rank = int(match[2])
    if redirected := _PATH_ATTEMPT.search(path[-1024:]):
        attempt, local = int(redirected[1]), int(redirected[2])
    elif rank is None and (redirected := _PATH_REDIRECTED.search(path[-1024:])):
        attempt, local = 0, int(redirected[1])
    return PathHint(rank, local, attempt)
