"""Known messages of the knowledge base in a case: which were seen, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.facts.messages import Role, Signature, ids_of, signatures
from whichrank.model.grades import Grade
from whichrank.model.host_lists import expand
from whichrank.records.events.base import Event
from whichrank.records.events.communication import NcclError, PeerClosed
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.startup import StoreError
from whichrank.records.events.watchdog import WatchdogStuck
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_PORT = re.compile(r"(?:<\d{1,5}>|:\d{1,5}$).*")

_TIMED_OUT: tuple[type[Event], ...] = (*statements.TIMED_OUT, WatchdogStuck)

_LOST: tuple[type[Event], ...] = (PeerClosed, NcclError, StoreError)


class Seen(Struct, frozen=True):
    """A known message that was seen, with what is known of it."""

    signature: Signature
    sign: Statement
    event: KnownMessage

    @property
    def id(self) -> str:
        return self.signature.id

    def group(self, name: str) -> str:
        return self.event.captures.get(name, "")


def seen(case: Case, *names: str) -> list[Seen]:
    """Messages of these signatures, whatever their role; those that training survived too."""
    if not case.sightings:
        return []
    table = signatures()
    found = sorted(at for name in {*names} for at in case.index.sightings.get(name, ()))
    return [Seen(table[s.signature], case.index.statement(number, s), s) for number, s in found]


def of_cause(case: Case, cause: str, roles: tuple[Role, ...] = ("root", "hint")) -> list[Seen]:
    """Messages that speak for a cause and after which training did not simply go on."""
    if not case.sightings:
        return []
    return [s for s in seen(case, *ids_of(cause, roles)) if not statements.dismissed(case, s.event)]


def activities() -> tuple[str, ...]:
    """The signatures that say what a job does."""
    return tuple(s.id for s in signatures().values() if s.role == "activity")


def grade(speaking: Iterable[Seen]) -> Grade:
    """That of the strongest message."""
    return max((s.signature.grade for s in speaking), default=Grade.HINTS)


def address(peer: str) -> str:
    """An address without its port."""
    return _PORT.sub("", peer.strip("[]"))


def peers(speaking: Iterable[Seen]) -> tuple[str, ...]:
    """The other sides that these messages name, each host of a list by itself."""
    named = {address(told) for s in speaking if (told := s.group("peer"))}
    return tuple(sorted({host for text in named for host in expand(text)}))


def timed_out(case: Case) -> list[Statement]:
    """What says that ranks timed out."""
    found = [statements.statement(case, event) for kind in _TIMED_OUT for event in case.events(kind)]
    return found + [s.sign for s in seen(case, "torch-watchdog-timeout", "gloo-timeout")]


def stands_still(case: Case) -> list[Statement]:
    """What says that the job hangs: timeouts, or the words of a person."""
    told = [s.sign for s in seen(case, "told-gpu-busy", "doing-first-item", "xla-stuck")]
    return timed_out(case) + told + [statements.of_message(s) for s in case.index.said_to_hang]


def many_hosts(case: Case) -> bool:
    """Whether the evidence shows more than one host."""
    return case.shows_many_hosts


def has_run(case: Case) -> bool:
    """Whether training steps are at hand: then the start had worked."""
    return any(len(progress) > 1 for progress in case.progress)
