"""One function while it is read: its variables, and the tree of events that grows statement by statement."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.events import (
    ALIKE,
    Attempt,
    Event,
    Exit,
    First,
    Fork,
    Handler,
    Leave,
    Loop,
    ending,
    exits,
    matters,
)
from whichrank.source.code.expressions import WORLD_NAMES, evaluate, is_setting, rank_value, setting_name
from whichrank.source.code.index import Class, Function, dotted, last_name
from whichrank.source.code.loops import BATCH_NAMES, LOADER_NAME, QUEUES, elements, turns, unrolled
from whichrank.source.code.merging import all_merged, asks_world, caught, merged
from whichrank.source.code.values import (
    CLEAN,
    UNKNOWN,
    WORLD,
    Origin,
    ParamOrigin,
    Taint,
    Value,
    constant,
    differs,
    join,
    union,
)

if TYPE_CHECKING:
    from whichrank.source.code.analysis import Analysis

ENDS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})
_FIRST = re.compile(r"(?:main|zero|master|rank_?0|rank_zero)\w*_first$|^main_process_first$")
_TWICE = 2  # loops nested deeper than this are read once: their variables rarely carry over


class Frame:
    """The walk through one function."""

    def __init__(self, analysis: Analysis, function: Function, closure: dict[str, Value] | None = None) -> None:
        self.analysis = analysis
        self.function = function
        self.owner: Class | None = function.owner or (function.parent.owner if function.parent else None)
        self.closure = closure or {}
        self.env: dict[str, Value] = {}
        self.paths: dict[str, Value] = {}
        """Attributes that this function assigned: `self.x`, `state.y`."""
        self.out: list[Event] = []
        self.returns: list[Value] = []
        self.left: Taint = CLEAN
        """Conditions under which some ranks have returned already."""
        self.control: list[Taint] = []
        self.turns: Taint = CLEAN
        self.loops: list[Taint] = []
        self.skips: list[Taint] = []
        """For every loop around, conditions under which this rank has gone to the next turn already."""
        self.writes: dict[str, Value] = {}
        self.fills: dict[str, Taint] = {}
        """What is put into containers that callers passed."""
        self.no_sync = self.joined = self.trying = self.alone = 0
        self.generator = False
        self.splits = 0
        """Conditions so far on which ranks differ."""
        for name in function.params:
            self.env[name] = self._parameter(name)

    def at(self, node: ast.AST) -> tuple[str, int]:
        return self.function.module.label, getattr(node, "lineno", 1)

    def _parameter(self, name: str) -> Value:
        if name == "self" and self.owner is not None:
            return Value(thing=self.owner)
        source = rank_sources("attribute").get(name)
        node = self.function.node or ast.Pass()
        if source is not None:
            return rank_value(self, node, f"the parameter {name}", source.kind, source.axis)
        brought = self.analysis.brought(self.function, name)
        if name in WORLD_NAMES and brought.ranks is None:
            return constant(WORLD)
        taint: Taint = frozenset({ParamOrigin(self.function, name)})
        length: Taint = frozenset({ParamOrigin(self.function, name, length=True)})
        tags = brought.tags
        if LOADER_NAME.fullmatch(name):
            tags |= {"loader"}
        if self._annotation(name) in QUEUES:
            tags |= {"queue"}
        if name in BATCH_NAMES:
            taint |= {Origin("data", f"the parameter {name}: this rank's data", *self.at(node))}
        return Value(taint, length, tags, brought.ranks, brought.thing, brought.items)

    def _annotation(self, name: str) -> str:
        arguments = self.function.node.args if self.function.node is not None else None
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else []:
            if argument.arg == name and argument.annotation is not None:
                return last_name(argument.annotation)
        return ""

    def lookup(self, name: str) -> Value | None:
        if name in self.env:
            known = self.env[name]
        elif name in self.closure:
            known = self.closure[name]
        elif self.function.name == "<module>":
            return None
        else:
            return self.analysis.global_value(self.function.module, name)
        return self.analysis.interrupted.seen(known, self.function, name)

    def emit(self, event: Event) -> None:
        self.out.append(event)

    def aside(self, *nodes: ast.expr) -> tuple[list[Event], Value]:
        """Evaluate apart: the events of an operand that may not run, and its value."""
        kept, self.out = self.out, []
        value = UNKNOWN
        for node in nodes:
            value = evaluate(self, node)
        inside, self.out = self.out, kept
        return inside, value

    def yielded(self, value: Value, whole: bool = False) -> None:
        self.generator = True
        own = value.length if whole else CLEAN
        self.turns = union(self.turns, *self.loops, *self.skips, *self.control, self.left, own)
        if value is not UNKNOWN:
            self.returns.append(value._replace(ranks=None))

    # Statements.

    def block(self, body: list[ast.stmt]) -> bool:
        """Read statements in order; True where the block never reaches its end."""
        for statement in body:
            handler = _STATEMENTS.get(type(statement))
            if handler is not None:
                if handler(self, statement):
                    return True
            else:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        evaluate(self, child)
        return False

    def inside(self, body: list[ast.stmt]) -> tuple[list[Event], bool]:
        """The events of a block, apart."""
        kept, self.out = self.out, []
        ended = self.block(body)
        events, self.out = self.out, kept
        return events, ended

    def bind(self, target: ast.AST, value: Value) -> None:
        """Assign to a name, an attribute, or each of a tuple."""
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Attribute):
            text = dotted(target)
            if text:
                self.paths[text] = value
                if value.taint and is_setting(text):
                    self.analysis.setting(setting_name(text), value.taint)
                if text.startswith("self.") and text.count(".") == 1:
                    self.writes[target.attr] = (
                        join([self.writes[target.attr], value]) if target.attr in self.writes else value
                    )
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.items if value.items is not None and len(value.items) == len(target.elts) else None
            for number, each in enumerate(target.elts):
                inner = each.value if isinstance(each, ast.Starred) else each
                whole = Value(value.taint, tags=value.tags & {"wrapped_output", "ddp", "loader"})
                self.bind(inner, items[number] if items is not None else whole)
        elif isinstance(target, ast.Subscript):
            evaluate(self, target.slice)
            self.put_into(target.value, value)

    def put_into(self, holder: ast.expr, value: Value, *, grows: bool = False) -> None:
        """Something is put into a container, which may be longer then on some ranks."""
        text = dotted(holder)
        where = self.env if text in self.env else self.paths
        known = where.get(text)
        if known is None:
            return
        value = value._replace(taint=union(value.taint, *self.control))
        if value.taint and text in self.function.params:
            self.fills[text] = union(self.fills.get(text, CLEAN), value.taint)
        length = union(known.length, *self.control, *self.loops, *self.skips) if grows else known.length
        if value.taint or length != known.length or grows:
            where[text] = known._replace(taint=union(known.taint, value.taint), length=length, ranks=None, items=None)

    def assign(self, node: ast.Assign | ast.AnnAssign) -> bool:
        if node.value is not None:
            value = evaluate(self, node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, value)
        return False

    def augment(self, node: ast.AugAssign) -> bool:
        binary = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
        value = evaluate(self, binary)
        self.bind(node.target, value._replace(ranks=None) if self.loops else value)
        return False

    def condition(self, node: ast.If) -> bool:
        if last_name(node.test) == "TYPE_CHECKING":
            return False
        test = evaluate(self, node.test)
        world = asks_world(node.test)
        if world == "one":
            test = UNKNOWN  # in a world of one, nothing differs
        split = differs(test)
        before, paths = dict(self.env), dict(self.paths)
        if split:
            self.splits += 1
            self.control.append(test.taint)
        self.alone += world == "one"
        then, ended = self.inside(node.body)
        self.alone += (world == "many") - (world == "one")
        env, own = self.env, self.paths
        self.env, self.paths = before, paths
        other, other_ended = self.inside(node.orelse)
        self.alone -= world == "many"
        if split:
            self.control.pop()
            self._parted(test.taint, exits(then) ^ exits(other))
        if then or other:
            given = self._given(node.test) if split else ()
            self.emit(Fork(test, ast.unparse(node.test)[:160], node.lineno, then, other, given))
        if ended and not other_ended:
            return False
        if other_ended and not ended:
            self.env, self.paths = env, own
            return False
        self.env = merged(test, env, self.env, world)
        self.paths = merged(test, own, self.paths, world)
        return ended and other_ended

    def _parted(self, taint: Taint, ways: set[Exit]) -> None:
        """Some ranks have left by these ways: what comes next is done by the others alone."""
        if "return" in ways:
            self.left = union(self.left, taint)
        if "continue" in ways and self.skips:
            self.skips[-1] = union(self.skips[-1], taint)
        if "break" in ways and self.loops:
            self.loops[-1] = union(self.loops[-1], taint)

    def _given(self, test: ast.expr) -> tuple[tuple[str, bool], ...]:
        """The parts of `a and not b and rank == 0` that are the same on all ranks."""
        if not isinstance(test, ast.BoolOp):
            return ()
        found = []
        wanted = isinstance(test.op, ast.And)
        for part in test.values:
            truth, inner = wanted, part
            if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
                truth, inner = not wanted, part.operand
            if isinstance(inner, ast.Name | ast.Attribute) and not differs(self.aside(inner)[1]):
                found.append((ast.unparse(inner)[:160], truth))
        return tuple(found)

    def loop(self, node: ast.For | ast.AsyncFor) -> bool:
        source = evaluate(self, node.iter)
        counted = turns(self, source)
        if (rounds := unrolled(source, node)) is not None:
            for value in rounds:
                self.bind(node.target, value)
                self.out += self.inside(node.body)[0]
            return False
        item = elements(self, source, node.iter)
        self.loops.append(counted.length)
        again = len(self.loops) <= _TWICE and not self.analysis.gathers
        for last in (False, True) if again else (True,):
            self.bind(node.target, item)
            events, _ = self._turn(node.body)
            if last and matters(events):
                text = ast.unparse(node.iter)[:160]
                loop = Loop("for", text, node.lineno, events, counted.length, joined=self.joined > 0)
                loop.test = Value(ranks=counted.ranks, tags=source.tags)
                self.emit(loop)
        self.loops.pop()
        return self.block(node.orelse) and False

    def _turn(self, body: list[ast.stmt]) -> tuple[list[Event], bool]:
        before, paths = dict(self.env), dict(self.paths)
        self.skips.append(CLEAN)
        events, ended = self.inside(body)
        self.skips.pop()
        for mine, old in ((self.env, before), (self.paths, paths)):
            for name, value in old.items():
                if mine.get(name) is not value:
                    mine[name] = join([value, mine.get(name, UNKNOWN)])
        return events, ended

    def while_loop(self, node: ast.While) -> bool:
        events: list[Event] = []
        test = UNKNOWN
        self.loops.append(CLEAN)
        for _ in range(2 if len(self.loops) <= _TWICE and not self.analysis.gathers else 1):
            head, test = self.aside(node.test)
            self.loops[-1] = test.taint if differs(test) else CLEAN
            body, _ended = self._turn(node.body)
            events = [*head, *body]
        self.loops.pop()
        if matters(events):
            self.emit(Loop("while", ast.unparse(node.test)[:160], node.lineno, events, CLEAN, test, self.joined > 0))
        return isinstance(node.test, ast.Constant) and bool(node.test.value) and "break" not in exits(events)

    def attempt(self, node: ast.Try) -> bool:
        before = dict(self.env)
        self.trying += 1
        body, ended = self.inside(node.body)
        self.trying -= 1
        orelse, _ = self.inside(node.orelse)
        after = self.env
        handlers, all_end = [], ended
        imports = any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in node.body)
        envs = [] if ended else [after]
        for item in node.handlers:
            self.env = {**before, **{k: v for k, v in after.items() if k in before}}
            types = tuple(last_name(t) for t in _types(item.type))
            alike = (bool(types) and set(types) <= ALIKE) or imports
            if item.name and not alike:
                self.env[item.name] = Value(
                    frozenset({Origin("exception", "an exception on this rank", *self.at(item))})
                )
            mine = [dict(self.env)]
            events, handler_ended = self.inside(item.body)
            all_end = all_end and handler_ended
            handlers.append(Handler(types, item.lineno, events, ending(events) == "raise"))
            if not handler_ended:
                envs.append(self.env if alike else caught(mine[0], self.env, self.at(item)))
        self.env = all_merged(envs) if envs else after
        final, final_ended = self.inside(node.finalbody)
        if any(map(matters, (body, orelse, final, *(h.body for h in handlers)))):
            line = node.finalbody[0].lineno if node.finalbody else node.lineno
            self.emit(Attempt(node.lineno, body, handlers, final, line, orelse))
        return final_ended or (all_end and not node.orelse)

    def with_block(self, node: ast.With | ast.AsyncWith) -> bool:
        quiet = joined = 0
        first = ""
        for item in node.items:
            calls = [n for n in ast.walk(item.context_expr) if isinstance(n, ast.Call)]
            names = {last_name(c.func) for c in calls}
            whole = isinstance(item.context_expr, ast.Call)
            quiet += int(bool(names & {"no_sync", "no_backward_sync"}) and whole)
            joined += int(bool(names & {"join", "Join", "join_uneven_inputs"}))
            if any(_FIRST.search(name) for name in names):
                first = ast.unparse(item.context_expr)[:120]
                continue
            value = evaluate(self, item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value)
        self.no_sync += quiet
        self.joined += joined
        if first:
            events, ended = self.inside(node.body)
            if matters(events):
                self.emit(First(node.lineno, first, events))
        else:
            ended = self.block(node.body)
        self.no_sync -= quiet
        self.joined -= joined
        return ended

    def leave(self, node: ast.stmt) -> bool:
        kinds: dict[type[ast.stmt], Exit] = {ast.Break: "break", ast.Continue: "continue", ast.Raise: "raise"}
        if isinstance(node, ast.Return):
            value = evaluate(self, node.value) if node.value is not None else UNKNOWN
            if node.value is None:
                value = Value(ranks=(None,) * 4)
            if not self.alone:  # what a world of one returns differs from nobody's
                self.returns.append(value._replace(taint=union(value.taint, *self.control, self.left)))
            empty = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
            self.emit(Leave("return", node.lineno, empty))
            return True
        if isinstance(node, ast.Raise) and node.exc is not None:
            evaluate(self, node.exc)
        self.emit(Leave(kinds[type(node)], node.lineno))
        return True

    def expression(self, node: ast.Expr) -> bool:
        evaluate(self, node.value)
        if isinstance(node.value, ast.Call) and dotted(node.value.func) in ENDS:
            self.emit(Leave("exit", node.lineno))
            return True
        return False

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        function = self.function.module.defs.get(node)
        if function is not None and function.owner is None:
            caught = self._caught_by(node) if self.function.node is not None else CLEAN
            self.env[node.name] = Value(caught, thing=function, tags=frozenset({"itself"}))
            self.analysis.closures[function] = self.env
        return False

    def _caught_by(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Taint:
        """What a nested function takes from the variables around it."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return union(*(self.env[name].taint for name in names if name in self.env))

    def class_body(self, _node: ast.ClassDef) -> bool:
        """Methods are read on their own."""
        return False

    def match(self, node: ast.Match) -> bool:
        subject = evaluate(self, node.subject)
        arms: list[list[Event]] = []
        before = dict(self.env)
        for case in node.cases:
            self.env = dict(before)
            events, _ = self.inside(case.body)
            arms.append(events)
        self.env = before
        other: list[Event] = []
        for events, case in zip(reversed(arms), reversed(node.cases), strict=True):
            other = [Fork(Value(subject.taint), ast.unparse(case.pattern)[:80], case.body[0].lineno, events, other)]
        if any(arms):
            self.out += other
        return False


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return target


def _types(node: ast.expr | None) -> list[ast.expr]:
    if node is None:
        return []
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


_STATEMENTS: dict[type[ast.stmt], Callable[[Frame, Any], bool]] = {
    ast.Assign: Frame.assign, ast.AnnAssign: Frame.assign, ast.AugAssign: Frame.augment, ast.If: Frame.condition,
    ast.For: Frame.loop, ast.AsyncFor: Frame.loop, ast.While: Frame.while_loop, ast.Try: Frame.attempt,
    ast.With: Frame.with_block, ast.AsyncWith: Frame.with_block, ast.Return: Frame.leave, ast.Break: Frame.leave,
    ast.Continue: Frame.leave, ast.Raise: Frame.leave, ast.Expr: Frame.expression, ast.FunctionDef: Frame.definition,
    ast.AsyncFunctionDef: Frame.definition, ast.ClassDef: Frame.class_body, ast.Match: Frame.match,
}  # fmt: skip
