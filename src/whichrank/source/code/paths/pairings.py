"""Point-to-point operations played through for up to four ranks: which of them wait for each other."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.records.code import Disagreement, Pairing
from whichrank.source.code.analysis import Analysis
from whichrank.source.code.evaluating.neighbours import neighbour
from whichrank.source.code.events import Attempt, Enter, Event, First, Fork, Leave, Loop, Op, exits
from whichrank.source.code.index import Function
from whichrank.source.code.paths.differences import operation
from whichrank.source.code.paths.messages import Side, same_label, unlike
from whichrank.source.code.paths.world import ranks_played
from whichrank.source.code.values import WORLD, differs

P2P = frozenset({"send", "recv", "isend", "irecv"})
DEEPEST, LONGEST = 5, 200


class UnknownPathError(Exception):
    """Which way a rank goes, or to whom it sends, can't be told."""


class _Rank(Struct):
    todo: list[tuple[Op, int]] = field(default_factory=list)
    """Operations with the peer, -1 for a collective."""
    at: int = 0
    posted: list[tuple[Op, int]] = field(default_factory=list)
    """Operations that were started and have not met their other half."""
    met: list[tuple[Side, Side]] = field(default_factory=list)
    """Operations that met their other half."""

    @property
    def current(self) -> tuple[Op, int] | None:
        return self.todo[self.at] if self.at < len(self.todo) else None


def pairings(analysis: Analysis) -> tuple[list[Pairing], list[Disagreement]]:
    """What can't finish, for every function that sends or receives itself, and for those that nobody calls.

    Besides, messages that do not fit into what receives them.
    """
    player = _Player(analysis)
    return player.all(), list(player.unlike.values())


