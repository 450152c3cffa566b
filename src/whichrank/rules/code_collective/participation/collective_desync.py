"""A rank does not reach a collective, and the dumps don't show why.

## What it finds
Everybody waits, directly or through other groups, for one rank (or a few) that issued nothing more and waits in no
recorded operation; or for a rank that left no dump.

## Why it happens
The rank is busy or blocked outside of communication: data loading, a checkpoint, an evaluation, compilation, a lock,
a stopped process; or it ran out of data, raised an exception, was killed; or it hangs in the first send or recv with
a peer, which the recorder does not show.

## How it decides
In the wait-for graph over all groups the waiting ends at this rank. A rank without a dump is named only where nobody
else is missing and no later operation proves that it went on; a missing dump alone proves nothing.

## Example
Ranks 0, 2 and 3 wait in `all_reduce #13`; rank 1 finished `#12` and issued nothing since.

## Fix
Look at the stack of that rank while it hangs: it is on the line that holds the job up.

## Limits
With stacks or logs in the same folder whichrank names the reason itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import unrecorded
from whichrank.timeline.collectives.troubles.trouble import Trouble
from whichrank.timeline.collectives.without_dumps import only_signalled, waited_in

CODE = "COLL110"
CAUSE = "collective-desync"

_STACK = NextStep(
    "py-spy dump --nonblocking --pid PID",
    "the stack of the rank that is missing shows what holds it up",
    ("rank-stuck-in-data-loading", "rank-stuck-in-checkpoint", "rank-stuck-in-user-code", "uneven-inputs"),
    "none",
)
_LOG = NextStep(
    "whichrank diagnose FOLDER-WITH-LOGS",
    "its log, the launcher's output and the kernel log tell whether it died",
    ("rank-killed", "rank-exception"),
    "none",
)
_IN_HOST_CODE = ("rank-stuck-in-user-code", "it may be blocked in host code")
_OTHER_WAY = ("conditional-collective", "it may wait in a call that the others don't make")
_NO_BATCH = ("rank-stuck-in-data-loading", "it may wait for its next batch")
_SAVES = ("rank-stuck-in-checkpoint", "it may save a checkpoint that the others don't wait for")
_GONE = ("rank-killed", "its process may be gone")
_FAILED = ("rank-exception", "it may have ended with an error, which its own output tells")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    making = set(unrecorded.in_new_group(case))  # they wait for others too: COLL135 tells for whom
    return [
        _finding(case, _by_watchdogs(case, t))
        for t in case.troubles
        if t.shape in ("lost", "undecided")
        or (t.shape == "stopped" and not t.meeting.p2p and not (t.ranks and making.issuperset(t.ranks)))
    ]


def _by_watchdogs(case: Case, trouble: Trouble) -> Trouble:
    """The same with what the logs say of ranks without a dump: who timed out there has come; who only heard of it may
    be missing as well."""
    waited = waited_in(case, trouble.meeting) if trouble.meeting.unseen else set()
    if not waited:
        return trouble
    unseen = set(trouble.meeting.unseen) - waited
    if trouble.shape == "stopped":
        return replace(trouble, candidates=tuple(sorted(unseen & only_signalled(case) - set(trouble.ranks))))
    left = tuple(rank for rank in trouble.candidates if rank not in waited)
    return replace(trouble, candidates=left) if left else trouble


def _ended(case: Case, trouble: Trouble) -> bool:
    """Whether the ranks that left no dump are known to have ended by themselves: what ended them is the cause."""
    if trouble.shape != "lost" or not trouble.ranks:
        return False
    from whichrank.timeline.job_state.deaths import deaths, waited

    by_themselves = {d.sign.rank for d in deaths(case) if not d.by_launcher}
    return by_themselves.issuperset(trouble.ranks) and not any(waited(case, rank) for rank in trouble.ranks)


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    due = trouble.due if trouble.due is not None else next(iter(trouble.meeting.joined.values()))
    gone, ended = trouble.shape == "lost", _ended(case, trouble)
    missing = (
        wording.ranks_text(trouble.ranks or trouble.candidates) if trouble.ranks or trouble.candidates else "the rest"
    )
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="crash" if ended else "hang",
        severity="error",
        grade=Grade.HINTS if ended else trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=wording.place(lineup, due),
            candidates=trouble.candidates if trouble.shape == "stopped" or not trouble.ranks else (),
        ),
        message=_message(case, trouble, wording.step(lineup, due)),
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims,
        onset_ns=wording.onset(case, trouble),
        alternatives=_alternatives(case, trouble),
        next=(_LOG, _STACK) if gone else (_STACK, _LOG),
        fix=(f"Find out what {missing} does instead of reaching that line: stack first, then its log.",),
    )


def _message(case: Case, trouble: Trouble, where: str) -> str:
    waiting = wording.wait_text(trouble.victims)
    if trouble.shape == "undecided":
        if not trouble.candidates:
            known = "every rank that left a dump has arrived, and the dumps don't show whether there are more"
            return f"{waiting.capitalize()} in {where}; {known}."
        suspects = wording.ranks_text(trouble.candidates)
        readable = "" if case.damaged_dumps.isdisjoint(trouble.candidates) else " that can be read"
        return f"{waiting.capitalize()} in {where} for one of {suspects}, none of which left a dump{readable}."
    missing = wording.culprits_text(case, trouble.ranks).capitalize()
    if trouble.shape == "lost":
        verb = "has" if len(trouble.ranks) == 1 else "have"
        if trouble.meeting.finished:
            done, stuck = (wording.ranks_text(sorted(r)) for r in (trouble.meeting.finished, trouble.meeting.pending))
            place = where[0].upper() + where[1:]
            return f"{place} finished on {done} and never on {stuck}; {missing.lower()} left no dump."
        return f"{missing} {verb} not reached {where}, where {waiting}, and {_dump_of(case, trouble.ranks)}."
    last = wording.last_entry(wording.lineup_of(case), trouble.ranks[0])
    after = f"; the last it issued was {last.quote}" if last else ""
    return f"{missing} never reached {where}, where {waiting}{after}."


def _dump_of(case: Case, ranks: Sequence[int]) -> str:
    """What there is of their dumps."""
    if not case.damaged_dumps.issuperset(ranks):
        return "left no dump" if case.damaged_dumps.isdisjoint(ranks) else "left no dump that can be read"
    return "its dump is cut or damaged" if len(ranks) == 1 else "their dumps are cut or damaged"


def _alternatives(case: Case, trouble: Trouble) -> tuple[Alternative, ...]:
    """What may lie behind it."""
    if trouble.shape == "undecided" and not trouble.candidates:
        offers = [("collective-stalled", "all may have come, and the network or a GPU does not answer")]
    elif trouble.shape in ("lost", "undecided"):
        frozen = ("rank-frozen", "a stopped process writes no dump")
        if trouble.meeting.finished:  # it has come, and its GPU does not go on: its code does not do that
            offers = [frozen, _GONE]
        elif case.stacks.keys() >= set(trouble.ranks):  # its process is there
            offers = [_OTHER_WAY, _IN_HOST_CODE, frozen]
        else:
            offers = [_FAILED, _GONE, frozen]
    elif not case.has_dumps and not case.stacks:  # nothing says that it lives
        offers = [_FAILED, _IN_HOST_CODE, _GONE]
    elif len(trouble.ranks) > 1:
        # Gloo records no messages, and NCCL not the first one of a pair.
        unrecorded = ("p2p-deadlock", "a send or recv that is not recorded may hold them")
        offers = [_IN_HOST_CODE, unrecorded if _may_send(case) else _NO_BATCH, _SAVES]
    else:
        offers = [_IN_HOST_CODE, _NO_BATCH, _SAVES]
    return tuple(Alternative(cause, why) for cause, why in offers)


def _may_send(case: Case) -> bool:
    """Whether the job sends messages, or nothing would show it."""
    lineup = wording.lineup_of(case)
    return lineup.has_messages or any(call.backend != "nccl" for call in lineup.calls)
