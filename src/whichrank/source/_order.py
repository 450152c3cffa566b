"""In which order a program does things: settings that come after what reads them.

The statements are followed as they would run, calls of functions of the same file included, and of other files
where they are at hand. Both sides of a branch are followed, each without the other; what one of them did may have
happened afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.facts.variables.environment import catalogue
from whichrank.source._constants import Constants
from whichrank.source._environ import set_in_loop, sets, sets_by_name
from whichrank.source._landmarks import chooses_device, guesses_device, hooks, makes_group, touches_cuda
from whichrank.source._program_file import File, Function
from whichrank.source.nodes import called_as, last_name, walk

IMPORT, GROUP, CUDA = "torch is imported", "the process group is made", "CUDA is in use"
DEVICE = "a device is chosen"


class Seen(NamedTuple):
    """Something that happened, and the file that it is in."""

    node: ast.AST
    label: str


State: TypeAlias = dict[str, Seen]

# Read while torch is imported (tried on 2.13.0): setting them afterwards changes nothing.
AT_IMPORT = frozenset({"TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL"})
AT_CUDA = frozenset({
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "HIP_VISIBLE_DEVICES",
})  # fmt: skip
_NEW_PROCESS = frozenset({"spawn", "start_processes", "Process", "Popen", "Pool"})
STEP_LIMIT, CALL_DEPTH = 50_000, 12


class Found(Struct, frozen=True):
    """A variable that is set after what reads it."""

    name: str
    node: ast.AST
    event: str
    event_node: ast.AST
    label: str = ""
    event_label: str = ""


Elsewhere: TypeAlias = Callable[[str, str], "tuple[File, Function] | None"]
"""The function of another file that a call means: by the label of the calling file, and the name as written."""
Known: TypeAlias = dict[tuple[Function, frozenset[str]], State]
"""What had happened after a function, by what had happened before."""


def too_late(tree: ast.Module, environ: frozenset[str], constants: Constants | None = None) -> list[Found]:
    """Settings that come too late, in the order of their lines."""
    return followed(File(tree, environ, constants))[0]


def followed(
    file: File, elsewhere: Elsewhere | None = None, known: Known | None = None
) -> tuple[list[Found], list[tuple[Seen, Seen]]]:
    """Settings that come too late in a file, or in what it calls; functions that are known are not followed again.

    Also barriers that come before any device is chosen, each with what made the process group.
    """
    way = _Walk(file, elsewhere, known if known is not None else {})
    end = way.block(file.tree.body, {}) or {}
    # Functions that other files call run after this module's imports, and after nothing else that is known.
    imported: State = {IMPORT: end[IMPORT]} if IMPORT in end else {}
    late = dict.fromkeys(hooks(file.tree))
    for function in list(file.functions.values()):
        followed = function in way.entered or (function, frozenset(imported)) in way.known
        if not followed and function not in late:
            way.enter(function, dict(imported))
    for function in late:
        way.enter(function, {**imported, GROUP: Seen(function, file.label)})
    return sorted(way.found.values(), key=lambda found: getattr(found.node, "lineno", 0)), way.barriers


class _Walk(Struct):
    file: File
    elsewhere: Elsewhere | None = None
    known: Known = field(default_factory=dict)
    setters: dict[Function, bool] = field(default_factory=dict)
    entered: set[Function] = field(default_factory=set)
    active: list[Function] = field(default_factory=list)
    returned: list[list[State]] = field(default_factory=list)
    found: dict[tuple[str, int, str], Found] = field(default_factory=dict)
    barriers: list[tuple[Seen, Seen]] = field(default_factory=list)
    """Barriers before any device is chosen, each with what made the process group."""
    starts_processes: bool = False
    passed: dict[Function, tuple[str, ...]] = field(default_factory=dict)
    """Variables that the file of a caller names, for functions that set what a computed dictionary holds."""
    steps: int = 0

    def __post_init__(self) -> None:
        calls = (node for node in walk(self.file.tree) if isinstance(node, ast.Call))
        self.starts_processes = any(last_name(node.func) in _NEW_PROCESS for node in calls)

    def block(self, body: list[ast.stmt], state: State) -> State | None:
        """Follow statements; None where the path ends."""
        for statement in body:
            self.steps += 1
            if self.steps > STEP_LIMIT:
                return None
            after = self.statement(statement, state)
            if after is None:
                return None
            state = after
        return state

    def statement(self, node: ast.stmt, state: State) -> State | None:
        if isinstance(node, ast.If):
            return self.branch(node, state)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            head = node.test if isinstance(node, ast.While) else node.iter
            state = self.expression(head, state)
            self.check(node, state)
            return _either(state, self.block(node.body, dict(state)), self.block(node.orelse, dict(state)))
        if isinstance(node, ast.Try):
            return self.attempt(node, state)
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                state = self.expression(item.context_expr, state)
                if found := self._method(item.context_expr, "__enter__"):
                    state = self._followed(ast.Call(item.context_expr, [], []), *found, state)
            return self.block(node.body, state)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return state
        if isinstance(node, ast.ClassDef):
            return self.block([s for s in node.body if not isinstance(s, ast.FunctionDef)], state)
        return self.simple(node, state)

    def simple(self, node: ast.stmt, state: State) -> State | None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            if any(module.split(".")[0] == "torch" for module in modules):
                state.setdefault(IMPORT, Seen(node, self.file.label))
            return state
        state = self.expression(node, state)
        if isinstance(node, ast.Return) and self.returned:
            self.returned[-1].append(dict(state))
        ends = isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            ends = ends or called_as(node.value.func) in {"sys.exit", "exit", "quit", "os._exit"}
        return None if ends else state

    def branch(self, node: ast.If, state: State) -> State | None:
        state = self.expression(node.test, state)
        inside = dict(state)
        words = {last_name(n) for n in walk(node.test) if isinstance(n, ast.Name | ast.Attribute)}
        if "is_initialized" in words and isinstance(node.test, ast.UnaryOp):
            inside.pop(GROUP, None)
        if "TYPE_CHECKING" in words:
            return self.block(node.orelse, state)
        return _either(self.block(node.body, inside), self.block(node.orelse, dict(state)))

    def attempt(self, node: ast.Try, state: State) -> State | None:
        done = self.block(node.body, dict(state))
        ways = [self.block(node.orelse, dict(done)) if done is not None else None]
        ways += [self.block(h.body, dict(_either(state, done) or {})) for h in node.handlers]
        after = _either(*ways)
        end = self.block(node.finalbody, dict(state) if after is None else after)
        return None if after is None else end

    def expression(self, node: ast.AST, state: State) -> State:
        """Calls inside an expression or a simple statement, inner ones first, then what it assigns."""
        for inner in _evaluated(node):
            if isinstance(inner, ast.Call):
                state = self.call(inner, state)
            self.check(inner, state)
        return state

    def call(self, node: ast.Call, state: State) -> State:
        name, dotted = last_name(node.func), called_as(node.func)
        own = isinstance(node.func, ast.Name) or dotted.startswith(("self.", "cls."))
        function, file = self.file.functions.get(name) if own else None, self.file
        if function is None and self.elsewhere is not None and (found := self.elsewhere(file.label, dotted)):
            file, function = found
        if function is None and isinstance(node.func, ast.Attribute) and (found := self._method(node.func.value, name)):
            file, function = found
        if function is not None:
            state = self._followed(node, file, function, state)
        if name == "barrier" and GROUP in state and DEVICE not in state and guesses_device(node, dotted):
            self.barriers.append((Seen(node, self.file.label), state[GROUP]))
        if chooses_device(node, name, dotted):
            state.setdefault(DEVICE, Seen(node, self.file.label))
        if name == "destroy_process_group":
            state.pop(GROUP, None)
        elif makes_group(name, dotted):
            state.setdefault(GROUP, Seen(node, self.file.label))
        elif touches_cuda(node, name, dotted):
            state.setdefault(CUDA, Seen(node, self.file.label))
        return state

    def _method(self, owner: ast.expr, name: str) -> tuple[File, Function] | None:
        """The method of an object whose class is known."""
        kind = self.file.class_of(owner)
        if kind == "super":
            return self._inherited(name)
        if kind in self.file.classes:
            method = self.file.classes[kind].methods.get(name)
            return None if method is None else (self.file, method)
        return self.elsewhere(self.file.label, f"{kind}.{name}") if kind and self.elsewhere is not None else None

    def _inherited(self, name: str) -> tuple[File, Function] | None:
        """The method that `super()` means in the function that is being followed."""
        owners = [
            each for each in self.file.classes.values() if self.active[-1:] and self.active[-1] in each.methods.values()
        ]
        for base in (base for owner in owners for base in owner.node.bases):
            if last_name(base) in self.file.classes:
                found = self.file.classes[last_name(base)].methods.get(name)
                return None if found is None else (self.file, found)
            if self.elsewhere is not None and (there := self.elsewhere(self.file.label, f"{called_as(base)}.{name}")):
                return there
        return None

    def _followed(self, node: ast.Call, file: File, function: Function, state: State) -> State:
        """What has happened after a call of a function of the program."""
        if function in self.active or len(self.active) >= CALL_DEPTH:
            return state
        kept = self.file
        given = _given(node, function, kept.constants) if self._sets(function) else {}
        if self._sets(function) and len(given) < len(node.args) + len(node.keywords):
            self.passed[function] = tuple(kept.named_settings())
        key = (function, frozenset(state))
        if self.elsewhere is not None and not given and key in self.known:
            return {event: state.get(event, seen) for event, seen in self.known[key].items()}
        self.file = _with(file, given)
        state = self.enter(function, state)
        self.file = kept
        if not given:
            self.known[key] = dict(state)
        return state

    def _sets(self, function: Function) -> bool:
        """Whether a function itself may set variables: what it is passed may be their names."""
        if function not in self.setters:
            names = (last_name(n) for n in walk(function) if isinstance(n, ast.Name | ast.Attribute))
            self.setters[function] = any(name in {"environ", "putenv"} for name in names)
        return self.setters[function]

    def enter(self, function: Function, state: State) -> State:
        """Follow a function's body; the caller goes on with what any of its ends left."""
        self.entered.add(function)
        self.active.append(function)
        self.returned.append([])
        after = self.block(function.body, dict(state))
        self.active.pop()
        merged = _either(after, *self.returned.pop())
        return state if merged is None else merged

    def check(self, node: ast.AST, state: State) -> None:
        names = self.file.environ
        found = [(name, place) for name, _, place in sets(node, names, self.file.constants)]
        if not found and self.active and sets_by_name(node, names):
            names_set = [*self.file.written_in(self.active[-1]), *self.passed.get(self.active[-1], ())]
            found = [(name, node) for name in dict.fromkeys(names_set)]
        for name, place in found:
            event = IMPORT if name in AT_IMPORT else CUDA if name in AT_CUDA else GROUP
            if event == CUDA and self.starts_processes:
                continue
            if event in state and (name in catalogue() or event == CUDA):
                here = (set_in_loop(node, names) or place) if isinstance(node, ast.For) else _inside(node, place)
                key = (self.file.label, getattr(here, "lineno", 0), name)
                seen = state[event]
                self.found.setdefault(key, Found(name, here, event, seen.node, self.file.label, seen.label))


