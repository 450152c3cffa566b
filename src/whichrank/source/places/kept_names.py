"""Which variables of os.environ a dictionary keeps: `{k: os.environ[k] for k in KEEP}`, and loops that fill one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from whichrank.source._constants import Constants
from whichrank.source._environ import is_environ
from whichrank.source.nodes import last_name, walk

Keeps: TypeAlias = Callable[[str], bool]
"""Whether a variable with that name may get through."""
_DEEPEST, _MOST_TEXTS = 12, 500


def by_comprehension(node: ast.expr, constants: Constants, environ: frozenset[str]) -> Keeps | None:
    """Of a comprehension, or of `dict((k, os.environ[k]) for k in KEEP)`; None where it can't be told."""
    key: ast.expr | None = node.key if isinstance(node, ast.DictComp) else None
    if isinstance(node, ast.GeneratorExp | ast.ListComp) and isinstance(node.elt, ast.Tuple) and node.elt.elts:
        key = node.elt.elts[0]
    if not isinstance(node, ast.DictComp | ast.GeneratorExp | ast.ListComp) or len(node.generators) != 1:
        return None
    source = node.generators[0]
    return _kept(source.target, source.iter, key, source.ifs, constants, environ)


class Loops:
    """Loops that put elements into a dictionary or take them out, by the statement that does."""

    def __init__(self, tree: ast.AST) -> None:
        self.around: dict[int, ast.For] = {}
        self.taken: dict[str, list[tuple[ast.For, ast.expr]]] = {}
        """Name of a dictionary -> the loops that take something out of it, with the key."""
        for loop in walk(tree):
            if isinstance(loop, ast.For):
                self.around.update((id(inner), loop) for inner in walk(loop))
        for node in walk(tree):
            for owner, key in _taken_out(node) if id(node) in self.around else ():
                self.taken.setdefault(owner, []).append((self.around[id(node)], key))

    def drops(self, owner: str, constants: Constants) -> list[Keeps]:
        """`for k in list(env): if k.startswith("NCCL_"): del env[k]`: each tells whether it surely takes out a name."""
        return [
            drops
            for loop, key in self.taken.get(owner, ())
            if (drops := _dropped(loop, key, owner, constants)) is not None
        ]

    def keeps(self, key: ast.expr, place: ast.AST, constants: Constants, environ: frozenset[str]) -> Keeps | None:
        """`for k in KEEP: env[k] = os.environ[k]`; conditions inside of the loop may drop more."""
        loop = self.around.get(id(place))
        return _kept(loop.target, loop.iter, key, [], constants, environ) if loop is not None else None


