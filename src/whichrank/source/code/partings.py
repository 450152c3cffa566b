"""Where ranks part: both sides of every condition that differs between them, compared by what they communicate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from whichrank.model.evidence import Ref
from whichrank.records.code import Disagreement, Operation, Parting, Reason, Shape
from whichrank.source.code import groups
from whichrank.source.code.analysis import Analysis
from whichrank.source.code.decorating import calls_before, tries_again
from whichrank.source.code.events import (
    ALIKE,
    Attempt,
    Enter,
    Event,
    Exit,
    First,
    Fork,
    Handler,
    Leave,
    Loop,
    Op,
    Risk,
    blocks,
    ending,
    exits,
)
from whichrank.source.code.index import Function, Module
from whichrank.source.code.sequences import Sequences, Step, keys
from whichrank.source.code.values import UNKNOWN, WORLD, Origin, Value, differs

QUOTE, FAR, MOST_FORKS, BELOW = 300, 3, 64, 2
_WITHIN_REPLICA = re.compile(
    r"tp|tensor|model_parallel|pp|pipeline|cp|context|sp_|sequence|intra|local|node", re.IGNORECASE
)
_LEAVING: tuple[Exit, ...] = ("return", "break", "continue", "exit")


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


class Judge:
    """Walks the events of every function once."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.sequences = Sequences(analysis)
        self.partings: list[Parting] = []
        self.disagreements: list[Disagreement] = []
        self.function: Function
        self.generator = False

    def judge(self, function: Function) -> None:
        self.function = function
        summary = self.analysis.summary(function)
        self.generator = summary.generator
        if not _speaks(summary.events) and function.name != "training_step":
            return
        steps = self.sequences.of(summary.events)
        if steps and self.sequences.on_one_rank(function):
            reason = Origin("rank", "the decorator lets one rank run it", function.module.label, function.line)
            self._add("decorated", [reason], function.line, "", steps, [], doers=1)
            return
        if steps and (line := tries_again(self.analysis.project, function)):
            if calls_before(function, steps[0].via[0].line if steps[0].via else steps[0].op.line):
                reason = Origin(
                    "exception", "the decorator goes on where this rank failed", function.module.label, line
                )
                self._add("swallowed", [reason], function.line, "", steps, [])
        if steps and function.name == "__del__":
            reason = Origin("time", "every rank collects garbage when it likes", function.module.label, function.line)
            self._add("destructor", [reason], function.line, "", steps, [])
        self._walk(summary.events, None, frozenset(self._door(function)))

    def _door(self, function: Function) -> set[int]:
        """Branches in `__enter__` that `__exit__` of the same class makes up for, and the other way round."""
        if function.name not in {"__enter__", "__exit__"} or function.owner is None:
            return set()
        methods = [self.analysis.project.method(function.owner, name) for name in ("__enter__", "__exit__")]
        return self._paired([e for m in methods if m is not None for e in self.analysis.summary(m).events])

    def judge_later(self) -> None:
        """Functions that another thread, a signal or the interpreter's end calls."""
        elsewhere: dict[str, set[Function]] = {}
        for function, summary in self.analysis.summaries.items():
            for op in _ops(summary.events):
                elsewhere.setdefault(op.group, set()).add(function)
        for later in self.analysis.laters:
            steps = self.sequences.of_function(later.target)
            inside = {step.op.function for step in steps}
            shared = [s for s in steps if not s.op.group or elsewhere.get(s.op.group, set()) - inside]
            if later.kind == "thread" and not (elsewhere.get("", set()) | elsewhere.keys() - {""}):
                continue
            if shared:
                self.function = later.function
                whats = {"thread": "another thread", "task": "a task that runs when what it waits for is there"}
                what = whats.get(later.kind, "a callback that runs at any time")
                reason = Origin("order", f"{what} calls {later.target.name}()", later.function.module.label, later.line)
                shape: Shape = "callback" if later.kind == "callback" else "thread"
                self._add(shape, [reason], later.line, "", shared, [])

    def judge_groups(self) -> None:
        """Groups that every rank makes with members of its own: all ranks have to make all groups, in one order."""
        for op, taint in self.analysis.local_groups:
            reasons = [o for o in self.analysis.resolve(taint) if o.kind in {"rank", "host"}]
            if reasons:
                self.function = op.function
                self._add("branch", reasons, op.line, "", [Step((op.name, op.group), op)], [])

    def _walk(self, events: list[Event], outer: Rest | None, paired: frozenset[int] = frozenset()) -> None:
        paired = paired | self._paired(events)
        for number, event in enumerate(events):
            after = Rest(events[number + 1 :], outer)
            if isinstance(event, Fork):
                if id(event) not in paired:
                    self._fork(event, after)
                self._walk(event.then, after)
                self._walk(event.other, after)
            elif isinstance(event, Loop):
                self._loop(event)
                self._walk(event.body, Rest([], after, event))
            elif isinstance(event, Attempt):
                self._attempt(event, after, paired)
                for inner in (event.body, event.orelse, event.final, *(h.body for h in event.handlers)):
                    self._walk(inner, after, paired)
            elif isinstance(event, First):
                self._first(event)
                self._walk(event.body, after)

    # Branches.

    def _fork(self, event: Fork, after: Rest) -> None:
        reasons = self._reasons(event.test)
        if not reasons:
            return
        if self.function.name == "training_step":
            self._skipped_step(event, reasons)
        one_end, two_end = ending(event.then), ending(event.other)
        if "raise" in {one_end, two_end}:
            return  # an error ends the job on all ranks
        assumed = dict(event.given)
        here, there = self.sequences.of(event.then, 0, assumed), self.sequences.of(event.other, 0, assumed)
        shape: Shape = "branch"
        left = {one_end, two_end} - {None}
        if len(left) == 1 and None in {one_end, two_end}:
            kind: Exit = one_end or two_end or "return"
            skipped = self._skipped(after, kind, assumed, event)
            if one_end is not None:
                there = [*there, *skipped]
            else:
                here = [*here, *skipped]
            shape = kind if kind != "raise" else "branch"
        elif left == {"continue", "break"}:
            (here if one_end == "continue" else there).extend(self._skipped(after, "break"))
            shape = "break"
        crossed = _crossed(here, there)
        if not crossed:
            here, there = (
                [s for s in self._concerned(side, event.test, reasons) if not _asks_for_group(event.text, s.op)]
                for side in (here, there)
            )
        made = [[s for s in self.sequences.of(arm) if s.op.kind == "group"] for arm in (event.then, event.other)]
        if keys(made[0]) != keys(made[1]):  # a group is made by all ranks at once, whatever follows
            self._add("branch", reasons, event.line, event.text, *made, test_value=event.test)
        elif keys(here) != keys(there):
            self._add(shape, reasons, event.line, event.text, here, there, test_value=event.test)
        elif not left:
            self._details(reasons, here, there)
            self._maybe(event, after, reasons)

    def _skipped_step(self, event: Fork, reasons: list[Origin]) -> None:
        """Lightning skips backward where training_step returns nothing."""
        owner = self.function.owner
        bases = self.analysis.project.lineage(owner) if owner is not None else ()
        if not any(base.rpartition(".")[2] == "LightningModule" for base in bases):
            return
        for leave in (*event.then, *event.other):
            if isinstance(leave, Leave) and leave.empty:
                backward = Op("backward", "collective", self.function, leave.line, tag="lightning_module")
                step = Step(("backward", ""), backward)
                self._add("skipped step", reasons, event.line, event.text, [step], [])

    def _maybe(self, event: Fork, after: Rest, reasons: list[Origin]) -> None:
        """An arm that may leave under a further condition."""
        for kind in _LEAVING:
            arms = [kind in exits(event.then), kind in exits(event.other)]
            if sum(arms) == 1:
                skipped = self._concerned(self._skipped(after, kind), event.test, reasons)
                if keys(skipped):
                    self._add(kind, reasons, event.line, event.text, [], skipped)  # type: ignore[arg-type]
                    return

    def _skipped(
        self, rest: Rest | None, kind: Exit, assumed: dict[str, bool] | None = None, at: Event | None = None
    ) -> list[Step]:
        """The operations that a rank does not reach when it leaves here; in a later turn this place is passed by."""
        steps: list[Step] = []
        while rest is not None:
            steps += self.sequences.of(rest.events, 0, assumed)
            if rest.loop is not None:
                if kind == "continue":
                    return steps
                steps += self.sequences.of(event for event in rest.loop.body if event is not at)
                if kind == "break":
                    return steps
            rest = rest.outer
        return steps

    def _reasons(self, test: Value) -> list[Origin]:
        return self._likely(self.analysis.resolve(test.taint)) if differs(test) else []

    def _likely(self, reasons: list[Origin]) -> list[Origin]:
        """A file is there or not for all ranks alike where a test far away asked for it."""
        files = [reason for reason in reasons if reason.kind == "file"]
        if len(files) < len(reasons):
            return reasons
        node, label = self.function.node, self.function.module.label
        first, last = (node.lineno, node.end_lineno or node.lineno) if node is not None else (1, 1 << 30)
        return reasons if any(r.file == label and first <= r.line <= last for r in files) else []

    def _concerned(self, steps: list[Step], test: Value, reasons: list[Origin]) -> list[Step]:
        """Without the operations whose group lies on one side of the condition as a whole."""
        found = [s for s in steps if not _far(s) and (not s.key or not self._within(s.op, test, reasons))]
        if all(reason.kind == "file" for reason in reasons):
            # All ranks see one file system as a rule, and resume from what they find: only plain cases are told.
            far = self.analysis.summary(self.function).splits < 2
            return [s for s in found if not (far and s.via) and not s.op.name.startswith(("load", "set_"))]
        return found

    def _within(self, op: Op, test: Value, reasons: list[Origin]) -> bool:
        kinds = {reason.kind for reason in reasons}
        if not op.group:
            return False
        if op.kind in {"group", "init"}:
            return False
        if op.members is not None and test.ranks is not None:
            return all(
                len({bool(test.ranks[m]) for m in members if isinstance(m, int) and 0 <= m < WORLD}) <= 1
                for members in op.members
                if isinstance(members, list)
            )
        if kinds <= {"rank", "part", "host"}:
            return not groups.splits(reasons, op.group)
        return _WITHIN_REPLICA.search(op.group) is not None

    def _paired(self, events: list[Event]) -> set[int]:
        """Branches by rank that make up for each other: `if rank: barrier()` … `if not rank: barrier()`."""
        forks = [e for e in _level(events) if isinstance(e, Fork) and differs(e.test)]
        if not 2 <= len(forks) <= MOST_FORKS:
            return set()
        found: set[int] = set()
        for number, one in enumerate(forks):
            if id(one) in found or exits(one.then) or exits(one.other):
                continue
            for other in forks[number + 1 :]:
                if (
                    id(other) not in found
                    and not exits(other.then)
                    and not exits(other.other)
                    and self._even(one, other)
                ):
                    found |= {id(one), id(other)}
                    self._between(events, one, other)
                    break
        return found

    def _between(self, events: list[Event], one: Fork, other: Fork) -> None:
        """All ranks communicate between two branches that make up for each other: some before, some after the rest."""
        if one not in events or other not in events:
            return
        inside = events[events.index(one) + 1 : events.index(other)]
        always = [event for event in inside if not (isinstance(event, Fork) and differs(event.test))]
        groups_used = {step.op.group for arm in (one.then, one.other) for step in self.sequences.of(arm)}
        steps = [step for step in self.sequences.of(always) if step.op.group in groups_used]
        if steps and (reasons := self._reasons(one.test)):
            self._add("first", reasons, one.line, one.text, steps, [], doers=1)

    def _even(self, one: Fork, other: Fork) -> bool:
        """Whether every rank does the same in the two branches together."""
        if one.test.ranks is not None and other.test.ranks is not None:
            both = [a + b for a, b in zip(self._by_rank(one), self._by_rank(other), strict=True)]
            return bool(both[0]) and all(seq == both[0] for seq in both)
        if other.text not in {f"not {one.text}", one.text.removeprefix("not ")} or other.text == one.text:
            return False
        arms = [keys(self.sequences.of(arm)) for arm in (one.then, one.other, other.then, other.other)]
        return arms[0] + arms[3] == arms[1] + arms[2]

    def _by_rank(self, fork: Fork) -> list[tuple[object, ...]]:
        arms = keys(self.sequences.of(fork.then)), keys(self.sequences.of(fork.other))
        return [arms[0] if fork.test.ranks and fork.test.ranks[rank] else arms[1] for rank in range(WORLD)]

    def _details(self, reasons: list[Origin], here: list[Step], there: list[Step]) -> None:
        """The same operations on both sides, with other roots or reductions."""
        for one, two in zip(here, there, strict=False):
            if one.op is two.op or one.op.name != two.op.name:
                continue
            for about, a, b in (("root", one.op.root, two.op.root), ("op", one.op.reduction, two.op.reduction)):
                if a != b and a and b and _constant_text(a) and _constant_text(b):
                    said = f"{a} on some ranks, {b} on the others (line {two.op.line})"
                    self.disagreements.append(
                        Disagreement(about, operation(one.op), tuple(map(self._reason, reasons)), said)  # type: ignore[arg-type]
                    )
                    break

    # Loops.

    def _loop(self, event: Loop) -> None:
        if event.joined:
            return
        if event.kind == "while":
            reasons = self._reasons(event.test)
            shape: Shape = "while"
        else:
            reasons = self._likely(self.analysis.resolve(event.length))
            shape = "loop"
            if "set" in event.test.tags and not reasons:
                reasons = [
                    Origin("order", "a set of strings has another order in every process", *self._at(event.line))
                ]
        if not reasons:
            return
        body = self._concerned(self.sequences.of(event.body), event.test, reasons)
        if keys(body):
            self._add(shape, reasons, event.line, event.text, body, [])

    def _at(self, line: int) -> tuple[str, int]:
        return self.function.module.label, line

    # Exceptions.

    def _attempt(self, event: Attempt, after: Rest, paired: frozenset[int]) -> None:
        repeated = _in_loop(after)
        body = self.sequences.of([*event.body, *event.orelse])
        for handler in event.handlers:
            if handler.types and set(handler.types) <= ALIKE:
                continue
            caught = self.sequences.of(handler.body)
            if not handler.raises and not self._swallowed(event, handler, caught, repeated):
                self._left(event, handler, caught, after)
            names = {step.op.name for step in body}
            fallback = bool(body) and self._after_risk(event.body)[0] is None
            if caught and not fallback and not any(step.op.name in names for step in caught):
                reason = Origin("exception", "only a rank that failed gets here", *self._at(handler.line))
                self._add("except", [reason], handler.line, "", caught, [])
        stopped = any(
            not h.raises and (not h.types or set(h.types) & {"Exception", "BaseException"}) for h in event.handlers
        )
        final = self.sequences.of(inner for inner in event.final if id(inner) not in paired)
        manager = "contextmanager" in self.function.decorators()
        if final and not stopped and (manager or (not self.generator and event.calls)):
            reason = Origin("exception", "a rank that failed comes here early", *self._at(event.final_line))
            self._add("finally", [reason], event.final_line, "", final, [])

    def _left(self, event: Attempt, handler: Handler, caught: list[Step], after: Rest) -> None:
        """A rank that failed goes on elsewhere, and misses what the others do after the attempt."""
        ways = exits(handler.body)
        kind = (
            ending(handler.body) if ending(handler.body) != "raise" else next((w for w in _LEAVING if w in ways), None)
        )
        risk = next((found for each in event.body if (found := self._risk(each)) is not None), None)
        if risk is None or kind not in {"return", "break", "continue", "exit"}:
            return
        skipped = [step for step in self._skipped(after, kind) if not _far(step)]
        if keys(skipped) and keys(caught) != keys(skipped):
            self._add("swallowed", [risk], handler.line, "", skipped, caught)

    def _swallowed(self, event: Attempt, handler: Handler, caught: list[Step], repeated: bool) -> bool:
        risk, skipped = self._after_risk(event.body, event.orelse)
        if risk is None and repeated:
            risk, skipped = self._read_below(event.body)
        if risk is None or not skipped or keys(caught) == keys(skipped):
            return False
        self._add("swallowed", [risk], handler.line, "", skipped, caught)
        return True

    def _after_risk(self, events: list[Event], then: list[Event] | None = None) -> tuple[Origin | None, list[Step]]:
        """What may fail on one rank alone, and the operations behind it."""
        for number, event in enumerate(events):
            risk = self._risk(event)
            behind = events[number + 1 :]
            if risk is not None:
                own = self._behind_inside(event)
                steps = [*own, *self.sequences.of([*behind, *(then or ())])]
                if steps:
                    return risk, steps
        return None, []

    def _read_below(self, events: list[Event]) -> tuple[Origin | None, list[Step]]:
        """A call that reads something further down, and communicates: a bad sample is caught in the loop."""
        for event in events:
            if isinstance(event, Enter):
                read = _reads(self.analysis, event.function, BELOW)
                steps = self.sequences.of([event]) if read is not None else []
                if read is not None and steps:
                    return read.origin, steps
        return None, []

    def _behind_inside(self, event: Event) -> list[Step]:
        if isinstance(event, Fork | Loop | First | Attempt):
            arms = [event.then, event.other] if isinstance(event, Fork) else [event.body]
            for block in arms:
                risk, steps = self._after_risk(block)
                if risk is not None:
                    return steps
            return self.sequences.of([event]) if isinstance(event, Loop) else []
        if isinstance(event, Enter):
            return self.sequences.of([event])
        return []

    def _risk(self, event: Event) -> Origin | None:
        if isinstance(event, Risk):
            return event.origin
        if isinstance(event, Op) and event.name == "forward":
            return Origin(
                "exception", "a forward pass may run out of memory on one rank", event.function.module.label, event.line
            )
        if isinstance(event, Enter) and _raises(self.analysis, event.function):
            what = f"{event.function.name}() may raise on one rank alone"
            return Origin("exception", what, event.caller.module.label, event.line)
        if isinstance(event, Enter) and any(_local(value) for value in event.arguments.values()):
            what = f"{event.function.name}() may fail on this rank's data"
            return Origin("exception", what, event.caller.module.label, event.line)
        for block in blocks(event):
            for inner in block:
                if (risk := self._risk(inner)) is not None:
                    return risk
        return None

    def _first(self, event: First) -> None:
        steps = self.sequences.of(event.body)
        if steps:
            reason = Origin("rank", "one rank goes first, the others wait at the door", *self._at(event.line))
            self._add("first", [reason], event.line, event.text, steps, [], doers=1)

    # Results.

    def _add(
        self,
        shape: Shape,
        reasons: list[Origin],
        line: int,
        test: str,
        here: list[Step],
        there: list[Step],
        *,
        doers: int | None = None,
        test_value: Value = UNKNOWN,
    ) -> None:
        step = _first_difference(here, there)
        if step is None:
            return
        if test_value.ranks is not None:
            truths = [bool(value) for value in test_value.ranks]
            doers = truths.count(step in here)
        via = tuple(place(call.caller.module, call.line) for call in step.via)
        self.partings.append(
            Parting(
                shape,
                tuple(map(self._reason, reasons[:4])),
                place(self.function.module, line),
                test,
                tuple(operation(s.op) for s in here[:12]),
                tuple(operation(s.op) for s in there[:12]),
                operation(step.op),
                via,
                doers,
            )
        )

    def _reason(self, origin: Origin) -> Reason:
        module = next(
            (m for m in self.analysis.project.modules.values() if m.label == origin.file), self.function.module
        )
        return Reason(origin.kind, origin.what, place(module, origin.line))


