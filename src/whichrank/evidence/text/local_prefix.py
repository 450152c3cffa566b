"""A prefix of a host and the number of a process there (`a3/5: `), where other words of the lines tell ranks.

The number is a local rank if on every host the ranks that its lines speak for lie as far apart as the numbers do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from whichrank.evidence.text.own_prefix import HOST

_LOCAL = r"(?P<local>\d{1,2})"
_SHAPES = tuple(
    re.compile(shape)
    for shape in (
        rf"{HOST}[:/]{_LOCAL}(?:: | ?\| |> )",
        rf"\[{HOST}[:/| ]{_LOCAL}\]:? ?",
        rf"{HOST}\[{_LOCAL}\]:? ",
    )
)
_SAYS = re.compile(r"\[rank(\d{1,7})\]|\b[Rr]ank (\d{1,7})(?=[:/\]])")
_LEAST_HOSTS, _HALF = 2, 0.5


def learn_local(lines: Sequence[str]) -> tuple[re.Pattern[str], dict[str, int]] | None:
    """The shape, and the first rank of each host; of hosts that speak for no rank too, where all have as many."""
    for shape in _SHAPES:
        begun = [(match["host"], int(match["local"]), line) for line in lines if (match := shape.match(line))]
        if len(begun) < _HALF * len(lines):
            continue
        first: dict[str, set[int]] = defaultdict(set)
        for host, local, line in begun:
            if said := _SAYS.search(line):
                first[host].add(int(said[1] or said[2]) - local)
        found = {host: next(iter(told)) for host, told in first.items() if len(told) == 1}
        starts = set(found.values())
        if len(found) < max(_LEAST_HOSTS, len(first)) or len(starts) < len(found) or min(starts) < 0:
            continue
        return shape, found | _others(found, {host for host, _, _ in begun}, max(local for _, local, _ in begun) + 1)
    return None


def _others(found: dict[str, int], hosts: set[str], size: int) -> dict[str, int]:
    """The first ranks of the other hosts, where the known ones count in the order of the names."""
    ordered = {host: at * size for at, host in enumerate(sorted(hosts, key=lambda name: (len(name), name)))}
    return ordered if all(ordered[host] == start for host, start in found.items()) else {}