def _taken_out(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """`del env[k]`, `env.pop(k, None)`: the names of the dictionary and the key."""
    if isinstance(node, ast.Delete):
        found = [(t.value, t.slice) for t in node.targets if isinstance(t, ast.Subscript)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and node.args:
        found = [(node.func.value, node.args[0])]
    else:
        return []
    return [(owner.id, key) for owner, key in found if isinstance(owner, ast.Name)]


def _dropped(loop: ast.For, key: ast.expr, owner: str, constants: Constants) -> Keeps | None:
    """Of a loop over the dictionary itself, with one condition around what it takes out, or none."""
    over = {node.id for node in walk(loop.iter) if isinstance(node, ast.Name)}
    conditions = [node.test for node in loop.body if isinstance(node, ast.If) and not node.orelse]
    variable = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
    same = isinstance(variable, ast.Name) and _is(key, variable.id)
    if not same or owner not in over or len(loop.body) != 1 or isinstance(loop.iter, ast.ListComp):
        return None
    name = variable.id if isinstance(variable, ast.Name) else ""
    lists = _Known(constants)
    return lambda text: all(_holds(each, name, text, lists) is True for each in conditions)


def _kept(
    target: ast.expr,
    source: ast.expr,
    key: ast.expr | None,
    conditions: list[ast.expr],
    constants: Constants,
    environ: frozenset[str],
) -> Keeps | None:
    variable = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    if not isinstance(variable, ast.Name) or not isinstance(key, ast.Name) or key.id != variable.id:
        return None
    if isinstance(source, ast.Call) and last_name(source.func) in {"list", "sorted", "set", "tuple"} and source.args:
        source = source.args[0]
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and not source.args:
        source = source.func.value if source.func.attr in {"items", "keys", "copy"} else source
    everything = is_environ(source, environ)
    listed = None if everything else _texts(source, constants)
    if not everything and listed is None:
        return None
    name, lists = variable.id, _Known(constants)

    def keeps(text: str) -> bool:
        there = everything or (listed is not None and text in listed)
        return there and all(_holds(each, name, text, lists) is not False for each in conditions)

    return keeps


class _Known:
    """Lists of texts that conditions ask for, each looked up once."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.lists: dict[int, frozenset[str] | None] = {}

    def texts(self, node: ast.expr) -> frozenset[str] | None:
        if id(node) not in self.lists:
            found = _texts(node, self.constants)
            self.lists[id(node)] = None if found is None or len(found) > _MOST_TEXTS else frozenset(found)
        return self.lists[id(node)]


def _texts(node: ast.expr, constants: Constants) -> set[str] | None:
    """The texts of a list, a tuple or a set that the file spells out; None where one of them is not known."""
    if last_name(node) in constants.changed:
        return None
    held = isinstance(node, ast.Attribute) and last_name(node.value) in {"self", "cls"}
    node = constants.resolve(ast.Name(last_name(node)) if held else node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr):
        left, right = _texts(node.left, constants), _texts(node.right, constants)
        return None if left is None or right is None else left | right
    if isinstance(node, ast.Call) and last_name(node.func) in {"frozenset", "set", "tuple", "list"} and node.args:
        return _texts(node.args[0], constants)
    if isinstance(node, ast.Call) and last_name(node.func) == "split" and isinstance(node.func, ast.Attribute):
        whole = node.func.value.value if isinstance(node.func.value, ast.Constant) else None
        return set(whole.split()) if isinstance(whole, str) and not node.args else None
    items: Sequence[ast.expr | None] | None = None
    if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        items = node.keys if isinstance(node, ast.Dict) else node.elts
    if items is None:
        return None
    texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return set(texts) if len(texts) == len(items) else None


def _holds(test: ast.expr, variable: str, text: str, known: _Known, depth: int = 0) -> bool | None:
    """What a condition on the name says for one name; None where only a run would tell."""
    if depth > _DEEPEST or len(getattr(test, "values", ())) > _MOST_TEXTS:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, variable, text, known, depth + 1)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        each = [_holds(value, variable, text, known, depth + 1) for value in test.values]
        decides = isinstance(test.op, ast.Or)
        return decides if decides in each else None if None in each else not decides
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _is(test.left, variable):
        return _compared(test.ops[0], test.comparators[0], text, known)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _is(test.comparators[0], variable):
        part, within = known.constants.resolve(test.left), isinstance(test.ops[0], ast.In)
        text_known = isinstance(part, ast.Constant) and isinstance(part.value, str)
        asked = text_known and isinstance(test.ops[0], ast.In | ast.NotIn)
        return (str(getattr(part, "value", "")) in text) == within if asked else None
    if isinstance(test, ast.Call):
        return _called(test, variable, text, known)
    return None


def _compared(how: ast.cmpop, with_: ast.expr, text: str, known: _Known) -> bool | None:
    if isinstance(how, ast.In | ast.NotIn):
        listed = known.texts(with_)
        return None if listed is None else (text in listed) == isinstance(how, ast.In)
    same = known.constants.resolve(with_)
    if isinstance(how, ast.Eq | ast.NotEq) and isinstance(same, ast.Constant):
        return (text == same.value) == isinstance(how, ast.Eq)
    return None


def _called(call: ast.Call, variable: str, text: str, known: _Known) -> bool | None:
    """`k.startswith(…)`, `k.endswith(…)`, and `any(k.startswith(p) for p in BEGINNINGS)`."""
    if last_name(call.func) == "any" and len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp):
        inner, made = call.args[0], call.args[0].generators[0]
        parts = known.texts(made.iter) if len(inner.generators) == 1 and not made.ifs else None
        asked = inner.elt if isinstance(inner.elt, ast.Call) and len(inner.elt.args) == 1 else None
        if parts is None or asked is None or ast.unparse(asked.args[0]) != ast.unparse(made.target):
            return None
        return _begins(asked.func, variable, text, parts)
    if len(call.args) != 1:
        return None
    given = known.constants.resolve(call.args[0])
    alone = {given.value} if isinstance(given, ast.Constant) and isinstance(given.value, str) else None
    wanted = alone or known.texts(given)
    return _begins(call.func, variable, text, wanted) if wanted is not None else None


def _begins(method: ast.expr, variable: str, text: str, parts: Iterable[str]) -> bool | None:
    if not isinstance(method, ast.Attribute) or not _is(method.value, variable):
        return None
    if method.attr == "startswith":
        return text.startswith(tuple(parts))
    return text.endswith(tuple(parts)) if method.attr == "endswith" else None


def _is(node: ast.expr, variable: str) -> bool:
    return isinstance(node, ast.Name) and node.id == variable
