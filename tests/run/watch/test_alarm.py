"""The alarm: which silences are borne, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.run.looks import away, play, rank, steady
from whichrank.model.last_words import IMPORTED, JOINING, LEAVING, LEFT
from whichrank.run.watch.alarm import Alarm
from whichrank.run.watch.silence import (
    BUSY_S,
    GROUP_S,
    IDLE_S,
    LONG_WORK_S,
    LOOP_S,
    MOVING_S,
    NOBODY_WAITS_S,
    SOON_LONG_LOOP_S,
    SOON_WORK_S,
    patience,
)


def waiters(count: int = 300, ranks=range(1, 4)):
    return [rank(r, count, waiting=True) for r in ranks]


def test_a_hang_in_which_all_wait():
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 20, lambda _t: waiters(ranks=range(4)))
    assert 4 < levels["suspect"] - 20 < 6
    assert 6 <= levels["confirmed"] - 20 < 8


def test_a_job_in_which_no_interpreter_runs():
    """All ranks are in calls that never return, and keep Python's lock: before they were under way that is loading."""

    def limit(count: int, beating: tuple[int, ...] = ()) -> float:
        seen = [replace(rank(r, count, busy=True), beating=r in beating) for r in range(4)]
        return patience(seen).limit_s

    assert limit(300) == BUSY_S
    assert limit(0) == float("inf")
    assert limit(300, beating=(0,)) == float("inf")
    asleep = [replace(rank(r, 300, busy=False), beating=False, asleep=True) for r in range(4)]
    assert patience(asleep).limit_s == LONG_WORK_S
    assert patience([replace(seen, phase=IMPORTED) for seen in asleep]).limit_s == BUSY_S


def test_pairs_of_gpus_that_still_make_their_communicators():
    """Some ranks have exchanged their first messages; the last of a pipeline waits for the first of its own."""
    for late, at_most in ((0, 70), (4, 20)):
        alarm = Alarm()
        spinning = [replace(rank(r, 4, waiting=True), busy=True) for r in range(3)]
        last = replace(rank(3, late, waiting=True), busy=True)
        levels = play(alarm, 0, 120, lambda _t, last=last, spinning=spinning: [*spinning, last])
        assert at_most - 12 < levels["confirmed"] < at_most


def test_messages_that_nobody_counts_are_not_the_first():
    for issued, at_most in ((456, 10), (3, 70)):
        alarm = Alarm()
        moving = [replace(rank(r, issued, waiting=True), completed=0) for r in range(4)]
        play(
            alarm, 0, 20, lambda t, moving=moving: [replace(m, enqueued=m.enqueued - 200 + int(10 * t)) for m in moving]
        )
        levels = play(alarm, 20, 80, lambda _t, moving=moving: moving)
        assert at_most - 10 <= levels["confirmed"] - 20 <= at_most


@pytest.mark.parametrize(
    ("what", "least", "most"),
    [
        ({"asleep": True}, 60, 70),
        ({"busy": False}, NOBODY_WAITS_S, NOBODY_WAITS_S + 10),
        ({"work": "storage", "asleep": True}, BUSY_S, BUSY_S + 10),
        ({"busy": True}, None, None),
    ],
)
def test_a_rank_that_has_left_its_group_and_does_not_end(what, least, most):
    alarm = Alarm()
    steady(alarm)
    others = [replace(rank(r, 300), alive=False) for r in range(1, 4)]
    last = replace(away(0, 300), phase=LEFT, **what)
    levels = play(alarm, 20, 300, lambda _t: [last, *others])
    if least is None:
        assert "suspect" not in levels
    else:
        assert least <= levels["confirmed"] - 20 <= most
        assert "rank 0 does not come to an end" in alarm.why


def test_an_idle_rank_that_others_wait_for():
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 40, lambda _t: [*waiters(), away(0, 300)])
    assert IDLE_S < levels["suspect"] - 20 < 15
    assert 5 <= levels["confirmed"] - levels["suspect"] < 7
    assert "rank 0 does nothing while others wait" in alarm.why


