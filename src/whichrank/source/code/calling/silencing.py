"""Backward passes that reduce gradients on some ranks only: switches that each rank sets for itself."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.events import Event, Fork, Op
from whichrank.source.code.values import CLEAN, UNKNOWN, Value, differs, union

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

SWITCHES = frozenset({"require_backward_grad_sync", "require_forward_param_sync"})
"""Attributes of DDP that say whether the next pass communicates."""
_SETTERS = frozenset({"set_requires_gradient_sync", "set_requires_all_reduce", "set_is_last_backward"})


def switched(frame: Frame, made: Call) -> None:
    """`stack.enter_context(model.no_sync())` under a condition, `model.set_requires_gradient_sync(last)`."""
    if made.name == "enter_context" and made.args and "no_sync" in made.args[0].tags:
        frame.quiet_by = union(frame.quiet_by, *frame.control)
    elif made.name in _SETTERS:
        given = made.args[0] if made.args else next(iter(made.keywords.values()), UNKNOWN)
        set_by(frame, given)


def set_by(frame: Frame, value: Value) -> None:
    """A switch gets this value here."""
    own = value.taint if differs(value) else CLEAN
    frame.quiet_by = union(own, *frame.control)


def backward(frame: Frame, op: Op, node: ast.AST) -> Event:
    """A backward pass: a branch where ranks set the switch differently."""
    if not frame.quiet_by:
        return op
    return Fork(Value(frame.quiet_by), "gradients are reduced in this pass", getattr(node, "lineno", 1), [op], [])
