"""Words that rules share: how to call an operation, a rank, a list of ranks, a piece of evidence."""

from __future__ import annotations

from collections.abc import Iterable

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, Hold, NextStep, Subject
from whichrank.model.moments import rfc3339_ns
from whichrank.records.events.collectives import InOperation
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.program import place_of
from whichrank.timeline.collectives.stuck import stack_ref
from whichrank.timeline.collectives.troubles.trouble import Trouble

STACK_OF_THE_MISSING = NextStep(
    "py-spy dump --nonblocking --pid PID",
    "the stack of the missing rank shows what holds it up",
    ("rank-stuck-in-user-code", "conditional-collective"),
    "none",
)


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 2`, `ranks 0-2, 5`; long lists are cut."""
    numbers = sorted(set(ranks))
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:8]]
    if len(spans) > 8:
        shown.append(f"… ({len(numbers)} in all)")
    return f"rank{'s' if len(numbers) != 1 else ''} {', '.join(shown)}"


def who(case: Case, rank: int) -> str:
    """`rank 13 (tp=1, dp=3) on node7`; the host only where there are several."""
    coords = ", ".join(f"{axis}={place}" for axis, place in case.coords.get(rank, {}).items())
    hosts = {process.host for process in case.people.by_rank.values() if process.host}
    host = case.people.host_of(rank)
    where = f" on {host}" if host and len(hosts) > 1 else ""
    return f"rank {rank} ({coords}){where}" if coords else f"rank {rank}{where}"


def culprits_text(case: Case, ranks: tuple[int, ...]) -> str:
    return who(case, ranks[0]) if len(ranks) == 1 else ranks_text(ranks)


def sat(case: Case, ranks: Iterable[int]) -> tuple[Ref, ...]:
    """Where ranks say they are, and their stacks: the proof of what no recorder holds."""
    said = {event.rank: event.ref for event in case.events(InOperation)}
    refs = [said[rank] for rank in ranks if rank in said]
    return (*refs, *(stack_ref(case, rank) for rank in ranks if rank in case.stacks))


def lineup_of(case: Case) -> Lineup:
    """The lined-up dumps, for rules that have already asked whether there are any."""
    if case.lineup is None:
        raise ValueError("no dumps were lined up")
    return case.lineup


def operation(lineup: Lineup, row: int) -> str:
    """`all_reduce #15 of default_pg`."""
    call = lineup.call_of(row)
    if call.p2p:
        return f"{_p2p_text(lineup, row)} in {lineup.group_of(row).title}"
    return f"{lineup.signature_of(row).op} #{lineup.seq[row]} of {lineup.group_of(row).title}"


def _p2p_text(lineup: Lineup, row: int) -> str:
    """A send or recv in global ranks: the recorder writes ranks within the group."""
    verb, _, ends = lineup.call_of(row).op.partition(" ")
    members = lineup.groups[lineup.group[row]].members
    for arrow in ("->", "<-"):
        if arrow in ends:
            me, peer = (int(x) for x in ends.split(arrow))
            if me < len(members) and peer < len(members):
                return f"{verb} {members[me]}{arrow}{members[peer]}"
    return verb


def at(lineup: Lineup, row: int) -> str:
    """` at train.py:62 in main`, or nothing for operations of C++ threads."""
    place = place_of(lineup.call_of(row))
    if place is not None:
        return f" at {place}"
    thread = lineup.call_of(row).thread
    return f" (issued by {thread}: a gradient bucket)" if thread.startswith("pt_autograd") else ""


def step(lineup: Lineup, row: int) -> str:
    """`all_reduce #15 of default_pg at train.py:62 in main`."""
    return operation(lineup, row) + at(lineup, row)


def wait_text(ranks: Iterable[int]) -> str:
    """`rank 2 waits`, `ranks 0-2, 5 wait`."""
    waiting = set(ranks)
    if not waiting:
        return "the others wait"
    return f"{ranks_text(waiting)} wait{'s' if len(waiting) == 1 else ''}"


def likewise(lineup: Lineup, trouble: Trouble) -> str:
    """Culprits that did the same in other groups than the one that is told about."""
    others = set(trouble.ranks) - set(lineup.groups[trouble.meeting.group].members)
    return f" (likewise {ranks_text(others)} in their own groups)" if others else ""


def place(lineup: Lineup, row: int | None, rank: int | None = None) -> tuple[CodePlace, ...]:
    """The code line of a row as a tuple, empty if it has none."""
    found = place_of(lineup.call_of(row), rank) if row is not None else None
    return (found,) if found else ()


_STATES = ("scheduled", "started", "completed", "in another state")


