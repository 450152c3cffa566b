"""How often a rank is looked at: more often where it waits now and then."""

from __future__ import annotations

from whichrank.worker.waiting import LONG_S, SHORT_S, SPREAD_MS, Waiting


def paced(waits: int, every: int, looks: int = 200) -> float | None:
    waiting = Waiting()
    for number in range(looks):
        waiting.count("train.py:1 f", inside=number % every < waits, pending=False)
    return waiting.pause_s()


def test_who_never_waits_is_looked_at_with_the_beats() -> None:
    assert paced(0, 1) is None
    assert paced(1, 1) is None


def test_more_looks_where_they_tell_more() -> None:
    spread = SPREAD_MS / 1000
    few, half = paced(1, 12), paced(1, 2)
    assert few is not None
    assert half is not None
    assert LONG_S <= few <= LONG_S + spread
    assert SHORT_S <= half <= SHORT_S + spread


def test_the_first_looks_count_in_full() -> None:
    assert paced(1, 3, looks=6) is not None
