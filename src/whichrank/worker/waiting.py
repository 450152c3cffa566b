"""How often the main thread waits for other ranks, and where it is when it does not: ten glances a second.

Copied into the job beside `startup.py`: standard library only. Who waits less than all others holds them up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank.worker.main_thread import MainThread
    from whichrank.worker.standing import Standing

SHORT_S, SPREAD_MS = 0.06, 80
"""Between two glances, and how much longer it may be: steps of one length must not be met at one place only."""
PLACES = 64


class Waiting:
    """Counts; bounded, and nothing here is ever worth an exception in a job."""

    def __init__(self) -> None:
        self.looks = self.waits = 0
        self._places: dict[str, int] = {}

    @staticmethod
    def pause_s() -> float:
        """Until the next glance; not the job's random numbers, which must stay as they are."""
        return SHORT_S + time.time_ns() // 1000 % SPREAD_MS / 1000

    def glance(self, main: MainThread, standing: Standing) -> None:
        inside, place = main.glance()
        if inside is None:
            return
        self.looks += 1
        if inside or standing.pending():
            self.waits += 1
        elif place:
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