def proof(lineup: Lineup, row: int) -> Ref:
    """A row as evidence: file, entry and what it says."""
    rank = int(lineup.rank[row])
    call = lineup.call_of(row)
    state = "finished" if lineup.done[row] else _STATES[lineup.state[row]]
    brought = str(lineup.signature_of(row)).removeprefix(lineup.signature_of(row).op)
    words = (
        f"{call.backend + ':' if call.backend else ''}{operation(lineup, row)} {brought}".rstrip()
        + f", {state}{at(lineup, row)}"
    )
    return Ref(
        lineup.sources[rank][lineup.source[row]],
        f"{lineup.locator} {lineup.record[row]}",
        words,
        rank,
        None,
        rfc3339_ns(int(lineup.created[row])),
    )


def last_entry(lineup: Lineup, rank: int) -> Ref | None:
    """The last thing a rank issued."""
    rows = lineup.rows(rank)
    return proof(lineup, rows[-1]) if len(rows) else None


def attendance(lineup: Lineup, meeting: Meeting, limit: int = 4) -> tuple[Ref, ...]:
    """Evidence of a meeting: one entry per party, then others of the largest."""
    rows = [meeting.joined[party[0]] for party in meeting.parties]
    rows += [row for row in meeting.joined.values() if row not in rows]
    return tuple(proof(lineup, row) for row in rows[:limit])


def evidence(lineup: Lineup, trouble: Trouble) -> tuple[Ref, ...]:
    """What the culprit did, what was due, and who waits: never empty."""
    refs = [proof(lineup, row) for row in (trouble.acted, trouble.due) if row is not None]
    for rank in trouble.ranks[:3]:
        last = last_entry(lineup, rank)
        if last is not None:
            refs.append(last)
    for meeting in (trouble.meeting, trouble.other):
        if meeting is not None:
            refs += attendance(lineup, meeting, 3)
    return tuple(dict.fromkeys(refs))[:8]


def certificate(lineup: Lineup, trouble: Trouble) -> tuple[Hold, ...]:
    """A cycle, link by link: what each rank sits in, and what the others hold open for it."""
    links = []
    for rank, sits, open_for in trouble.cycle:
        if rank not in sits.joined:
            continue
        row = sits.joined[rank]
        waits = operation(lineup, row)
        holds = (
            operation(lineup, next(iter(open_for.joined.values()))) if open_for is not None else "the next operation"
        )
        links.append(Hold(rank, holds, waits, place_of(lineup.call_of(row), rank)))
    return tuple(links)


def _ahead(case: Case, rank: int) -> int:
    clock = case.clocks.get(rank)
    return clock.ahead_ns if clock is not None and clock.uncertain_ns is not None else 0


def onset(case: Case, trouble: Trouble) -> int | None:
    """When the first rank began to wait, on the aligned clock."""
    lineup = lineup_of(case)
    times = [int(lineup.created[row]) - _ahead(case, rank) for rank, row in trouble.meeting.joined.items()]
    return min(times) if times else None


def argument_mismatch(case: Case, trouble: Trouble, code: str, cause: str, fix: tuple[str, ...]) -> Finding:
    """A finding about arguments that differ within one collective."""
    lineup = lineup_of(case)
    meeting = trouble.meeting
    sides = [
        f"{ranks_text(p)} brought {lineup.signature_of(meeting.joined[p[0]])}{at(lineup, meeting.joined[p[0]])}"
        for p in meeting.parties[:3]
    ]
    row = meeting.joined[meeting.parties[0][0]]
    gloo = lineup.call_of(row).backend == "gloo"
    silent = not trouble.hangs and not case.timed_out
    where = f"{lineup.call_of(row).op} #{meeting.seq}"
    group = lineup.groups[meeting.group].title
    more = likewise(lineup, trouble)
    outcome = "; nothing hangs, the result is wrong." if silent else "."
    return Finding(
        code=code,
        cause=cause,
        category="hang" if not silent else "crash" if gloo else "corruption",
        severity="error",
        grade=trouble.graded(Grade.PROVES if silent else Grade.SUPPORTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=(
                *place(lineup, trouble.acted, trouble.ranks[0] if trouble.ranks else None),
                *place(lineup, trouble.due),
            ),
        ),
        message=f"Members of {group} disagree in {where}: {'; '.join(sides)}{more}{outcome}",
        evidence=evidence(lineup, trouble),
        victims=trouble.victims if trouble.hangs else (),
        onset_ns=onset(case, trouble),
        alternatives=(
            Alternative("conditional-collective", "the two calls may be different operations of the program"),
        ),
        fix=fix,
    )
