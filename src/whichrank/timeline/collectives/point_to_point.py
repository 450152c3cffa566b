"""Sends and receives that no recorder holds (Gloo's, or a first one of NCCL): who sits in which, and who is further on.

A process says of itself whom it sends to or receives from; its stack says where it is. Two ranks that wait for each
other are a deadlock, unless one of them is already in a later part of the program: then it has left its half out. A
server and its client that both receive have lost a message, and nothing shows whose. A rank that waits in a collective
while the others wait for its message has left the exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.records.dump import Frame
from whichrank.records.events.collectives import MESSAGES, RECEIVES, SENDS, InOperation
from whichrank.records.outline import Outline
from whichrank.records.stack import ProcessStack, is_user_frame, main_thread
from whichrank.timeline.collectives.channels import direction, in_batch
from whichrank.timeline.collectives.troubles.trouble import Trouble

if TYPE_CHECKING:
    from whichrank.timeline.case import Case
    from whichrank.timeline.job_state.activity import Activity

_BRANCHES = 8
"""The branches of a condition around one message stand within so many lines."""


class Circle(Struct, frozen=True):
    """Ranks that wait for each other's messages."""

    ranks: tuple[int, ...]
    """In the order of waiting: each waits for the next, the last for the first."""
    past: int | None
    """The one that is further on in the program than the one that waits for it, and has left its half out."""
    victims: tuple[int, ...]
    """Other ranks that wait."""
    lost: bool = False
    """Two ranks with different parts of the program each wait to receive, or to send: neither came first to an exchange
    that both begin with that half, so a message between them was left out."""


def sitting(case: Case) -> dict[int, InOperation]:
    """Ranks that are in a send or recv, by their own words while their stack says so too, or by dump and stack."""
    found = {}
    for event in case.events(InOperation):
        rank, whom = event.rank, event.peer
        waits = rank is not None and (rank not in case.activities or case.activities[rank].doing == "waiting")
        if rank is not None and waits and whom is not None and event.op in SENDS | RECEIVES:
            found[rank] = event
    for rank, activity in case.activities.items() if case.has_dumps else ():
        if rank not in found and activity.collective in SENDS | RECEIVES:
            stamped = _stamped_message(case, rank, activity)
            found |= {rank: stamped} if stamped is not None else {}
    for rank in {event.peer for event in found.values()} - found.keys():
        queued = _queued_message(case, rank) if rank is not None and case.has_dumps else None
        if queued is not None and queued.peer in found:
            found[queued.rank or 0] = queued
    return found


def _queued_message(case: Case, rank: int) -> InOperation | None:
    """The message that a rank's GPU waits for while its host went on: the first of its operations that is open."""
    lineup = case.lineup
    row = next((row for row in lineup.rows(rank) if not lineup.done[row]), None) if lineup is not None else None
    if lineup is None or row is None or not lineup.p2p[row] or in_batch(lineup, row):
        return None
    call, members = lineup.call_of(row), lineup.group_of(row).members
    way = direction(call.op)
    if way is None or max(way[1:]) >= len(members):
        return None
    ref = Ref(lineup.sources[rank][0], f"{lineup.locator} {lineup.record[row]}", call.op, rank)
    word = "to" if way[0] == "send" else "from"
    return InOperation(ref=ref, rank=rank, op=way[0], word=word, peer=members[way[2]], ranks=tuple(members))


def _stamped_message(case: Case, rank: int, activity: Activity) -> InOperation | None:
    """The message in whose call a rank still is by its stack, although its dump says that it is completed: the events
    of a message whose communicator is being made were never recorded, and look finished to the recorder."""
    lineup, place = case.lineup, activity.place
    row = lineup.rows(rank)[-1] if lineup is not None and lineup.rows(rank) else None
    if lineup is None or place is None or row is None or not lineup.done[row]:
        return None
    call, members = lineup.call_of(row), lineup.group_of(row).members
    way = direction(call.op.removeprefix("nccl:"))
    issued = next((frame for frame in call.stack if is_user_frame(frame)), None)
    if way is None or issued is None or way[0] not in activity.collective or max(way[1:]) >= len(members):
        return None
    if issued.line != place.line or issued.file.rsplit("/", 1)[-1] != place.file.rsplit("/", 1)[-1]:
        return None
    word = "to" if way[0] == "send" else "from"
    ref = Ref(case.stacks[rank].source, "stack", str(activity), rank)
    return InOperation(ref=ref, rank=rank, op=way[0], word=word, peer=members[way[2]], ranks=tuple(members))


def told(event: InOperation) -> str:
    """`recv from rank 3`."""
    return f"{event.op} {event.word} rank {event.peer}"


