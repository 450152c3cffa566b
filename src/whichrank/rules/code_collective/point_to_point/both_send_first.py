"""Two ranks begin their first exchange over NCCL with the same half.

## What it finds
Ranks that failed in a send with an address that NCCL could not read.

## Why it happens
Both ends of an exchange call `send` before `recv`. To connect, a sender reads what its peer wrote as a receiver; where
the peer is a sender too, that is something else, and NCCL takes it for an address. Once two ranks are connected, the
same mistake hangs instead.

## How it decides
Two or more ranks raised in a send of torch.distributed, and NCCL's last error on each of them is an address that is
neither IPv4 nor IPv6.

## Example
`ncclSocketInit: connecting to address  with family 1 is neither AF_INET(2) nor AF_INET6(10)` on ranks 0 and 2, both in
`dist.send` at `halo.py:31`.

## Limits
Over shared memory or NVLink the same mistake has other signs.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.collectives import SENDS
from whichrank.records.events.processes import Traceback
from whichrank.records.stack import is_user_frame
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages

CODE = "COLL143"
CAUSE = "p2p-deadlock"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    raised = {event.rank: event for event in case.events(Traceback) if event.rank is not None and event.frames}
    if not raised:
        return NotEvaluated("tracebacks of ranks")
    unread = {seen.sign.rank for seen in known_messages.seen(case, "nccl-address-unset")}
    ranks = tuple(sorted(rank for rank, event in raised.items() if rank in unread and _sends(event)))
    if len(ranks) < 2:
        return []
    frames = (next((f for f in reversed(raised[rank].frames) if is_user_frame(f)), None) for rank in ranks)
    code = tuple(dict.fromkeys(CodePlace(f.file, f.line, f.function) for f in frames if f is not None))
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="crash",
            severity="error",
            grade=Grade.SUPPORTS,
            subject=Subject(ranks=ranks, code=code[:4]),
            message=(
                f"{wording.ranks_text(ranks).capitalize()} start an exchange with a send, and so do their peers: "
                "NCCL read what a sender wrote as the address of a receiver."
            ),
            evidence=tuple(raised[rank].ref for rank in ranks[:4]),
            alternatives=(Alternative("no-usable-interface", "a peer without an interface writes no address either"),),
            fix=fix(CAUSE),
        )
    ]


def _sends(event: Traceback) -> bool:
    return any(f.function in SENDS and "distributed" in f.file for f in event.frames[-4:])
