"""The finding that all rules on stuck ranks share: who is held up, in what, and who waits."""

from __future__ import annotations

from collections.abc import Container

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import Held, held_up, odd_process, only_stack, ref_of, stack_ref
from whichrank.timeline.job_state.activity import Doing, in_native_code, of_process, runs

_ONLY_SLOW = Alternative("straggler", "one look at the stacks does not tell a rank that is stuck from one that is late")


def judge_held(
    case: Case, doing: Doing, code: str, cause: str, words: str, fix: tuple[str, ...], also: Container[int] = ()
) -> list[Finding] | NotEvaluated:
    """Findings for the ranks whose stack shows that they are held up in this way; of `also` something else shows it."""
    if not case.stacks and not case.unplaced:
        return NotEvaluated("stacks of the ranks (py-spy, faulthandler or gdb)")
    meant = [held for held in held_up(case) if held.activity.doing == doing or held.rank in also]
    found = [replace(held, activity=replace(held.activity, doing=doing)) for held in meant]
    if found:
        return [_finding(case, found, code, cause, words, fix)]
    return _unnamed(case, doing, code, cause, words, fix) or _alone(case, doing, code, cause, words, fix)


def _unnamed(case: Case, doing: Doing, code: str, cause: str, words: str, fix: tuple[str, ...]) -> list[Finding]:
    """What the one process does that does not wait, where nothing says which ranks the processes are."""
    odd = odd_process(case)
    if odd is None or odd[1].doing != doing:
        return []
    stack, activity, waiting = odd
    at = f" at {activity.place}" if activity.place else f" ({activity})"
    who = f"Process {stack.pid}" if stack.pid is not None else "A process"
    moment = _one_look(case)
    return [
        Finding(
            code=code,
            cause=cause,
            category="hang",
            severity="error",
            grade=Grade.HINTS if moment else Grade.SUPPORTS,
            kind="stacks",
            subject=Subject(code=(activity.place,) if activity.place else ()),
            message=f"{who} is {words}{at}; the {waiting} others at hand wait.",
            evidence=(ref_of(stack), *(ref_of(other) for other in case.unplaced if other is not stack))[:3],
            fix=fix,
            alternatives=(_ONLY_SLOW,) if moment else (),
        )
    ]


def _alone(case: Case, doing: Doing, code: str, cause: str, words: str, fix: tuple[str, ...]) -> list[Finding]:
    """What the only stack at hand shows: whoever took it saw a job that stood still."""
    only = only_stack(case)
    activity = of_process(only[0]) if only else None
    if only is None or activity is None or activity.doing != doing or doing == "user":
        return []
    stack, rank = only
    at = f" at {activity.place}" if activity.place else f" ({activity})"
    who = wording.who(case, rank).capitalize() if rank is not None else "A process"
    return [
        Finding(
            code=code,
            cause=cause,
            category="hang",
            severity="error",
            grade=Grade.HINTS,
            kind="stacks",
            subject=Subject(ranks=() if rank is None else (rank,)),
            message=f"{who} is {words}{at}; this is the only stack at hand.",
            evidence=(ref_of(stack, rank),),
            fix=fix,
            next=(NextStep("whichrank attach PID", "takes the stacks of the other ranks too", (cause,), "none"),),
        )
    ]


def _finding(case: Case, found: list[Held], code: str, cause: str, words: str, fix: tuple[str, ...]) -> Finding:
    first = found[0]
    ranks = tuple(held.rank for held in found)
    waiting = tuple(rank for rank in first.waiting if rank not in ranks)
    place = first.activity.place
    at = f" at {place}" if place else ""
    what = (
        f" ({first.activity})"
        if place is None
        or first.activity.frame is None
        or str(place).split(" in ")[-1] != first.activity.frame.function
        else ""
    )
    verb = "is" if len(ranks) == 1 else "are"
    message = (
        f"{wording.culprits_text(case, ranks).capitalize()} {verb} {words}{at}{what}; {wording.wait_text(waiting)}."
    )
    plain = first.by == "dumps" and first.activity.doing not in ("user", "evaluation")
    grade = Grade.PROVES if plain else Grade.SUPPORTS
    # One that sleeps while all others wait for it is no late one.
    moment = first.by == "stacks" and _one_look(case) and any(runs(case.stacks[rank]) for rank in ranks)
    if first.by == "stacks" and (moment or _presumed(case, waiting) or _may_wait(case, ranks)):
        grade = Grade.HINTS
    return Finding(
        code=code,
        cause=cause,
        category="hang",
        severity="error",
        grade=grade,
        kind="stacks",
        subject=Subject(ranks=ranks, code=_places(found)),
        message=message,
        evidence=_evidence(case, found, waiting),
        victims=waiting,
        fix=fix,
        onset_ns=wording.onset(case, case.troubles[0]) if case.troubles else None,
        alternatives=(*_waits_alone(case, ranks), *((_ONLY_SLOW,) if moment else ()), *_misnamed(first)),
        next=(
            NextStep(
                "py-spy dump --nonblocking --pid PID",
                "a second look a minute later shows whether it moves",
                (cause,),
                "none",
            ),
        ),
    )


def _one_look(case: Case) -> bool:
    """Whether the stacks of one moment are all that says that the job hangs."""
    told = any(complaint.category == "hang" for complaint in case.complaints)
    seen = case.timed_out or case.all_stand or case.has_dumps or any(trouble.hangs for trouble in case.troubles)
    return not (told or seen or any(report.mismatches for report in case.ras))


def _presumed(case: Case, waiting: tuple[int, ...]) -> bool:
    """Whether it is only by their common line that they are said to wait."""
    return all(case.activities[rank].presumed for rank in waiting if rank in case.activities)


def _may_wait(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether the ranks themselves may wait for their GPUs, in C code below a line of the training code."""
    return all(in_native_code(case.stacks[rank]) for rank in ranks)


def _waits_alone(case: Case, ranks: tuple[int, ...]) -> tuple[Alternative, ...]:
    if not _may_wait(case, ranks):
        return ()
    cause = "rank0-only-collective" if ranks == (0,) else "conditional-collective"
    return (Alternative(cause, "it may wait for its GPU, in a collective that the others don't call"),)


def _misnamed(first: Held) -> tuple[Alternative, ...]:
    if first.activity.doing == "user":
        return ()
    return (Alternative("rank-stuck-in-user-code", "the name of the function may mislead"),)


def _places(found: list[Held]) -> tuple[CodePlace, ...]:
    places = (held.activity.place for held in found[:4])
    return tuple(
        CodePlace(p.file, p.line, p.function, h.rank) for p, h in zip(places, found, strict=False) if p is not None
    )


def _evidence(case: Case, found: list[Held], waiting: tuple[int, ...]) -> tuple[Ref, ...]:
    refs = [stack_ref(case, held.rank) for held in found[:3]]
    refs += [stack_ref(case, rank) for rank in waiting if rank in case.stacks][:1]
    if case.troubles and case.lineup is not None:
        refs += wording.evidence(case.lineup, case.troubles[0])[:3]
    return tuple(refs)
