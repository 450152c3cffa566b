"""Ranks leave out of step: one destroys its groups or exits while others still communicate.

## What it finds
A rank that has begun to tear down (or has left) while the others wait in a collective; or ranks that hang in the
teardown itself.

## Why it happens
A rank leaves its loop early, returns from main on a condition, or calls `destroy_process_group` before the others are
done; exit handlers and threads that still communicate; `destroy_process_group` is itself waiting for pending work.

## How it decides
The rank does not arrive at a collective, and its own log says that it destroys its communicators, or its stack is
inside teardown: in `destroy_process_group`, or in NCCL's functions that abort and free communicators. If all stacks are
in teardown, or there is only one that nothing gives to a rank, nobody is singled out.

## Example
Rank 2 printed `Destroy COMPLETE` and is gone; ranks 0, 1 and 3 wait in `all_reduce #18`.

## Fix
Put a barrier before `destroy_process_group`, and reach it on every path; join threads that communicate first.

## Limits
Since NCCL 2.30 the lines about destroying are printed only with `NCCL_DEBUG_SUBSYS` containing DESTROY.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.dump import Frame
from whichrank.records.events.collectives import StoodStill
from whichrank.records.events.communication import PeerClosed
from whichrank.records.events.launchers import ProcessExit, ProcessLeft
from whichrank.records.events.startup import GroupTeardown
from whichrank.records.stack import ProcessStack, ThreadStack, innermost_user_frame, main_thread
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import unrecorded
from whichrank.timeline.collectives.stuck import only_stack, ref_of, stack_ref, suspects_by_record
from whichrank.timeline.job_state import deaths
from whichrank.timeline.job_state.activity import of_process
from whichrank.timeline.job_state.exceptions import lost_a_peer

CODE = "COLL112"
CAUSE = "teardown-hang"
_END_THREAD = "Tell that thread to end and join it before the script ends, or start it with daemon=True."


def judge(case: Case) -> list[Finding] | NotEvaluated:
    signs = _signs(case)
    if not (case.stacks or case.unplaced or case.nccl or case.log_events):
        return NotEvaluated("stacks or logs of the ranks")
    suspects, victims = suspects_by_record(case)
    leaving = {rank: signs[rank] for rank in suspects if rank in signs}
    if leaving:
        return [_finding(case, leaving, victims, Grade.SUPPORTS)]
    left = _left(case)
    if left:
        lost = tuple(sorted({e.rank for e in case.events(PeerClosed) if e.rank is not None} - set(left)))
        lost = lost or tuple(rank for rank in range(case.world) if rank not in left)
        return [replace(_finding(case, left, lost, Grade.SUPPORTS), category="crash")]
    return _by_stacks(case, signs)


def _by_stacks(case: Case, signs: dict[int, Ref]) -> list[Finding]:
    in_stack = {rank: signs[rank] for rank, a in case.activities.items() if a.doing == "leaving" and rank in signs}
    past = {event.rank: event.ref for event in case.events(GroupTeardown) if event.what == "destroyed"}
    in_stack |= {rank: ref for rank, ref in past.items() if rank is not None and rank in case.stacks}
    waiting = tuple(rank for rank, activity in case.activities.items() if activity.doing == "waiting")
    left_already = {event.rank for event in case.events(ProcessLeft)}
    if left_already and case.all_stand:
        in_stack |= {event.rank: event.ref for event in case.events(StoodStill) if event.rank is not None}
    left_already -= in_stack.keys()
    if not in_stack and (only := only_stack(case)) is not None and of_process(only[0]).doing == "leaving":
        return [_unnamed(only[0])]
    if not in_stack or case.troubles or unrecorded.ended_before_new_group(case):
        return []
    if waiting and len(in_stack) < len(waiting):
        return [_finding(case, in_stack, waiting, Grade.SUPPORTS)]
    if waiting:
        return []
    return [_last_to_end(case, in_stack, left_already) if left_already else _all_leaving(in_stack)]


def _left(case: Case) -> dict[int, Ref]:
    """Ranks that ended well while all others, and nobody died otherwise, lost a peer in a collective."""
    left = {event.rank: event.ref for event in case.events(ProcessLeft) if event.rank is not None}
    if deaths.left_to_crash(case):
        return left
    lost = lost_a_peer(case) - set(left)
    ends = [e for e in case.events(ProcessExit) if e.signal != deaths.TERMINATE]
    # Who had lost a peer may crash on the way out; nobody is killed for that.
    died = [e for e in ends if e.signal == deaths.KILL or e.rank not in lost]
    return left if lost and not died else {}


def _signs(case: Case) -> dict[int, Ref]:
    """Ranks of which something says that they tear down or have left, with the words."""
    found: dict[int, Ref] = {}
    for process in case.nccl:
        rank = case.people.rank_of(process.pid, process.host)
        end = next((end for end in process.ends if end.kind == "destroy"), None)
        if rank is not None and end is not None:
            words = f"comm {end.comm} rank {end.rank} nranks {end.nranks} - Destroy {end.phase.upper()}"
            found[rank] = Ref(process.source, f"line {end.line}", words, rank, process.host, None)
    for event in case.events(GroupTeardown):
        if event.rank is not None and event.what in ("destroying", "destroyed"):
            found.setdefault(event.rank, event.ref)
    for rank, activity in case.activities.items():
        if activity.doing == "leaving":
            found[rank] = stack_ref(case, rank)
    return found


def _finding(case: Case, leaving: dict[int, Ref], victims: tuple[int, ...], grade: Grade) -> Finding:
    ranks = tuple(sorted(leaving))
    rest = tuple(rank for rank in victims if rank not in ranks)
    verb = "has" if len(ranks) == 1 else "have"
    refs = list(leaving.values())[:3]
    if case.lineup is not None and case.troubles:
        refs += wording.evidence(case.lineup, case.troubles[0])[:3]
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=grade,
        subject=Subject(ranks=ranks),
        message=(
            f"{wording.culprits_text(case, ranks).capitalize()} {verb} begun to tear down while "
            f"{wording.ranks_text(rest)} still {'communicates' if len(rest) == 1 else 'communicate'}."
        ),
        evidence=tuple(refs),
        victims=rest,
        onset_ns=wording.onset(case, case.troubles[0]) if case.troubles else None,
        alternatives=(Alternative("uneven-inputs", "it may have run out of data and finished early"),),
        fix=(
            (
                "Reach a barrier on every rank before destroy_process_group; look for the path on which "
                "this rank leaves early."
            ),
        ),
    )


def _unnamed(stack: ProcessStack) -> Finding:
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        subject=Subject(),
        message=f"A process hangs in the teardown of its communicators ({of_process(stack)}).",
        evidence=(ref_of(stack),),
        fix=(
            "Let all ranks of a node abort or destroy their communicators: each waits for the threads of the others.",
            *fix(CAUSE),
        ),
        next=(NextStep("whichrank attach PID", "takes the stacks of the other ranks too", (CAUSE,), "none"),),
    )


def _last_to_end(case: Case, leaving: dict[int, Ref], left: set[int | None]) -> Finding:
    """The others have ended: nobody keeps these but themselves."""
    ranks = tuple(sorted(leaving))
    threads = [(rank, thread) for rank in ranks for thread in _kept_by(case.stacks.get(rank))]
    code = tuple(CodePlace(f.file, f.line, f.function, rank) for rank, t in threads if (f := innermost_user_frame(t)))
    whom = wording.ranks_text(tuple(sorted(rank for rank in left if rank is not None)))
    keeps = f": a thread that is not a daemon is still at {code[0]}" if code else ""
    stands = [(rank, place) for rank in ranks if (a := case.activities.get(rank)) and (place := a.place) is not None]
    if not keeps and stands:
        keeps = f"; rank {stands[0][0]} is at {stands[0][1]}"
    verb, pronoun = ("does", "it is") if len(ranks) == 1 else ("do", "they are")
    who = wording.culprits_text(case, ranks).capitalize()
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=Subject(ranks=ranks, code=code[:3] or tuple(place for _, place in stands[:3])),
        message=f"{who} {verb} not end although {whom} ended and {pronoun} past the training{keeps}.",
        evidence=tuple(leaving.values())[:4],
        fix=(_END_THREAD, *fix(CAUSE)) if code else fix(CAUSE),
    )


def _kept_by(stack: ProcessStack | None) -> list[ThreadStack]:
    """The threads for which the interpreter, or the script's own join, waits before the process ends."""
    main = main_thread(stack) if stack is not None else None
    if stack is None or main is None or not any(map(_joins, main.frames)):
        return []
    return [thread for thread in stack.threads if not thread.main and innermost_user_frame(thread) is not None]


def _joins(frame: Frame) -> bool:
    function = frame.function.rsplit(".", 1)[-1]
    return function.endswith("_shutdown") or (function == "join" and frame.file.endswith("threading.py"))


def _all_leaving(leaving: dict[int, Ref]) -> Finding:
    ranks = tuple(sorted(leaving))
    what = "hangs in the teardown of its" if len(ranks) == 1 else "hang in the teardown of their"
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        subject=Subject(),
        message=f"{wording.ranks_text(ranks).capitalize()} {what} process groups.",
        evidence=tuple(leaving.values())[:4],
        victims=ranks,
        fix=fix(CAUSE),
    )
