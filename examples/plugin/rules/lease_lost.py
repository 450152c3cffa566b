"""The storage gateway of a host lost its lease while the job was reading.

## What it finds
A rank that says that its lease on /scratch was lost, and that never says that it got it back.

## Why it happens
A gateway that can't reach the metadata server for a minute loses its lease. Reads block until it is renewed.

## How it decides
By the lines of `acme-storage` in the output of the ranks: `lease lost` without a later `lease renewed` of the same rank.
That the loss stands and was not repaired is what a signature alone can't say.

## Example
    [rank3]: acme-storage: lease lost on /scratch, I/O suspended

## Fix
Renew the lease on that host; the job goes on by itself.

## Limits
It sees only what the ranks print. A gateway that dies without a word is not found.
"""

from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.timeline.job_state import known_messages, statements

CODE = "ACME101"
CAUSE = "acme-lease-lost"


def judge(case):
    if not statements.heard(case):
        return NotEvaluated("output of the ranks")
    renewed = {}
    for seen in known_messages.seen(case, "acme-lease-renewed"):
        renewed[seen.event.ref.source] = seen.event.line
    lost = [
        seen
        for seen in known_messages.seen(case, "acme-lease-lost")
        if seen.event.line > renewed.get(seen.event.ref.source, 0)
    ]
    if not lost:
        return []
    ranks = tuple(sorted({seen.sign.rank for seen in lost if seen.sign.rank is not None}))
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks) or 'some'} ranks"
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="hang",
            severity="error",
            grade=Grade.PROVES,
            subject=Subject(ranks=ranks),
            message=f"The storage under {who} lost its lease on {lost[0].group('path')} and did not get it back.",
            evidence=tuple(seen.sign.ref for seen in lost[:5]),
            fix=("Renew the lease on that host; the job goes on by itself.",),
        )
    ]
