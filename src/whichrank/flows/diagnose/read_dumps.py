"""Flight-recorder dumps read in this process: the decoder in C makes threads do, and ranks share what they have.

Of very many ranks only what a verdict needs is kept (`timeline/collectives/thinning.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whichrank.evidence.readers import flight_recorder
from whichrank.fleet.local import Failure, map_threads
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.dump import Dump
from whichrank.timeline.collectives.thinning import Place, Thinner, disputed
from whichrank.timeline.identity.runs import choose_run

# Below this, threads gain nothing.
LITTLE_BYTES = 32 << 20

Result = list[tuple[str, Reading]] | Failure


def read_dumps(
    items: Sequence[Item], *, jobs: int | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Result]:
    """Every dump, in the order of the items."""
    thinner = Thinner.for_dumps(len(items)) if items else None
    jobs = 1 if sum(item.size for item in items) < LITTLE_BYTES else jobs
    results = map_threads(lambda item: _read(item, thinner), items, jobs=jobs, progress=progress)
    if thinner is not None:
        again = _to_read_again(results, thinner)
        more = map_threads(lambda number: _read(items[number], thinner, again[number]), list(again), jobs=jobs)
        for number, result in zip(again, more, strict=True):
            results[number] = result
    return results


def _read(item: Item, thinner: Thinner | None, places: Sequence[Place] = ()) -> list[tuple[str, Reading]]:
    try:
        reading = flight_recorder.read(item)
    except UnreadableError as error:
        reading = Reading(quality="unusable", note=error.message)
    if thinner is not None:
        for dump in reading.records:
            thinner.thin(dump, places)
    return [(flight_recorder.NAME, reading)]


def _to_read_again(results: Sequence[Result], thinner: Thinner) -> dict[int, list[Place]]:
    """Numbers of the items whose ranks disagree about what was left out."""
    number_of: dict[int, int] = {}
    dumps: list[Dump] = []
    for number, result in enumerate(results):
        for _, reading in result if not isinstance(result, Failure) else ():
            for dump in reading.records:
                number_of[id(dump)] = number
                dumps.append(dump)
    chosen = choose_run(dumps).dumps
    return {number_of[id(chosen[number])]: places for number, places in disputed(chosen, thinner).items()}
