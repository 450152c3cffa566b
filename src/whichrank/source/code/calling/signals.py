"""What signal handlers set: every rank gets a signal at another step, or not at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import Struct, field

from whichrank.source.code.index import Function, Module, resolve
from whichrank.source.code.values import CLEAN, Origin, Taint, Value, union
from whichrank.source.nodes import dotted, last_name, walk

_SETS = frozenset({"signal", "add_signal_handler"})


class Interrupted(Struct):
    """Variables that handlers assign: globals of a module, attributes of objects, names of an enclosing function."""

    names: dict[tuple[Module, str], Taint] = field(default_factory=dict)
    attributes: dict[str, Taint] = field(default_factory=dict)
    closures: dict[tuple[Function, str], Taint] = field(default_factory=dict)

    def add(self, module: Module) -> None:
        for node in module.nodes:
            if not isinstance(node, ast.Call) or last_name(node.func) not in _SETS or len(node.args) < 2:
                continue
            if last_name(node.func) != "signal" or resolve(module, dotted(node.func)) == "signal.signal":
                for handler in _handlers(module, node.args[1]):
                    self._assigned(module, handler)

    def _assigned(self, module: Module, handler: Function) -> None:
        nodes = walk(handler.node or ast.Pass())
        shared = {name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
        for target in _changed(nodes):
            origin = Origin("time", "a signal that this rank got", module.label, getattr(target, "lineno", 1))
            taint = frozenset({origin})
            if isinstance(target, ast.Attribute):
                self.attributes[target.attr] = taint
            elif isinstance(target, ast.Name) and (target.id in shared or not isinstance(target.ctx, ast.Store)):
                if handler.parent is None:
                    self.names[module, target.id] = taint
                else:
                    self.closures[handler.parent, target.id] = taint

    def seen(self, value: Value, function: Function, name: str) -> Value:
        """The value of a variable, with the signals that may have changed it."""
        if not self.names and not self.closures:
            return value
        around: Function | None = function
        while around is not None:
            if taint := self.closures.get((around, name)):
                return _marked(value, taint)
            around = around.parent
        return _marked(value, self.names.get((function.module, name), CLEAN))

    def seen_on_self(self, value: Value, attribute: str) -> Value:
        return _marked(value, self.attributes.get(attribute, CLEAN)) if self.attributes else value


def _marked(value: Value, taint: Taint) -> Value:
    return value._replace(taint=union(value.taint, taint), ranks=None) if taint else value


def _handlers(module: Module, node: ast.expr) -> Iterator[Function]:
    name = last_name(node)
    yield from (function for function in module.everything if name and function.name == name)


def _changed(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """What a handler assigns, puts into (`flag["stop"] = True`) or sets (`event.set()`)."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                held = target.value if isinstance(target, ast.Subscript) else target
                if isinstance(held, ast.Name) or (isinstance(held, ast.Attribute) and isinstance(held.value, ast.Name)):
                    yield held
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set":
            yield node.func.value
