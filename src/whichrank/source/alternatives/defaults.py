"""What arguments and switches of a program are where nobody gives them: argparse, click, dataclasses, os.environ."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from msgspec import Struct, field

from whichrank.source._constants import Constants
from whichrank.source.alternatives.in_scripts import is_switch
from whichrank.source.nodes import last_name

DEPTH_LIMIT = 8
_COMPARED: dict[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_FLAGS = {"store_true": False, "store_false": True}
Known = tuple[object] | None
"""A value, or None where only a run would tell."""


class Defaults(Struct):
    constants: Constants
    options: dict[str, object] = field(default_factory=dict)
    """Names of options and fields -> their defaults."""

    @classmethod
    def of(cls, tree: ast.Module, constants: Constants) -> Defaults:
        found = cls(constants)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and last_name(node.func) in {"add_argument", "option", "Option"}:
                found.option(node)
            elif isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        found.field(each.target.id, each.value)
        return found

    def field(self, name: str, value: ast.expr | None) -> None:
        if isinstance(value, ast.Constant):
            self.options.setdefault(name, value.value)

    def option(self, call: ast.Call) -> None:
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        flags = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        long = [flag for flag in flags if flag.startswith("--")] or [flag for flag in flags if flag.startswith("-")]
        named = given.get("dest")
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            long = [named.value]
        if not long or "required" in given:
            return
        name = long[0].partition("/")[0].lstrip("-").replace("-", "_")
        action, default = given.get("action"), given.get("default")
        if default is not None:
            known = self.value(default)
            if known is not None:
                self.options[name] = known[0]
        elif isinstance(action, ast.Constant):
            self.options[name] = _FLAGS.get(str(action.value))
        else:
            self.options[name] = False if "is_flag" in given or "/" in long[0] else None

    def truth(self, test: ast.expr) -> bool | None:
        """Whether a condition holds where nobody asks for anything."""
        known = self.value(test)
        return None if known is None else bool(known[0])

    def cases(self, node: ast.Match) -> list[bool | None]:
        """Of each case: True where it is taken by default, False where it is not."""
        subject, found, taken = self.value(node.subject), list[bool | None](), False
        for case in node.cases:
            pattern = case.pattern
            holds: bool | None = None
            if subject is not None and isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant):
                holds = pattern.value.value == subject[0]
            elif subject is not None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
                holds = True
            found.append(False if taken and holds is not None else holds)
            taken = taken or bool(holds)
        return found

    def value(self, node: ast.expr, depth: int = 0) -> Known:
        if depth > DEPTH_LIMIT:
            return None
        if isinstance(node, ast.Constant):
            return (node.value,)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in self.options:
            return (self.options[node.attr],)
        if isinstance(node, ast.Name):
            assigned = self.constants.assigned.get(node.id, [])
            return self.value(assigned[0], depth + 1) if len(assigned) == 1 else self._passed(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            known = self.value(node.operand, depth + 1)
            return None if known is None else (not known[0],)
        if isinstance(node, ast.BoolOp):
            return self._combined(node, depth)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node, depth)
        return self._called(node, depth) if isinstance(node, ast.Call) else None

    def _passed(self, name: str) -> Known:
        """A parameter that is called as an option is."""
        return (self.options[name],) if name in self.options and name not in self.constants.assigned else None

    def _combined(self, node: ast.BoolOp, depth: int) -> Known:
        found = [self.value(each, depth + 1) for each in node.values[:20]]
        settles = isinstance(node.op, ast.Or)
        if any(known is not None and bool(known[0]) is settles for known in found):
            return next(known for known in found if known is not None and bool(known[0]) is settles)
        return None if None in found else found[-1]

    def _compared(self, node: ast.Compare, depth: int) -> Known:
        right = node.comparators[0]
        left = self.value(node.left, depth + 1)
        within = isinstance(node.ops[0], ast.In | ast.NotIn)
        if within and last_name(right) == "environ" and left is not None and is_switch(str(left[0])):
            return (isinstance(node.ops[0], ast.NotIn),)
        if within and isinstance(right, ast.List | ast.Tuple | ast.Set) and left is not None:
            items = [self.value(each, depth + 1) for each in right.elts[:50]]
            inside = any(known is not None and known[0] == left[0] for known in items)
            return None if None in items else (inside is isinstance(node.ops[0], ast.In),)
        compare, known = _COMPARED.get(type(node.ops[0])), self.value(right, depth + 1)
        if compare is not None and left is not None and known is not None:
            return (compare(left[0], known[0]),)
        return None

    def _called(self, node: ast.Call, depth: int) -> Known:
        name = last_name(node.func)
        if name in {"get", "getenv"} and node.args and "env" in ast.unparse(node.func)[:200]:
            key = self.value(node.args[0], depth + 1)
            if key is None or not is_switch(str(key[0])):
                return None
            return self.value(node.args[1], depth + 1) if len(node.args) > 1 else (None,)
        if name in {"lower", "strip", "upper"} and isinstance(node.func, ast.Attribute) and not node.args:
            known = self.value(node.func.value, depth + 1)
            return (getattr(known[0], name)(),) if known is not None and isinstance(known[0], str) else None
        if name in {"int", "bool"} and len(node.args) == 1:
            known = self.value(node.args[0], depth + 1)
            digits = known is not None and str(known[0]).isdecimal() and len(str(known[0])) < 10
            return (int(str(known[0])),) if known is not None and digits else None
        return None
