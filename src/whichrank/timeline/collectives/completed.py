"""Which entries are finished, by what their recorder shows. Recorders differ in what they ever say:

| recorder | finished | timed out | still open |
|---|---|---|---|
| torch's own for NCCL | completed | retired, not completed | neither |
| torch's own for Gloo | retired (it never says completed) | - | not retired |
| the hook, with completions (nccl2 from torch 2.15) | completed and retired | never retired | neither |
| the hook, without (nccl2 before, other backends) | can't be seen | can't be seen | can't be seen |

A dump asks the GPU about entries that are still open. Of a call that has not returned (its group's `last_enqueued` is
below it) the events are not recorded yet, and CUDA says of such events that they are over: the entry is written as
completed at the moment of the dump, not retired, and is open all the same.

Calls that are issued as one batch (`batch_isend_irecv`, coalesced collectives) are recorded one by one, but only the
entry `coalesced` behind them is ever updated: the others end with it (pytorch, ProcessGroupNCCL.cpp).

The last kind retires an entry as soon as it was issued. Its entries say who came, not what ended: an operation that
every dumped member has issued counts as over, for nothing is known against it. Source: pytorch,
torch/csrc/distributed/c10d/hooks/FlightRecorderHook.cpp and FlightRecorderDetail.hpp.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from whichrank.records.dump import COMPLETED, Dump

if TYPE_CHECKING:
    from whichrank.timeline.collectives.lineup import Lineup

Bools = npt.NDArray[np.bool_]

_NATIVE = ("nccl", "xccl", "")
"""Recorders of their own that retire an unfinished entry only when it timed out; "" are dumps too old to say."""
_op = attrgetter("op")
_MANY = 3
"""So many retired entries and not one completed: no watchdog aborts that many before it ends the process."""


def marks(dump: Dump) -> tuple[Bools, Bools, Bools]:
    """Finished, aborted, and issued with nothing known of the end: for every entry."""
    done: Bools = _with_batches(dump, (dump.state == COMPLETED) & ~_not_returned(dump))
    aborted, issued = np.zeros(len(dump), np.bool_), np.zeros(len(dump), np.bool_)
    if not (dump.retired & ~done).any():
        return done, aborted, issued
    for backend in dict.fromkeys(call.backend for call in dump.calls):
        here: Bools = np.array([call.backend == backend for call in dump.calls], np.bool_)[dump.call]
        retired = here & dump.retired & ~done
        if backend == "gloo":
            done = done | retired
        elif not (here & done).any() and (backend not in _NATIVE or retired.sum() >= _MANY):
            issued |= retired
        else:
            aborted |= retired
    return done, aborted, issued


def _not_returned(dump: Dump) -> Bools:
    """Entries of calls that the host is still in: the newest of its group, above what the group has enqueued."""
    found = np.zeros(len(dump), np.bool_)
    stamped = np.flatnonzero((dump.state == COMPLETED) & ~dump.retired) if dump.status else ()
    for row in stamped[-len(dump.groups) :]:
        status = dump.status.get(dump.groups[dump.group[row]].pg_id)
        if status is None or dump.seq[row] <= status.enqueued or dump.calls[dump.call[row]].p2p:
            continue
        found[row] = (dump.seq[dump.group == dump.group[row]] > status.enqueued).sum() == 1
    return found


def _with_batches(dump: Dump, done: Bools) -> Bools:
    """Finished entries, with those whose batch is finished."""
    if not has_batches(dump):
        return done
    whole = _ends_batch(dump)
    p2p = _messages(dump) | of_messages(dump)
    number = np.where(p2p, dump.p2p_seq, dump.seq).astype(np.int64)
    batch = (dump.group.astype(np.int64) * 2 + p2p) << 32 | number
    return done | np.isin(batch, batch[whole & done])


def of_messages(dump: Dump) -> Bools:
    """Entries that end a batch of messages. They carry the number of the last collective, but are not collectives."""
    found = np.zeros(len(dump), np.bool_)
    if has_batches(dump):
        whole = _ends_batch(dump)
        order = np.argsort(dump.group, kind="stable")
        before = np.roll(order, 1)
        same = dump.group[before] == dump.group[order]
        found[order] = whole[order] & same & _messages(dump)[before]
    return found


def has_batches(dump: Dump) -> bool:
    return "coalesced" in map(_op, dump.calls)


def _ends_batch(dump: Dump) -> Bools:
    return np.array([call.op == "coalesced" for call in dump.calls], np.bool_)[dump.call]


def _messages(dump: Dump) -> Bools:
    return np.array([call.p2p for call in dump.calls], np.bool_)[dump.call]


def drop_foreign_status(dump: Dump) -> None:
    """Forget pg_status where it counts something else than collectives: the hook counts all operations together."""
    for index, group in enumerate(dump.groups):
        status = dump.status.get(group.pg_id)
        if status is None:
            continue
        mine = dump.group == index
        if mine.any() and status.enqueued > max(dump.seq[mine].max(), dump.p2p_seq[mine].max()):
            dump.status.clear()
            return


def settle(lineup: Lineup, issued: Bools) -> None:
    """Count as finished what every dumped member has issued, where the recorder does not see ends."""
    from whichrank.timeline.collectives.channels import channels

    rows = np.flatnonzero(issued & ~lineup.p2p & (lineup.group >= 0))
    came = np.unique(np.stack([lineup.group[rows], lineup.seq[rows], lineup.rank[rows]], axis=1), axis=0)
    meetings, count = np.unique(came[:, :2], axis=0, return_counts=True)
    dumped = np.array([sum(rank in lineup.first for rank in group.members) for group in lineup.groups], np.int64)
    whole = {(int(g), int(s)) for (g, s), n in zip(meetings, count, strict=True) if n >= dumped[g]}
    keys = zip(lineup.group[rows].tolist(), lineup.seq[rows].tolist(), strict=True)
    lineup.done[rows] = [key in whole for key in keys]
    for channel in channels(lineup):
        both = min(len(channel.sends), len(channel.receives))
        if lineup.wrapped & {channel.source, channel.target}:
            both = len(lineup)  # an unknown number was dropped on either side: what is left does not pair up
        for part in (channel.sends[:both], channel.receives[:both]):
            lineup.done[part] |= issued[part]
