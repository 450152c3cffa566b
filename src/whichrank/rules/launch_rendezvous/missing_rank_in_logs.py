"""Not every rank joined, according to the store.

## What it finds
The store that counts fewer clients than it waits for, a start barrier that not all ranks came to, or a rendezvous
that fewer nodes reached.

## Why it happens
A process failed before it came there, a node was not started, or can not reach the store.

## How it decides
The text of the message, in the form of each version. Lines after which training went on for many steps are
not counted. Ranks that say that they wait in the start barrier have come: where all but as many as are missing say
so, the others are named. A barrier that gave up tells more than one that was only waited in. Where the agents gave up
in the rendezvous, a host whose task the launcher saw end before that is the one that never came.

## Example
`Timed out after 901 seconds waiting for clients. 7/8 clients joined.`

## Limits
The store itself does not know who is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.launchers import ProcessExit
from whichrank.records.events.startup import RendezvousError, StoreError, StorePassed
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.set_ups import unmade
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.deaths import deaths

CODE = "LNCH202"
CAUSE = "missing-rank-at-init"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    category="hang",
)

_UNIQUE_ID = "torch-unique-id"
_BARRIER = ("barrier_timeout", "barrier_wait")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.of_cause(case, CAUSE)
    seen = unmade(case)
    if seen.pairs or seen.groups:  # a communicator of some ranks: the start of the job is behind them
        told = [s for s in told if s.id != _UNIQUE_ID]
    if not any(s.signature.role == "root" for s in told):
        return _at_the_barrier(case)
    sure = known_messages.grade(told)
    counted = _counted(case)
    if counted is None:
        finding = building.tell_of(case, _CLAIM, "Not every rank joined: {what}.", told, sure)
        listed = statements.ranks_of(s.sign for s in known_messages.seen(case, "jax-missing-task"))
        if listed:
            return [building.about(finding, Subject(ranks=listed))]
        ended = _ended_before(case)
        return [_of_hosts(finding, ended) if ended else finding]
    joined, expected = counted
    step = f"If fewer ranks were meant, WORLD_SIZE is wrong: it says {expected}, and {joined} joined."
    finding = building.tell_of(
        case, replace(_CLAIM, fix=(*_CLAIM.fix, step)), "Not every rank joined: {what}.", told, sure
    )
    dead = _dead_before(case, expected - joined)
    absent = tuple(dead) or _silent(case, joined, expected)
    if not absent:
        return [finding]
    did = "ended before they could join" if dead else "did not join"
    who = wording.ranks_text(absent).capitalize()
    message = f"{who} {did}: {joined} of {expected} did{'' if dead else ', and all of them printed'}."
    others = tuple(rank for rank in range(expected) if rank not in absent)
    hosts = tuple(dict.fromkeys(ref.host for ref in dead.values() if ref.host))
    evidence = (*dict.fromkeys(dead.values()), *finding.evidence)
    return [replace(finding, subject=Subject(absent, hosts), victims=others, message=message, evidence=evidence)]


def _dead_before(case: Case, missing: int) -> dict[int, Ref]:
    """The ranks whose end the launcher told before anybody gave up waiting, where just as many are missing."""
    gave_up = {e.ref.source: e.line for e in reversed(case.events(StoreError))}
    ended = {d.sign.rank: d.sign.ref for d in deaths(case) if d.sign.ref.line < gave_up.get(d.sign.ref.source, 0)}
    dead = {rank: ref for rank, ref in ended.items() if rank is not None}
    return dict(sorted(dead.items())) if len(dead) == missing else {}


def _of_hosts(finding: Finding, ended: Sequence[ProcessExit]) -> Finding:
    hosts = tuple(dict.fromkeys(event.host for event in ended if event.host))
    said = ended[0].ref
    message = f"{', '.join(hosts)} never came to the rendezvous: {said.quote}."
    return replace(finding, subject=Subject(hosts=hosts), message=message, evidence=(said, *finding.evidence))


def _ended_before(case: Case) -> list[ProcessExit]:
    """Tasks of some hosts that a launcher saw fail in the same output before any agent gave up in the rendezvous."""
    gave_up = case.events(RendezvousError)
    first = {e.ref.source: e.line for e in reversed(gave_up)}
    waited = {short_name(e.host) for e in gave_up if e.host}
    exits = [e for e in case.events(ProcessExit) if e.host and (e.exitcode or e.signal)]
    early = [e for e in exits if e.line < first.get(e.ref.source, 0) and short_name(e.host or "") not in waited]
    return early if {e.host for e in early} < {e.host for e in exits} | waited else []


def _counted(case: Case) -> tuple[int, int] | None:
    """How many joined, and how many must come, where the store counted."""
    for event in case.events(StoreError):
        joined, expected = event.joined, event.expected
        if joined is not None and expected is not None and joined < expected:
            return joined, expected
    return None


def _silent(case: Case, joined: int, expected: int) -> tuple[int, ...]:
    """The ranks of which nothing is heard, where just as many are heard as the store has counted."""
    heard = {e.rank for e in case.log_events if e.rank is not None} | set(case.people.by_rank)
    if len(heard) != joined or not heard <= set(range(expected)):
        return ()
    return tuple(rank for rank in range(expected) if rank not in heard)


def _at_the_barrier(case: Case) -> list[Finding]:
    """The newest words about a barrier in the store that nobody has passed, by the number that had come."""
    counted = [(s, s.event) for s in statements.of_kind(case, StoreError) if isinstance(s.event, StoreError)]
    barriers = [(s, event) for s, event in counted if event.what in _BARRIER]
    if not barriers or known_messages.has_run(case):
        return []
    newest = barriers[-1][1]
    key, joined, world = newest.key, newest.joined or 0, newest.world_size or 0
    passed = {event.key for event in case.events(StorePassed)}
    if joined >= world or key in passed:
        return []
    here = [(s, event) for s, event in barriers if event.key == key]
    gave_up = any(event.what == "barrier_timeout" for _, event in here)
    came = {event.group_rank for _, event in here}
    all_others = len(came) == joined and world >= case.world
    absent = tuple(rank for rank in range(world) if rank not in came) if all_others else ()
    who = wording.ranks_text(absent).capitalize() if absent else f"{world - joined} of {world} ranks"
    message = f"{who} did not reach the start barrier; {joined} of {world} wait there."
    return [
        building.found(case, _CLAIM, [s for s, _ in here], message, Grade.SUPPORTS if gave_up else Grade.HINTS, absent)
    ]