def circles(case: Case) -> list[Circle]:
    """Every circle of messages: each rank sits in one, so each waits for one."""
    waits = _waits(case)
    found: list[Circle] = []
    settled: set[int] = set()
    for start in waits:
        path: list[int] = []
        rank = start
        while rank in waits and rank not in path and rank not in settled:
            path.append(rank)
            rank = waits[rank]
        if rank in path:
            members = path[path.index(rank) :]
            past = _past(case, members)
            lost = past is None and _of_two_kinds(case, members) and not _come_round_to_receive(case, members)
            found.append(Circle(tuple(members), past, _others(case, members), lost))
        settled.update(path)
    return [circle for circle in found if not _they_match(case, circle)]


def all_in_messages(case: Case) -> tuple[int, ...]:
    """All ranks, where each waits for a message and none says of whom."""
    doing = case.activities
    if case.goes_on or len(doing) < 2 or len(doing) < case.world or sitting(case):
        return ()
    return (
        tuple(sorted(doing)) if all(a.doing == "waiting" and a.collective in MESSAGES for a in doing.values()) else ()
    )


def odd_partner(case: Case) -> int | None:
    """Of ranks that exchange in pairs: the one whose partner has finished this round with somebody else, while another
    rank of the round waits for it."""
    ranks = all_in_messages(case)
    posted = {e.rank: e for e in case.events(InOperation) if e.op in MESSAGES and e.step is not None}
    peers = {rank: _peers(posted[rank]) for rank in ranks if rank in posted}
    if not ranks or peers.keys() != set(ranks) or any(len(peers[rank]) != 1 for rank in ranks):
        return None
    partner = {rank: next(iter(peers[rank])) for rank in ranks}
    steps = {rank: posted[rank].step or 0 for rank in ranks}
    behind = [rank for rank in ranks if steps[rank] == min(steps.values())]
    alone = {rank for rank in behind if steps.get(partner[rank], 0) > steps[rank]}
    missed = alone & {partner[rank] for rank in behind if rank not in alone}
    return missed.pop() if len(missed) == 1 else None


def _waits(case: Case) -> dict[int, int]:
    """Who waits for a message of whom (or for its receipt); empty while the job goes on."""
    if case.goes_on:
        return {}
    return {rank: whom for rank, event in sitting(case).items() if (whom := event.peer) is not None}


def left_exchange(case: Case) -> int | None:
    """The rank that waits in a collective while all that are elsewhere wait, one after the other, for its message."""
    waits = _waits(case)
    ends = {_end(waits, rank) for rank in waits}
    if len(ends) != 1 or (end := ends.pop()) is None or end not in case.activities:
        return None
    its = case.activities[end]
    if its.doing != "waiting" or not its.collective or its.collective in MESSAGES:
        return None
    beside = {rank: case.activities.get(rank) for rank in range(case.world) if rank not in waits}
    together = all(a is not None and (a.collective, a.place) == (its.collective, its.place) for a in beside.values())
    return end if together else None


def gone_on(case: Case) -> int | None:
    """Where stacks alone tell: the one rank that waits in a collective while another waits for a message of it."""
    if case.lineup is not None:
        return None
    doing = {rank: case.activities[rank] for rank in _waits(case).values() if rank in case.activities}
    gone = [r for r, a in doing.items() if a.doing == "waiting" and a.collective and a.collective not in MESSAGES]
    return gone[0] if len(gone) == 1 else None


def without_receivers(case: Case, trouble: Trouble) -> Trouble:
    """Ranks that did not come because they wait for messages are not to blame: one that came owes them its half."""
    if trouble.shape == "alone" and _all_wait_for(case, trouble.meeting.absent, trouble.ranks):
        return replace(trouble, shape="left-messages", victims=trouble.meeting.absent)
    doing = [case.activities.get(rank) for rank in trouble.ranks]
    if trouble.shape != "stopped" or not all(a is not None and a.collective in MESSAGES for a in doing):
        return trouble
    posted = {e.rank: _peers(e) for e in case.events(InOperation) if e.op in MESSAGES and e.rank in trouble.ranks}
    # Who waits only for others that wait for messages themselves says nothing of who owes one.
    owed = [peers for rank in trouble.ranks if (peers := posted.get(rank)) and not peers <= set(trouble.ranks)]
    common = set(trouble.victims).intersection(*owed)
    one = tuple(common) if len(common) == 1 and posted else ()
    owing = () if one else tuple(sorted(common)) or trouble.victims
    rest = tuple(sorted({*trouble.ranks, *trouble.victims} - {*one, *owing}))
    return replace(trouble, shape="left-messages", ranks=one, candidates=owing, victims=rest)


