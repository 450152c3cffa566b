"""Where ranks part: both sides of every condition that differs between them, compared by what they communicate."""

from __future__ import annotations

import re

from whichrank.records.code import Disagreement, Habit, Parting, Reason, Shape
from whichrank.source.code.analysis import Analysis
from whichrank.source.code.calling.decorating import tries_again
from whichrank.source.code.events import (
    Attempt,
    Event,
    Exit,
    First,
    Fork,
    Leave,
    Loop,
    Op,
    ending,
    exits,
)
from whichrank.source.code.index import Function
from whichrank.source.code.paths import even, groups, updates
from whichrank.source.code.paths.differences import (
    Rest,
    all_meet,
    asks_for_group,
    constant_text,
    crossed,
    far,
    first_difference,
    operation,
    ops,
    other_name,
    place,
    root_of,
    speaks,
)
from whichrank.source.code.paths.failures import judge_attempt
from whichrank.source.code.paths.sequences import Sequences, Step, keys
from whichrank.source.code.values import UNKNOWN, WORLD, Origin, Value, differs

_WITHIN_REPLICA = re.compile(
    r"tp|tensor|model_parallel|pp|pipeline|cp|context|sp_|sequence|intra|local|node", re.IGNORECASE
)
_LAZY = frozenset({"mark_step"})
"""Runs what was collected so far: it communicates only where that does, and so only plain cases are told."""
_LISTING = re.compile(r"scandir|listdir|glob|iterdir")
"""What a job resumes from is read from a list of files: all ranks see the same one."""
_LEAVING: tuple[Exit, ...] = ("return", "break", "continue", "exit")


