"""Flight-recorder dumps read in this process: the decoder in C makes threads do, and ranks share what they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whichrank.evidence.readers import flight_recorder
from whichrank.fleet.local import Failure, map_threads
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError

# Below this, threads gain nothing.
LITTLE_BYTES = 32 << 20

Result = list[tuple[str, Reading]] | Failure


def read_dumps(
    items: Sequence[Item], *, jobs: int | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Result]:
    """Every dump, in the order of the items."""
    little = sum(item.size for item in items) < LITTLE_BYTES
    return map_threads(_read, items, jobs=1 if little else jobs, progress=progress)


def _read(item: Item) -> list[tuple[str, Reading]]:
    try:
        reading = flight_recorder.read(item)
    except UnreadableError as error:
        reading = Reading(quality="unusable", note=error.message)
    return [(flight_recorder.NAME, reading)]
