"""Changes that are mechanical, made with libcst so that comments and layout stay: text in, text out.

Each changes one statement, and only where it has the plain form that the fix is right for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider


class Wanted(NamedTuple):
    """One finding to fix: its rule, the line of its operation and the further lines of its path."""

    code: str
    line: int
    others: tuple[int, ...] = ()


def fixed(text: str, wanted: Iterable[Wanted]) -> tuple[str, list[Wanted]]:
    """The changed text, and what was fixed in it."""
    done: list[Wanted] = []
    for item in sorted(wanted, key=lambda w: -w.line):  # from the end: lines above stay where they are
        maker = _FIXES.get(item.code)
        if maker is None:
            continue
        changed = _apply(text, maker(item))
        if changed != text:
            text = changed
            done.append(item)
    return text, done


def can_fix(code: str) -> bool:
    return code in _FIXES


def _apply(text: str, fix: _Fix) -> str:
    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
        return wrapper.visit(fix).code
    except (cst.ParserSyntaxError, RecursionError):
        return text


class _Fix(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wanted: Wanted) -> None:
        super().__init__()
        self.wanted = wanted

    def line(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)

    def end(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).end.line)


class _MoveOut(_Fix):
    """`if rank == 0: …; dist.barrier()`: the barrier goes behind the branch."""

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.BaseStatement | cst.FlattenSentinel:  # type: ignore[type-arg]
        body = original_node.body
        if not isinstance(body, cst.IndentedBlock) or original_node.orelse is not None or len(body.body) < 2:
            return updated_node
        last = body.body[-1]
        if not (self.line(last) == self.end(last) == self.wanted.line and _is_barrier(last)):
            return updated_node
        if not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        kept = updated_node.with_changes(body=updated_node.body.with_changes(body=updated_node.body.body[:-1]))
        moved = updated_node.body.body[-1]
        return cst.FlattenSentinel([kept, moved])


def _is_barrier(statement: cst.CSTNode) -> bool:
    """A call without arguments whose result nobody takes: it needs nothing of the block that it stands in."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    expression = statement.body[0]
    if not isinstance(expression, cst.Expr) or not isinstance(expression.value, cst.Call) or expression.value.args:
        return False
    return _last(expression.value.func) in {"barrier", "wait_for_everyone"}


class _SetEpoch(_Fix):
    """`sampler.set_epoch(epoch)` as the first statement of the loop over epochs."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        self.sampler = ""
        self.around: list[cst.FunctionDef] = []
        self.known_in: list[cst.FunctionDef] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.around.append(node)

    def leave_FunctionDef(self, _original: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.around.pop()
        return updated_node

    def visit_Assign(self, node: cst.Assign) -> None:
        if self.line(node) == self.wanted.line and len(node.targets) == 1:
            target = node.targets[0].target
            if isinstance(target, cst.Name) and isinstance(node.value, cst.Call):
                self.sampler = target.value if _last(node.value.func) == "DistributedSampler" else ""
                self.known_in = list(self.around)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        if not self.sampler or self.line(original_node) not in self.wanted.others or self.around != self.known_in:
            return updated_node
        if not isinstance(updated_node.target, cst.Name) or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        call = cst.parse_statement(f"{self.sampler}.set_epoch({updated_node.target.value})")
        return updated_node.with_changes(body=updated_node.body.with_changes(body=[call, *updated_node.body.body]))


class _Timeout(_Fix):
    """The timeout of init_process_group for new_group too."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        self.timeout: cst.BaseExpression | None = None

    def visit_Call(self, node: cst.Call) -> None:
        if _last(node.func) == "init_process_group" and self.line(node) in self.wanted.others:
            for argument in node.args:
                if argument.keyword is not None and argument.keyword.value == "timeout":
                    self.timeout = argument.value

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if (
            self.timeout is None
            or self.line(original_node) != self.wanted.line
            or _last(updated_node.func) != "new_group"
        ):
            return updated_node
        if not _is_shared(self.timeout):
            return updated_node
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        return updated_node.with_changes(
            args=[*updated_node.args, cst.Arg(self.timeout, keyword=cst.Name("timeout"), equal=equal)]
        )


def _is_shared(node: cst.BaseExpression) -> bool:
    """Whether an expression means the same elsewhere in the file: a call with constants, or a name in capitals."""
    if isinstance(node, cst.Name):
        return node.value.isupper()
    if isinstance(node, cst.Call):
        return all(isinstance(a.value, cst.Integer | cst.Float) for a in node.args)
    return False


class _Sorted(_Fix):
    """A loop over a set in one order on all ranks."""

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        if self.line(original_node) not in self.wanted.others or self.wanted.line == self.line(original_node):
            return updated_node
        ordered = cst.Call(cst.Name("sorted"), [cst.Arg(updated_node.iter)])
        return updated_node.with_changes(iter=ordered)


def _last(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


_FIXES: Mapping[str, Callable[[Wanted], _Fix]] = {
    "LINT101": _MoveOut,
    "LINT110": _MoveOut,
    "LINT112": _Sorted,
    "LINT201": _SetEpoch,
    "LINT203": _Timeout,
}
