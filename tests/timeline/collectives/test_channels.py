"""Sends and receives paired by direction."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.timeline.by_hand import Did, dump, lined_up
from whichrank.timeline.collectives.channels import channels, direction, in_batch
from whichrank.timeline.collectives.meetings import channel_meetings, find_meetings
from whichrank.timeline.collectives.troubles.root import find_troubles

PAIR = {"5": (4, 7)}


@pytest.mark.parametrize(
    ("op", "found"),
    [
        ("send 0->1", ("send", 0, 1)),
        ("recv 1<-0", ("recv", 1, 0)),
        ("send", None),
        ("all_reduce", None),
        ("send 0->99999999999999999999", None),
    ],
)
def test_direction(op: str, found: tuple[str, int, int] | None) -> None:
    assert direction(op) == found


def test_ranks_within_the_group_become_global_ones() -> None:
    lineup = lined_up(
        dump(4, PAIR, [Did("5", "send 0->1", 0), Did("5", "recv 0<-1", 0)]),
        dump(7, PAIR, [Did("5", "recv 1<-0", 0), Did("5", "send 1->0", 0)]),
    )
    found = {(c.source, c.target): (c.sends.tolist(), c.receives.tolist()) for c in channels(lineup)}
    assert found == {(4, 7): ([0], [2]), (7, 4): ([3], [1])}


def test_a_peer_outside_of_the_group_is_ignored() -> None:
    assert channels(lined_up(dump(4, PAIR, [Did("5", "send 0->9", 0)]))) == []


def test_the_message_without_its_other_half() -> None:
    lineup = lined_up(
        dump(4, PAIR, [Did("5", "send 0->1", 0), Did("5", "all_reduce", 1)]),
        dump(7, PAIR, [Did("5", "recv 1<-0", 0), Did("5", "recv 1<-0", 0, done=False)]),
    )
    (meeting,) = channel_meetings(lineup)
    assert (meeting.absent, meeting.pending, meeting.p2p) == ((4,), (7,), True)


def test_a_recv_that_finished_proves_its_send() -> None:
    """The sender's dump was taken before it noticed."""
    lineup = lined_up(
        dump(4, PAIR, [Did("5", "send 0->1", 0, done=False)]),
        dump(7, PAIR, [Did("5", "recv 1<-0", 0)]),
    )
    assert channel_meetings(lineup) == []


def test_a_wrapped_ring_still_pairs_its_end() -> None:
    """One side remembers more of the past than the other."""
    lineup = lined_up(
        dump(4, PAIR, [*[Did("5", "send 0->1", 0)] * 5, Did("5", "send 0->1", 0, done=False)]),
        dump(7, PAIR, [*[Did("5", "recv 1<-0", 0)] * 2, Did("5", "recv 1<-0", 0, done=False)], first=80),
    )
    (meeting,) = channel_meetings(lineup)
    assert set(meeting.joined) == {4, 7}
    assert meeting.absent == ()


def test_halves_of_different_size_disagree() -> None:
    lineup = lined_up(
        dump(4, PAIR, [Did("5", "send 0->1", 0, done=False, numel=3)]),
        dump(7, PAIR, [Did("5", "recv 1<-0", 0, done=False, numel=4)]),
    )
    (meeting,) = channel_meetings(lineup)
    assert meeting.disagrees


def test_messages_of_a_batch_end_with_it() -> None:
    """NCCL's recorder updates the last entry of a batch alone; it has the number of the collective before."""
    groups: dict[str, tuple[int, ...] | None] = {"0": (0, 1)}

    def entries(peer: int, me: int) -> list[Did]:
        first = [Did("0", "broadcast", 1)]
        batch = [Did("0", f"send {me}->{peer}", 1, done=False), Did("0", f"recv {me}<-{peer}", 1, done=False)]
        return [*first, *batch, Did("0", "coalesced", 1)]

    dumps = [dump(0, groups, entries(1, 0)), dump(1, groups, entries(0, 1))]
    for each in dumps:
        each.p2p_seq[1:] = 1
    lineup = lined_up(*dumps)
    assert lineup.done.all()
    assert lineup.p2p.tolist() == [False, True, True, True] * 2
    assert channel_meetings(lineup) == []
    assert in_batch(lineup, 1)
    assert not find_meetings(lineup).disagreements


def test_who_posted_all_its_messages_is_not_blamed_for_an_unusual_size() -> None:
    """A stage that sends a micro-batch less than the next one expects; the short one before it is new to both."""
    groups: dict[str, tuple[int, ...] | None] = {"0": (0, 1)}
    forward, back = Did("0", "send 0->1", 0, line=20), Did("0", "recv 0<-1", 0, line=30)
    taken, given = Did("0", "recv 1<-0", 0, line=20), Did("0", "send 1->0", 0, line=30)
    rounds = 3
    sender = [*([forward] * 2 + [back] * 2) * rounds, forward, replace(back, done=False)]
    last = replace(taken, done=False, numel=4)
    receiver = [*([taken] * 2 + [given] * 2) * rounds, taken, last, replace(given, done=False)]
    lineup = lined_up(dump(0, groups, sender), dump(1, groups, receiver))
    (trouble,) = find_troubles(lineup, find_meetings(lineup))
    assert (trouble.shape, trouble.ranks) == ("send-missing", (0,))
