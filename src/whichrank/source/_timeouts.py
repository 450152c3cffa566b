"""Timeouts of process groups that a program gives in another unit than it means."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash
from whichrank.source._constants import Constants
from whichrank.source.nodes import last_name

# torch/distributed/distributed_c10d.py, Accelerate and Lightning: all take a datetime.timedelta.
_TAKE_TIMEDELTA = frozenset({
    "init_process_group", "new_group", "InitProcessGroupKwargs", "DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy",
    "ModelParallelStrategy", "split_group",
})  # fmt: skip
# Milliseconds below a collective's own time, and longer than any wait that somebody means.
_LEAST_MS, _LONG_S, _LONG_MIN, _LONG_DAYS = 60_000, 300_000, 24 * 60, 30


def wrong(tree: ast.Module, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Iterator[Clash]:
    """Every `timeout=` of a process group that is no timedelta, or one of a few moments or many days."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or last_name(node.func) not in _TAKE_TIMEDELTA:
            continue
        given = next((k.value for k in node.keywords if k.arg == "timeout"), None)
        known = constants.resolve(given) if given is not None else None
        if given is None or known is None:
            continue
        if (
            isinstance(known, ast.Constant)
            and isinstance(known.value, int | float)
            and not isinstance(known.value, bool)
        ):
            why = f"{last_name(node.func)} takes a datetime.timedelta here, and raises TypeError for a number"
            yield Clash("timeout", ref(given), why, f"Write timedelta(seconds={known.value}).", severity="error")
        elif isinstance(known, ast.Call) and last_name(known.func) == "timedelta":
            yield from _of_timedelta(known, constants, ref)


def _of_timedelta(call: ast.Call, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Iterator[Clash]:
    parts = [("days", call.args[0])] if len(call.args) == 1 else []
    parts += [(k.arg, k.value) for k in call.keywords if k.arg]
    numbers = [(unit, value, _number(value, constants)) for unit, value in parts]
    if len(numbers) != 1 or numbers[0][2] is None or len(call.args) > 1:
        return
    unit, value, number = numbers[0][0], numbers[0][1], numbers[0][2] or 0
    if unit == "days" and call.args and number >= _LONG_DAYS:
        why, fix = f"the first argument of timedelta is days: these are {number} days", f"seconds={number}"
    elif unit == "milliseconds" and 0 < number < _LEAST_MS:
        why, fix = f"these are {number} milliseconds, less than a slow collective takes", f"seconds={number}"
    elif unit == "seconds" and number >= _LONG_S and number % 1000 == 0:
        why, fix = f"the unit is seconds: these are {number // 3600} hours", f"milliseconds={number}"
    elif unit == "minutes" and number > _LONG_MIN and number % 60 == 0:
        why, fix = f"the unit is minutes: these are {number // 60} hours", f"seconds={number}"
    else:
        return
    yield Clash("timeout", ref(value), why, f"Write timedelta({fix}), if that is meant.")


def _number(node: ast.expr, constants: Constants) -> int | None:
    """A number, or a product of numbers."""
    known = constants.resolve(node)
    if isinstance(known, ast.Constant) and isinstance(known.value, int | float) and not isinstance(known.value, bool):
        return int(known.value)
    if isinstance(known, ast.BinOp) and isinstance(known.op, ast.Mult):
        left, right = _number(known.left, constants), _number(known.right, constants)
        return left * right if left is not None and right is not None and max(left, right) < 1 << 40 else None
    return None
