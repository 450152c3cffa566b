"""One function while it is read: its variables, and the tree of events that grows statement by statement."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.source.code.calling.parameters import parameter
from whichrank.source.code.calling.silencing import SWITCHES, set_by
from whichrank.source.code.calling.sources import is_setting, setting_name
from whichrank.source.code.calling.stopping import STOPS, stopped
from whichrank.source.code.evaluating.choices import AGREED_TAG, GROWN
from whichrank.source.code.evaluating.containers import EACH, entry_of
from whichrank.source.code.evaluating.expressions import evaluate
from whichrank.source.code.evaluating.names import HANDED_ON
from whichrank.source.code.evaluating.types import FRACTION, OF, RAGGED
from whichrank.source.code.events import (
    Event,
    Exit,
    Leave,
)
from whichrank.source.code.index import Class, Function, resolve
from whichrank.source.code.statements.attempting import attempt
from whichrank.source.code.statements.branching import assertion, if_statement, match_statement
from whichrank.source.code.statements.defining import class_body, definition
from whichrank.source.code.statements.leaving import ends_process, never_returns
from whichrank.source.code.statements.looping import for_loop, while_loop
from whichrank.source.code.statements.managers import with_block
from whichrank.source.code.values import (
    CLEAN,
    UNKNOWN,
    Callee,
    ParamOrigin,
    Taint,
    Value,
    functions_of,
    join,
    objects_of,
    union,
)
from whichrank.source.nodes import dotted, last_name

if TYPE_CHECKING:
    from whichrank.source.code.analysis import Analysis

NESTED = frozenset({"setdefault", "get"})
FAILED_HOOKS = frozenset({"sys.excepthook", "threading.excepthook"})
"""What Python calls on the rank that failed."""


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
        self.given_back: list[Value] = []
        """What it returns, without the conditions under which it does."""
        self.left: Taint = CLEAN
        """Conditions under which some ranks have returned already."""
        self.control: list[Taint] = []
        self.turns: Taint = CLEAN
        self.loops: list[Taint] = []
        self.breaks: list[list[tuple[dict[str, Value], Taint]]] = []
        """For every loop around, the variables where it is left by a break, and why some ranks do."""
        self.skips: list[Taint] = []
        """For every loop around, conditions under which this rank has gone to the next turn already."""
        self.writes: dict[str, Value] = {}
        self.counts: set[str] = set()
        """Attributes of this object that are counted up."""
        self.grows: set[str] = set()
        """Containers of this object that something is put into."""
        self.flags: dict[str, tuple[tuple[Class, str], Value | None]] = {}
        """Attributes of other objects that are set here, as written."""
        self.seedings: set[tuple[str, Taint]] = set()
        self.groups: set[str] = set()
        """Parameters that are groups of operations here or in what is called."""
        self.fills: dict[str, Taint] = {}
        """What is put into containers that callers passed."""
        self.no_sync = self.joined = self.trying = self.alone = 0
        self.quiet_by: Taint = CLEAN
        """Conditions under which this rank's backward pass does not reduce gradients."""
        self.generator = False
        self.splits = 0
        """Conditions so far on which ranks differ."""
        self.ran_out: list[Taint] = []
        """For every loop around, why some ranks leave it for want of data."""
        self.globals: set[str] = set()
        self.asks_for = ""
        """The parameter that names a variable of the environment."""
        for name in function.params:
            self.env[name] = parameter(self, name)
        if function.node is not None:
            for rest in (function.node.args.vararg, function.node.args.kwarg):
                if rest is not None:
                    given = analysis.known.get((function, rest.arg), UNKNOWN)
                    self.env[rest.arg] = given._replace(taint=given.taint | {ParamOrigin(function, rest.arg)})

    def at(self, node: ast.AST) -> tuple[str, int]:
        return self.function.module.label, getattr(node, "lineno", 1)

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
            self._bind_name(target.id, value)
        elif isinstance(target, ast.Attribute):
            self._bind_attribute(target, value)
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.items if value.items is not None and len(value.items) == len(target.elts) else None
            if items is None and value.items is not None:
                items = _spread(target.elts, value.items)
            for number, each in enumerate(target.elts):
                inner = each.value if isinstance(each, ast.Starred) else each
                whole = Value(value.taint, tags=value.tags & {"wrapped_output", "ddp", "loader", AGREED_TAG})
                whole = whole._replace(holds=value.holds)
                self.bind(inner, items[number] if items is not None else whole)
        elif isinstance(target, ast.Subscript):
            index = evaluate(self, target.slice)
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if key is None and not isinstance(target.slice, ast.Slice):
                self._new_keys(dotted(target.value), index.taint)
            self.put_into(target.value, value._replace(holds=functions_of([value])), key=key)
            if key is not None and (place := entry_of(self, target.value, key)) is not None:
                self.analysis.gather(*place, self._decided_here(value))

    def _bind_name(self, name: str, value: Value) -> None:
        self.env[name] = value
        if self.paths:  # what was known of the attributes of the one before is not true of this one
            for text in [text for text in self.paths if text.startswith(f"{name}.")]:
                del self.paths[text]
        if name in self.globals:
            self.analysis.gather(self.function.module, name, self._decided_here(value))

    def _bind_attribute(self, target: ast.Attribute, value: Value) -> None:
        text = dotted(target)
        if not text:
            return
        self.paths[text] = value
        if target.attr in SWITCHES:
            set_by(self, value)
        elif target.attr in STOPS:
            stopped(self, target, value)
        elif text in FAILED_HOOKS and isinstance(value.thing, Function):
            self.analysis.later("callback", value.thing, self.function, target.lineno)
        if value.taint and is_setting(text):
            self.analysis.setting(setting_name(text), value.taint)
        holder = self.env.get(text.rpartition(".")[0], UNKNOWN)
        other = isinstance(holder.thing, Class) and "itself" not in holder.tags and holder.thing is not self.owner
        flag = value.ranks is not None or (AGREED_TAG in value.tags and text in self.flags)
        if other and isinstance(holder.thing, Class) and flag:
            mine = (holder.thing, target.attr)
            known_holder, known_flag = self.flags.get(text, (mine, None))
            self.flags[text] = (known_holder, self._after(known_flag, self._decided_here(value)))
        if other and isinstance(holder.thing, Class) and value.tags & HANDED_ON:
            self.analysis.gather(holder.thing, target.attr, self._decided_here(value))
        if text.startswith(("self.", "cls.")) and text.count(".") == 1:
            self.writes[target.attr] = self._after(self.writes.get(target.attr), self._decided_here(value))

    def _after(self, before: Value | None, value: Value) -> Value:
        """What an attribute may be after it was set again: the new value alone where every rank comes here."""
        always = not (self.control or self.loops or self.trying or self.left)
        return value if before is None or (always and AGREED_TAG in value.tags) else join([before, value])

    def _decided_here(self, value: Value) -> Value:
        """A value for others to read later: it tells them on which side of a condition this rank was."""
        control = union(*self.control)
        if not control or value.thing is not None:
            return value
        cast = union(value.cast, control) if FRACTION in value.tags else value.cast
        return value._replace(taint=union(value.taint, control), ranks=None, cast=cast)

    def put_into(
        self, holder: ast.expr, value: Value, *, grows: bool = False, key: object = None, last: Value | None = None
    ) -> None:
        """Something is put into a container, which may be longer then on some ranks; `last` comes to its end."""
        text = self._container(holder)
        if grows and text.startswith("self.") and text.count(".") == 1:
            self.grows.add(text[5:])
        if grows and value.kinds and not any(isinstance(origin, ParamOrigin) for origin in value.taint):
            self.analysis.registered(value.kinds, union(*self.control, self.left))
        if grows and value.holds and not self._were_passed(value.holds):
            self.analysis.registered(value.holds, union(*self.control, self.left))
        if value.holds or (grows and value.kinds):
            self._registered(text, Value(holds=value.holds, kinds=value.kinds if grows else ()))
        elif text.startswith("self.") and text.count(".") == 1 and self.owner is not None:
            often = union(*self.control, *self.loops, *self.skips, self.left) if grows else CLEAN
            if value.taint or often:
                self.analysis.gather(self.owner, text[5:], Value(value.taint, often, value.tags & {RAGGED}))
        where = self.env if text in self.env else self.paths
        known = where.get(text)
        if known is None:
            return
        if known.fields is not None:
            fields = {**known.fields, key: value} if key is not None and not grows else None
            known = where[text] = known._replace(fields=fields)
        if value.holds or (grows and value.kinds):
            kinds = objects_of([known, value]) if grows else known.kinds
            known = where[text] = known._replace(holds=functions_of([known, value]), kinds=kinds)
        value = value._replace(taint=union(value.taint, *self.control))
        if value.taint and text in self.function.params:
            self.fills[text] = union(self.fills.get(text, CLEAN), value.taint)
        length = union(known.length, *self.control, *self.loops, *self.skips) if grows else known.length
        if value.taint or length != known.length or grows:
            marks = {GROWN, *(tag for tag in value.tags if tag.startswith((EACH, OF, RAGGED)))} if grows else set()
            taint, tags = union(known.taint, value.taint), known.tags | marks
            always = not (self.control or self.loops or self.skips or self.left)
            items = (*known.items, last) if known.items is not None and last is not None and always else None
            where[text] = known._replace(taint=taint, length=length, tags=tags, ranks=None, items=items)

    def _were_passed(self, functions: tuple[Callee, ...]) -> bool:
        """Whether functions came from the caller: it says on which ranks they are put somewhere."""
        names = list(self.function.params)
        if self.function.node is not None and self.function.node.args.vararg is not None:
            names.append(self.function.node.args.vararg.arg)
        return not set(functions).isdisjoint(functions_of(self.env[name] for name in names if name in self.env))

    def _container(self, holder: ast.expr) -> str:
        """The container behind `d[key]` and `d.setdefault(key, [])`, as written."""
        keys = CLEAN
        while isinstance(holder, ast.Subscript) or (
            isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute) and last_name(holder.func) in NESTED
        ):
            if isinstance(holder, ast.Subscript) and not isinstance(holder.slice, ast.Slice | ast.Constant):
                keys = union(keys, evaluate(self, holder.slice).taint)
            holder = holder.value if isinstance(holder, ast.Subscript) else holder.func.value  # type: ignore[attr-defined]
        text = dotted(holder)
        self._new_keys(text, keys)
        return text

    def _new_keys(self, text: str, keys: Taint) -> None:
        """A dictionary gets keys that are this rank's data: it may have more of them than on other ranks."""
        where = self.env if text in self.env else self.paths
        known = where.get(text)
        if keys and known is not None and "dict" in known.tags:
            where[text] = known._replace(length=union(known.length, keys), fields=None)

    def _registered(self, text: str, held: Value) -> None:
        """Functions or objects are put into a registry that others read: an attribute, a variable of a module."""
        if text.startswith("self.") and text.count(".") == 1 and self.owner is not None:
            self.analysis.gather(self.owner, text[5:], held)
        elif text and text not in self.env and text not in self.closure:
            head, _, last = resolve(self.function.module, text).rpartition(".")
            module = self.analysis.project.modules.get(head, self.function.module if not head else None)
            if module is not None:
                self.analysis.gather(module, last, held)

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
        if isinstance(node.target, ast.Attribute) and dotted(node.target.value) == "self":
            self.counts.add(node.target.attr)
        return False

    def declare_global(self, node: ast.Global) -> bool:
        self.globals |= set(node.names)
        return False

    def leave(self, node: ast.stmt) -> bool:
        kinds: dict[type[ast.stmt], Exit] = {ast.Break: "break", ast.Continue: "continue", ast.Raise: "raise"}
        if isinstance(node, ast.Return):
            value = evaluate(self, node.value) if node.value is not None else UNKNOWN
            if node.value is None:
                value = Value(ranks=(None,) * 4)
            if self.control:
                value = _maybe_nothing(value)
            if not self.alone:  # what a world of one returns differs from nobody's
                apart = union(*self.control, self.left)
                self.given_back.append(value)
                items = value.items
                if items is not None and apart:
                    items = tuple(item._replace(taint=union(item.taint, apart)) for item in items)
                self.returns.append(value._replace(taint=union(value.taint, apart), items=items))
            empty = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
            self.emit(Leave("return", node.lineno, empty))
            return True
        kind, name = kinds[type(node)], ""
        if kind == "break" and self.breaks:
            self.breaks[-1].append((dict(self.env), union(*self.control)))
        if isinstance(node, ast.Raise) and node.exc is not None:
            evaluate(self, node.exc)
            kind = ends_process(node.exc) or kind
            name = last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            if name in self.function.module.classes or name in self.function.module.imports:
                self.analysis.raised.setdefault(name, set()).add(union(*self.control, self.left, *self.skips))
        self.emit(Leave(kind, node.lineno, error=name))
        return True

    def expression(self, node: ast.Expr) -> bool:
        before = len(self.out)
        evaluate(self, node.value)
        kind = ends_process(node.value) or never_returns(self, self.out[before:])
        if kind is not None:
            self.emit(Leave(kind, node.lineno))
        return kind is not None


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return target