def _asks_for_group(test: str, op: Op) -> bool:
    """`if group is not None: all_reduce(x, group=group)`: members have one, and they are all there."""
    return bool(op.group) and op.group in test and op.kind not in {"group", "init"}


def _crossed(here: list[Step], there: list[Step]) -> bool:
    """The same operations on the same groups in another order: a cycle, whoever the members are."""
    one, two = keys(here), keys(there)
    plain = all(len(key) == 2 for key in (*one, *two))
    return plain and one != two and sorted(map(str, one)) == sorted(map(str, two)) and len({key[1] for key in one}) > 1


def _far(step: Step) -> bool:
    """Behind several calls, and under a further condition there: likely a way that these callers never take."""
    return not step.sure and len(step.via) >= FAR


def _first_difference(here: list[Step], there: list[Step]) -> Step | None:
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
        # The ranks that go on wait in backward: a forward pass alone blocks only where buffers are broadcast.
        whole = here if source is one or chosen in here else there
        for step in whole[whole.index(chosen) :] if chosen in whole else source:
            if step.op.name == "backward" and step.op.function is chosen.op.function:
                return step
    return chosen


def _level(events: list[Event]) -> Iterator[Event]:
    """The events of a block, those inside a try included: they run in one go."""
    for event in events:
        yield event
        if isinstance(event, Attempt):
            for block in (event.body, event.orelse, event.final):
                yield from _level(block)


