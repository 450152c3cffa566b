"""Who came, who finished, who is missing, who brought something else."""

from __future__ import annotations

from msgspec.structs import replace

from tests.timeline.by_hand import Did, dump, lined_up, steps
from whichrank.timeline.collectives.meetings import KEEP_PENDING, find_meetings

WORLD = {"0": (0, 1, 2)}


def test_everything_finished_is_no_trouble() -> None:
    meetings = find_meetings(lined_up(*(dump(rank, WORLD, steps(6)) for rank in range(3))))
    assert (meetings.pending, meetings.disagreements) == ([], [])
    assert meetings.last_done == {0: 6}


def test_the_one_who_has_not_come() -> None:
    waiting = steps(6, open_last=True)
    meetings = find_meetings(lined_up(dump(0, WORLD, waiting), dump(1, WORLD, steps(5)), dump(2, WORLD, waiting)))
    (meeting,) = meetings.pending
    assert (meeting.seq, meeting.pending, meeting.absent, meeting.unseen) == (6, (0, 2), (1,), ())


def test_who_left_no_dump_is_unseen_not_absent() -> None:
    waiting = steps(6, open_last=True)
    (meeting,) = find_meetings(lined_up(dump(0, WORLD, waiting), dump(2, WORLD, waiting))).pending
    assert (meeting.absent, meeting.unseen) == ((), (1,))


def test_an_end_that_was_noticed_late_is_an_end() -> None:
    """One member finished the reduction, so all have come; the others' dumps are a moment older."""
    late = steps(6, open_last=True)
    meetings = find_meetings(lined_up(dump(0, WORLD, late), dump(1, WORLD, steps(6)), dump(2, WORLD, late)))
    assert meetings.pending == []


def test_a_dump_that_is_older_than_what_others_prove_accuses_nobody() -> None:
    """Rank 1's dump ends long before a reduction that the others have finished together with it."""
    ahead = [*steps(9), Did("0", "all_reduce", 10, done=False)]
    meetings = find_meetings(lined_up(dump(0, WORLD, ahead), dump(1, WORLD, steps(4)), dump(2, WORLD, ahead)))
    assert meetings.stale == {1}
    assert [(m.absent, m.unseen) for m in meetings.pending] == [((), (1,))]


def test_a_ring_that_dropped_a_group_says_nothing_about_it() -> None:
    groups = {"0": (0, 1, 2), "1": (0, 1)}
    waiting = dump(0, groups, [Did("1", "all_reduce", 500, done=False)])
    wrapped = dump(1, groups, steps(6), first=4000)
    (meeting,) = find_meetings(lined_up(waiting, wrapped)).pending
    assert (meeting.absent, meeting.unseen) == ((), (1,))


def test_the_parties_of_a_disagreement() -> None:
    odd = steps(4)
    odd[3] = replace(odd[3], numel=99)
    meetings = find_meetings(lined_up(dump(0, WORLD, steps(4)), dump(1, WORLD, odd), dump(2, WORLD, steps(4))))
    (meeting,) = meetings.disagreements
    assert (meeting.seq, meeting.parties) == (4, ((0, 2), (1,)))


def test_a_coalesced_call_is_one_meeting_in_any_order() -> None:
    """Several rows of one rank with one number: their order does not matter, what they are does."""
    parts = [Did("0", "all_gather", 1, numel=n) for n in (1, 2, 3)]
    same = find_meetings(lined_up(dump(0, WORLD, parts), dump(1, WORLD, parts[::-1])))
    assert same.disagreements == []
    other = find_meetings(lined_up(dump(0, WORLD, parts), dump(1, WORLD, [*parts[:2], replace(parts[2], numel=4)])))
    assert len(other.disagreements) == 1


def test_only_the_first_pending_meetings_of_a_group_are_kept() -> None:
    queued = [Did("0", "all_reduce", n + 1, done=False) for n in range(50)]
    meetings = find_meetings(lined_up(dump(0, WORLD, queued), dump(1, WORLD, [])))
    assert [meeting.seq for meeting in meetings.pending] == list(range(1, KEEP_PENDING + 1))