class Judge:
    """Walks the events of every function once."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.sequences = Sequences(analysis)
        self.partings: list[Parting] = []
        self.disagreements: list[Disagreement] = []
        self.habits: list[Habit] = []
        self.function: Function
        self.generator = False

    def judge(self, function: Function) -> None:
        self.function = function
        summary = self.analysis.summary(function)
        self.generator = summary.generator
        if not speaks(summary.events) and function.name != "training_step":
            return
        steps = self.sequences.of(summary.events)
        if steps and self.sequences.on_one_rank(function):
            reason = Origin("rank", "the decorator lets one rank run it", function.module.label, function.line)
            self.add("decorated", [reason], function.line, "", steps, [], doers=1)
            return
        if steps and (line := tries_again(self.analysis.project, function, steps[0].line)):
            reason = Origin("exception", "the decorator goes on where this rank failed", function.module.label, line)
            self.add("swallowed", [reason], function.line, "", steps, [])
        if steps and function.name == "__del__":
            reason = Origin("time", "every rank collects garbage when it likes", function.module.label, function.line)
            self.add("destructor", [reason], function.line, "", steps, [])
        paired = frozenset(self._door(function))
        if function.name == "__exit__":
            always = [e for e in summary.events if id(e) not in paired and not isinstance(e, Fork | Attempt)]
            if left := self.sequences.of(always):
                reason = Origin("exception", "a rank that failed comes here early", *self.at(function.line))
                self.add("finally", [reason], function.line, "", left, [])
        self._walk(summary.events, None, paired)

    def _door(self, function: Function) -> set[int]:
        """Branches in `__enter__` that `__exit__` of the same class makes up for, and the other way round."""
        if function.name not in {"__enter__", "__exit__"} or function.owner is None:
            return set()
        methods = [self.analysis.project.method(function.owner, name) for name in ("__enter__", "__exit__")]
        return even.paired(self, [e for m in methods if m is not None for e in self.analysis.summary(m).events])

    def judge_later(self) -> None:
        """Functions that another thread, a signal or the interpreter's end calls."""
        elsewhere: dict[str, set[Function]] = {}
        for function, summary in self.analysis.summaries.items():
            for op in ops(summary.events):
                elsewhere.setdefault(op.group, set()).add(function)
        for op in self.analysis.notes.threaded:
            if not elsewhere.get(op.group):
                continue
            self.function = op.function
            reason = Origin("order", f"another thread calls {op.name}()", op.function.module.label, op.line)
            self.add("thread", [reason], op.line, "", [Step((op.name, ""), op)], [])
        for later in self.analysis.notes.laters:
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
                places = {operation(step.op).ref for step in shared}
                self.partings = [one for one in self.partings if one.concerned.ref not in places]
                self.add(shape, [reason], later.line, "", shared, [])

    def judge_groups(self) -> None:
        """Groups that every rank makes with members of its own: all ranks have to make all groups, in one order."""
        for op, taint in self.analysis.notes.local_groups:
            reasons = [o for o in self.analysis.resolve(taint) if o.kind in {"rank", "host"}]
            self.function = op.function
            if reasons and not self._mixed_up(reasons):
                self.add("branch", reasons, op.line, "", [Step((op.name, op.group), op)], [])

    def _walk(self, events: list[Event], outer: Rest | None, paired: frozenset[int] = frozenset()) -> None:
        paired = paired | even.paired(self, events)
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
                judge_attempt(self, event, after, paired)
                for inner in (event.body, event.orelse, event.final, *(h.body for h in event.handlers)):
                    self._walk(inner, after, paired)
            elif isinstance(event, First):
                self._first(event)
                self._walk(event.body, after)

    # Branches.

    def _fork(self, event: Fork, after: Rest) -> None:
        reasons = self.reasons(event.test)
        if not reasons:
            return
        before = len(self.partings)
        self._parted(event, after, reasons)
        if len(self.partings) == before:
            self.habits += updates.left_out(self, event, after, reasons)
        if self.function.name == "training_step" and len(self.partings) == before:
            self._skipped_step(event, reasons)

    def _parted(self, event: Fork, after: Rest, reasons: list[Origin]) -> None:
        one_end, two_end = ending(event.then), ending(event.other)
        if "raise" in {one_end, two_end}:
            return  # an error ends the job on all ranks
        assumed = dict(event.given)
        here, there = self.sequences.of(event.then, 0, assumed), self.sequences.of(event.other, 0, assumed)
        shape: Shape = "branch"
        left = {one_end, two_end} - {None}
        if len(left) == 1 and None in {one_end, two_end}:
            kind: Exit = one_end or two_end or "return"
            skipped = self.skipped_behind(after, kind, assumed, event)
            if one_end is not None:
                there = [*there, *skipped]
            else:
                here = [*here, *skipped]
            shape = kind if kind != "raise" else "branch"
        elif left == {"continue", "break"}:
            (here if one_end == "continue" else there).extend(self.skipped_behind(after, "break"))
            shape = "break"
        met = all_meet(here, there, event.test)
        if not crossed(here, there):
            here, there = (
                [s for s in self.concerned(side, event.test, reasons) if not asks_for_group(event.text, s.op)]
                for side in (here, there)
            )
        made = [[s for s in self.sequences.of(arm) if s.op.kind == "group"] for arm in (event.then, event.other)]
        if keys(made[0]) != keys(made[1]):  # a group is made by all ranks at once, whatever follows
            self.add("branch", reasons, event.line, event.text, *made, test_value=event.test)
        elif keys(here) != keys(there) and not met:
            self.add(shape, reasons, event.line, event.text, here, there, test_value=event.test)
        else:
            self._details(reasons, here, there)
            if not left:
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
                self.add("skipped step", reasons, event.line, event.text, [step], [])

    def _maybe(self, event: Fork, after: Rest, reasons: list[Origin]) -> None:
        """An arm that may leave under a further condition."""
        for kind in _LEAVING:
            arms = [kind in exits(event.then), kind in exits(event.other)]
            if sum(arms) == 1:
                skipped = self.concerned(self.skipped_behind(after, kind), event.test, reasons)
                if keys(skipped):
                    self.add(kind, reasons, event.line, event.text, [], skipped)  # type: ignore[arg-type]
                    return

    def skipped_behind(
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

    def reasons(self, test: Value) -> list[Origin]:
        if not differs(test):
            return []
        found = self.analysis.resolve(test.taint)
        # Where the truth was worked out rank by rank, the rank decides, whatever else is among the reasons.
        return self._likely(found) or [o for o in found if test.ranks is not None and o.kind == "rank"]

    def _likely(self, reasons: list[Origin], *, direct: bool = False) -> list[Origin]:
        """A file is there or not for all ranks alike where a test far away asked for it, and so are names of files."""
        if self._mixed_up(reasons):
            return []
        files = [reason for reason in reasons if reason.kind == "file"]
        if not files or any(reason.kind not in {"file", "exception"} for reason in reasons):
            return reasons
        files = [reason for reason in files if direct or not _LISTING.search(reason.what)]
        near = [*files, *(reason for reason in reasons if reason.kind == "exception")]
        return reasons if self._asked_here(near) else []

    def _mixed_up(self, reasons: list[Origin]) -> bool:
        """Reasons of several kinds from several other files: values of many callers were taken together."""
        label = self.function.module.label
        others = {reason.file for reason in reasons if reason.file != label}
        kinds = {reason.kind for reason in reasons}
        return len(others) > 1 and (len(kinds) > 1 or not any(reason.file == label for reason in reasons))

    def concerned(self, steps: list[Step], test: Value, reasons: list[Origin]) -> list[Step]:
        """Without the operations whose group lies on one side of the condition as a whole."""
        found = [s for s in steps if not far(s) and (not s.key or not self._within(s.op, test, reasons))]
        if not self._asked_here(reasons):
            found = [s for s in found if s.op.name not in _LAZY]
        if all(reason.kind == "file" for reason in reasons):
            # All ranks see one file system as a rule, and resume from what they find: only plain cases are told.
            plain = self.analysis.summary(self.function).splits < 2
            return [s for s in found if not (plain and s.via) and not s.op.name.startswith(("load", "set_"))]
        return found

    def _asked_here(self, reasons: list[Origin]) -> bool:
        node, label = self.function.node, self.function.module.label
        first, last = (node.lineno, node.end_lineno or node.lineno) if node is not None else (1, 1 << 30)
        return any(r.file == label and first <= r.line <= last for r in reasons)

    def _within(self, op: Op, test: Value, reasons: list[Origin]) -> bool:
        kinds = {reason.kind for reason in reasons}
        if not op.group:
            return False
        if op.kind in {"group", "init"}:
            return False
        everybody = set(range(WORLD))
        if op.members is not None and all(isinstance(m, list) and everybody == set(m) for m in op.members):
            return False
        if op.members is not None and test.ranks is not None:
            whole = all(
                len({bool(test.ranks[m]) for m in members if isinstance(m, int) and 0 <= m < WORLD}) <= 1
                for members in op.members
                if isinstance(members, list)
            )
            return whole or any(other_name(op, other) for other in ops(self.analysis.summary(self.function).events))
        if kinds <= {"rank", "part", "host"}:
            return not groups.splits(reasons, op.group)
        return _WITHIN_REPLICA.search(op.group) is not None

    def _details(self, reasons: list[Origin], here: list[Step], there: list[Step]) -> None:
        """The same operations on both sides, with other roots or reductions."""
        for one, two in zip(here, there, strict=False):
            if one.op is two.op or one.op.name != two.op.name:
                continue
            for about, a, b in (("root", root_of(one.op), root_of(two.op)), ("op", one.op.reduction, two.op.reduction)):
                if a != b and a and b and constant_text(a) and constant_text(b):
                    said = f"{a} on some ranks, {b} on the others (line {two.op.line})"
                    self.disagreements.append(
                        Disagreement(about, operation(one.op), tuple(map(self.reason, reasons)), said)  # type: ignore[arg-type]
                    )
                    break

    # Loops.

    def _loop(self, event: Loop) -> None:
        if event.joined:
            return
        if event.kind == "while":
            reasons = self.reasons(event.test)
            shape: Shape = "while"
        else:
            direct = not event.text.startswith("range(")
            reasons = self._likely(self.analysis.resolve(event.length), direct=direct)
            shape = "loop"
            if "set" in event.test.tags and not reasons:
                reasons = [Origin("order", "a set of strings has another order in every process", *self.at(event.line))]
            if event.test.order and not reasons:
                said = "the order of the elements depends on"
                found = self.analysis.resolve(event.test.order)
                reasons = [Origin("order", f"{said} {o.what}", o.file, o.line) for o in found]
        if not reasons:
            return
        body = self.sequences.of(event.body)
        if not (event.test.order and len({step.op.group for step in body}) > 1):
            body = self.concerned(body, event.test, reasons)
        if keys(body):
            self.add(shape, reasons, event.line, event.text, body, [])

    def at(self, line: int) -> tuple[str, int]:
        return self.function.module.label, line

    # Exceptions.

    def _first(self, event: First) -> None:
        steps = self.sequences.of(event.body)
        if steps:
            reason = Origin("rank", "one rank goes first, the others wait at the door", *self.at(event.line))
            self.add("first", [reason], event.line, event.text, steps, [], doers=1)

    # Results.

    def add(
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
        step = first_difference(here, there)
        if step is None:
            return
        if test_value.ranks is not None:
            truths = [bool(value) for value in test_value.ranks]
            doers = truths.count(step in here)
        via = tuple(place(call.caller.module, call.line) for call in step.via)
        self.partings.append(
            Parting(
                shape,
                tuple(map(self.reason, reasons[:4])),
                place(self.function.module, line),
                test,
                tuple(operation(s.op) for s in here[:12]),
                tuple(operation(s.op) for s in there[:12]),
                operation(step.op),
                via,
                doers,
            )
        )

    def reason(self, origin: Origin) -> Reason:
        module = next(
            (m for m in self.analysis.project.modules.values() if m.label == origin.file), self.function.module
        )
        return Reason(origin.kind, origin.what, place(module, origin.line))
