"""The watchdog's counters say who is behind, without any dump.

## What it finds
Ranks whose last enqueued work lies below the one that the others timed out in; or the one rank that went ahead of
all others.

## Why it happens
The rank never reached the collective: it is held up elsewhere, took another path, or is gone.

## How it decides
Each rank's log gives the work it waits in ("Watchdog caught collective operation timeout", "failure detected by
watchdog at work sequence id") and its counters ("last enqueued", "last completed"). Only a group of all ranks is
compared, the default group first: numbers of other groups differ by nature. If more ranks are behind than wait, the
waiting minority went ahead. Sends and receives have numbers of their own: a rank that waits in one while all others
are in a collective was left without a message. Where everybody waits in one group, others are asked: one that a
member never came to, or a second one that stands still with all of its ranks (entered in different orders). On Gloo,
which has no watchdog, most ranks time out and the few that were elsewhere only see their peers leave.

## Example
Ranks 0, 2 and 3 time out in work 13; rank 1 says "last enqueued NCCL work: 12".

## Fix
Look at the stack or the log of that rank at the time of the first timeout.

## Limits
The rank that prints a timeout first is a victim. The counters lag behind by one on some versions.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.base import Event, OfWork
from whichrank.records.events.communication import GlooTimeout
from whichrank.records.events.watchdog import WatchdogProgress, WatchdogTimeout
from whichrank.rules import wording
from whichrank.rules.busy_ranks import at_a_barrier_of_the_start
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.across_groups import alone_elsewhere, crossing, left_out
from whichrank.timeline.collectives.stuck import DEFAULT, Standings, silent_in_timeouts, stack_ref, standings

CODE = "COLL115"
CAUSE = "collective-desync"

_MESSAGES = ("SEND", "RECV", "COALESCED", "RECVANYSOURCE")
"""As the watchdog names sends, receives and batches of them."""
_AT_THE_START = (
    Alternative("rank-stuck-in-preprocessing", "a barrier at the start: one rank may prepare the data"),
    Alternative("timeout-too-short", "what the others wait for may only take longer than the timeout"),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    standing = standings(case)
    if standing is None:
        return _by_silence(case)
    here = standing.waiting
    if standing.in_messages and len(here) + len(standing.in_messages) == case.world:
        return [_unsent(standing)]
    if standing.ahead and len(standing.ahead) < len(here) and not _disagree(here):
        return [_finding(standing, standing.ahead, here, "finished", "still wait in it")]
    if standing.behind and len(standing.behind) > len(here):
        return [_finding(standing, here, standing.behind, "went ahead to", "never came to it")]
    if standing.behind and len(standing.behind) < len(here):
        return [_finding(standing, standing.behind, here, "never enqueued", "timed out in it")]
    passed = not standing.ahead and not _is_passed_by_parts(standing.earlier)
    if standing.earlier and passed and len(standing.earlier) < len(here):
        return [_finding(standing, standing.earlier, here, "still waits in an earlier one than", "went on to it")]
    return [_elsewhere(case, standing)]


def _elsewhere(case: Case, standing: Standings) -> Finding:
    """No rank is ahead or behind in this group: some wait in another one or in another operation, or nobody is odd."""
    here = standing.waiting
    lone = alone_elsewhere(case, here) if standing.group == DEFAULT else {}
    if lone:
        return _in_a_group_of_its_own(standing, lone)
    elsewhere = _in_another_collective(case, standing)
    if elsewhere:
        return _apart(case, standing, elsewhere)
    return (_across_groups(case) if len(here) == case.world else None) or _nobody(case, standing)


def _in_a_group_of_its_own(standing: Standings, lone: dict[int, WatchdogProgress]) -> Finding:
    """Some wait in a smaller group for members that wait in the default group for them."""
    ranks, waiting = tuple(sorted(lone)), tuple(sorted(standing.waiting))
    event = lone[ranks[0]]
    name = event.pg_desc or event.pg_name or event.pg_guid
    return Finding(
        code=CODE,
        cause="process-group-order",
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        subject=Subject(ranks=ranks),
        message=(
            f"{wording.ranks_text(ranks).capitalize()} timed out in work {event.work} of group {name}, in which no "
            f"other member waits; {wording.ranks_text(waiting)} timed out in work {standing.target} of the default "
            "group: the two were taken in different orders."
        ),
        evidence=tuple(e.ref for e in (*list(lone.values())[:2], *list(standing.waiting.values())[:2])),
        victims=waiting,
        alternatives=(
            Alternative("conditional-collective", "the others may have left out the operation of the smaller group"),
        ),
        fix=fix("process-group-order"),
    )


def _unsent(standing: Standings) -> Finding:
    """Some wait for a message while all others are in a collective: whoever owes it went on without it."""
    waiting, others = tuple(sorted(standing.in_messages)), tuple(sorted(standing.waiting))
    shown = [*list(standing.in_messages.values())[:2], *list(standing.waiting.values())[:2]]
    alone = len(waiting) == 1
    return Finding(
        code=CODE,
        cause="p2p-unmatched",
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        # Several that wait for messages may wait for each other.
        subject=Subject(candidates=others if alone else tuple(sorted((*waiting, *others)))),
        message=(
            f"{wording.ranks_text(waiting).capitalize()} {'waits' if alone else 'wait'} for a message, while "
            f"{wording.ranks_text(others)} have gone on to work {standing.target} of {_group(standing)}: one of them "
            f"left its half out{'' if alone else ', or those that wait for messages wait for each other'}."
        ),
        evidence=tuple(event.ref for event in shown),
        victims=waiting if alone else (),
        onset_ns=min((e.time_ns for e in shown if e.time_ns), default=None),
        alternatives=(
            *(() if alone else (Alternative("p2p-deadlock", "each of them may wait for another's message"),)),
            Alternative(CAUSE, "they may have come to the collective by different ways"),
        ),
        next=(
            NextStep(
                "py-spy dump --nonblocking --pid PID", "the stack shows whose message a rank waits for", (), "none"
            ),
        ),
        fix=fix("p2p-unmatched"),
    )


def _disagree(waiting: dict[int, Event]) -> bool:
    """Whether those who wait call the same work different things: then whoever passed it did nothing wrong there."""
    return len({(event.op, event.numel_in) for event in waiting.values() if isinstance(event, OfWork)}) > 1


def _is_passed_by_parts(waiting: dict[int, Event]) -> bool:
    """Whether members of that operation finish one by one: who still waits in it lacks what another did not send."""
    return any(isinstance(event, OfWork) and event.op.upper().startswith("ALLTOALL") for event in waiting.values())


def _in_another_collective(case: Case, standing: Standings) -> tuple[int, ...]:
    """Ranks that did not time out there because they wait in another operation, by their stacks; the fewer ones."""
    timed_out = list(standing.waiting.values())
    ops = {event.op.lower().replace("_", "").removesuffix("base") for event in timed_out if isinstance(event, OfWork)}
    alone = any(isinstance(event, OfWork) and event.numel_in == 1 for event in timed_out)
    found = [
        rank
        for rank, activity in sorted(case.activities.items())
        if rank not in standing.waiting and activity.doing == "waiting" and activity.collective
        # A barrier is an all_reduce of one element there.
        if (activity.collective == "barrier" and not alone)
        or (activity.collective != "barrier" and activity.collective.replace("_", "") not in ops)
    ]
    return tuple(found) if ops and len(found) < len(standing.waiting) else ()


def _apart(case: Case, standing: Standings, ranks: tuple[int, ...]) -> Finding:
    waiting = tuple(sorted(standing.waiting))
    activity = case.activities[ranks[0]]
    place = f" at {activity.place}" if activity.place else ""
    verb = "waits" if len(ranks) == 1 else "wait"
    return Finding(
        code=CODE,
        cause="rank0-only-collective" if ranks == (0,) else "conditional-collective",
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        subject=Subject(ranks=ranks, code=(activity.place,) if activity.place else ()),
        message=(
            f"{wording.culprits_text(case, ranks).capitalize()} {verb} in {activity.collective}{place}, where "
            f"{wording.ranks_text(waiting)} timed out in work {standing.target} of {_group(standing)}."
        ),
        evidence=(stack_ref(case, ranks[0]), *(event.ref for event in list(standing.waiting.values())[:3])),
        victims=waiting,
        alternatives=(Alternative(CAUSE, "it may have left out an operation before"),),
        fix=fix("conditional-collective"),
    )


def _finding(standing: Standings, odd: dict[int, Event], rest: dict[int, Event], did: str, others: str) -> Finding:
    culprits, victims = tuple(sorted(odd)), tuple(sorted(rest))
    ahead = did != "never enqueued"
    shown = [*list(odd.values())[:3], *list(rest.values())[:2]]
    path = Alternative("conditional-collective", "it may have taken another path through the code")
    stuck = Alternative("rank-stuck-in-user-code", "it may be blocked in host code")
    waits_for_data = Alternative("rank-stuck-in-data-loading", "it may wait for its next batch")
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        subject=Subject(ranks=culprits),
        message=(
            f"{wording.ranks_text(culprits).capitalize()} {did} work {standing.target} of {_group(standing)}; "
            f"{wording.ranks_text(victims)} {others}."
        ),
        evidence=tuple(event.ref for event in shown),
        victims=victims,
        onset_ns=min((e.time_ns for e in shown if e.time_ns), default=None),
        alternatives=(path,) if ahead else (stuck, waits_for_data, path),
        next=(
            NextStep(
                "py-spy dump --nonblocking --pid PID", "the stack of that rank shows what holds it up", (), "none"
            ),
        ),
        fix=(
            (
                f"Find out what {wording.ranks_text(culprits)} did at that time: its stack, its log, a "
                "flight-recorder dump."
            ),
        ),
    )


def _group(standing: Standings) -> str:
    return "the default group" if standing.group == DEFAULT else f"group {standing.group}"


def _across_groups(case: Case) -> Finding | None:
    """All ranks wait in one group, and not all members of another one do; or two stand still with all of them."""
    if (group := left_out(case)) is not None:
        missing, here = wording.ranks_text(group.missing), wording.ranks_text(sorted(group.waiting))
        work = next(iter(group.waiting.values())).work
        message = f"{missing.capitalize()} did not come to work {work} of {group.title}, where {here} timed out."
        path = Alternative("conditional-collective", "it may have taken another path through the code")
        order = Alternative("process-group-order", "it may take the two groups in another order")
        shown = list(group.waiting.values())
        return _hint(CAUSE, Subject(ranks=group.missing), message, shown, tuple(sorted(group.waiting)), (path, order))
    crossed = crossing(case)
    if crossed is None:
        return None
    both, ranks = (crossed.first, crossed.second), wording.ranks_text(crossed.ranks)
    message = (
        f"All ranks of {both[0].title} and of {both[1].title} timed out at once; {ranks} are in both, and may have "
        "entered them in different orders."
    )
    events = [event for group in both for event in list(group.waiting.values())[:2]]
    stalled = Alternative("collective-stalled", "the network or a GPU may not answer")
    candidates = crossed.ranks if len(crossed.ranks) < case.world else ()
    return _hint("process-group-order", Subject(candidates=candidates), message, events, (), (stalled,))


def _hint(
    cause: str,
    subject: Subject,
    message: str,
    shown: Sequence[Event],
    victims: tuple[int, ...],
    alternatives: tuple[Alternative, ...],
) -> Finding:
    return Finding(
        code=CODE,
        cause=cause,
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        subject=subject,
        message=message,
        evidence=tuple(event.ref for event in shown[:4]),
        victims=victims,
        onset_ns=min((e.time_ns for e in shown if e.time_ns), default=None),
        alternatives=alternatives,
        next=(
            NextStep(
                "whichrank env --for debug",
                "settings under which the next hang leaves a dump of every rank, with the order of its calls",
                (),
                "none",
            ),
        ),
        fix=fix(cause),
    )


def _nobody(case: Case, standing: Standings) -> Finding:
    """Timeouts that single nobody out: everybody waits in the same work, or too few logs are at hand."""
    waiting = tuple(sorted(standing.waiting))
    everybody = len(waiting) == case.world > 1
    heard = {event.rank for event in case.log_events}
    missing = tuple(rank for rank in range(case.world) if rank not in heard)
    rest = f", {wording.ranks_text(standing.ahead)} in a later one" if standing.ahead else ""
    rest += f"; of {wording.ranks_text(missing)} the logs at hand say nothing" if missing else ""
    if everybody:
        rest = "; which is all of them"
    cause, alternatives = _of_messages(list(standing.waiting.values()), everybody)
    return Finding(
        code=CODE,
        cause=cause or ("collective-stalled" if everybody else CAUSE),
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        subject=Subject(candidates=missing if not everybody and len(missing) < len(waiting) else ()),
        message=(
            f"{wording.ranks_text(waiting).capitalize()} timed out in work {standing.target} of "
            f"{_group(standing)}{rest}."
        ),
        evidence=tuple(event.ref for event in list(standing.waiting.values())[:4]),
        victims=waiting,
        alternatives=alternatives,
        next=(
            NextStep(
                "whichrank diagnose FOLDER",
                "with the logs of all ranks, the flight-recorder dumps or the stacks beside these",
                (),
                "none",
            ),
        ),
        fix=(
            (
                "Collect the logs and dumps of every rank: a rank that is missing there, or that says "
                "something else, is the lead."
            ),
        ),
    )


def _of_messages(told: Sequence[Event], everybody: bool) -> tuple[str, tuple[Alternative, ...]]:
    """The cause where all that timed out are sends and receives, and the other one that fits."""
    if not all(isinstance(event, WatchdogTimeout) and event.op.upper() in _MESSAGES for event in told):
        return "", ()
    fitting = ("p2p-deadlock", "p2p-unmatched") if everybody else ("p2p-unmatched", "p2p-deadlock")
    return fitting[0], (Alternative(fitting[1], "the evidence does not show what the partners do"),)


def _unnamed(case: Case) -> list[Finding]:
    """Timeouts of which nothing says whose they are."""
    told = case.events(WatchdogTimeout, GlooTimeout)
    cause, alternatives = _of_messages(told, everybody=False)
    what = f" in {op}" if isinstance(told[0], WatchdogTimeout) and (op := told[0].op) else ""
    return [
        Finding(
            code=CODE,
            cause=cause or CAUSE,
            category="hang",
            severity="error",
            grade=Grade.HINTS,
            subject=Subject(),
            message=f"A rank timed out{what}; the evidence does not show which peer it waited for.",
            evidence=tuple(event.ref for event in told[:4]),
            onset_ns=min((e.time_ns for e in told if e.time_ns), default=None),
            alternatives=alternatives or (_AT_THE_START if at_a_barrier_of_the_start(case) else ()),
            next=(
                NextStep(
                    "whichrank diagnose FOLDER",
                    "with the logs of all ranks, the flight-recorder dumps or the stacks beside these",
                    (),
                    "none",
                ),
            ),
            fix=("Collect the logs and dumps of every rank: the one that says something else is the lead.",),
        )
    ]


def _by_silence(case: Case) -> list[Finding] | NotEvaluated:
    if not case.events(WatchdogTimeout, GlooTimeout):
        return NotEvaluated("timeouts that torch printed")
    silent, shown, waiting = silent_in_timeouts(case)
    if not silent:
        return _unnamed(case)
    elsewhere = "they were elsewhere" if len(silent) > 1 else "it was elsewhere"
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="hang",
            severity="error",
            grade=Grade.SUPPORTS,
            subject=Subject(ranks=silent),
            message=(
                f"{wording.ranks_text(waiting).capitalize()} timed out in a collective; "
                f"{wording.ranks_text(silent)} did not: {elsewhere}."
            ),
            evidence=tuple(event.ref for event in shown[:5]),
            victims=waiting,
            onset_ns=shown[-1].time_ns,
            alternatives=(
                Alternative("conditional-collective", "it may have taken another path through the code"),
                Alternative("rank-stuck-in-user-code", "it may be blocked in host code"),
            ),
            next=(
                NextStep(
                    "whichrank env --for debug",
                    "settings under which the next hang leaves a dump of every rank",
                    (),
                    "none",
                ),
            ),
            fix=(f"Look at what {wording.ranks_text(silent)} did at that time: its own exception shows where it was.",),
        )
    ]
