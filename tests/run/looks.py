"""Looks at pretended ranks, for the alarm."""

from __future__ import annotations

from collections.abc import Callable

from whichrank.model.last_words import JOINED
from whichrank.run.watch.alarm import Alarm
from whichrank.run.watch.silence import RankState


def rank(number: int, count: int, *, waiting: bool = False, phase: int = JOINED, busy: bool = False) -> RankState:
    return RankState(number, phase, count, count - waiting, waiting, busy=busy, leads=number == 0)


def away(
    number: int,
    count: int,
    *,
    busy: bool | None = False,
    stopped: bool = False,
    phase: int = JOINED,
    work: str = "",
    dormant: bool = False,
) -> RankState:
    """A rank that the others wait for; it has been at no new line for long. Rank 0 does what is done once."""
    return RankState(
        number, phase, count, count, False, busy=busy, stopped=stopped, stale_s=1000, work=work, leads=number == 0,
        dormant=dormant,
    )  # fmt: skip


def steady(alarm: Alarm, seconds: float = 20, ranks: int = 4) -> None:
    """Ten collectives a second, from the beginning on."""
    play(alarm, 0, seconds, lambda t: [rank(r, int(t * 10)) for r in range(ranks)])


def play(alarm: Alarm, start: float, seconds: float, ranks: Callable[[float], list[RankState]]) -> dict[str, float]:
    """Look twice a second; level -> when it was first reached."""
    reached: dict[str, float] = {}
    for look in range(int(seconds * 2)):
        now = start + look / 2
        level = alarm.observe(now, ranks(now))
        if level != "calm":
            reached.setdefault(level, now)
    return reached