class _Player:
    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.reach: set[Function] = set()
        """Functions that send or receive, themselves or through others."""
        self.callers: dict[Function, set[Function]] = defaultdict(set)
        self.guarded: set[Function] = set()
        """Functions that some ranks alone call: they say nothing by themselves."""
        self.calls: dict[Enter, list[Event]] = {}
        """What functions do in single calls of them."""
        self.sizes: dict[str, int] = {}
        """With how many ranks the functions of a file are played."""
        self.once = False
        """Whether a loop was played once because nothing says how many turns it has."""
        self.unlike: dict[Ref, Disagreement] = {}

    def all(self) -> list[Pairing]:
        own = []
        for function, summary in self.analysis.summaries.items():
            flat = list(_flat(summary.events))
            for event in flat:
                if isinstance(event, Fork) and differs(event.test):
                    inside = [*_flat(event.then), *_flat(event.other)]
                    self.guarded |= {inner.function for inner in inside if isinstance(inner, Enter)}
            for event in flat:
                if isinstance(event, Enter):
                    self.callers[event.function].add(function)
            if any(isinstance(event, Op) and event.kind in P2P for event in flat):
                own.append(function)
        self._spread(own)
        found: dict[tuple[str, str], Pairing] = {}
        for function in sorted(self.reach, key=lambda f: (f.module.label, f.line)):
            root = not self.callers[function]
            if root or (function in own and function not in self.guarded):
                result = self._play(function)
                if result is not None and (result.shape == "cycle" or (root and self._whole(function, own))):
                    found.setdefault((result.operation.ref.source, result.operation.ref.locator), result)
        return list(found.values())

    def _whole(self, root: Function, own: list[Function]) -> bool:
        """Whether this function reaches all that sends or receives: else the other half may be elsewhere."""
        seen, todo = {root}, [root]
        while todo:
            for event in _flat(self.analysis.summary(todo.pop()).events):
                if isinstance(event, Enter) and event.function not in seen:
                    seen.add(event.function)
                    todo.append(event.function)
        return seen.issuperset(own)

    def _spread(self, own: list[Function]) -> None:
        todo = list(own)
        while todo:
            function = todo.pop()
            if function not in self.reach:
                self.reach.add(function)
                todo += self.callers[function]

    def _play(self, function: Function) -> Pairing | None:
        label = function.module.label
        if label not in self.sizes:
            self.sizes[label] = ranks_played(function.module)
        ranks = [_Rank() for _ in range(self.sizes[label])]
        self.once = False
        try:
            for number, rank in enumerate(ranks):
                self._follow(self.analysis.summary(function).events, number, rank.todo, 0)
        except UnknownPathError:
            return self._all_alike(function) if not self.callers[function] else None
        if any(peer >= len(ranks) for rank in ranks for _, peer in rank.todo):
            return None
        while _progress(ranks):
            pass
        result = _stuck(ranks)
        if result is None:
            met = (pair for rank in ranks for pair in rank.met)
            for found in filter(None, itertools.starmap(unlike, met)):
                self.unlike.setdefault(found.operation.ref, found)
            return None
        guessed = any(neighbour(op.peer, 0) is not None for rank in ranks for op, _ in rank.todo)
        guessed = guessed or (self.once and any(_repeats(rank.todo) for rank in ranks))
        played = replace(result, said=f"{result.said} (played with {len(ranks)} ranks)")
        return None if guessed and result.shape != "cycle" else played

    def _all_alike(self, root: Function) -> Pairing | None:
        """Where all ranks begin with the same blocking half, nobody does the other one, whoever the peers are."""
        first: list[Op] = []
        if not self._program(root) or not self._alike(self.analysis.summary(root).events, first, 0):
            return None
        here = next((op for op in first if op.kind in P2P), None)
        if here is None or here.kind not in {"send", "recv"} or here.group:
            return None
        wanted = "recv" if here.kind == "send" else "send"
        other = next((op for op in first if op.kind == wanted and not op.group), None)
        if other is None:
            return None
        said = f"every rank waits in {here.name} first, and none of them comes to its {other.name}"
        return Pairing("cycle", operation(here), (operation(other),), said)

    def _program(self, root: Function) -> bool:
        """Whether a function is a run: the body of a file, or what makes the process group."""
        events = _flat(self.analysis.summary(root).events)
        return root.node is None or any(isinstance(e, Op) and e.name == "init_process_group" for e in events)

    def _alike(self, events: list[Event], ops: list[Op], depth: int) -> bool:
        """Collect what all ranks do in the same order; False where that can't be told."""
        for event in events:
            if isinstance(event, Op):
                ops.append(event)
            elif isinstance(event, Leave):
                return depth > 0
            elif isinstance(event, Enter) and event.function in self.reach:
                if depth > DEEPEST or not self._alike(self.analysis.summary(event.function).events, ops, depth + 1):
                    return False
            elif isinstance(event, Loop | First | Attempt) and self._reaches(event.body):
                if isinstance(event, First) or not self._alike(event.body, ops, depth):
                    return False
            elif isinstance(event, Fork) and (self._reaches([event]) or exits([event]) - {"raise"}):
                way = _one_way(event)
                if way is None or not self._alike(way, ops, depth):
                    return False
        return True

    def _follow(self, events: list[Event], rank: int, todo: list[tuple[Op, int]], depth: int) -> bool:
        """What this rank does, in order; True where it leaves the function."""
        if depth > DEEPEST or len(todo) > LONGEST:
            raise UnknownPathError
        for event in events:
            if isinstance(event, Op):
                _take(event, rank, todo)
            elif isinstance(event, Leave):
                return True
            elif isinstance(event, Enter):
                if event.function in self.reach:
                    self._follow(self._inside(event), rank, todo, depth + 1)
            elif isinstance(event, Fork):
                if self._fork(event, rank, todo, depth):
                    return True
            elif isinstance(event, Loop | First | Attempt) and self._reaches(event.body):
                self.once = self.once or isinstance(event, Loop)
                left = self._follow(event.body, rank, todo, depth)
                if left and not isinstance(event, Loop):
                    return True
        return False

    def _inside(self, call: Enter) -> list[Event]:
        """What a function does where it is called: its partners may be among its arguments, `swap(rank - 1)`."""
        given = {name: value for name, value in call.arguments.items() if value.ranks is not None}
        known = {name: self.analysis.brought(call.function, name).ranks for name in given}
        if all(given[name].ranks == known[name] for name in given):
            return self.analysis.summary(call.function).events
        if call not in self.calls:
            self.calls[call] = self.analysis.read_for(call.function, call.arguments)
        return self.calls[call]

    def _reaches(self, events: list[Event]) -> bool:
        return any(
            (isinstance(event, Op) and event.kind in P2P) or (isinstance(event, Enter) and event.function in self.reach)
            for event in _flat(events)
        )

    def _fork(self, event: Fork, rank: int, todo: list[tuple[Op, int]], depth: int) -> bool:
        if event.test.ranks is not None and event.test.taint:  # `rank < peer` may hold for all of them
            return self._follow(event.then if event.test.ranks[rank] else event.other, rank, todo, depth)
        one, two = self._reaches(event.then), self._reaches(event.other)
        if not one and not two:
            return False
        if differs(event.test) and self.analysis.resolve(event.test.taint):
            raise UnknownPathError
        return self._follow(event.then if one else event.other, rank, todo, depth) and not two


def _one_way(event: Fork) -> list[Event] | None:
    """The arm that all ranks of a run take, where that is known."""
    if event.text.startswith("__name__"):
        return event.then
    truths = {bool(each) for each in event.test.ranks} if event.test.ranks is not None else set()
    return None if len(truths) != 1 else event.then if truths == {True} else event.other


