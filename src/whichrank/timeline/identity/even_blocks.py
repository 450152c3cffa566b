"""Hosts of ranks that say nothing of it, where every host has as many ranks and they are in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whichrank.model.host_lists import by_numbers
from whichrank.timeline.identity.who import People, family, short_name

_FEWEST = 3
"""Hosts: two of them begin at such numbers by chance."""
_USUAL = (1, 2, 4, 8, 16)
"""Ranks of a host, where the highest rank that is known may not be the last."""


def note_even_blocks(people: People, hosts: Iterable[str] = ()) -> None:
    """Say on which host each rank is, where no rank contradicts it; `hosts` are known without their ranks."""
    known = {rank: host for rank in people.by_rank if (host := people.host_of(rank)) and host != "localhost"}
    if len(known) >= people.world:
        return
    names = {short_name(host): host for host in known.values()}
    families = {family(name) for name in names}
    pods = (pod for of_node in people.pods.values() for pod in of_node)
    free = {name: h for h in (*hosts, *pods) if (name := short_name(h)) not in names and family(name) in families}
    placed = {rank: short_name(host) for rank, host in known.items()}
    for more in ([], sorted(free)) if len(free) == 1 else ([],):
        size, of_block = _blocks(placed, people.world, len(names) + len(more))
        if more and size:
            of_block = _with_the_last(of_block, more[0])
        if size and of_block.keys() == set(range(len(names) + len(more))):
            called = names | free
            for rank in range(people.world):
                people.note(rank, host=called[of_block[rank // size]])
            return


def _blocks(placed: Mapping[int, str], world: int, count: int) -> tuple[int, dict[int, str]]:
    """How many ranks each of so many hosts has, and whose each block is, as far as ranks tell it; of several ways the
    one in which most blocks begin with a rank that is known."""
    fitting = []
    own = len(placed) // len(set(placed.values())) if _whole_hosts(placed) else 0
    for size in (world // count if count and world % count == 0 else 0, *_USUAL):
        of_block = {rank // size: host for rank, host in placed.items()} if size else {}
        whole = count >= _FEWEST and count * size >= world > (count - 1) * size
        alone = len(set(of_block.values())) == len(of_block) > 0
        if own and size != own:
            continue  # other hosts have the ranks that are not known
        if whole and alone and all(of_block[rank // size] == host for rank, host in placed.items()):
            fitting.append((sum(block * size in placed for block in of_block), size, of_block))
    return max(fitting, key=lambda each: each[:2])[1:] if fitting else (0, {})


def _whole_hosts(placed: Mapping[int, str]) -> bool:
    """Whether every host has as many known ranks, a block of them, and the blocks begin where only blocks of that size
    do: ranks 0-3, 12-15 and 20-23 are not on hosts of eight ranks, of which the first ones say nothing."""
    ranks_of: dict[str, list[int]] = {}
    for rank in sorted(placed):
        ranks_of.setdefault(placed[rank], []).append(rank)
    sizes = {len(ranks) for ranks in ranks_of.values()}
    size = min(sizes, default=0)
    if (
        len(sizes) != 1
        or size < 2
        or any(ranks[0] % size or ranks[-1] - ranks[0] != size - 1 for ranks in ranks_of.values())
    ):
        return False
    return any(ranks[0] % (2 * size) for ranks in ranks_of.values())


def _with_the_last(of_block: dict[int, str], host: str) -> dict[int, str]:
    """With the one host of which no rank is known in the one block that is left, where that keeps names in order."""
    left = set(range(len(of_block) + 1)) - of_block.keys()
    full = of_block | dict.fromkeys(left, host) if len(left) == 1 else {}
    ordered = [full[block] for block in sorted(full)]
    return full if ordered == sorted(ordered, key=by_numbers) else {}


def note_gpus_alike(people: People) -> None:
    """The GPUs of a host of which nothing is told, where all other hosts give them to their ranks in the same way."""
    blocks = _ranks_of_hosts(people)
    told = {
        host: tuple((people.by_rank[rank].gpu, people.by_rank[rank].bus_id) for rank in block)
        for host, block in blocks.items()
    }
    bare = {host for host, gpus in told.items() if set(gpus) == {(None, None)}}
    layouts = {gpus for host, gpus in told.items() if host not in bare}
    if not bare or len(told) - len(bare) < 2 or len(layouts) != 1:
        return
    (layout,) = layouts
    for host in bare:
        if len(blocks[host]) == len(layout):
            for rank, (gpu, bus_id) in zip(blocks[host], layout, strict=True):
                people.note(rank, gpu=gpu, bus_id=bus_id)


def _ranks_of_hosts(people: People) -> dict[str, list[int]]:
    """The ranks of each host, in order."""
    blocks: dict[str, list[int]] = {}
    for rank in sorted(people.by_rank):
        host = people.host_of(rank)
        if host is not None and host != "localhost":
            blocks.setdefault(short_name(host), []).append(rank)
    return blocks
