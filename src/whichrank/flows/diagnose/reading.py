"""Every file of evidence through every reader that recognises it. Which readers there are, they declare themselves:

- `Listener(item)`: it hears running text. What it looks for may stand anywhere in a log, so it listens to every text
  that nobody else claims, and texts are searched once for all listeners (`evidence/text/shared_pass.py`).
- `ALONE_ABOVE`: a file of this size or more that it claims is read by it alone, beside readers with `of_records`.
- `of_records(item, records)`: it can read what that one has found instead of the file.
- `telling()`: words of the lines that it reads in detail; a text with very many of them is thinned first.
- `BESIDE = True`: it claims a file beside others and not instead of them.

`evidence/readers` names the one that is asked `FIRST`: what it claims is nothing else, and no other needs to be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from whichrank.evidence import readers
from whichrank.evidence.intake import claims, discover_readers
from whichrank.evidence.pickle.native import library
from whichrank.evidence.summary.head import is_summary
from whichrank.fleet.local import Failure, map_ordered
from whichrank.flows.diagnose.read_dumps import read_dumps
from whichrank.model.contracts import Item, Reader, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Source
from whichrank.records.of_kind import of_kind

Progress = Callable[[str, int, int], None]
Outcome = tuple[Item, "list[tuple[str, Reading]] | Failure"]

# From here on a text may hold more telling lines than anybody needs.
THICK = 1 << 20


def outcomes_of(
    items: Sequence[Item], *, jobs: int | None = None, progress: Progress | None = None
) -> tuple[list[Outcome], list[Source], dict[int, str]]:
    """What every file says; a summary stands for the files that it was made from, unless they are there too.

    Also what could not be read, and by rank the dumps of which only the end is there."""
    packed = [item for item in items if item.size and is_summary(item)]
    if not packed:
        return list(zip(items, read_all(items, jobs=jobs, progress=progress), strict=True)), [], {}
    from whichrank.evidence.summary import file

    beside = [item for item in items if not is_summary(item)]
    found: list[Outcome] = list(zip(beside, read_all(beside, jobs=jobs, progress=progress), strict=True))
    told = (lambda done, total: progress("summaries", done, total)) if progress is not None else None
    taken = file.take(packed, beside, told)
    return [*found, *taken.outcomes], taken.noted, taken.shortened


def read_all(
    items: Sequence[Item], *, jobs: int | None, progress: Progress | None
) -> list[list[tuple[str, Reading]] | Failure]:
    """Every file through every reader that recognises it, in parallel."""
    told = (lambda done, _: progress("reading", done, len(items))) if progress is not None else None
    # The decoder in C needs no processes beside this one; where it was not built, dumps are read like all else.
    dumps = [number for number, item in enumerate(items) if _is_firsts(item)] if library() is not None else []
    results = dict(zip(dumps, read_dumps([items[number] for number in dumps], jobs=jobs, progress=told), strict=True))
    rest = [number for number in range(len(items)) if number not in results]
    if not all(_is_firsts(items[number]) for number in rest):
        _prepare([items[number] for number in rest])
    more = map_ordered(
        _read,
        [items[number] for number in rest],
        jobs=jobs,
        size=lambda item: item.size,
        progress=(lambda done, total: told(done + len(dumps), total)) if told is not None else None,
    )
    results.update(zip(rest, more, strict=True))
    return [results[number] for number in range(len(items))]


def _prepare(items: Sequence[Item]) -> None:
    """What every file needs, before the work is spread over processes: the readers, and what finds the words of a long
    text and of a short one."""
    from whichrank.evidence.text import shared_pass

    discover_readers()
    for choice in (min, max):
        item = choice(items, key=lambda item: item.size)
        try:
            shared_pass.prepare(
                [cast("Any", reader).Listener(item) for reader in _readers_for(item) if _listens(reader)]
            )
        except (OSError, UnreadableError):  # its reader will say so
            continue


def _read(item: Item) -> list[tuple[str, Reading]]:
    chosen = _readers_for(item)
    telling = frozenset[bytes]()
    if item.size >= THICK:
        telling = telling.union(*(reader.telling() for reader in chosen if hasattr(reader, "telling")))
    results = _read_with(chosen, item, telling)
    return _read_thinned(chosen, item, telling) if results is None else results


def _read_thinned(chosen: Sequence[Reader], item: Item, telling: frozenset[bytes]) -> list[tuple[str, Reading]]:
    """A text that may have too many telling lines, without those that look like others."""
    from tempfile import TemporaryDirectory

    from whichrank.evidence.text.thinning import thinned

    with TemporaryDirectory(prefix="whichrank-") as folder:
        item, left_out = thinned(item, telling, Path(folder))
        results = _read_with(chosen, item) or []
    for _, reading in results if left_out else ():
        note = f"{left_out:,} lines that look like others were left out"
        reading.note = f"{reading.note}; {note}" if reading.note else note
    return results


def _read_with(
    chosen: Sequence[Reader], item: Item, telling: frozenset[bytes] = frozenset()
) -> list[tuple[str, Reading]] | None:
    """What these readers make of it; None where it may have too many lines with telling words."""
    from whichrank.evidence.text.chunks import UTF16

    shared = [reader for reader in chosen if _listens(reader) and item.head(2) not in UTF16]
    together = _read_together(item, shared, telling) if len(shared) > 1 else None if telling else {}
    if together is None:
        return None
    results = [(reader.NAME, together.get(reader.NAME) or _read_by(reader, item)) for reader in chosen]
    if len(chosen) == 1 and _alone(chosen[0], item):
        others = [cast("Any", reader) for reader in discover_readers() if hasattr(reader, "of_records")]
        results += [(reader.NAME, reader.of_records(item, results[0][1].records)) for reader in others]
    useful = [(name, reading) for name, reading in results if reading.quality != "ignored"]
    return [(name, _reduced(reading)) for name, reading in useful or results[:1]]


def _reduced(reading: Reading) -> Reading:
    """Profiles become summaries where they are read: megabytes need not travel between processes."""
    if not of_kind(reading.records, "profiles.trace.Trace"):
        return reading
    from whichrank.records.profiles.trace import Trace
    from whichrank.timeline.steps.reduce import reduced

    reading.records = [reduced(record) if isinstance(record, Trace) else record for record in reading.records]
    return reading


def _read_by(reader: Reader, item: Item) -> Reading:
    try:
        return reader.read(item)
    except UnreadableError as error:
        return Reading(quality="unusable", note=error.message)


def _read_together(item: Item, readers: Sequence[Reader], telling: frozenset[bytes]) -> dict[str, Reading] | None:
    """Running text is cut into lines and searched for words once, for all of its readers."""
    from whichrank.evidence.text import shared_pass

    try:
        found = shared_pass.read(item, [cast("Any", reader).Listener(item) for reader in readers], telling)
    except UnreadableError as error:
        found = [Reading(quality="unusable", note=error.message) for _ in readers]
    return {reader.NAME: reading for reader, reading in zip(readers, found, strict=True)} if found else None


def _readers_for(item: Item) -> list[Reader]:
    """Those that claim the file, and those that listen to a text that may speak for several."""
    if _is_firsts(item):
        return [_first()]
    listeners, others = _kinds()
    chosen = claims(item, others)
    whole = _is_text(item) and not any(_alone(reader, item) for reader in listeners)
    if whole and all(getattr(reader, "BESIDE", False) for reader in chosen):
        return [*listeners, *chosen]  # nobody claims the text: they needn't be asked
    chosen += claims(item, listeners)
    for reader in chosen:
        if _alone(reader, item) and all(other is reader or hasattr(other, "of_records") for other in chosen):
            return [reader]
    claimed = [reader for reader in chosen if not getattr(reader, "BESIDE", False)]
    if not claimed or any(map(_listens, claimed)):
        chosen += [reader for reader in listeners if reader not in chosen and _is_text(item)]
    return chosen


def is_dump(outcome: list[tuple[str, Reading]] | Failure) -> bool:
    """Whether the reader that is asked first has read it, and no other."""
    return not isinstance(outcome, Failure) and [name for name, _ in outcome] == [_first().NAME]


def is_prose(outcome: list[tuple[str, Reading]] | Failure) -> bool:
    """Whether readers of running text had something to read: a log or a ticket, not the state of a host."""
    if isinstance(outcome, Failure):
        return False
    return any(
        name != _first().NAME and name in _of_text() for name, _ in outcome
    )  # no other reader is loaded for dumps


@cache
def _of_text() -> frozenset[str]:
    return frozenset(r.NAME for r in discover_readers() if _listens(r) or getattr(r, "BESIDE", False))


@cache
def _kinds() -> tuple[list[Reader], list[Reader]]:
    """Those that listen to running text, and the others."""
    known = discover_readers()
    return [r for r in known if _listens(r)], [r for r in known if not _listens(r)]


def _listens(reader: Reader) -> bool:
    return hasattr(reader, "Listener")


def _alone(reader: Reader, item: Item) -> bool:
    return item.size > getattr(reader, "ALONE_ABOVE", float("inf"))


@cache
def _first() -> Reader:
    return cast("Reader", import_module(f"{readers.__name__}.{readers.FIRST}"))


def _is_firsts(item: Item) -> bool:
    try:
        return _first().sniff(item.head(), item.label.rsplit("/", 1)[-1])
    except OSError:  # it has gone meanwhile: its reader will say so
        return False


def _is_text(item: Item) -> bool:
    return b"\0" not in item.head()
