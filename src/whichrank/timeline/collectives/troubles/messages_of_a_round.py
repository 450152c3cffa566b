"""A rank that waits for a message before the next collective: all others have exchanged theirs with it, one has not."""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.timeline.collectives.channels import direction
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.troubles.trouble import Trouble


def owed_by_one(lineup: Lineup, trouble: Trouble) -> Trouble:
    """Who did not come to a collective has not skipped it if it waits for a member that is there and left a message
    out: since the collective before, every other member has exchanged messages with it."""
    message = trouble.other
    if trouble.shape != "skipped" or message is None or not message.p2p or len(message.absent) != 1:
        return trouble
    (owes,), came = message.absent, trouble.meeting.joined
    if set(message.joined) != set(trouble.ranks) or len(trouble.ranks) != 1 or owes not in came or len(came) < 2:
        return trouble
    (waits,) = trouble.ranks
    if {rank for rank, row in came.items() if not _exchanged(lineup, row, waits)} != {owes}:
        return trouble
    victims = tuple(sorted({*trouble.victims, waits} - {owes}))
    return replace(
        trouble, shape="send-missing", ranks=(owes,), victims=victims, meeting=message, other=trouble.meeting,
        acted=came[owes], due=message.joined[waits],
    )  # fmt: skip


def _exchanged(lineup: Lineup, row: int, peer: int) -> bool:
    """Whether a rank had a message with the peer between this collective of a group and the one before it."""
    rank, group = int(lineup.rank[row]), int(lineup.group[row])
    members = lineup.groups[group].members
    for before in range(row - 1, lineup.rows(rank).start - 1, -1):
        if int(lineup.group[before]) != group:
            continue
        if not lineup.p2p[before]:
            return False
        way = direction(lineup.call_of(before).op.removeprefix("nccl:"))
        if way is not None and way[2] < len(members) and members[way[2]] == peer:
            return True
    return False
