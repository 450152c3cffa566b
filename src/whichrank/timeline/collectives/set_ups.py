"""Communicators that were never made, in a job that had made others: what ranks wait for in the store.

NCCL's communicators are made by the first call that needs them, with an id that the first of their ranks puts into the
store. A send or receive makes one for its two ranks under the key `1:3`; a group made by `new_group` has its number in
the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.late_pattern import late
from whichrank.records.events.startup import StoreError

if TYPE_CHECKING:
    from whichrank.model.evidence import Ref
    from whichrank.timeline.case import Case

_PAIR = late(r"(?:^|/)(\d{1,7}):(\d{1,7})$")
_MARK, _QUOTED = "by key", 200
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
