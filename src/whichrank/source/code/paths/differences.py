"""Two ways through a program compared: where they differ first, and what lies behind a place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from whichrank.model.evidence import Ref
from whichrank.records.code import Operation
from whichrank.source.code.events import (
    Attempt,
    Enter,
    Event,
    Loop,
    Op,
    Update,
    blocks,
)
from whichrank.source.code.index import Module
from whichrank.source.code.paths.sequences import Step, keys
from whichrank.source.code.values import WORLD, Value

QUOTE, FAR = 300, 3


class Rest(NamedTuple):
    """What comes after a place, block by block outwards."""

    events: list[Event]
    outer: Rest | None
    loop: Loop | None = None
    """Set where this is the edge of a loop's body."""


def place(module: Module, line: int) -> Ref:
    quote = module.lines[line - 1].strip() if 0 < line <= len(module.lines) else ""
    return Ref(module.label, f"line {line}", quote[:QUOTE])


def operation(op: Op) -> Operation:
    return Operation(op.name, op.kind, op.group, place(op.function.module, op.line), op.tag)


def asks_for_group(test: str, op: Op) -> bool:
    """`if group is not None: all_reduce(x, group=group)`: members have one, and they are all there."""
    return bool(op.group) and op.group in test and op.kind not in {"group", "init"}


def crossed(here: list[Step], there: list[Step]) -> bool:
    """The same operations on the same groups in another order: a cycle, whoever the members are."""
    one, two = keys(here), keys(there)
    plain = all(len(key) == 2 for key in (*one, *two))
    return plain and one != two and sorted(map(str, one)) == sorted(map(str, two)) and len({key[1] for key in one}) > 1


def all_meet(here: list[Step], there: list[Step], test: Value) -> bool:
    """Whether ranks on both sides get through, played with four where the members of all groups are known."""
    if test.ranks is None or any(len(step.key) != 2 for step in (*here, *there)):
        return False
    todo = [[_meeting(step.op, rank) for step in (here if truth else there)] for rank, truth in enumerate(test.ranks)]
    if any(None in each or len({m.group for m in each if m}) > len({m.members for m in each if m}) for each in todo):
        return False
    while any(todo):
        fronts = [each[0] if each else None for each in todo]
        ready = next((m for m in fronts if m and all(_same(m, fronts[other]) for other in m.members)), None)
        if ready is None:
            return False
        for member in ready.members:
            todo[member].pop(0)
    return True


class _Meeting(NamedTuple):
    name: str
    group: str
    members: tuple[int, ...]
    shared: bool
    """Whether all ranks mean the same group by that name."""


def _meeting(op: Op, rank: int) -> _Meeting | None:
    """An operation with the ranks that meet in it; nothing where they are not known, or are not all played."""
    each = op.members if op.group else (list(range(WORLD)),) * WORLD
    members = each[rank] if each is not None else None
    if op.kind != "collective" or not isinstance(members, list) or rank not in members:
        return None
    alike = len(set(map(str, each or ()))) == 1
    played = set(members) <= set(range(WORLD))
    return _Meeting(op.name, op.group, tuple(sorted(members)), alike) if played else None


def other_name(op: Op, other: Op) -> bool:
    """Whether other ranks may come to this group by another name: `pairs[rank]` here, `pairs[rank - 1]` there."""
    mine = set(map(str, op.members or ()))
    if op.name != other.name or other.group in {"", op.group} or len(mine) < 2:
        return False
    return other.members is None or not mine.isdisjoint(map(str, other.members))


def _same(one: _Meeting, other: _Meeting | None) -> bool:
    """Whether two ranks call the same: groups of one name, or one of several groups by its members."""
    if other is None or (one.name, one.members) != (other.name, other.members):
        return False
    return one.group == other.group or not (one.shared or other.shared)


def far(step: Step) -> bool:
    """Behind several calls, and under a further condition there: likely a way that these callers never take."""
    return not step.sure and len(step.via) >= FAR


def first_difference(here: list[Step], there: list[Step]) -> Step | None:
    one, two = [s for s in here if s.key], [s for s in there if s.key]
    while one and two and one[0].key == two[0].key:
        one, two = one[1:], two[1:]
    if not one and not two:
        return None
    if one and two and one[0].key in keys(two) and two[0].key not in keys(one):
        chosen, source = two[0], two
    else:
        chosen, source = (one[0], one) if one else (two[0], two)
    if chosen.op.name in {"forward", "prepare"} and chosen.op.tag == "ddp":
        whole = here if source is one or chosen in here else there
        return _where_it_waits(chosen, whole[whole.index(chosen) :] if chosen in whole else source)
    return chosen


def _where_it_waits(forward: Step, behind: list[Step]) -> Step:
    """A forward pass alone blocks only where buffers are broadcast: backward does, or what the program calls itself."""
    near = [step for step in behind if step.op.function is forward.op.function]
    backward = next((step for step in near if step.op.name == "backward"), None)
    named = next((s for s in near if s.op.kind == "collective" and s.op.name not in {"forward", "prepare"}), None)
    return backward or named or forward


def level(events: list[Event]) -> Iterator[Event]:
    """The events of a block, those inside a try included: they run in one go."""
    for event in events:
        yield event
        if isinstance(event, Attempt):
            for block in (event.body, event.orelse, event.final):
                yield from level(block)


def root_of(op: Op) -> str:
    """The root as a number where it is known, else as written."""
    ranks = op.peer.ranks if op.root else None
    return str(ranks[0]) if ranks and isinstance(ranks[0], int) and len(set(ranks)) == 1 else op.root


def constant_text(text: str) -> bool:
    return text.lstrip("-").isdigit() or "ReduceOp" in text


def ops(events: Iterable[Event]) -> Iterator[Op]:
    for event in events:
        if isinstance(event, Op):
            yield event
        else:
            for block in blocks(event):
                yield from ops(block)


def speaks(events: Iterable[Event]) -> bool:
    """Whether an operation, or a call that may lead to one, is in there."""
    for event in events:
        if isinstance(event, Op | Enter | Update):
            return True
        if any(speaks(block) for block in blocks(event)):
            return True
    return False


def in_loop(rest: Rest | None) -> bool:
    while rest is not None:
        if rest.loop is not None:
            return True
        rest = rest.outer
    return False
