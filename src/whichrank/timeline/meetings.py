"""Operations as meetings of ranks: who came, who finished, who is missing, who brought something else.

A collective is the meeting of a group's members; a send and its recv are the meeting of two ranks.
Only troubled meetings become objects: unfinished ones and those whose members disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from whichrank.timeline.channels import Channel, Rows, channels
from whichrank.timeline.lineup import Lineup
from whichrank.timeline.signature import proves_all_joined

# Pending meetings kept per group: the head decides, the next ones show order and running ahead.
KEEP_PENDING = 8


@dataclass(frozen=True, slots=True)
class Meeting:
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


@dataclass(slots=True)
class Meetings:
    """All that is troubled, and how far each group is known to have come."""

    pending: list[Meeting] = field(default_factory=list)
    """Unfinished, per group in the order of their sequence."""
    disagreements: list[Meeting] = field(default_factory=list)
    """The first of each group."""
    proven: dict[int, int] = field(default_factory=dict)
    """Group -> highest sequence number that every member must have joined, since one finished it."""
    last_done: dict[int, int] = field(default_factory=dict)
    """Group -> highest sequence number that some member finished."""
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """(group, rank) -> highest sequence number of a collective the rank issued."""
    stale: set[int] = field(default_factory=set)
    """Ranks whose dump is older than what others prove of them: taken while the job ran."""


@dataclass(slots=True)
class Attendance:
    """Who came to which collective: one line per (group, seq, rank)."""

    group: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int32]
    row: npt.NDArray[np.intp]
    brought: npt.NDArray[np.int64]
    done: npt.NDArray[np.bool_]
    start: npt.NDArray[np.intp]
    """First participation of each meeting."""
    stop: npt.NDArray[np.intp]

    @property
    def meeting(self) -> npt.NDArray[np.intp]:
        """For each line the number of its meeting."""
        return np.repeat(np.arange(len(self.start)), self.stop - self.start)


def attendance(lineup: Lineup) -> Attendance:
    """The attendance of all collectives, sorted by group, sequence and rank."""
    rows = np.flatnonzero(~lineup.p2p & (lineup.group >= 0))
    key = (lineup.group[rows].astype(np.int64) << 32) | lineup.seq[rows].astype(np.int64)
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    rank = lineup.rank[rows]
    if not len(rows):
        empty = np.empty(0, np.int64)
        return Attendance(empty, empty, rank, rows, empty, np.empty(0, np.bool_), empty, empty)
    new = np.ones(len(rows), np.bool_)
    new[1:] = (key[1:] != key[:-1]) | (rank[1:] != rank[:-1])
    sub = np.flatnonzero(new)
    # A coalesced call is several rows of one rank: what it brought is the multiset of them,
    # told apart by the sum of random 62-bit marks.
    marks = np.random.default_rng(20).integers(1, 1 << 62, len(lineup.signatures), np.int64)
    brought = np.add.reduceat(marks[lineup.call_signature[lineup.call[rows]]], sub)
    done = np.logical_and.reduceat(lineup.done[rows], sub)
    key = key[sub]
    start = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    stop = np.r_[start[1:], len(key)]
    return Attendance(key >> 32, key & 0xFFFFFFFF, rank[sub], rows[sub], brought, done, start, stop)


def _progress(lineup: Lineup, table: Attendance, result: Meetings) -> None:
    """Fill last, last_done and proven."""
    pairs = (table.group << 32) | table.rank.astype(np.int64)
    distinct, inverse = np.unique(pairs, return_inverse=True)
    newest = np.full(len(distinct), -1, np.int64)
    np.maximum.at(newest, inverse, table.seq)
    for pair, seq in zip(distinct.tolist(), newest.tolist(), strict=True):
        result.last[pair >> 32, pair & 0xFFFFFFFF] = seq
    synchronising = np.array([proves_all_joined(s.op) for s in lineup.signatures], np.bool_)
    proof = table.done & synchronising[lineup.call_signature[lineup.call[table.row]]]
    for mask, target in ((proof, result.proven), (table.done, result.last_done)):
        highest = np.full(len(lineup.groups), -1, np.int64)
        np.maximum.at(highest, table.group[mask], table.seq[mask])
        target.update({g: s for g, s in enumerate(highest.tolist()) if s >= 0})
    for dump in lineup.dumps:
        _take_status(lineup, dump.rank or 0, result)


def _take_status(lineup: Lineup, rank: int, result: Meetings) -> None:
    """pg_status knows groups whose entries the ring has dropped (it may lag, so it only raises)."""
    for dump in lineup.dumps:
        if dump.rank != rank or dump.comm_lib == "" or not dump.capacity_wrapped:
            continue
        for local in dump.groups:
            status = dump.status.get(local.pg_id)
            if status is None or local.members is None or status.enqueued < 0:
                continue
            index = next(
                (
                    i
                    for i, g in enumerate(lineup.groups)
                    if g.name == local.name and g.members == tuple(sorted(local.members))
                ),
                -1,
            )
            if index >= 0:
                result.last[index, rank] = max(result.last.get((index, rank), -1), status.enqueued)


def _meeting(lineup: Lineup, table: Attendance, index: int, known: Meetings) -> Meeting:
    part = slice(int(table.start[index]), int(table.stop[index]))
    group, seq = int(table.group[part.start]), int(table.seq[part.start])
    ranks = table.rank[part].tolist()
    joined = dict(zip(ranks, table.row[part].tolist(), strict=True))
    finished = frozenset(rank for rank, done in zip(ranks, table.done[part].tolist(), strict=True) if done)
    absent, unseen = [], []
    for member in lineup.groups[group].members:
        if member in joined:
            continue
        last = known.last.get((group, member))
        nothing_known = member not in lineup.first or member in known.stale
        if nothing_known or (last is None and member in lineup.wrapped):
            unseen.append(member)
        elif last is None or last < seq:
            absent.append(member)
    by_content: dict[int, list[int]] = {}
    for rank, content in zip(ranks, table.brought[part].tolist(), strict=True):
        by_content.setdefault(content, []).append(rank)
    parties = tuple(sorted((tuple(p) for p in by_content.values()), key=lambda p: (-len(p), p)))
    certain = lineup.groups[group].certain
    return Meeting(group, seq, False, joined, finished, tuple(absent), tuple(unseen), parties, not certain)


def find_meetings(lineup: Lineup) -> Meetings:
    """Everything unfinished or disagreeing."""
    result = Meetings()
    table = attendance(lineup)
    if len(table.start):
        _progress(lineup, table, result)
        for (group, rank), last in result.last.items():
            if last < result.proven.get(group, -1):
                result.stale.add(rank)
        _collectives(lineup, table, result)
    result.pending += channel_meetings(lineup)
    return result


def _collectives(lineup: Lineup, table: Attendance, result: Meetings) -> None:
    all_done = np.logical_and.reduceat(table.done, table.start)
    any_done = np.logical_or.reduceat(table.done, table.start)
    low, high = (
        np.minimum.reduceat(table.brought, table.start),
        np.maximum.reduceat(table.brought, table.start),
    )
    groups, seqs = table.group[table.start], table.seq[table.start]
    different = low != high
    for index in np.flatnonzero(different).tolist():
        if not any(m.group == groups[index] for m in result.disagreements):
            result.disagreements.append(_meeting(lineup, table, index, result))
    kept: dict[int, int] = {}
    proven = np.array([result.proven.get(g, -1) for g in range(len(lineup.groups))], np.int64)
    for index in np.flatnonzero(~all_done).tolist():
        group = int(groups[index])
        # Finished on one member of a synchronising operation and agreed by all: the others' dumps
        # were only taken before they noticed.
        noticed_late = any_done[index] and not different[index] and seqs[index] <= proven[group]
        aborted = lineup.aborted[table.row[table.start[index] : table.stop[index]]].any()
        if (noticed_late and not aborted) or kept.get(group, 0) >= KEEP_PENDING:
            continue
        kept[group] = kept.get(group, 0) + 1
        result.pending.append(_meeting(lineup, table, index, result))


def channel_meetings(lineup: Lineup) -> list[Meeting]:
    """The first unfinished message of every channel: the n-th send belongs to the n-th recv."""
    found = (_channel_meeting(lineup, channel) for channel in channels(lineup))
    return [meeting for meeting in found if meeting is not None]


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
