"""Hosts of ranks that say nothing of it, where ranks are in blocks: every host begins at a multiple of one number."""

from __future__ import annotations

from whichrank.timeline.identity.who import People, short_name

_FEWEST = 3
"""Hosts: two of them begin at such numbers by chance."""


def note_even_blocks(people: People) -> None:
    """Say on which host the ranks are that are between the known ones of it, where no rank contradicts that."""
    known = {rank: host for rank in people.by_rank if (host := people.host_of(rank)) and host != "localhost"}
    first: dict[str, int] = {}
    for rank in sorted(known):
        first.setdefault(short_name(known[rank]), rank)
    size = sorted(first.values())[1] if len(first) >= _FEWEST else 0
    if size < 2 or sorted(first.values()) != [size * at for at in range(len(first))]:
        return
    if people.world > size * len(first) or any(first[short_name(h)] != r - r % size for r, h in known.items()):
        return
    of_block = {first[short_name(host)]: host for host in known.values()}
    for rank in people.by_rank:
        people.note(rank, host=of_block.get(rank - rank % size))
