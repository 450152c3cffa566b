"""Known messages of the knowledge base in a case: which were seen, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whichrank.facts.messages import Role, Signature, signatures
from whichrank.records.log import EventKind
from whichrank.records.sighting import Sighting
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

SUREST = 0.93

_MORE = 0.04

"""What every further kind of message for the same cause adds."""

_PORT = re.compile(r"(?:<\d{1,5}>|:\d{1,5}$).*")

_TIMED_OUT: tuple[EventKind, ...] = (*statements.TIMED_OUT, "watchdog_stuck")

_LOST: tuple[EventKind, ...] = ("peer_closed", "nccl_error", "store_error")


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A sighting with what is known of its message."""

    signature: Signature
    sign: Statement
    sighting: Sighting

    @property
    def id(self) -> str:
        return self.signature.id

    def group(self, name: str) -> str:
        return self.sighting.groups.get(name, "")


def seen(case: Case, *names: str) -> list[KnownMessage]:
    """Sightings of these signatures, whatever their role; those that training survived too."""
    if not case.sightings:
        return []
    table = signatures()
    found = sorted(at for name in {*names} for at in case.index.sightings.get(name, ()))
    return [KnownMessage(table[s.signature], _sign(s), s) for _, s in found]


def of_cause(case: Case, cause: str, roles: tuple[Role, ...] = ("root", "hint")) -> list[KnownMessage]:
    """Sightings that speak for a cause and after which training did not simply go on."""
    if not case.sightings:
        return []
    names = [s.id for s in signatures().values() if s.cause == cause and s.role in roles]
    return [s for s in seen(case, *names) if not statements.message_dismissed(case, s.sighting)]


def activities() -> tuple[str, ...]:
    """The signatures that say what a job does."""
    return tuple(s.id for s in signatures().values() if s.role == "activity")


def sure(speaking: Iterable[KnownMessage]) -> float:
    """The surest message, and a little for every other kind of message that says the same."""
    weights = {s.id: s.signature.weight for s in speaking}
    return min(SUREST, max(weights.values(), default=0.0) + _MORE * (len(weights) - 1))


def address(peer: str) -> str:
    """An address without its port."""
    return _PORT.sub("", peer.strip("[]"))


def timed_out(case: Case) -> list[Statement]:
    """What says that ranks timed out."""
    found = [statements.statement(case, event) for event in statements.events(case, *_TIMED_OUT)]
    return found + [s.sign for s in seen(case, "torch-watchdog-timeout", "gloo-timeout")]


def stands_still(case: Case) -> list[Statement]:
    """What says that the job hangs: timeouts, or the words of a person."""
    told = [s.sign for s in seen(case, "told-gpu-busy", "doing-first-item")]
    return timed_out(case) + told + [_sign(s) for s in case.index.said_to_hang]


def many_hosts(case: Case) -> bool:
    """Whether the evidence shows more than one host."""
    return case.shows_many_hosts


def has_run(case: Case) -> bool:
    """Whether training steps are at hand: then the start had worked."""
    return any(len(progress) > 1 for progress in case.progress)


def _sign(s: Sighting) -> Statement:
    about = s.time_ns if s.time_ns is not None else s.after_ns
    rank = statements.told_rank(s)
    same = (s.ref.rank, s.ref.host) == (rank, s.host)  # mostly, and replacing costs as much as all else
    ref = s.ref if same else replace(s.ref, rank=rank, host=s.host)
    return Statement(s.ref.quote, ref, rank, s.local_rank, s.time_ns, about, s.host)