def _constant_text(text: str) -> bool:
    return text.lstrip("-").isdigit() or "ReduceOp" in text


def _ops(events: Iterable[Event]) -> Iterator[Op]:
    for event in events:
        if isinstance(event, Op):
            yield event
        else:
            for block in blocks(event):
                yield from _ops(block)


def _speaks(events: Iterable[Event]) -> bool:
    """Whether an operation, or a call that may lead to one, is in there."""
    for event in events:
        if isinstance(event, Op | Enter):
            return True
        if any(_speaks(block) for block in blocks(event)):
            return True
    return False


def _raises(analysis: Analysis, function: Function) -> bool:
    return any(kind == "raise" for kind in exits(analysis.summary(function).events)) or any(
        isinstance(event, Risk) for event in analysis.summary(function).events
    )


def _reads(analysis: Analysis, function: Function, depth: int) -> Risk | None:
    """What a function, or one that it calls, reads."""
    for event in analysis.summary(function).events:
        if isinstance(event, Risk):
            return event
        if isinstance(event, Enter) and depth and (found := _reads(analysis, event.function, depth - 1)):
            return found
    return None


def _local(value: Value) -> bool:
    return any(isinstance(origin, Origin) and origin.kind == "data" for origin in value.taint)


def _in_loop(rest: Rest | None) -> bool:
    while rest is not None:
        if rest.loop is not None:
            return True
        rest = rest.outer
    return False