def _all_wait_for(case: Case, ranks: Sequence[int], owing: Sequence[int]) -> bool:
    """Whether all of the first wait for messages, and some of them for one of the others."""
    doing = [case.activities.get(rank) for rank in ranks]
    if not doing or not all(a is not None and a.doing == "waiting" and a.collective in MESSAGES for a in doing):
        return False
    posted = [_peers(e) for e in case.events(InOperation) if e.op in MESSAGES and e.rank in ranks]
    return any(not peers.isdisjoint(owing) for peers in posted)


def _peers(event: InOperation) -> set[int]:
    return {*event.ranks, *(() if event.peer is None else (event.peer,))}


def _end(waits: dict[int, int], rank: int) -> int | None:
    """Whom a chain of waits ends at; None for a circle."""
    passed: set[int] = set()
    while rank in waits and rank not in passed:
        passed.add(rank)
        rank = waits[rank]
    return None if rank in passed else rank


def _they_match(case: Case, circle: Circle) -> bool:
    """A send and the recv that belongs to it: they wait for the network, not for each other."""
    sits = sitting(case)
    sends = [sits[rank].op in SENDS for rank in circle.ranks]
    return len(sends) == 2 and sends[0] != sends[1]


def _others(case: Case, members: list[int]) -> tuple[int, ...]:
    return tuple(rank for rank, a in sorted(case.activities.items()) if a.doing == "waiting" and rank not in members)


def _past(case: Case, members: list[int]) -> int | None:
    """Of two ranks the one that is further on: by the steps that they have made, else by where they are in the code."""
    if len(members) != 2 or not set(members) <= set(case.stacks):
        return None
    if _host_went_on(case, members):
        return None
    one, other = members
    paths = _path(case.stacks[one]), _path(case.stacks[other])
    order = (0 if _are_roles(case.outline, *paths) else _compare(*paths)) or _by_loops(case.outline, *paths)
    sits = sitting(case)
    mine, theirs = sits[one].step, sits[other].step
    if mine and theirs:
        # A rank cannot end a step whose messages are due. With several optimizers one step counts as many.
        ahead = mine - theirs
        order = order if ahead == 0 else ahead if abs(ahead) == 1 and _same_function(*paths) else 0
        if ahead == 0 and _in_rounds_of_a_step(case.outline, *paths):
            return None
    elif _comes_round(case, *paths):
        return None
    return None if order == 0 else one if order > 0 else other


def _host_went_on(case: Case, members: Sequence[int]) -> bool:
    """Whether one of them only waits on its GPU: where its host is says nothing of the message."""
    return any(rank in case.activities and case.activities[rank].collective not in MESSAGES for rank in members)


def _are_roles(lines: Outline, mine: list[Frame], theirs: list[Frame]) -> bool:
    """Whether the ranks part in branches of a condition on the rank: then the lower line is not the later one."""
    parting = _parting(mine, theirs)
    if parting is None:
        return False
    a, b = parting
    spans = lines.by_rank.get(a.file, ()) if (a.file, a.function) == (b.file, b.function) else ()
    return all(
        any(first <= here.line <= last and not first <= other.line <= last for first, last in spans)
        for here, other in ((a, b), (b, a))
    )


def _parting(mine: list[Frame], theirs: list[Frame]) -> tuple[Frame, Frame] | None:
    """The outermost frames that differ."""
    return next((pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]), None)


def _by_loops(lines: Outline, mine: list[Frame], theirs: list[Frame]) -> int:
    """Which of two ranks is further on: 1 for mine, -1 for theirs, 0 where that can't be told.

    A schedule has its parts in loops, first all forward, then all backward. In a function that both are in, one may be
    behind the loop that the other is in; in two functions with as many loops, it may be in a later one."""
    parting = _parting(mine, theirs)
    if parting is None:
        return 0
    a, b = parting
    loops = lines.loops.get(a.file, ()) if (a.file, a.function) == (b.file, b.function) else ()
    ahead = any(loop.holds(b.line) and loop.last < a.line for loop in loops)
    behind = any(loop.holds(a.line) and loop.last < b.line for loop in loops)
    return ahead - behind or _later_loop(lines, mine[-1], theirs[-1])


def _later_loop(lines: Outline, mine: Frame, theirs: Frame) -> int:
    """Which of two functions with as many loops is in a later one of them."""
    (one, of_one), (other, of_other) = _loop_number(lines, mine), _loop_number(lines, theirs)
    alike = one and other and of_one == of_other and (mine.file, mine.function) != (theirs.file, theirs.function)
    return (one > other) - (one < other) if alike else 0


