"""The outputs of ranks in torchrun's folders (`attempt_0/3/stderr.log`): of one host, the local number is the rank.

The same of files that a program numbers from 0 without a gap (`train.0.log`, `train.1.log`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from whichrank.records.dump import Dump
from whichrank.records.events.base import Event
from whichrank.records.log import Progress

if TYPE_CHECKING:
    from whichrank.records.rank_values import RankValues

_FOLDER = re.compile(
    r"^(?P<run>.*?(?:^|[/\\]))(?:attempt_\d{1,6}[/\\](?P<local>\d{1,6})[/\\]|(?P<copied>\d{1,4})[/\\]std(?:out|err)\.log$)"
)
"""People copy the folders of the ranks alone, too."""
_FILE = re.compile(r"^(?P<run>(?:.*[/\\])?[A-Za-z][\w-]{0,60}?)[._-](?P<number>\d{1,4})\.(?:log|out|err|txt)$")
_ONE_OF = re.compile(r"^(?P<run>(?:.*[/\\])?\D{0,60}?)(?P<number>\d{1,5})[-_.]?of[-_.]?(?P<count>\d{1,5})(?!\d)")
"""`part-00003-of-00004.log`, `w0of5.trace`."""
_OF_OTHERS = re.compile(
    r"(?:node|host|machine|server|worker|pod|attempt|run|try|restart|job|part|stage|epoch|step|stack|pid|dump|gpu|old)$",
    re.IGNORECASE,
)
"""What files are numbered by that are not of ranks."""


def with_ranks_of_folders(pile: Sequence[Any], processes: Iterable[Any]) -> list[Any]:
    """Records with the rank of their folder, where there is one run on one host and nothing speaks of more ranks."""
    sources = set(map(_source, pile))
    numbers = _of_folders(sources) or _of_parts(sources) or _of_files(sources)
    world = len(set(numbers.values()))
    if world < 2 or set(numbers.values()) != set(range(world)):
        return list(pile)
    told = {r.rank for r in pile if isinstance(r, Event | Dump) and r.rank is not None}
    told |= {init.nranks - 1 for process in processes for init in process.inits}
    if any(rank >= world for rank in told) or any(_contradicts(r, numbers) for r in pile):
        return list(pile)
    from whichrank.records.rank_values import RankValues  # many patterns: only where there are such folders

    return [_values(r, numbers) if isinstance(r, RankValues) else _of_rank(r, numbers) for r in pile]


def _of_folders(sources: Iterable[str]) -> dict[str, int]:
    """The numbers of torchrun's folders, of one run."""
    folders = {source: found for source in sources if (found := _FOLDER.match(source))}
    if len({found["run"] for found in folders.values()}) > 1:
        return {}
    return {source: int(found["local"] or found["copied"]) for source, found in folders.items()}


def _of_parts(sources: Iterable[str]) -> dict[str, int]:
    """The numbers of files that say how many there are, where all of them are at hand."""
    files = {source: found for source in sources if (found := _ONE_OF.match(source))}
    counts = {(found["run"], int(found["count"])) for found in files.values()}
    numbers = {source: int(found["number"]) for source, found in files.items()}
    return numbers if len(counts) == 1 and set(numbers.values()) == set(range(next(iter(counts))[1])) else {}


def _of_files(sources: Iterable[str]) -> dict[str, int]:
    """The numbers of files that are otherwise called alike; nothing where there are two such series."""
    files = {source: found for source in sources if (found := _FILE.match(source))}
    if len({found["run"] for found in files.values()}) > 1 or any(_OF_OTHERS.search(f["run"]) for f in files.values()):
        return {}
    return {source: int(found["number"]) for source, found in files.items()}


def _source(record: Any) -> str:
    if isinstance(record, Event):
        return record.ref.source
    return getattr(record, "source", "")


def _contradicts(record: Any, numbers: dict[str, int]) -> bool:
    """Whether a line of such a file names another rank as the one that wrote it."""
    number = numbers.get(_source(record))
    if number is None:
        return False
    if isinstance(record, Event):
        return any(told is not None and told != number for told in (record.rank, record.local_rank))
    if not isinstance(record, Progress):
        return False
    return bool(((record.rank >= 0) & (record.rank != numbers[record.source])).any())


def _of_rank(record: Any, numbers: dict[str, int]) -> Any:
    rank = numbers.get(_source(record))
    if rank is None or not isinstance(record, Event | Progress):
        return record
    if isinstance(record, Progress):
        return structs.replace(record, rank=np.full_like(record.rank, rank))
    if record.rank is not None:
        return record
    return structs.replace(record, rank=rank, ref=structs.replace(record.ref, rank=rank))


def _values(record: RankValues, numbers: dict[str, int]) -> RankValues:
    """Values that name no rank are of the rank of their folder."""
    from whichrank.records.rank_values import Member

    rank = numbers.get(record.source)
    mine = Member() if rank is None else Member((rank,))
    cells = (structs.replace(cell, member=mine) if cell.member == Member() else cell for cell in record.cells)
    return structs.replace(record, cells=tuple(cells))
