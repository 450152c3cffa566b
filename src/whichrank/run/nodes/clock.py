"""How far a clock is from the leader's, by messages that go there and back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

KEPT = 64


@dataclass(slots=True)
class Offset:
    """The exchange that took the least time says most: half of that time is what it may be wrong by."""

    samples: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Nanoseconds there and back, and nanoseconds that this clock is ahead."""

    def learn(self, sent: int, arrived: int, answered: int, heard: int) -> None:
        """Sent and heard by this clock, arrived and answered by the other one."""
        trip = (heard - sent) - (answered - arrived)
        if trip >= 0 and heard >= sent:
            self.samples.append((trip, ((sent - arrived) + (heard - answered)) // 2))

    @property
    def best(self) -> tuple[float, float] | None:
        """Seconds that this clock is ahead, and what that may be wrong by; None before any exchange."""
        if not self.samples:
            return None
        trip, ahead = min(self.samples)
        return ahead / 1e9, trip / 2e9
