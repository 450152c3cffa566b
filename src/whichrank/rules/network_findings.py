"""Findings on the network: what a standing connection is worth, whom it is about, and how that is said."""

from __future__ import annotations

from collections.abc import Iterable

from whichrank.model.evidence import Ref
from whichrank.model.findings import Endpoint, Link, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events
from whichrank.timeline.job_state.kernel_events import Weight
from whichrank.timeline.network.connections import Flow, Place
from whichrank.timeline.network.paths import Scope, moving


def weight(case: Case) -> Weight:
    """A job that goes on is not held up, whatever single connections do."""
    still = not any(moving(flow) for flow in case.connections.flows)
    held_up = still or kernel_events.failed(case) or not kernel_events.has_job(case)
    return Weight("error") if held_up else Weight("warning", 1)


def subject(scope: Scope) -> Subject:
    """One host and its ranks, or the link between two."""
    if scope.place is not None:
        return Subject(ranks=scope.place.ranks, hosts=(scope.place.name,))
    if scope.pair is not None:
        one, other = scope.pair
        return Subject(links=(Link(Endpoint(one.name, ""), Endpoint(other.name, "")),))
    return Subject()


def refs(flows: Iterable[Flow]) -> list[Ref]:
    """The sockets as evidence, one of each pair of hosts first."""
    unique = {flow.pair: flow.sender.ref for flow in reversed(list(flows))}
    return list(dict.fromkeys([*reversed(unique.values()), *(flow.sender.ref for flow in flows)]))


def named(place: Place) -> str:
    """`node7 (ranks 4-7)`."""
    return f"{place.name} ({wording.ranks_text(place.ranks)})" if place.ranks else place.name


def scope_text(scope: Scope) -> str:
    """`between node7 (rank 2) and the other hosts`, `between A and B`, `between the hosts`."""
    if scope.place is not None:
        return f"between {named(scope.place)} and the other hosts"
    if scope.pair is not None:
        return f"between {named(scope.pair[0])} and {named(scope.pair[1])}"
    return "between the hosts"