@pytest.mark.parametrize("work", ["checkpoint", "evaluation", "storage", "compile"])
def test_an_idle_rank_where_work_takes_long(work):
    alarm = Alarm()
    steady(alarm)
    silent = [*waiters(), away(0, 300, work=work)]
    assert play(alarm, 20, LONG_WORK_S - 5, lambda _t: silent) == {}
    assert "confirmed" in play(alarm, 20 + LONG_WORK_S - 5, 30, lambda _t: silent), "but not forever"


def test_who_does_nothing_at_all_in_its_checkpoint_is_reported_sooner_but_not_ended():
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 50, lambda _t: [*waiters(), away(0, 300, work="checkpoint", dormant=True)])
    assert SOON_WORK_S < levels["suspect"] - 20 < SOON_WORK_S + 3
    assert "confirmed" in levels
    assert not alarm.sure


def test_a_rank_that_rests_after_work_has_not_idled_for_long():
    alarm = Alarm()
    steady(alarm)
    assert play(alarm, 20, 60, lambda t: [*waiters(), away(0, 300, busy=t < 70)]) == {}
    assert "suspect" in play(alarm, 80, 20, lambda _t: [*waiters(), away(0, 300)])


def test_a_checkpoint_is_no_hang():
    """It writes, and so it lives; the limit is short of what torch itself bears."""
    alarm = Alarm()
    steady(alarm)
    silent = [*waiters(), replace(away(0, 300, busy=True), traffic=True)]
    assert play(alarm, 20, MOVING_S - 10, lambda _t: silent) == {}
    assert "suspect" in play(alarm, 20 + MOVING_S - 10, 60, lambda _t: silent), "but not forever"


def test_a_rank_that_walks_through_its_code_is_never_confirmed():
    alarm = Alarm()
    steady(alarm)
    silent = [*waiters(), replace(away(0, 300, busy=True), stale_s=1.0)]
    assert set(play(alarm, 20, MOVING_S + 100, lambda _t: silent)) == {"suspect"}


def test_a_loop_without_end():
    """Always on the move, and always at the same lines."""
    alarm = Alarm()
    steady(alarm)
    loops = lambda t: [*waiters(), replace(away(0, 300, busy=True), stale_s=t - 20, still_s=0.2)]  # noqa: E731
    levels = play(alarm, 20, 100, loops)
    assert LOOP_S < levels["suspect"] - 20 < LOOP_S + 5
    assert "confirmed" in levels
    assert "loop" in alarm.why


def test_a_long_calculation_is_no_loop():
    alarm = Alarm()
    steady(alarm)
    at_one = lambda t: [*waiters(), replace(away(0, 300, busy=True), stale_s=t - 20, still_s=t - 20)]  # noqa: E731
    assert play(alarm, 20, BUSY_S - 10, at_one) == {}


