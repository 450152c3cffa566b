"""Clocks of hosts that were measured while the job ran: what different hosts say is put on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.records.events.base import Event
from whichrank.records.events.launchers import NodeSilent
from whichrank.timeline.clocks.collectives import Clock

if TYPE_CHECKING:
    from whichrank.records.host import HostClock

# These are told by the clock that all others were measured against.
_BY_THE_LEADER = (NodeSilent,)


def on_one_clock(events: Sequence[Event], clocks: Mapping[str, HostClock]) -> list[Event]:
    """Times of events as the leader's clock would have shown them, in that order; others stay as they are."""
    late = {host: clock.ahead_ns for host, clock in clocks.items() if abs(clock.ahead_ns) > clock.error_ns}
    if not late:
        return list(events)
    moved = [_moved(event, late) for event in events]
    return sorted(moved, key=lambda event: event.time_ns if event.time_ns is not None else event.after_ns or -(1 << 62))


def _moved(event: Event, ahead: Mapping[str, int]) -> Event:
    by = ahead.get(event.host or "", 0)
    if not by or isinstance(event, _BY_THE_LEADER):
        return event
    return replace(
        event,
        time_ns=event.time_ns - by if event.time_ns is not None else None,
        after_ns=event.after_ns - by if event.after_ns is not None else None,
    )


def refined(
    aligned: Mapping[int, Clock], hosts: Mapping[int, str | None], clocks: Mapping[str, HostClock]
) -> dict[int, Clock]:
    """Clocks of ranks as the collectives have aligned them; by the measurement of their hosts where that is surer."""
    reference = next((rank for rank, clock in aligned.items() if (clock.ahead_ns, clock.uncertain_ns) == (0, 0)), None)
    base = clocks.get(hosts.get(reference) or "") if reference is not None else None
    if base is None:
        return dict(aligned)
    found = dict(aligned)
    for rank, clock in aligned.items():
        mine = clocks.get(hosts.get(rank) or "")
        if mine is None or rank == reference:
            continue
        unsure = mine.error_ns + base.error_ns
        if clock.uncertain_ns is None or clock.uncertain_ns > unsure:
            found[rank] = Clock(mine.ahead_ns - base.ahead_ns, unsure)
    return found
