"""A rank raised an exception of its own; the others only lost their peer.

## What it finds
An uncaught Python exception that is not an echo of somebody else's failure: a bug, bad data, a missing file, a failed
download, an assertion.

## Why it happens
Code or data that only one rank meets: its shard, its role, its host. The process ends, its connections close, and
every other rank reports a lost connection or, later, a timeout.

## How it decides
Tracebacks are sorted by what they tell. Exceptions that report a lost peer, a timeout, a closed store or the
launcher's signal are consequences and never named. Exceptions that name a known cause (memory, CUDA, files, ports)
are left to the rules for these. What remains is the rank's own; ranks that raise the same within ten seconds are
named together; what all ranks raise alike accuses none of them. Exceptions after which training went on, that Python
ignored, or that ended another thread, do not count. Where there is no traceback but the launcher saw one process fail
and ended all others itself, that process is named with little confidence; so is the process that the watcher saw end
before all others, where all that these raised is that a peer was gone. An exception that says that the job is too
slow names nobody: who measures that is not who makes it slow. The last line of an exception whose traceback was cut
off is told where nothing else is.

## Example
Rank 3 prints `KeyError: 'labels'` at `data.py:88`; ranks 0-2 print `Connection closed by remote peer`.

## Fix
Read the traceback of that rank; the others have nothing to tell.

## Limits
Without prefixes or one file per rank, nothing says whose traceback it is: run with `torchrun --log-dir DIR --tee
3`, or wrap the entry point with `torch.distributed.elastic.multiprocessing.errors.record`.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.facts.messages import signatures
from whichrank.facts.slowness import complains
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.launchers import ProcessExit
from whichrank.records.events.processes import Traceback
from whichrank.records.events.run_state import LossNonfinite
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, exceptions, missing_files, statements
from whichrank.timeline.job_state.statements import Statement

CODE = "CODE101"
CAUSE = "rank-exception"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Fix the exception of that rank: its traceback names the line; what the other ranks print follows from it.",
        "If only this rank meets it, look at what is different there: its data shard, its host, code under its rank.",
    ),
)
_BARE = Claim(
    CODE,
    CAUSE,
    fix=("Get the output of that rank: it ended by itself, and the others after it.",),
    alternatives=(
        ("gpu-out-of-memory", "the exit code does not say what was raised"),
        ("collective-desync", "a rank that loses a collective may end first too"),
    ),
    next=(
        NextStep(
            "torchrun --log-dir LOGS --tee 3 …",
            "the rank's own output holds the traceback",
            ("rank-exception", "gpu-out-of-memory"),
            "ends",
        ),
    ),
)
_CHOSE = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look for sys.exit in the code of that rank: it left without an exception, and the others lost their peer.",
        "Raise an exception instead, or agree on the end with an all_reduce, so that every rank leaves and says why.",
    ),
)
_NUMBERS = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,20}")
_MOST = 3
_LAST_LINES = ("bare-exception", "bare-runtime-error", "argparse-error")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    raised = exceptions.own_exceptions(case) or exceptions.unclaimed_cuda_errors(case)
    if case.events(LossNonfinite) or exceptions.all_gave_up_on_nan(case):
        raised = [s for s in raised if not exceptions.NOT_FINITE.search(s.text)]  # it says what the losses had said
        if not raised:
            return []
    if raised and (missed := missing_files.not_shared(case)) is not None:
        raised = [sign for sign in raised if missing_files.path_in(sign) != missed[0]]  # the folder is not shared
        if not raised:
            return []
    if raised:
        return [_finding(case, group, first=i == 0) for i, group in enumerate(_grouped(raised)[:_MOST])]
    return (
        _told_by_others(case)
        or _in_a_thread(case)
        or _by_exit_code(case)
        or _by_the_first_end(case)
        or _by_its_last_line(case)
        or _by_one_task(case)
    )


def _grouped(raised: list[Statement]) -> list[list[Statement]]:
    """The same exception on several ranks is one; the earliest group first."""
    groups: dict[str, list[Statement]] = {}
    for sign in raised:
        groups.setdefault(_NUMBERS.sub("#", building.short(sign.ref.quote, 200)), []).append(sign)
    return sorted(groups.values(), key=lambda group: min(_when(sign) for sign in group))


def _when(sign: Statement) -> float:
    return sign.about_ns if sign.about_ns is not None else float("inf")


def _finding(case: Case, group: list[Statement], *, first: bool) -> Finding:
    signs = statements.first_to_fail(group)
    ranks = statements.ranks_of(signs) or (deaths.only_one_failed(case) if first else ())
    everybody = statements.are_all(case, ranks)
    place = next((f" at {s.code}" for s in signs if s.code is not None), "")
    verb = "raised" if first else "also raised"
    who, rest = building.who(case, ranks, signs), building.others(case, ranks)
    message = f"{who} {verb} {building.short(signs[0].ref.quote)}{place}{rest}."
    if first and complains(signs[0].ref.quote):
        # Who measures that the job is slow is not who makes it slow.
        message = f"The program gave up because it was too slow: {building.short(signs[0].ref.quote)}{place}."
        return building.found(case, replace(_CLAIM, category="slow"), signs, message, Grade.HINTS, ())
    sure = Grade.PROVES if statements.ranks_of(signs) else Grade.SUPPORTS
    # What all met may as well come from outside of them.
    sure = Grade.HINTS if everybody or not first or exceptions.only_logged(case) else sure
    found = building.found(case, _CLAIM, signs, message, sure, () if everybody else ranks)
    return building.about(found, Subject(code=found.subject.code)) if everybody else found


def _told_by_others(case: Case) -> list[Finding]:
    """Ranks raised what some of them had met, and name those."""
    told = [event for event in case.events(Traceback) if exceptions.ranks_named(event)]
    ranks = tuple(sorted({rank for event in told for rank in exceptions.ranks_named(event)}))
    if not told or ranks == tuple(range(case.world)):
        return []
    sign = statements.statement(case, told[0])
    message = (
        f"{building.who(case, ranks)} raised what the others report: {building.short(sign.ref.quote)}; the output of "
        f"{'this rank' if len(ranks) == 1 else 'these ranks'} says why."
    )
    return [building.found(case, _CLAIM, [sign], message, Grade.SUPPORTS, ranks)]


def _in_a_thread(case: Case) -> list[Finding]:
    """A thread of the rank that did not come ended with an exception: what it fed ran dry."""
    told = [
        e for e in case.events(Traceback) if e.thread and not e.ignored and exceptions.nature(e) in ("own", "known")
    ]
    missing = tuple(case.first_to_fail)
    fitting = [e for e in told if e.rank is None or e.rank in missing]
    if len(missing) != 1 or len(fitting) != 1 or len(fitting) != len(told):
        return []
    sign = statements.statement(case, fitting[0])
    message = (
        f"A thread of {wording.who(case, missing[0])} ended with {building.short(sign.ref.quote)}; the rank went on "
        f"without it and never reached the collective{building.others(case, missing)}."
    )
    return [building.found(case, replace(_CLAIM, category="hang"), [sign], message, Grade.SUPPORTS, missing)]


def _by_exit_code(case: Case) -> list[Finding]:
    """One process failed, the launcher ended the rest, and nothing says that it lost a peer."""
    alone = deaths.only_one_failed(case)
    told = [d for d in deaths.deaths(case) if d.sign.rank in alone and d.code is not None and 0 < d.code < 128]
    if not told or exceptions.any_raised(case) or any(deaths.waited(case, rank) for rank in alone):
        return []
    message = (
        f"{building.who(case, alone)} ended by itself with exit code {told[0].code} and the launcher ended the others; "
        "its own output is not at hand."
    )
    return [building.found(case, _BARE, [told[0].sign], message, Grade.HINTS, alone)]


def _by_the_first_end(case: Case) -> list[Finding]:
    """One process ended before all others, and theirs was that a peer had gone: who spawns shows only one of them."""
    first = deaths.first_to_end(case)
    told = [event for event in case.events(Traceback) if exceptions.nature(event) == "loss"]
    if first is None or first.sign.rank is None or all(event.rank == first.sign.rank for event in told):
        return []
    rank = (first.sign.rank,)
    own = [event for event in case.events(Traceback) if event.rank in rank and exceptions.nature(event) != "loss"]
    if own:
        raised = statements.statement(case, own[-1])
        said = f"{building.who(case, rank)} raised {building.short(raised.ref.quote)} and ended before all others"
        message = f"{said}, with code {first.code}{building.others(case, rank)}."
        return [building.found(case, _CLAIM, [raised, first.sign], message, Grade.SUPPORTS, rank)]
    by_choice = isinstance(first.sign.event, ProcessExit) and first.sign.event.how == "sys.exit"
    how, sure = ("called sys.exit with", Grade.SUPPORTS) if by_choice else ("ended by itself with exit", Grade.HINTS)
    message = (
        f"{building.who(case, rank)} {how} code {first.code} before all others"
        f"{building.others(case, rank)}; its own output is not at hand."
    )
    claim = _CHOSE if by_choice else _BARE
    return [building.found(case, claim, [first.sign], message, sure, rank)]


def _by_its_last_line(case: Case) -> list[Finding]:
    """The type and the words of an exception, where the rest of it, and everything surer, is missing."""
    lines = [s for s in case.sightings if s.signature in _LAST_LINES]
    lines = [s for s in lines if not statements.survived_at(case, s.ref.source, s.line, s.rank)]
    if missing_files.in_local_folder(case) is not None:
        return []  # the folder is not shared
    told = any(exceptions.nature(event) in ("own", "known", "loss") for event in case.events(Traceback))
    if not lines or told or case.index.roots:
        return []
    first = lines[0]
    signs = [Statement(s.ref.quote, s.ref, s.rank, s.local_rank, s.time_ns, s.after_ns, s.host) for s in lines[:4]]
    ranks = statements.unless_all(case, statements.ranks_of(signs[:1]))
    what = f"{first.captures['type']}: {first.captures['words']}"
    message = (
        f"{building.who(case, ranks, signs[:1])} raised {building.short(what)}; where, the lines at hand do not say."
    )
    return [building.found(case, _CLAIM, signs, message, signatures()[first.signature].grade, ranks)]


def _by_one_task(case: Case) -> list[Finding]:
    """One task of Slurm failed and the others were ended, where nothing tells which ranks the tasks are."""
    ends = [e for e in case.events(ProcessExit) if e.by == "slurm"]
    failed = [e for e in ends if 0 < (e.exitcode or 0) < 128]
    ended = [e for e in ends if e.signal in (deaths.TERMINATE, deaths.KILL)]
    if len(failed) != 1 or len(failed) + len(ended) != len(ends) or not ended or exceptions.any_raised(case):
        return []
    tasks = failed[0].tasks
    if len(tasks) != 1 or case.index.roots:
        return []
    where = f" on {failed[0].host}" if failed[0].host else ""
    message = (
        f"Task {tasks[0]}{where} ended by itself with exit code {failed[0].exitcode} and Slurm ended the "
        "others; its own output is not at hand."
    )
    return [building.found(case, _BARE, [statements.statement(case, failed[0])], message, Grade.HINTS)]