def _loop_number(lines: Outline, frame: Frame) -> tuple[int, int]:
    """Which of the outermost loops of its function a line is in, from 1, and how many it has; 0 for none."""
    span = lines.function_of(frame.file, frame.line)
    if span is None:
        return 0, 0
    inside = [loop for loop in lines.loops.get(frame.file, ()) if span[0] <= loop.first and loop.last <= span[1]]
    outer = [
        loop
        for loop in sorted(inside, key=lambda loop: loop.first)
        if not any(other is not loop and other.first <= loop.first and loop.last <= other.last for other in inside)
    ]
    return next((number for number, loop in enumerate(outer, 1) if loop.holds(frame.line)), 0), len(outer)


def _same_function(mine: list[Frame], theirs: list[Frame]) -> bool:
    """Whether the ranks run the same loop: they part in a function that one line called."""
    return len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[0]


def _comes_round(case: Case, mine: list[Frame], theirs: list[Frame]) -> bool:
    """Whether a loop holds both places: then the lower line may be that of an earlier round."""
    for a, b in zip(mine, theirs, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            return False
        if any(loop.holds(a.line) and loop.holds(b.line) for loop in case.outline.loops.get(a.file, ())):
            return True
    return False


def _come_round_to_receive(case: Case, members: list[int]) -> bool:
    """Whether both send in one loop, further on in whose rounds they receive: then each waits for the other's half."""
    if not set(members) <= set(case.stacks) or not all(sitting(case)[rank].op in SENDS for rank in members):
        return False
    return _in_rounds_of_a_step(case.outline, *(_path(case.stacks[rank]) for rank in members))


def _in_rounds_of_a_step(lines: Outline, mine: list[Frame], theirs: list[Frame]) -> bool:
    """Whether they part in a loop that a round of an outer loop calls: steps don't count its rounds."""
    parting = _parting(mine, theirs)
    if parting is None or (parting[0].file, parting[0].function) != (parting[1].file, parting[1].function):
        return False
    a, b = parting
    outer = mine[: mine.index(a)]
    called = any(loop.holds(frame.line) for frame in outer for loop in lines.loops.get(frame.file, ()))
    span = lines.function_of(a.file, a.line)
    inner = [loop for loop in lines.loops.get(a.file, ()) if span is not None and span[0] <= loop.first]
    return called and any(loop.holds(a.line) and loop.holds(b.line) for loop in inner)


def _of_two_kinds(case: Case, members: list[int]) -> bool:
    """Both receive, or both send, in functions of their own: a server and its client, two stages of a pipeline, and not
    two neighbours with the same code."""
    sits = sitting(case)
    places = [case.activities[rank].place for rank in members if rank in case.activities]
    if (
        _host_went_on(case, members)
        or len(members) != 2
        or len(places) != 2
        or len({sits[rank].op in SENDS for rank in members}) != 1
    ):
        return False
    functions = {(place.file, place.function) for place in places if place is not None}
    return len(functions) == 2


def are_symmetric(case: Case, circle: Circle) -> bool:
    """Whether all of them wait at one place of the program, or send: then each of them begins with the wrong half.

    Where they came there from different places, the script must say that their own half follows."""
    sits = sitting(case)
    if not all(sits[rank].op in RECEIVES for rank in circle.ranks):
        return True
    paths = {tuple(_path(case.stacks[rank])) for rank in circle.ranks if rank in case.stacks}
    innermost = {path[-1] for path in paths if path}
    owed = len(innermost) == 1 and all(frame.line in case.outline.exchanges.get(frame.file, ()) for frame in innermost)
    return owed or len(paths) <= 1


def _path(stack: ProcessStack) -> list[Frame]:
    """The training code's own frames, from the script inwards."""
    thread = main_thread(stack)
    return [frame for frame in reversed(thread.frames) if is_user_frame(frame)] if thread else []


def _compare(mine: list[Frame], theirs: list[Frame]) -> int:
    """Which of two ranks is further on: 1 for mine, -1 for theirs, 0 where that can't be told.

    They part in a function that both are in. If there each has called another function, or the lines are far apart,
    the lower line is the later part of the program; two lines close together with the same call may as well be the two
    branches of a condition.
    """
    for depth, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if (a.file, a.function) != (b.file, b.function):
            return 0
        if a.line == b.line:
            continue
        called = {(path[depth + 1].file, path[depth + 1].function) for path in (mine, theirs) if len(path) > depth + 1}
        if len(called) < 2 and (len(mine) != len(theirs) or abs(a.line - b.line) <= _BRANCHES):
            return 0
        return 1 if a.line > b.line else -1
    return 0