def test_pauses_are_learned_by_their_kind():
    alarm, at = Alarm(), 0.0
    for count in range(3):
        play(alarm, at, 10, lambda t: [rank(r, int(t * 10)) for r in range(2)])
        quiet = [rank(0, 10_000 + count, waiting=True), away(1, 10_000 + count)]
        assert play(alarm, at + 10, 11, lambda _t, q=quiet: q) == {}
        at += 21
    play(alarm, at, 5, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    assert play(alarm, at + 5, 15, lambda _t: [rank(0, 99_999, waiting=True), away(1, 99_999)]) == {}
    play(alarm, at + 20, 5, lambda t: [rank(r, int(t * 10)) for r in range(2)])
    hung = play(alarm, at + 25, 9, lambda _t: [rank(r, 100_000, waiting=True) for r in range(2)])
    assert "suspect" in hung, "that one rank pauses says nothing about a wait of all"


def test_one_bad_moment_is_no_rhythm():
    """A host that was busy for a few seconds once does not make the watch blind for a minute."""
    alarm = Alarm()
    steady(alarm)
    play(alarm, 20, 6, lambda _t: [*waiters(), away(0, 300)])
    play(alarm, 26, 10, lambda t: [rank(r, int(t * 20)) for r in range(4)])
    levels = play(alarm, 36, 30, lambda _t: [*waiters(9999), away(0, 9999)])
    assert levels["suspect"] - 36 < 15


def test_slow_steps_make_it_patient():
    alarm = Alarm()
    play(alarm, 0, 200, lambda t: [rank(r, int(t / 4)) for r in range(2)])
    assert play(alarm, 200, 11, lambda _t: [rank(r, 999, waiting=True) for r in range(2)]) == {}
    assert "suspect" in play(alarm, 211, 5, lambda _t: [rank(r, 999, waiting=True) for r in range(2)])


def test_progress_withdraws_a_suspicion():
    alarm = Alarm()
    steady(alarm, ranks=2)
    levels = play(alarm, 20, 6, lambda _t: [rank(r, 300, waiting=True) for r in range(2)])
    assert set(levels) == {"suspect"}
    assert alarm.observe(26.5, [rank(0, 301), rank(1, 301)]) == "calm"
    assert alarm.rhythms["all wait"].longest > 5


@pytest.mark.parametrize("busy", [True, None])
def test_nobody_waits(busy):
    alarm = Alarm()
    steady(alarm, 10, 2)
    levels = play(alarm, 10, 60, lambda _t: [away(0, 200, busy=True), away(1, 200, busy=busy)])
    assert levels == {}, "two ranks that work without a word hang for nobody"


def test_nobody_waits_and_nobody_works():
    alarm = Alarm()
    steady(alarm, 10, 2)
    levels = play(alarm, 10, 120, lambda _t: [away(0, 200), away(1, 200)])
    assert NOBODY_WAITS_S < levels["suspect"] - 10 < NOBODY_WAITS_S + 3


def test_a_stopped_rank_is_found_soon():
    alarm = Alarm()
    steady(alarm, 10, 2)
    levels = play(alarm, 10, 14, lambda _t: [rank(0, 200, waiting=True), away(1, 200, stopped=True)])
    assert levels["suspect"] - 10 < 7
    assert "confirmed" in levels
    assert "rank 1 stopped" in alarm.why


def test_what_a_held_interpreter_said_before_is_old():
    """It said that it waits, three seconds of garbage collection ago: it is the one that is waited for."""
    alarm = Alarm()
    steady(alarm)
    said = replace(rank(0, 300, waiting=True), beating=False)
    assert play(alarm, 20, 10, lambda t: [*waiters(), replace(said, beating=t < 23)]) == {}
    assert "suspect" in play(alarm, 30, 10, lambda _t: [*waiters(), said])
    assert "the interpreter of rank 0 does not run" in alarm.why


@pytest.mark.parametrize(("busy", "effort", "borne"), [(True, 1.0, 12), (True, 0.4, 30), (False, 0.01, 12)])
def test_a_held_interpreter_computes_longer_on_a_busy_host(busy, effort, borne):
    alarm = Alarm()
    steady(alarm)
    held = replace(rank(0, 300, waiting=False), beating=False, busy=busy, effort=effort)
    levels = play(alarm, 20, 40, lambda _t: [*waiters(), held])
    assert borne < levels["suspect"] - 20 < borne + 3


def test_one_is_missing_at_the_start():
    alarm = Alarm()
    ranks = [rank(0, 0, waiting=True, phase=JOINING), away(1, 0, phase=IMPORTED)]
    levels = play(alarm, 0, 45, lambda _t: ranks)
    assert 29 < levels["suspect"] < 33
    assert "rank 1 has only torch imported" in alarm.why


def test_a_long_import_is_no_hang():
    ranks = [rank(0, 0, waiting=True, phase=JOINING), away(1, 0, phase=IMPORTED, busy=True)]
    assert play(Alarm(), 0, 100, lambda _t: ranks) == {}


@pytest.mark.parametrize("busy", [False, True])
def test_one_that_does_not_end(busy):
    """The others have gone; this one is past its last line, and still there."""
    alarm = Alarm()
    steady(alarm, ranks=2)
    gone = replace(rank(0, 300), alive=False)
    levels = play(alarm, 20, 60, lambda _t: [gone, rank(1, 300, waiting=True, phase=LEAVING, busy=busy)])
    assert ("confirmed" in levels) != busy
    assert busy or 29 < levels["suspect"] - 20 < 33


def test_a_watcher_that_was_away():
    alarm = Alarm()
    steady(alarm, 10, 2)
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
    steady(alarm, ranks=2)
    moving = play(alarm, 20, 30, lambda _t: [rank(0, 300, waiting=True), replace(away(1, 300), stale_s=1.0)])
    assert set(moving) == {"suspect"}
    assert "confirmed" in play(alarm, 50, 10, lambda _t: [rank(0, 300, waiting=True), away(1, 300)])


def stuck(number: int, count: int, since: float, now: float):
    """It waits in a group that stands, while another thread of it counts on in another group."""
    halted = {"still_s": now - since, "stale_s": now - since, "resting": True}
    return replace(rank(number, count, waiting=True), stuck_s=now - since, **halted)


@pytest.mark.parametrize("seen_waiting", [False, True])
def test_one_group_hangs_while_another_goes_on(seen_waiting):
    """Now and then the heartbeat of the culprit is met while it waits for the others: its main thread does not."""
    alarm = Alarm()
    steady(alarm)

    def looks(now):
        beats = 300 + int(now)  # a heartbeat, from a thread
        culprit = replace(away(0, beats), still_s=now - 20, stale_s=0.8, resting=True)  # each beat begins a silence
        if seen_waiting and int(2 * now) % 7 == 0:
            culprit = replace(culprit, waiting=True, stuck_s=0.4)
        return [culprit, *(stuck(r, beats, 20, now) for r in range(1, 4))]

    levels = play(alarm, 20, 60, looks)
    assert GROUP_S < levels["suspect"] - 20 < GROUP_S + 3
    assert levels["confirmed"] - levels["suspect"] < 8


def test_a_pending_operation_of_a_job_that_walks_on():
    """An asynchronous checkpoint gathers in its own group for minutes; the training does not care."""
    alarm = Alarm()
    steady(alarm)

    def looks(now):
        return [replace(stuck(r, int(now * 10), 20, now), still_s=0.5, resting=False) for r in range(4)]

    assert play(alarm, 20, 300, looks) == {}


def loops(number: int, since: float):
    return lambda t: [
        *waiters(ranks=[r for r in range(4) if r != number]),
        replace(away(number, 300, busy=True), stale_s=t - since, still_s=0.2),
    ]


def sleeps(number: int, **more):
    seen = replace(away(number, 300), **{"asleep": True, **more})
    return [*waiters(ranks=[r for r in range(4) if r != number]), seen]


def test_a_rank_in_one_sleep_is_reported_soon_and_the_job_not_ended_for_it_yet():
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 10, lambda _t: sleeps(2))
    assert 4 < levels["suspect"] - 20 < 5
    assert levels["confirmed"] - 20 < 7.5
    assert not alarm.sure
    play(alarm, 30, 6, lambda _t: sleeps(2))
    assert not alarm.sure, "short of what was always borne"
    play(alarm, 36, 3, lambda _t: sleeps(2))
    assert alarm.sure


