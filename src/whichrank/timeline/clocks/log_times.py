"""Times of log lines that name no year: torch's C++ and Python prefixes write month and day alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from msgspec.structs import replace

from whichrank.records.events.base import Event

_DAY = 86_400 * 1_000_000_000
_FAR = 300 * _DAY
# Readers put times without a year into 1969, before every real one.
_SECOND = 1_000_000_000


def _moved(nanoseconds: int, year: int) -> int:
    then = datetime.fromtimestamp(nanoseconds // _SECOND, timezone.utc)
    try:
        moved = then.replace(year=year)
    except ValueError:  # 29 February
        moved = then.replace(year=year, day=28)
    return int(moved.timestamp()) * _SECOND + nanoseconds % _SECOND


def moved_to_year(nanoseconds: int, reference: int) -> int:
    """A time of 1969 in the year that brings it nearest to the reference."""
    year = datetime.fromtimestamp(reference // _SECOND, timezone.utc).year
    return min((_moved(nanoseconds, y) for y in (year - 1, year, year + 1)), key=lambda t: abs(t - reference))


def with_year(events: Sequence[Event], others: Iterable[int]) -> list[Event]:
    """Put times without a year into the year of the rest of the evidence, and sort by time where it is known."""
    known = [e.time_ns for e in events if e.time_ns and e.time_ns > 0] + [t for t in others if t > 0]
    if known:
        reference = max(known)
        year = datetime.fromtimestamp(reference / _SECOND, timezone.utc).year
        events = [_dated(event, year, reference) for event in events]
    return [event for _, event in sorted(enumerate(events), key=_key)]


def years_apart(newest: int, stated: Sequence[int]) -> int:
    """What to add to the times of a text whose year was guessed by the date of its file, in nanoseconds.

    Kernel logs that state their year tell it, where the same days of another year fit them and these do not."""
    if newest <= 0 or not stated or min(abs(newest - time) for time in stated) < _FAR:
        return 0
    years = {datetime.fromtimestamp(time // _SECOND, timezone.utc).year for time in stated}
    fitting = [moved for year in years if any(abs((moved := _moved(newest, year)) - time) <= _DAY for time in stated)]
    return fitting[0] - newest if len(fitting) == 1 else 0


def _dated(event: Event, year: int, reference: int) -> Event:
    if event.time_ns is None or event.time_ns >= 0:
        return event
    near = min((_moved(event.time_ns, y) for y in (year - 1, year, year + 1)), key=lambda t: abs(t - reference))
    return replace(event, time_ns=near)


def _key(numbered: tuple[int, Event]) -> tuple[int, int]:
    """Events without a time of their own stand at the newest time before them in their file, else first."""
    index, event = numbered
    return (event.time_ns if event.time_ns is not None else event.after_ns or -(1 << 62)), index
