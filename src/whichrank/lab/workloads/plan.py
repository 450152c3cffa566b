"""Where and when a fault strikes; the same in the drill and in every rank."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

FOLDER = "WHICHRANK_DRILL"
"""The variable that names a drill's folder to every process of it."""
FIRST_STEP, LAST_STEP = 6, 14
"""The rhythm of a job is learned before, and a drill should not last longer than it must."""


class Plan(NamedTuple):
    """What the seed decides."""

    fault: str
    seed: int
    world: int
    rank: int
    """The rank that a fault with one culprit strikes."""
    step: int
    backend: str = "gloo"
    steps: int = 60
    pace_s: float = 0.1
    timeout_s: float = 300.0
    """Of the process groups: longer than the watcher's patience."""

    def dice(self) -> Random:
        """Further chance, the same in every process."""
        return Random(f"{self.fault}:{self.seed}:{self.world}")  # noqa: S311 - a drill, not a secret


def make(fault: str, seed: int, world: int, backend: str = "gloo") -> Plan:
    """The plan of one drill."""
    dice = Random(f"{fault}:{seed}:{world}:plan")  # noqa: S311
    return Plan(fault, seed, world, dice.randrange(world), dice.randint(FIRST_STEP, LAST_STEP), backend)
