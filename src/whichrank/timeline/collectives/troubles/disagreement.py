"""Members of one collective brought different things: who is the odd one, and in what way."""

from __future__ import annotations

from collections import Counter

import numpy as np

from whichrank.timeline.collectives.compare import compare, is_behind_loop, is_behind_training, rows_in_group
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.program import Programs
from whichrank.timeline.collectives.signature import is_barrier
from whichrank.timeline.collectives.troubles.trouble import Shape, Trouble

# How many of a rank's last operations are searched for a departure from its earlier path.
LOOK_BACK = 48
# Without a majority all who take part are named, unless they are so many that it names nobody.
MANY = 8


def sibling_votes(lineup: Lineup, group: int, seq: int) -> Counter[int]:
    """What groups of the same kind brought to the same place in their sequence: signature -> ranks."""
    kind = lineup.groups[group].kind
    siblings = [i for i, g in enumerate(lineup.groups) if g.kind == kind and i != group]
    if not siblings:
        return Counter()
    mask = np.isin(lineup.group, siblings) & (lineup.seq == seq) & ~lineup.p2p
    return Counter(lineup.call_signature[lineup.call[mask]].tolist())


def rows_of_kind(lineup: Lineup, meeting: Meeting) -> dict[int, int]:
    """Rank -> its row of the same operation with the same number, in this group or in one of the same kind."""
    kind = lineup.groups[meeting.group].kind
    alike = [number for number, group in enumerate(lineup.groups) if group.kind == kind]
    signature = lineup.call_signature[lineup.call]
    same = signature == signature[next(iter(meeting.joined.values()))]
    rows = np.flatnonzero(np.isin(lineup.group, alike) & (lineup.seq == meeting.seq) & same & ~lineup.p2p)
    return dict(zip(lineup.rank[rows].tolist(), rows.tolist(), strict=True))


def odd_ranks(programs: Programs, meeting: Meeting) -> tuple[tuple[int, ...], bool, bool]:
    """The deviating ranks, whether that is a tie (then all take part), and whether their own past says so too."""
    lineup = programs.lineup
    programs.add_all(meeting.joined)
    flagged = {
        rank
        for rank, row in meeting.joined.items()
        if any(
            d.row == row or (d.row < row and lineup.group[d.row] == meeting.group)
            for d in programs.deviations(rank, LOOK_BACK)
        )
    }
    largest, second = meeting.parties[0], meeting.parties[1]
    if len(largest) > len(second):
        odd = tuple(sorted(set(meeting.joined) - set(largest)))
        return odd, False, bool(flagged & set(odd))
    votes = sibling_votes(lineup, meeting.group, meeting.seq)
    support = [
        sum(votes[int(lineup.call_signature[lineup.call[meeting.joined[r]]])] for r in p[:1]) for p in meeting.parties
    ]
    if votes and max(support) > 0 and support.count(max(support)) == 1:
        winner = meeting.parties[support.index(max(support))]
        return tuple(sorted(set(meeting.joined) - set(winner))), False, bool(flagged - set(winner))
    clean = [party for party in meeting.parties if not flagged & set(party)]
    if len(clean) == 1:
        return tuple(sorted(set(meeting.joined) - set(clean[0]))), False, True
    everyone = tuple(sorted(meeting.joined))
    return everyone if len(everyone) <= MANY else (), True, False


def judge_disagreement(programs: Programs, meeting: Meeting, *, hangs: bool) -> Trouble:
    """Put a disagreement into the shape of what the odd ranks did."""
    lineup = programs.lineup
    odd, tie, flagged = odd_ranks(programs, meeting)
    unsure = tie
    if tie and (novel := _left_what_was_usual(programs, meeting)):
        odd, tie = novel, False
    first, normal = meeting.parties[1][0], meeting.parties[0][0]
    if not tie:
        first = odd[0]
        normal = next(party[0] for party in meeting.parties if first not in party)
    difference, acted, known = compare(programs, meeting.group, meeting.seq, first, normal)
    shape: Shape = "skipped" if difference == "unclear" else difference
    if shape in ("added", "swapped") and acted is not None and _left_loop(lineup, meeting, first, acted, normal):
        shape = "left-loop"
    return Trouble(
        shape=shape,
        ranks=odd,
        meeting=meeting,
        victims=tuple(r for r in meeting.joined if r not in odd),
        acted=acted,
        due=meeting.joined.get(normal),
        hangs=hangs,
        repeated=known,
        tie=tie,
        flagged=flagged,
        unsure=unsure,
    )


def _left_what_was_usual(programs: Programs, meeting: Meeting) -> tuple[int, ...]:
    """Of sides of equal size those that do what nobody did before, where one side goes on with the loop."""
    usual = [party for party in meeting.parties if programs.finished[programs.label(meeting.joined[party[0]])] > 1]
    if len(usual) != 1 or any(programs.finished[programs.label(meeting.joined[r])] for p in meeting.parties
                              if p not in usual for r in p):  # fmt: skip
        return ()
    return tuple(sorted(set(meeting.joined) - set(usual[0])))


def _left_loop(lineup: Lineup, meeting: Meeting, odd: int, acted: int, normal: int) -> bool:
    """Whether the odd rank is in the code behind the loop: a barrier there, or more than one rank that ran out.

    A line below all others may still be inside the loop's body, so a lone operation of rank 0 is taken for it only
    where a function has returned that by its name is the whole loop.
    """
    if not is_barrier(lineup.call_of(acted)):
        return False
    rows = rows_in_group(lineup, normal, meeting.group)
    loop = [lineup.call_of(r) for r in rows if lineup.seq[r] <= meeting.seq][-64:]
    again = [lineup.call_of(r) for r in rows_in_group(lineup, odd, meeting.group) if lineup.seq[r] < meeting.seq][-64:]
    steady = [call for call, count in Counter(loop + again).items() if count > 1]
    theirs = lineup.call_of(meeting.joined[normal])
    if odd == 0 and not is_behind_training(lineup.call_of(acted), steady):
        return False
    return is_behind_loop(lineup.call_of(acted), steady) and not is_behind_loop(theirs, steady)
