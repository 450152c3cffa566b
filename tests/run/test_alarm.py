"""The alarm: which silences are borne, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.run.looks import away, play, rank
from whichrank.model.last_words import IMPORTED, JOINING
from whichrank.run.alarm import BUSY_S, IDLE_S, Alarm


def test_a_hang_in_which_all_wait():
    alarm = Alarm()
    play(alarm, 0, 20, lambda t: [rank(r, int(t * 10)) for r in range(4)])
    levels = play(alarm, 20, 20, lambda _t: [rank(r, 300, waiting=True) for r in range(4)])
    assert 5 < levels["suspect"] - 20 < 7
    assert 8 < levels["confirmed"] - 20 < 11


def test_an_idle_rank_that_others_wait_for():
    alarm = Alarm()
    play(alarm, 0, 20, lambda t: [rank(r, int(t * 10)) for r in range(4)])
    levels = play(alarm, 20, 30, lambda _t: [*(rank(r, 300, waiting=True) for r in range(3)), away(3, 300)])
    assert IDLE_S < levels["suspect"] - 20 < IDLE_S + 2


def test_a_checkpoint_is_no_hang():
    alarm = Alarm()
    play(alarm, 0, 20, lambda t: [rank(r, int(t * 10)) for r in range(4)])
    silent = [*(rank(r, 300, waiting=True) for r in range(1, 4)), away(0, 300, busy=True)]
    assert play(alarm, 20, BUSY_S - 10, lambda _t: silent) == {}
    assert "suspect" in play(alarm, 20 + BUSY_S - 10, 60, lambda _t: silent), "but not for ever"


def test_pauses_are_learned():
    alarm, at = Alarm(), 0.0
    for count in range(3):
        play(alarm, at, 10, lambda t, c=count: [rank(r, int(t * 10)) for r in range(2)])
        quiet = [rank(0, 10_000 + count, waiting=True), away(1, 10_000 + count)]
        assert play(alarm, at + 10, 9, lambda _t, q=quiet: q) == {}
        at += 19
    assert "suspect" not in play(alarm, at, 12, lambda _t: [rank(0, 99_999, waiting=True), away(1, 99_999)])


def test_slow_steps_make_it_patient():
    alarm = Alarm()
    play(alarm, 0, 200, lambda t: [rank(r, int(t / 4)) for r in range(2)])
    assert play(alarm, 200, 25, lambda _t: [rank(r, 999, waiting=True) for r in range(2)]) == {}


def test_progress_withdraws_a_suspicion():
    alarm = Alarm()
    play(alarm, 0, 20, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    levels = play(alarm, 20, 7, lambda _t: [rank(r, 300, waiting=True) for r in range(2)])
    assert set(levels) == {"suspect"}
    assert alarm.observe(27.5, [rank(0, 301), rank(1, 301)]) == "calm"
    assert alarm.longest > 6


@pytest.mark.parametrize("stopped", [True, False])
def test_nobody_waits(stopped):
    alarm = Alarm()
    play(alarm, 0, 10, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    levels = play(alarm, 10, 60, lambda _t: [away(0, 200, busy=True), away(1, 200, busy=not stopped)])
    assert levels == {}, "two ranks that work without a word hang for nobody"


def test_a_stopped_rank_is_found_soon():
    alarm = Alarm()
    play(alarm, 0, 10, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    levels = play(alarm, 10, 12, lambda _t: [rank(0, 200, waiting=True), away(1, 200, stopped=True)])
    assert levels["suspect"] - 10 < 7
    assert "rank 1 stopped" in alarm.why


def test_one_is_missing_at_the_start():
    alarm = Alarm()
    ranks = [rank(0, 0, waiting=True, phase=JOINING), away(1, 0, phase=IMPORTED)]
    levels = play(alarm, 0, 45, lambda _t: ranks)
    assert 29 < levels["suspect"] < 33
    assert "rank 1 has only torch imported" in alarm.why


def test_a_long_import_is_no_hang():
    ranks = [rank(0, 0, waiting=True, phase=JOINING), away(1, 0, phase=IMPORTED, busy=True)]
    assert play(Alarm(), 0, 100, lambda _t: ranks) == {}


def test_a_watcher_that_was_away():
    alarm = Alarm()
    play(alarm, 0, 10, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    alarm.excuse(500)
    assert alarm.observe(500.5, [rank(r, 100, waiting=True) for r in range(2)]) == "calm"


def test_a_slow_start_teaches_nothing():
    alarm = Alarm()
    for phase, at in ((IMPORTED, 0), (JOINING, 25)):
        assert play(alarm, at, 25, lambda _t, p=phase: [away(r, 0, phase=p, busy=True) for r in range(2)]) == {}
    play(alarm, 50, 20, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    levels = play(alarm, 70, 20, lambda _t: [rank(r, 900, waiting=True) for r in range(2)])
    assert levels["suspect"] - 70 < 7


def test_a_second_look_that_finds_it_elsewhere():
    """Somebody walks through the code without a collective: no progress yet, and no hang either."""
    alarm = Alarm()
    play(alarm, 0, 20, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    moving = play(alarm, 20, 20, lambda t: [rank(0, 300, waiting=True), replace(away(1, 300), place=f"{int(t)}")])
    assert set(moving) == {"suspect"}
    assert "confirmed" in play(alarm, 40, 10, lambda _t: [rank(0, 300, waiting=True), away(1, 300)])
