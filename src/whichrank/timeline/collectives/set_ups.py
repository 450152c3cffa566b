"""Communicators that were made, and those that were never made in a job that had made others: what ranks wait for in
the store.

NCCL's communicators are made by the first call that needs them, with an id that the first of their ranks puts into the
store. A send or receive makes one for its two ranks under the key `1:3`; a group made by `new_group` has its number in
the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.late_pattern import late
from whichrank.records.events.startup import StoreError

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_PAIR = late(r"(?:^|/)(\d{1,7}):(\d{1,7})$")
_MARK, _QUOTED = "by key", 200
_OF_TWO = 2
_OF_GROUP = late(r"default_pg/0//(?!cuda/|cpu/)([\w.-]{1,60})//(?:cuda|cpu)//")


class SetUps(Struct, frozen=True):
    """What nobody began on the other side."""

    pairs: dict[int, tuple[int, Ref]]
    """Rank -> the one that it has a message with, and that did not come to it."""
    groups: dict[str, dict[int, Ref]]
    """Group made by `new_group` -> ranks that wait for its first member."""


def unmade(case: Case) -> SetUps:
    """Ranks that gave up waiting for the id of a communicator of two, or of a part of the job."""
    found = SetUps({}, {})
    for event in case.events(StoreError):
        if event.what != "unique_id" or event.rank is None:
            continue
        group, pair = _OF_GROUP.search(event.key), _PAIR.search(event.key)
        if group:
            found.groups.setdefault(group[1], {}).setdefault(event.rank, _ref(event))
        elif pair and int(pair[2]) == event.rank:
            found.pairs.setdefault(event.rank, (int(pair[1]), _ref(event)))
    return found


def _ref(event: StoreError) -> Ref:
    """The line, quoted from the key on."""
    _, mark, rest = event.reason.partition(_MARK)
    return replace(event.ref, quote=f"… {mark}{rest}"[:_QUOTED]) if mark else event.ref


def pairs_only(case: Case) -> tuple[Ref, ...]:
    """What shows that all communicators of a larger job have two ranks: it only sends messages. Empty where they don't,
    or nobody says so."""
    if max(case.world, len(case.stacks)) <= _OF_TWO:
        return ()
    groups = [(report, group) for report in case.ras for group in report.groups]
    inits = [(process, init) for process in case.nccl for init in process.inits]
    if not (groups or inits) or any(group.size != _OF_TWO for _, group in groups):
        return ()
    if any(init.nranks != _OF_TWO for _, init in inits):
        return ()
    told = [
        Ref(r.source, f"line {g.line}", f"{g.comms} communicators of {g.size} ranks, and no others") for r, g in groups
    ]
    told += [Ref(p.source, f"line {i.line}", f"{i.api or 'a communicator'} of {i.nranks} ranks") for p, i in inits]
    return tuple(told[:2])