def _take(op: Op, rank: int, todo: list[tuple[Op, int]]) -> None:
    if op.kind not in P2P:
        if op.kind == "collective" and not op.group:
            todo.append((op, -1))
        return
    peer = op.peer.ranks[rank] if op.peer.ranks is not None else neighbour(op.peer, rank)
    if not isinstance(peer, int) or isinstance(peer, bool) or not 0 <= peer < WORLD or op.group or peer == rank:
        raise UnknownPathError
    todo.append((op, peer))


def _repeats(todo: list[tuple[Op, int]]) -> bool:
    """Whether a rank comes to one operation several times: a loop whose turns are known was played in full."""
    places = [(op.function, op.line, peer) for op, peer in todo]
    return len(set(places)) < len(places)


def _progress(ranks: list[_Rank]) -> bool:
    moved = False
    for number, rank in enumerate(ranks):
        current = rank.current
        if current is None:
            continue
        op, peer = current
        if op.kind in {"isend", "irecv"}:
            rank.posted.append((op, peer))
            rank.at += 1
            moved = True
        elif peer >= 0 and _meets(ranks, number, op, peer):
            moved = True
    now = [rank.current for rank in ranks]
    names = {entry[0].name for entry in now if entry is not None and entry[1] < 0}
    if len(names) == 1 and all(entry is not None and entry[1] < 0 for entry in now):
        for rank in ranks:
            rank.at += 1
        return True
    return moved


def _meets(ranks: list[_Rank], number: int, op: Op, peer: int) -> bool:
    """Match a blocking half with what its peer stands at or has posted."""
    other = ranks[peer]
    wanted = ("recv", "irecv") if op.kind == "send" else ("send", "isend")
    mine = (op, number)
    for half in other.posted:
        if half[0].kind == wanted[1] and half[1] == number and same_label(mine, (half[0], peer)):
            other.posted.remove(half)
            ranks[number].met.append((mine, (half[0], peer)))
            ranks[number].at += 1
            return True
    current = other.current
    if current is None or current[0].kind != wanted[0] or current[1] != number or peer == number:
        return False
    if not same_label(mine, (current[0], peer)):
        return False
    ranks[number].met.append((mine, (current[0], peer)))
    ranks[number].at += 1
    other.at += 1
    return True


def _stuck(ranks: list[_Rank]) -> Pairing | None:
    waiting = {number: rank.current for number, rank in enumerate(ranks) if rank.current is not None}
    p2p = {number: entry for number, entry in waiting.items() if entry[1] >= 0}
    if not waiting:
        return _left_over(ranks)
    if not p2p:
        return None
    for start in p2p:
        path = [start]
        while (entry := p2p.get(path[-1])) is not None and entry[1] not in path:
            path.append(entry[1])
        last = p2p.get(path[-1])
        if last is not None:  # the path came back to itself
            cycle = path[path.index(last[1]) :]
            ops = [p2p[rank][0] for rank in cycle]
            said = "; ".join(f"rank {rank} waits in {p2p[rank][0].name} for rank {p2p[rank][1]}" for rank in cycle)
            first = min(ops, key=lambda op: op.line)
            return Pairing("cycle", operation(first), tuple(operation(op) for op in ops if op is not first), said)
    for number, (op, peer) in p2p.items():
        if peer not in waiting:
            said = f"rank {number} waits in {op.name} for rank {peer}, which never posts its half"
            return Pairing("unmatched", operation(op), (), said)
    blocked = [(number, entry) for number, entry in p2p.items() if waiting[entry[1]][1] < 0]
    if blocked:
        number, (op, peer) = blocked[0]
        other = waiting[peer][0]
        said = f"rank {number} waits in {op.name} for rank {peer}, which waits in {other.name} for all ranks"
        halves = {"recv", "irecv"} if op.kind == "send" else {"send", "isend"}
        comes = any(later.kind in halves and to == number for later, to in ranks[peer].todo[ranks[peer].at :])
        return Pairing("cycle" if comes else "unmatched", operation(op), (operation(other),), said)
    return None


def _left_over(ranks: list[_Rank]) -> Pairing | None:
    """Where all ranks came to the end: an isend or irecv whose other half nobody has started."""
    for number, rank in enumerate(ranks):
        for op, peer in rank.posted:
            other = "isend" if op.kind == "irecv" else "irecv"
            mine = sum(posted.kind == op.kind and to == peer for posted, to in rank.posted)
            theirs = sum(posted.kind == other and to == number for posted, to in ranks[peer].posted)
            if mine > theirs:
                said = f"rank {number} starts {op.name} with rank {peer}, which starts no {other} with it"
                return Pairing("unmatched", operation(op), (), said)
    return None


def _flat(events: list[Event]) -> Iterator[Event]:
    for event in events:
        yield event
        if isinstance(event, Fork):
            yield from _flat(event.then)
            yield from _flat(event.other)
        elif isinstance(event, Loop | First | Attempt):
            yield from _flat(event.body)