def _inside(node: ast.AST, place: ast.AST) -> ast.AST:
    """The line of one setting in a call, or the call where what it sets is written elsewhere."""
    first, line = getattr(node, "lineno", 0), getattr(place, "lineno", 0)
    return place if first <= line <= (getattr(node, "end_lineno", None) or first) else node


def _given(call: ast.Call, function: Function, constants: Constants | None) -> dict[str, ast.expr]:
    """What a call passes that is spelled out: texts, and dictionaries of them."""
    if constants is None:
        return {}
    params = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    params = params[1:] if params[:1] in (["self"], ["cls"]) else params
    passed = dict(zip(params, call.args, strict=False))
    passed.update((k.arg, k.value) for k in call.keywords if k.arg)
    known = {name: constants.resolve(value) for name, value in passed.items()}
    return {name: value for name, value in known.items() if isinstance(value, _SPELLED_OUT)}


_SPELLED_OUT = (ast.Constant, ast.Dict, ast.BinOp, ast.BoolOp, ast.IfExp, ast.Call)


def _with(file: File, given: dict[str, ast.expr]) -> File:
    """The file as a function of it sees it that was passed this."""
    if not given or file.constants is None:
        return file
    assigned = {**file.constants.assigned, **{name: [value] for name, value in given.items()}}
    return replace(file, constants=replace(file.constants, assigned=assigned))


def _either(*states: State | None) -> State | None:
    """What may have happened on any of the paths that go on."""
    going_on = [state for state in states if state is not None]
    if not going_on:
        return None
    merged: State = {}
    for state in going_on:
        for event, seen in state.items():
            merged.setdefault(event, seen)
    return merged


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression in the order of evaluation: arguments before the call."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda | ast.stmt):
            yield from _evaluated(child)
    yield node
