"""Operations as meetings of ranks: who came, who finished, who is missing, who brought something else.

A collective is the meeting of a group's members; a send and its recv are the meeting of two ranks.
Only troubled meetings become objects: unfinished ones and those whose members disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from msgspec import Struct, field

from whichrank.timeline.collectives.attendance import Attendance, attendance
from whichrank.timeline.collectives.channels import Channel, Rows, channels, in_one_batch
from whichrank.timeline.collectives.lineup import Bools, Lineup
from whichrank.timeline.collectives.signature import proves_all_joined
from whichrank.timeline.identity.groups import Sorted

# Pending meetings kept per group: the head decides, the next ones show order and running ahead.
KEEP_PENDING = 8
_LONG_NS = 10_000_000_000
"""Dumps of one moment are not written further apart than this."""
_BLOCK = 4096
_LATER = 64
"""Disagreements of a group that are looked at."""


class Meeting(Struct, frozen=True):
    """One operation that is unfinished or in which members disagree."""

    group: int
    seq: int
    p2p: bool
    joined: dict[int, int]
    """Rank -> row of its (first) entry."""
    finished: frozenset[int]
    absent: tuple[int, ...]
    """Members whose dump shows that they have not come."""
    unseen: tuple[int, ...]
    """Members of whom nothing is known: no dump, or a dump that is older than the meeting."""
    parties: tuple[tuple[int, ...], ...]
    """Ranks by what they brought; more than one party is a disagreement. Largest first."""
    open_ended: bool = False
    """The group has more members than the evidence names."""
    sender: int | None = None
    """Of a message: who sends."""

    @property
    def pending(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.joined if rank not in self.finished)

    @property
    def disagrees(self) -> bool:
        return len(self.parties) > 1


class Meetings(Struct):
    """All that is troubled, and how far each group is known to have come."""

    pending: list[Meeting] = field(default_factory=list)
    """Unfinished, per group in the order of their sequence."""
    disagreements: list[Meeting] = field(default_factory=list)
    """The first of each group."""
    later_disagreements: list[Meeting] = field(default_factory=list)
    """Those behind it in which other ranks are the odd ones: they mean something where no rank lost its place."""
    proven: dict[int, int] = field(default_factory=dict)
    """Group -> highest sequence number that every member must have joined, since one finished it."""
    last_done: dict[int, int] = field(default_factory=dict)
    """Group -> highest sequence number that some member finished."""
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """(group, rank) -> highest sequence number of a collective the rank issued."""
    stale: set[int] = field(default_factory=set)
    """Ranks whose dump is older than what others prove of them: taken while the job ran."""


class _Draft(Struct):
    """A troubled meeting before it is known what its missing members did."""

    group: int
    seq: int
    ranks: list[int]
    rows: list[int]
    done: list[bool]
    brought: list[int]


def find_meetings(lineup: Lineup) -> Meetings:
    """Everything unfinished or disagreeing."""
    result = Meetings()
    proves = np.array([proves_all_joined(s.op) for s in lineup.signatures], np.bool_)
    pending: list[_Draft] = []
    disagreeing: list[_Draft] = []
    later: list[_Draft] = []
    for group in range(len(lineup.groups)):
        table = attendance(lineup, group)
        if table is not None:
            _note_progress(lineup, group, table, proves, result)
            different = _differences(table)
            drafts = [_draft(group, table, index) for index in np.flatnonzero(different)[:_LATER].tolist()]
            disagreeing += drafts[:1]
            later += _with_other_odd_ranks(drafts)
            open_ones = _unfinished(lineup, table, different, result.proven.get(group, -1))
            pending += [_draft(group, table, index) for index in open_ones]
    _take_status(lineup, result)
    result.stale = {rank for (group, rank), last in result.last.items() if last < result.proven.get(group, -1)}
    result.disagreements = [_meeting(lineup, draft, result) for draft in disagreeing]
    result.later_disagreements = [_meeting(lineup, draft, result) for draft in later]
    result.pending = [_meeting(lineup, draft, result) for draft in pending] + channel_meetings(lineup)
    return result


def _with_other_odd_ranks(drafts: Iterable[_Draft]) -> list[_Draft]:
    """Behind the first one, one for each further set of ranks that differ from the most."""
    found: dict[frozenset[int], _Draft] = {}
    for draft in drafts:
        found.setdefault(_odd(draft), draft)
    return list(found.values())[1:]


def _odd(draft: _Draft) -> frozenset[int]:
    usual, _ = Counter(draft.brought).most_common(1)[0]
    return frozenset(rank for rank, brought in zip(draft.ranks, draft.brought, strict=True) if brought != usual)


def _note_progress(lineup: Lineup, group: int, table: Attendance, proves: Bools, result: Meetings) -> None:
    """How far a group has come: by rank, by proof, at all."""
    lowest = int(table.rank.min())
    line = np.full(int(table.rank.max()) - lowest + 1, -1, np.int32)
    # In order of seq: the last one stays.
    line[(table.rank - lowest).astype(np.intp)] = np.arange(len(table.rank), dtype=np.int32)
    ranks = np.flatnonzero(line >= 0)
    newest = table.seq[line[ranks]]
    for rank, seq in zip((ranks + lowest).tolist(), newest.tolist(), strict=True):
        result.last[group, rank] = seq
    done = _newest(table, lambda lines: table.done[lines])
    if done is not None:
        result.last_done[group] = done
    proves_here = proves[lineup.call_signature]
    proven = _newest(table, lambda lines: table.done[lines] & proves_here[lineup.call[table.row[lines]]])
    if proven is not None:
        result.proven[group] = proven


def _newest(table: Attendance, holds: Callable[[slice], Bools]) -> int | None:
    """The highest sequence number for which something holds; looked for from the end, where it usually is."""
    for stop in range(len(table.seq), 0, -_BLOCK):
        lines = slice(max(0, stop - _BLOCK), stop)
        found = np.flatnonzero(holds(lines))
        if len(found):
            return int(table.seq[lines][found[-1]])
    return None


def _take_status(lineup: Lineup, result: Meetings) -> None:
    """pg_status knows groups whose entries the ring has dropped (it may lag, so it only raises)."""
    index = {(group.name, group.members): number for number, group in enumerate(lineup.groups)}
    members = Sorted()
    for dump in lineup.dumps:
        if dump.rank is None or dump.comm_lib == "" or not dump.capacity_wrapped:
            continue
        for local in dump.groups:
            status = dump.status.get(local.pg_id)
            if status is None or local.members is None or status.enqueued < 0:
                continue
            key = (index.get((local.name, members.of(local.members)), -1), dump.rank)
            if key[0] >= 0:
                result.last[key] = max(result.last.get(key, -1), status.enqueued)


def _differences(table: Attendance) -> Bools:
    """For each meeting whether its members brought different things."""
    low, high = np.minimum.reduceat(table.brought, table.start), np.maximum.reduceat(table.brought, table.start)
    different: Bools = low != high
    return different


def _unfinished(lineup: Lineup, table: Attendance, different: Bools, proven: int) -> list[int]:
    """The first meetings of a group that not everybody has finished."""
    all_done = np.logical_and.reduceat(table.done, table.start)
    if all_done.all():
        return []
    any_done = np.logical_or.reduceat(table.done, table.start)
    aborted = np.logical_or.reduceat(lineup.aborted[table.row], table.start)
    # Finished on one member of a synchronising operation and agreed by all: the others' dumps
    # were only taken before they noticed.
    noticed_late = any_done & ~all_done & ~different & ~aborted & (table.seq[table.start] <= proven)
    for index in np.flatnonzero(noticed_late)[-KEEP_PENDING:].tolist():
        noticed_late[index] = not _open_for_long(lineup, table, table.lines(index))
    unfinished = ~all_done & ~noticed_late
    found: list[int] = np.flatnonzero(unfinished)[:KEEP_PENDING].tolist()
    return found


def _open_for_long(lineup: Lineup, table: Attendance, part: slice) -> bool:
    """Whether a member's dump was written long after others had finished and gone on to what is still open there: a
    dump asks the GPU once more, so it would know."""
    done, rows, ranks = table.done[part], table.row[part], table.rank[part]
    ended = lineup.completed[rows[done]]
    written = [lineup.mtime.get(rank, 0) for rank in ranks[~done].tolist()]
    went_on = bool((~table.done[part.stop :]).any())
    return went_on and bool((ended > 0).all()) and max(written) - int(ended.max()) > _LONG_NS


def _draft(group: int, table: Attendance, index: int) -> _Draft:
    part = table.lines(index)
    columns = (table.rank, table.row, table.done, table.brought)
    return _Draft(group, int(table.seq[part.start]), *(column[part].tolist() for column in columns))


def _meeting(lineup: Lineup, draft: _Draft, known: Meetings) -> Meeting:
    joined = dict(zip(draft.ranks, draft.rows, strict=True))
    finished = frozenset(rank for rank, done in zip(draft.ranks, draft.done, strict=True) if done)
    absent, unseen = [], []
    for member in lineup.groups[draft.group].members:
        if member in joined:
            continue
        last = known.last.get((draft.group, member))
        nothing_known = member not in lineup.first or member in known.stale
        if nothing_known or (last is None and member in lineup.wrapped):
            unseen.append(member)
        elif last is None or last < draft.seq:
            absent.append(member)
    by_content: dict[int, list[int]] = {}
    for rank, content in zip(draft.ranks, draft.brought, strict=True):
        by_content.setdefault(content, []).append(rank)
    parties = tuple(sorted((tuple(p) for p in by_content.values()), key=lambda p: (-len(p), p)))
    certain = lineup.groups[draft.group].certain
    return Meeting(draft.group, draft.seq, False, joined, finished, tuple(absent), tuple(unseen), parties, not certain)


def channel_meetings(lineup: Lineup) -> list[Meeting]:
    """The first unfinished message of every channel: the n-th send belongs to the n-th recv."""
    found = (_channel_meeting(lineup, channel) for channel in channels(lineup))
    pending = [meeting for meeting in found if meeting is not None]
    open_rows = {rank: row for m in pending if m.absent or m.unseen for rank, row in m.joined.items()}
    return [m for m in pending if not _only_beside_an_open_one(lineup, m, open_rows)]


def _only_beside_an_open_one(lineup: Lineup, meeting: Meeting, open_rows: dict[int, int]) -> bool:
    """Whether its other side finished, and it is unfinished only as a part of a batch whose other parts wait."""
    if not meeting.finished or meeting.absent or meeting.unseen or meeting.disagrees:
        return False
    return all(
        rank in open_rows and in_one_batch(lineup, meeting.joined[rank], open_rows[rank]) for rank in meeting.pending
    )


def _channel_meeting(lineup: Lineup, channel: Channel) -> Meeting | None:
    sends, receives, base = channel.sends, channel.receives, 0
    if lineup.wrapped & {channel.source, channel.target}:
        # The ring has dropped an unknown number on either side: what is unfinished at the end still pairs up.
        open_sends, open_receives = _first_open(lineup, sends), _first_open(lineup, receives)
        base = min(open_sends, open_receives)
        sends, receives = sends[open_sends:], receives[open_receives:]
    # A recv that finished proves its send, whatever the sender's dump says.
    longer = sends if len(sends) > len(receives) else receives
    settled = np.r_[lineup.done[receives], lineup.done[longer[len(receives) :]]]
    if settled.all():
        return None
    number = int(np.argmin(settled))
    sides = ((channel.source, sends), (channel.target, receives))
    joined = {rank: int(rows[number]) for rank, rows in sides if number < len(rows)}
    finished = frozenset(rank for rank, row in joined.items() if lineup.done[row])
    missing = {channel.source, channel.target} - set(joined)
    absent = tuple(sorted(rank for rank in missing if rank in lineup.first))
    unseen = tuple(sorted(missing - set(absent)))
    sizes = {_elements(lineup, row) for row in joined.values()}
    parties = tuple((rank,) for rank in joined) if len(sizes) > 1 else (tuple(joined),)
    return Meeting(channel.group, base + number, True, joined, finished, absent, unseen, parties, sender=channel.source)


def _first_open(lineup: Lineup, rows: Rows) -> int:
    """Index of the first unfinished row behind the last finished one."""
    done = np.flatnonzero(lineup.done[rows])
    return int(done[-1]) + 1 if len(done) else 0


def _elements(lineup: Lineup, row: int) -> tuple[int, tuple[str, ...]]:
    signature = lineup.signature_of(row)
    sizes = signature.inputs or signature.outputs or ()
    return sum(sizes), signature.dtypes