def test_a_rank_that_tries_again_after_pauses_has_more_time():
    """It woke at second 24 and 27, each time to sleep again."""
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 10, lambda t: sleeps(2, slept_s=t - (20 if t < 24 else 24 if t < 27 else 27)))
    assert levels == {}


def test_who_does_what_is_done_once_has_more_time():
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 15, lambda _t: sleeps(0))
    assert 8 < levels["suspect"] - 20 < 9.5


@pytest.mark.parametrize(
    "other",
    [{"asleep": False}, {"work": "checkpoint"}, {"busy": True, "still_s": 100.0}, {"busy": None}],
    ids=["in another call", "checkpoint", "one long calculation", "nobody has measured"],
)
def test_what_may_be_work_is_not_reported_soon(other):
    alarm = Alarm()
    steady(alarm)
    assert play(alarm, 20, IDLE_S - 0.5, lambda _t: sleeps(2, **other)) == {}


def test_a_sleep_ends_and_work_begins():
    """What was suspected of a sleeper does not stand when it computes, though it comes to no new line."""
    alarm = Alarm()
    steady(alarm)
    assert set(play(alarm, 20, 5.5, lambda _t: sleeps(2))) == {"suspect"}
    busy = sleeps(2, busy=True, still_s=60.0, asleep=False)
    assert set(play(alarm, 25.5, 60, lambda _t: busy)) <= {"suspect"}
    assert alarm.level == "calm"


def test_a_loop_of_one_rank_is_reported_soon():
    alarm = Alarm()
    steady(alarm)
    levels = play(alarm, 20, 20, loops(2, 20))
    assert 10 < levels["suspect"] - 20 < 11.5
    assert levels["confirmed"] - 20 < 14
    assert not alarm.sure


