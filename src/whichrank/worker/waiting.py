"""How often the main thread waits for other ranks, and where it is when it does not: two to ten glances a second.

Copied into the job beside `startup.py`: standard library only. Who waits less than all others holds them up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank.worker.main_thread import MainThread

SHORT_S, LONG_S, SPREAD_MS = 0.02, 0.17, 160
"""Between two glances, and how much longer it may be: steps of one length must not be met at one place only."""
HARDLY, NOW_AND_THEN, MEMORY = 0.03, 0.15, 32
"""Shares of waits, of about so many glances, above which (and below one minus which) more of them tell more. For a rank
that hardly ever waits the beats are enough: to wake up and look takes 0.2 ms with all caches cold."""
PLACES = 64


def spread_s() -> float:
    """Some part of the spread; not by the job's random numbers, which must stay as they are."""
    return time.time_ns() // 1000 % SPREAD_MS / 1000


class Waiting:
    """Counts; bounded, and nothing here is ever worth an exception in a job."""

    def __init__(self) -> None:
        self.looks = self.waits = 0
        self._places: dict[str, int] = {}
        self._share = 0.0
        self._ask = 0
        """For so many looks more the recorder is asked between beats, too."""

    def pause_s(self) -> float | None:
        """Until the next glance; None where there is to be none before the next beat."""
        mixed = min(self._share, 1 - self._share)
        if mixed < HARDLY:
            return None
        return (SHORT_S if mixed > NOW_AND_THEN else LONG_S) + spread_s()

    def glance(self, main: MainThread, pending: Callable[[], bool]) -> None:
        inside, place = main.glance()
        if inside is not None:
            self.count(place, inside=inside, pending=self._ask > 0 and not inside and pending())

    def count(self, place: str, *, inside: bool, pending: bool) -> None:
        """A look at the main thread. What is pending while it is elsewhere shows at beats first: mostly nothing is."""
        waits = inside or pending
        self._ask = MEMORY if waits and not inside else self._ask - 1
        self.looks += 1
        self.waits += waits
        self._share += (waits - self._share) / min(self.looks, MEMORY)
        if waits:
            return
        if place:
            if place not in self._places and len(self._places) >= PLACES:
                # The rarer half goes: what counts comes again.
                kept = sorted(self._places, key=lambda name: -self._places[name])[: PLACES // 2]
                self._places = {name: self._places[name] for name in kept}
            self._places[place] = self._places.get(place, 0) + 1

    def told(self) -> dict[str, Any]:
        """For the last words; places fade, so that the present one shows."""
        found = {"looks": self.looks, "waits": self.waits}
        if not self._places:
            return found
        if sum(self._places.values()) > 600:
            self._places = {name: count // 2 for name, count in self._places.items() if count > 1}
        return {**found, "busy_at": max(self._places, key=lambda name: self._places[name], default="")}
