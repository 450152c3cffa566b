"""The lines at which ranks wait, where only stacks or their last exceptions tell."""

from __future__ import annotations

from collections import defaultdict

from whichrank.model.evidence import Ref
from whichrank.model.findings import CodePlace
from whichrank.records.events.collectives import MESSAGES, SENDS
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.records.stack import ProcessStack, main_thread
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.set_ups import pairs_only
from whichrank.timeline.collectives.stuck import SENT, last_words, stack_ref


def two_sides(case: Case) -> tuple[tuple[CodePlace, dict[int, Ref]], tuple[CodePlace, dict[int, Ref]]] | None:
    """The two lines at which all wait, and who is there: the fewer first. None where somebody works, or may be alone by
    nature."""
    alone = somebody_works(case) or pairs_only(case)
    places = waiting_places(case) if not alone else {}
    if len(places) != 2:
        return None
    few, many = sorted(places.items(), key=lambda item: (len(item[1]), min(item[1])))
    return None if len(many[1]) < 2 and not _a_pair_apart(case) else (few, many)


def all_in_messages(case: Case) -> bool:
    """Whether every rank stands in a call that sends or receives a message, and some send: where all receive, a message
    may just as well have been left out."""
    calls = [activity.collective for activity in case.activities.values()]
    return len(calls) >= max(case.world, 2) and set(calls) <= MESSAGES and not SENDS.isdisjoint(calls)


def somebody_works(case: Case) -> bool:
    """Whoever is not inside a collective may be the one that all others wait for, some directly and some by others."""
    return any(activity.doing not in ("waiting", "unknown") for activity in case.activities.values())


def waiting_places(case: Case) -> dict[CodePlace, dict[int, Ref]]:
    """Lines and the ranks at them: by stacks of the hang itself, else by the exceptions that ended it."""
    found: dict[CodePlace, dict[int, Ref]] = defaultdict(dict)
    # Who waits for a message waits at a line of its own by nature.
    in_messages = {event.rank for event in case.events(WatchdogTimeout) if event.op.upper() in SENT}
    waiting = [
        rank
        for rank, a in case.activities.items()
        if a.doing == "waiting" and a.collective not in MESSAGES and rank not in in_messages
    ]
    if len(waiting) > 2 or _a_pair_apart(case):
        for rank in waiting:
            place = case.activities[rank].place or outermost(case.stacks.get(rank))
            if place is not None:
                found[place][rank] = stack_ref(case, rank)
        return found
    for rank, (activity, event) in last_words(case).items():
        if activity.place is not None:
            found[activity.place][rank] = event.ref
    return found


def _a_pair_apart(case: Case) -> bool:
    """Whether the job has two ranks, stands still, and they wait in different collectives."""
    waiting = [a.collective for a in case.activities.values() if a.doing == "waiting"]
    apart = len(waiting) == case.world == 2 and all(waiting) and not set(waiting) & set(MESSAGES)
    return apart and waiting[0] != waiting[1] and bool(case.stands_still)


def outermost(stack: ProcessStack | None) -> CodePlace | None:
    """The last frame of a stack that was cut above the script's own lines."""
    thread = main_thread(stack) if stack is not None else None
    if thread is None or not thread.frames:
        return None
    frame = thread.frames[-1]
    return CodePlace(frame.file, frame.line, frame.function)
