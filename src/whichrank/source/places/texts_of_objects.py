"""What Python objects become as text: `str(["a", "b"])` has brackets and quotes, `str(True)` is not a number."""

from __future__ import annotations

import ast
import re

from whichrank.source._constants import Constants
from whichrank.source.nodes import last_name, walk

_LISTS = re.compile(r"(?:typing\.)?(?:[Ll]ist|[Tt]uple|[Ss]equence|[Ii]terable|[Ss]et|[Ff]rozen[Ss]et)\b")
_MAKE_LISTS = frozenset({"list", "tuple", "sorted", "split", "splitlines", "glob", "listdir", "rsplit", "set"})
_MAKE_TRUTH = frozenset({"bool", "is_available", "isinstance", "any", "all", "exists", "startswith", "isfile"})


def kind(value: ast.expr, constants: Constants, tree: ast.Module) -> str:
    """ "list" or "bool" where the value is the text of one: by str(), an f-string or json.dumps; else empty."""
    value = constants.resolve(value)
    inner: ast.expr | None = None
    if isinstance(value, ast.Call) and last_name(value.func) in {"str", "repr", "dumps"} and len(value.args) == 1:
        inner = value.args[0]
    elif isinstance(value, ast.JoinedStr):
        put_in = [part for part in value.values if isinstance(part, ast.FormattedValue) and part.format_spec is None]
        kinds = {_kind(part.value, constants, tree) for part in put_in}
        return "list" if "list" in kinds else "bool" if kinds == {"bool"} and len(value.values) == 1 else ""
    found = _kind(inner, constants, tree) if inner is not None else ""
    dumped = isinstance(value, ast.Call) and last_name(value.func) == "dumps"
    return "" if dumped and found == "bool" else found


def of_object(node: ast.expr, constants: Constants) -> str:
    """ "list" where the expression itself is a list, a tuple or a dictionary that the file spells out."""
    known = constants.resolve(node)
    return "list" if isinstance(known, ast.List | ast.Tuple | ast.Set | ast.ListComp | ast.Dict) else ""


def _kind(node: ast.expr, constants: Constants, tree: ast.Module) -> str:
    node = constants.resolve(node)
    if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.ListComp | ast.SetComp):
        return "list"
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return "bool"
    if isinstance(node, ast.Call):
        called = last_name(node.func)
        return "list" if called in _MAKE_LISTS else "bool" if called in _MAKE_TRUTH else ""
    if isinstance(node, ast.Attribute | ast.Name):
        return _declared(last_name(node), isinstance(node, ast.Attribute), tree)
    return ""


def _declared(name: str, attribute: bool, tree: ast.Module) -> str:
    """By the annotation of a field or parameter, or by the option of argparse that makes it."""
    kinds: set[str] = set()
    for node in walk(tree):
        if attribute and isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
            kinds |= _option(node, name)
        given = isinstance(node, ast.arg) and node.arg == name  # of the function, or of one that makes the object
        if given or (isinstance(node, ast.AnnAssign) and last_name(node.target) == name):
            annotation = getattr(node, "annotation", None)
            text = ast.unparse(annotation) if annotation is not None else ""
            kinds.add("list" if _LISTS.match(text) else "bool" if text == "bool" else "other")
    return kinds.pop() if len(kinds) == 1 and kinds <= {"list", "bool"} else ""


def _option(call: ast.Call, name: str) -> set[str]:
    told = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    names = [str(a.value).lstrip("-").replace("-", "_") for a in call.args if isinstance(a, ast.Constant)]
    if name not in [told.get("dest"), *names]:
        return set()
    if told.get("nargs") in {"+", "*"} or isinstance(told.get("nargs"), int):
        return {"list"}
    return {"bool"} if told.get("action") in {"store_true", "store_false"} else {"other"}
