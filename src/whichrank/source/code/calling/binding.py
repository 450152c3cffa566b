"""Arguments of a call by the names of the parameters, `*args` and `**kwargs` included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating.expressions import mixed
from whichrank.source.code.index import Class, Function
from whichrank.source.code.values import Value, functions_of, objects_of
from whichrank.source.nodes import last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call

_FIELDS = frozenset({"field", "Field", "attrib", "ib"})
"""What makes a field of a data class, in dataclasses, pydantic and attrs."""


def bound(made: Call, target: Function) -> dict[str, Value]:
    """What each parameter gets."""
    params = positional(made, target)
    values = list(_spread(made))
    found = dict(zip(params, values, strict=False))
    given = _named(made)
    found.update((name, value) for name, value in given.items() if name in target.params)
    if target.node is None:
        return found
    rest, others = target.node.args.vararg, target.node.args.kwarg
    if rest is not None and len(values) > len(params):
        more = tuple(values[len(params) :])
        found[rest.arg] = mixed(list(more))._replace(items=more, holds=functions_of(more), kinds=objects_of(more))
    if others is not None and (unknown := {name: v for name, v in given.items() if name not in target.params}):
        found[others.arg] = mixed(list(unknown.values()))._replace(fields=unknown)
    return found


def positional(made: Call, target: Function) -> list[str]:
    """The parameters that arguments without a name fill."""
    params = list(target.params)
    by_class = "itself" in made.receiver.tags and "classmethod" not in target.decorators()
    if target.is_method and params and params[0] in {"self", "cls"} and not by_class:
        return params[1:]
    if made.name == "apply" and params and params[0] == "ctx":  # torch.autograd.Function.forward
        return params[1:]
    return params


def _spread(made: Call) -> Iterator[Value]:
    """Arguments without a name; what is known of `*args` one by one."""
    for number, value in enumerate(made.args):
        node = made.node.args[number] if number < len(made.node.args) else None
        if isinstance(node, ast.Starred) and value.items is not None:
            yield from value.items
        else:
            yield value


def _named(made: Call) -> dict[str, Value]:
    spread = made.keywords.get("**")
    if spread is None:
        return made.keywords
    known = {name: value for name, value in (spread.fields or {}).items() if isinstance(name, str)}
    return {**known, **{name: value for name, value in made.keywords.items() if name != "**"}}


def argument_node(made: Call, target: Function, name: str) -> ast.expr | None:
    """The expression that a parameter gets."""
    for keyword in made.node.keywords:
        if keyword.arg == name:
            return keyword.value
    params = positional(made, target)
    place = params.index(name) if name in params else len(made.node.args)
    return made.node.args[place] if place < len(made.node.args) else None


def declared(owner: Class) -> list[str]:
    """The fields of a data class, in order."""
    body = owner.node.body
    return [s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def default_of_field(node: ast.expr) -> ast.expr:
    """What a field of a data class is by default: `field(default_factory=make)` is what `make()` returns."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in _FIELDS:
        return node
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if (maker := given.get("default_factory") or given.get("factory")) is not None:
        return maker.body if isinstance(maker, ast.Lambda) else ast.copy_location(ast.Call(maker, [], []), node)
    return given.get("default", node)


def takes_anything(init: Function) -> bool:
    """Whether a constructor turns its keyword arguments into attributes: `setattr(self, name, value)`."""
    if init.node is None or init.node.args.kwarg is None:
        return False
    for part in walk(init.node):
        if isinstance(part, ast.Call) and last_name(part.func) == "setattr":
            return True
        if isinstance(part, ast.Attribute) and part.attr == "__dict__":
            return True
    return False