def test_a_loop_of_one_rank_in_its_own_work_is_reported_before_it_is_ended_for_it():
    """An evaluation may take long; one that comes to no new line is reported, and withdrawn if it ends after all."""
    alarm = Alarm()
    steady(alarm)
    looping = lambda t: [*waiters(), replace(away(0, 300, busy=True, work="evaluation"), stale_s=t - 20, still_s=0.2)]  # noqa: E731
    levels = play(alarm, 20, 100, looping)
    assert SOON_LONG_LOOP_S <= levels["confirmed"] - 20 < SOON_LONG_LOOP_S + 10
    assert not alarm.sure
    play(alarm, 120, BUSY_S - 90, looping)
    assert alarm.sure


def test_a_loop_after_a_calculation_of_all():
    """All have computed for a minute without a word; one of them still does, and comes a few seconds later."""
    alarm = Alarm()
    steady(alarm)
    everybody = lambda t: [replace(away(r, 300, busy=True), stale_s=t - 20, still_s=0.2) for r in range(4)]  # noqa: E731
    assert play(alarm, 20, 30, everybody) == {}
    assert play(alarm, 50, 9, loops(2, 20)) == {}


def test_a_job_that_has_not_found_its_pace():
    """The first step, or the one after: compilers, caches and first connections take what they take."""
    alarm = Alarm()
    play(alarm, 0, 3, lambda t: [rank(r, int(t)) for r in range(4)])
    silent = [*(rank(r, 3, waiting=True) for r in (0, 1, 3)), replace(away(2, 3), asleep=True)]
    assert play(alarm, 3, IDLE_S - 0.5, lambda _t: silent) == {}


def test_slow_steps_make_it_patient_with_a_sleeper_too():
    alarm = Alarm()
    play(alarm, 0, 200, lambda t: [rank(r, int(t)) for r in range(4)])
    assert play(alarm, 200, 7.5, lambda _t: sleeps(2)) == {}
    assert "confirmed" in play(alarm, 207.5, 12, lambda _t: sleeps(2))


def test_pauses_of_a_sleeper_are_learned():
    """It waits a while for something once in an epoch, and goes on."""
    alarm, at = Alarm(), 0.0
    for count in range(3):
        play(alarm, at, 10, lambda t: [rank(r, int(t * 10)) for r in range(4)])
        at += 10
        quiet = [*(rank(r, 5000 + count, waiting=True) for r in (0, 1, 3)), replace(away(2, 5000 + count), asleep=True)]
        levels = play(alarm, at, 5, lambda _t, q=quiet: q)
        assert (levels == {}) == (count > 0)
        at += 5


def test_a_debugger_has_time():
    alarm = Alarm()
    steady(alarm)
    stopped = replace(away(2, 300, stopped=True), traced=True)
    assert play(alarm, 20, 120, lambda _t: [*waiters(ranks=(0, 1, 3)), stopped]) == {}
    assert play(alarm, 140, 5, lambda t: [rank(r, int(t * 20)) for r in range(4)]) == {}
    assert play(alarm, 145, 120, lambda _t: sleeps(2, work="debugger")) == {}


@pytest.mark.parametrize(("more", "soon"), [({"busy": True}, True), ({"asleep": True}, True), ({}, False)])
def test_a_held_interpreter_is_reported_soon(more, soon):
    """One that waits for a disk or a device may be answered yet."""
    alarm = Alarm()
    steady(alarm)
    held = replace(away(2, 300), beating=False, **more)
    levels = play(alarm, 20, 11, lambda _t: [*waiters(ranks=(0, 1, 3)), held])
    assert ("confirmed" in levels) == soon


@pytest.mark.parametrize("asked", [lambda: waiters(ranks=range(4)), lambda: sleeps(2)])
def test_a_dump_that_was_asked_for_is_no_traffic_of_the_job(asked):
    """Who is asked writes its dump: the bytes and the time of that say nothing about the job."""
    alarm = Alarm()
    steady(alarm)

    def looks(_now):
        return [replace(r, traffic=True, busy=True) if alarm.level != "calm" else r for r in asked()]

    levels = play(alarm, 20, 60, looks)
    assert levels["confirmed"] - 20 < 10
