"""The whole project: every function is read once its callers are known, and its summary is kept."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from whichrank.source.code.calling.binding import default_of_field
from whichrank.source.code.calling.signals import Interrupted
from whichrank.source.code.evaluating.choices import other_type
from whichrank.source.code.evaluating.names import HANDED_ON, WRAPPERS
from whichrank.source.code.evaluating.ordering import other_order
from whichrank.source.code.evaluating.types import FRACTION, is_whole
from whichrank.source.code.events import Event
from whichrank.source.code.frame import Frame
from whichrank.source.code.index import Class, Function, Module, Project, resolve
from whichrank.source.code.randomness import seeds
from whichrank.source.code.statements.leaving import how_it_ends, quits
from whichrank.source.code.summaries import Later, Notes, Summary
from whichrank.source.code.traits import Traits
from whichrank.source.code.unsure import Unsure
from whichrank.source.code.values import (
    CLEAN,
    UNKNOWN,
    Callee,
    Origin,
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
    pass

# Calls are followed this deep; functions below are still read on their own.
DEEPEST = 25
MOST_READINGS = 3
Holder: TypeAlias = Function | Class | Module


class Analysis(Struct):
    project: Project
    traits: Traits
    seeded: frozenset[str] = frozenset()
    """The libraries whose random numbers the program seeds alike on all ranks."""
    notes: Notes = field(default_factory=Notes)
    known: dict[tuple[Holder, str], Value] = field(default_factory=dict)
    """What callers pass for a parameter, and what others put into a global variable or an attribute."""
    gathering: dict[tuple[Holder, str], list[Value]] = field(default_factory=lambda: defaultdict(list))
    summaries: dict[Function, Summary] = field(default_factory=dict)
    closures: dict[Function, dict[str, Value]] = field(default_factory=dict)
    attributes: dict[tuple[Class, str], Value | None] = field(default_factory=dict)
    looking: set[tuple[Class, str]] = field(default_factory=set)
    """Attributes that are being looked for."""
    interrupted: Interrupted = field(default_factory=Interrupted)
    settings: dict[str, Taint] = field(default_factory=dict)
    """Attributes of configuration objects that some function sets by rank or host: `args.is_master`."""
    raised: dict[str, set[Taint]] = field(default_factory=dict)
    """Errors of the project, with the conditions under which they are raised."""
    members: dict[Callee, set[Taint]] = field(default_factory=dict)
    registering: dict[Callee, set[Taint]] = field(default_factory=dict)
    """Classes whose objects are collected in containers, with the conditions under which that happens."""
    placed: set[Callee] = field(default_factory=set)
    """Functions that a list is made with: `[save, show]`."""
    too_deep: list[Function] = field(default_factory=list)
    frames: dict[Function, Frame] = field(default_factory=dict)
    """Functions that are being read, with what is known in them so far."""
    unsure: Unsure = field(default_factory=Unsure)
    depth: int = 0
    gathers: bool = True
    """The first of two readings: what callers bring is only collected."""

    def run(self) -> None:
        """Read everything twice, what callers bring is known the second time; again while callbacks travel on."""
        self.seeded = frozenset(name for module in self.project.modules.values() for name in seeds(module))
        for module in self.project.modules.values():
            self.interrupted.add(module)
        self._read_all()
        self.gathers = False
        for number in range(MOST_READINGS):
            self.known = {key: join(values) for key, values in self.gathering.items()}
            self.gathering.clear()
            self._hand_on()
            self.seeded &= self._seeded_alike()
            self._read_all()
            if not self._new_functions(objects=number == 0):
                break
        self.known.update((key, join(values)) for key, values in self.gathering.items())  # for the reasons

    def _read_all(self) -> None:
        self.summaries.clear()
        self.members, self.registering = self.registering, {}
        self.unsure, self.notes = Unsure(), Notes()
        self.attributes.clear()
        for module in self.project.modules.values():
            if module.body is not None:
                self.summary(module.body)
            for function in module.everything:
                self.summary(function)
        for module in self.project.modules.values():  # again what was read before what it depends on
            for function in module.everything:
                self.summary(function)

    def _hand_on(self) -> None:
        """What wraps a model is known through any number of functions that hand the model on as it came."""
        handed = [(key, _as_it_came(value)) for key, value in self.known.items()]
        ways = {key: (origin.function, origin.name) for key, origin in handed if origin is not None}
        for _ in range(DEEPEST):
            changed = False
            for key, giver in ways.items():
                value = self.known[key]
                more = (self.known.get(giver, UNKNOWN).tags & HANDED_ON) - value.tags
                if more:
                    self.known[key] = value._replace(tags=value.tags | more)
                    changed = True
            if not changed:
                return

    def _seeded_alike(self) -> frozenset[str]:
        """The libraries that get one seed on all ranks, through the helpers that set it."""
        alike: set[str] = set()
        for library, taint in self.notes.seedings:
            if not any(origin.kind in {"rank", "host", "time", "random"} for origin in self.resolve(taint)):
                alike.add(library)
        return frozenset(alike)

    def _new_functions(self, *, objects: bool) -> bool:
        """Whether functions or objects were passed on to where they were not known: callbacks through several hands."""
        if objects and self.registering != self.members:
            return True
        for key, values in self.gathering.items():
            known = self.known.get(key, UNKNOWN)
            if not set(functions_of(values)) <= set(functions_of([known])):
                return True
            if key[0] in self.registering and _new_wrappers(values, known):
                return True
            if objects and known.thing is None and not set(objects_of(values)) <= set(known.kinds):
                return True
            if objects and isinstance(key[0], Class) and _other_reasons(values, known):
                return True
        return False

    def summary(self, function: Function) -> Summary:
        known = self.summaries.get(function)
        if known is not None:
            self.unsure.touch(function)
            return known
        if self.depth > DEEPEST:
            return Summary()
        made = self.summaries[function] = Summary()  # a recursive call sees this one
        frame = self.frames[function] = Frame(self, function, self.closures.get(function))
        self.depth += 1
        self.unsure.start(function)
        try:
            frame.block(function.body)
        except RecursionError:
            self.too_deep.append(function)
        finally:
            self.depth -= 1
            del self.frames[function]
            for early in self.unsure.end(function):
                self.summaries.pop(early, None)
        made.events, made.env = frame.out, frame.env
        made.turns, made.generator = frame.turns, frame.generator
        made.returns = self._returned(frame)
        made.writes, made.splits, made.fills = _as_left(frame), frame.splits, frame.fills
        made.grows, made.counts, made.asks_for = frame.grows, frame.counts, frame.asks_for
        made.ends = how_it_ends(function, frame.out) if not frame.generator else None
        made.quits = quits(function, frame.out)
        made.groups, made.seedings = frame.groups, frame.seedings
        for (owner, name), value in frame.flags.values():
            if value is not None:
                self.gather(owner, name, value)
        return made

    def read_for(self, function: Function, arguments: Mapping[str, Value]) -> list[Event]:
        """What a function does in one call of it: with what that call passes, not what all callers do."""
        keys: list[tuple[Holder, str]] = [(function, name) for name in function.params]
        known, summary = {key: self.known[key] for key in keys if key in self.known}, self.summaries.pop(function, None)
        for key in keys:
            self.known[key] = arguments.get(key[1], UNKNOWN)
        events = self.summary(function).events
        for key in keys:
            del self.known[key]
        self.known.update(known)
        if summary is not None:
            self.summaries[function] = summary
        return events

    def _returned(self, frame: Frame) -> Value:
        value = join(frame.returns)
        if frame.left and any(v.ranks is not None and v.ranks[0] is None for v in frame.returns):
            value = value._replace(tags=value.tags | {"optional"})
        if frame.left and any(other_type(frame.returns[0], other) for other in frame.returns[1:]):
            value = value._replace(cast=union(value.cast, frame.left))
        back = frame.given_back
        if frame.left and any(other_order(back[0], other) for other in back[1:]):
            value = value._replace(order=union(value.order, frame.left))
        return value

    def brought(self, function: Function, name: str) -> Value:
        """What the callers of a function pass for one parameter."""
        value = self.known.get((function, name), UNKNOWN)
        if value.thing is None and function.node is not None and (owner := self._annotated(function, name)):
            value = value._replace(thing=owner)
        return value

    def _annotated(self, function: Function, name: str) -> Class | None:
        arguments = function.node.args if function.node is not None else None
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else []:
            if argument.arg == name and argument.annotation is not None:
                return self.annotation(function.module, argument.annotation)
        return None

    def annotation(self, module: Module, node: ast.expr) -> Class | None:
        """The class of the project that an annotation names, as text too: `"Trainer"`."""
        text = dotted(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value if node.value.replace(".", "").isidentifier() else ""
        found = self.project.find(resolve(module, text)) if text else None
        return found if isinstance(found, Class) else None

    def called(self, target: Function, bound: Mapping[str, Value]) -> None:
        for name, value in bound.items():
            self.gather(target, name, value)

    def gather(self, holder: Holder, name: str, value: Value) -> None:
        """Someone gives a parameter, a global variable or an attribute this value."""
        values = self.gathering[holder, name]
        if len(values) < 24:
            values.append(value)

    def attribute(self, owner: Class, name: str) -> Value | None:
        """What the methods of a class assign to an attribute of self."""
        key = (owner, name)
        if key in self.looking:
            for method in owner.writers.get(name, ()):  # one of them is being read: who asks now is read again
                self.unsure.touch(method)
            return None
        if key not in self.attributes:
            self.looking.add(key)
            with self.unsure.apart() as seen:
                value = self._written(owner, name, 0)
            self.looking.discard(key)
            self.attributes[key] = self.interrupted.seen_on_self(value, name) if value is not None else None
            if seen.open:
                return self.attributes.pop(key)  # a method that assigns it is being read: not all is known yet
        return self.attributes[key]

    def _written(self, owner: Class, name: str, depth: int) -> Value | None:
        values = [self._writes(method).get(name, UNKNOWN) for method in owner.writers.get(name, ())]
        if (given := self.known.get((owner, name))) is not None:
            values.append(given)
        if not values and (own := self.class_attribute(owner, name)) is not None:
            values.append(own)
        if not values and depth < 4:
            for base in owner.bases:
                found = self.project.find(base)
                if isinstance(found, Class) and (value := self._written(found, name, depth + 1)) is not None:
                    values.append(value)
        if not values and depth == 0:
            for heir in self.project.heirs(owner):
                values += [self.summary(method).writes.get(name, UNKNOWN) for method in heir.writers.get(name, ())]
        if not values:
            return None
        value = join(values)
        always = FRACTION in value.tags and not any(map(is_whole, values))  # it does not begin as a whole number
        return value._replace(cast=CLEAN) if always else value

    def _writes(self, method: Function) -> Mapping[str, Value]:
        """The attributes that a method assigns; those so far where it is being read, and calls what asks for them."""
        done = self.summary(method).writes
        reading = self.frames.get(method)
        return reading.writes if reading is not None else done

    def class_attribute(self, owner: Class, name: str) -> Value | None:
        """What the body of a class assigns."""
        for statement in owner.node.body:
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if owner.module.body is not None and any(last_name(target) == name for target in targets):
                return Frame(self, owner.module.body).aside(default_of_field(statement.value))[1]
        return None

    def global_value(self, module: Module, name: str) -> Value | None:
        if module.body is None or name in module.imports:
            return None
        reading = self.frames.get(module.body)  # the body calls a function before its own end
        value = (reading.env if reading is not None else self.summary(module.body).env).get(name)
        if (given := self.known.get((module, name))) is not None:
            value = join([given, value]) if value is not None else given
        return self.interrupted.seen(value, module.body, name) if value is not None else None

    def setting(self, text: str, taint: Taint) -> None:
        """An attribute of a configuration object is set: what differs by rank or host is kept for its readers."""
        kept = frozenset(o for o in taint if isinstance(o, Origin) and o.kind in {"rank", "host"})
        if kept:
            self.settings[text] = union(self.settings.get(text, CLEAN), kept)

    def resolve(self, taint: Taint) -> list[Origin]:
        """The reasons behind a value, through the parameters of all functions on the way."""
        found: dict[Origin, None] = {}
        seen: set[ParamOrigin] = set()
        todo = list(taint)
        while todo and len(seen) < 200:
            origin = todo.pop()
            if isinstance(origin, Origin):
                found.setdefault(origin)
            elif origin not in seen:
                seen.add(origin)
                value = self.known.get((origin.function, origin.name))
                if value is not None:
                    todo += value.length if origin.length else value.taint
        return sorted(found, key=lambda o: (_WEIGHT.get(o.kind, 5), o.file, o.line, o.what))

    def raised_by_all(self, name: str) -> bool:
        """Whether an error of the project is raised where all ranks come, and so by all of them."""
        found = self.raised.get(name)
        return found is not None and not any(self.resolve(by) for by in found)

    def registered(self, kinds: Iterable[Callee], by: Taint) -> None:
        """Functions, or objects of these classes, are put into a container where a condition lets ranks through."""
        for kind in kinds:
            self.registering.setdefault(kind, set()).add(by)

    def some_have(self, kind: Callee) -> Taint:
        """Why only some ranks have put a function, or an object of a class, into a container; empty where all have."""
        found = self.members.get(kind, set()) if kind not in self.placed else set()
        return union(*found) if found and all(any(isinstance(o, Origin) for o in by) for by in found) else CLEAN

    def all_registered(self, kinds: Iterable[Callee]) -> bool:
        """Whether it is known of each on which ranks it is put into containers."""
        return all(kind in self.members or kind in self.placed for kind in kinds)

    def later(self, kind: str, target: object, function: Function, line: int) -> None:
        if isinstance(target, Function):
            self.notes.laters.append(Later(kind, target, function, line))


_WEIGHT = {"rank": 0, "part": 1, "data": 2, "exception": 3, "time": 4}


def _as_left(frame: Frame) -> dict[str, Value]:
    """Attributes that a method assigns, with why their shape or type differs where its branches meet again."""
    left = dict(frame.writes)
    for name, value in frame.writes.items():
        at_end = frame.paths.get(f"self.{name}", UNKNOWN)
        if at_end.length or at_end.cast:
            left[name] = value._replace(length=union(value.length, at_end.length), cast=union(value.cast, at_end.cast))
    return left


def _as_it_came(value: Value) -> ParamOrigin | None:
    """The parameter that a value is, unchanged."""
    if len(value.taint) != 1 or len(value.length) != 1:
        return None
    (origin,), (size,) = value.taint, value.length
    same = isinstance(origin, ParamOrigin) and isinstance(size, ParamOrigin) and size.name == origin.name
    return origin if same and isinstance(origin, ParamOrigin) and not origin.length else None


def _other_reasons(values: list[Value], known: Value) -> bool:
    """Whether an attribute, or its type, differs for other reasons than those known."""
    return union(*(value.taint for value in values)) != known.taint or union(*(v.cast for v in values)) != known.cast


def _new_wrappers(values: list[Value], known: Value) -> bool:
    """Whether a callback was passed a wrapped model that it did not know to be one."""
    return any((value.tags & WRAPPERS) - known.tags for value in values)