def _spread(targets: list[ast.expr], items: tuple[Value, ...]) -> tuple[Value, ...] | None:
    """Values for `a, *rest, b = …`."""
    stars = [number for number, each in enumerate(targets) if isinstance(each, ast.Starred)]
    if len(stars) != 1 or len(items) < len(targets) - 1:
        return None
    star, behind = stars[0], len(targets) - stars[0] - 1
    middle = items[star : len(items) - behind]
    return (*items[:star], Value(items=middle), *items[len(items) - behind :])


def _maybe_nothing(value: Value) -> Value:
    """What some ranks alone return, marked where it is None or has None in one of its places."""
    if value.ranks is not None and value.ranks[0] is None:
        return value.tagged("optional")
    return value._replace(items=tuple(map(_maybe_nothing, value.items))) if value.items else value


_STATEMENTS: dict[type[ast.stmt], Callable[[Frame, Any], bool]] = {
    ast.Assign: Frame.assign, ast.AnnAssign: Frame.assign, ast.AugAssign: Frame.augment, ast.If: if_statement,
    ast.For: for_loop, ast.AsyncFor: for_loop, ast.While: while_loop, ast.Try: attempt,
    ast.With: with_block, ast.AsyncWith: with_block, ast.Return: Frame.leave, ast.Break: Frame.leave,
    ast.Continue: Frame.leave, ast.Raise: Frame.leave, ast.Expr: Frame.expression, ast.FunctionDef: definition,
    ast.AsyncFunctionDef: definition, ast.ClassDef: class_body, ast.Match: match_statement,
    ast.Global: Frame.declare_global, ast.Assert: assertion,
}  # fmt: skip
