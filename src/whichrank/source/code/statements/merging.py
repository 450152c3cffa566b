"""Variables where paths meet again: after branches and handlers."""

from __future__ import annotations

import ast
import re

from whichrank.source.code.evaluating.choices import chosen
from whichrank.source.code.values import UNKNOWN, Origin, Taint, Value, join, union


def merged(test: Value, one: dict[str, Value], two: dict[str, Value], world: str) -> dict[str, Value]:
    """Variables after a branch; those that an arm changed depend on the condition."""
    merged = dict(two)
    for name in one.keys() | two.keys():
        a, b = one.get(name, UNKNOWN), two.get(name, UNKNOWN)
        if a is not b:
            shared = a if world == "many" else b if world == "one" else UNKNOWN
            merged[name] = shared if "shared" in shared.tags else chosen(test, a, b)
    return merged


_WORLD = re.compile(
    r"is_initialized|is_available|world_size|num_processes|n_gpu|is_dist|_dist\b|distributed|initialized|use_ddp|is_ddp|\bddp\b"
)


def asks_world(test: ast.expr) -> str:
    """Whether a condition holds in a world of one ("one") or of many ("many"); empty where it asks something else."""
    if isinstance(test, ast.BoolOp):
        parts = {asks_world(part) for part in test.values}
        if isinstance(test.op, ast.And) and "one" in parts:
            return "one"
        return parts.pop() if len(parts) == 1 else ""
    text = ast.unparse(test)
    if not _WORLD.search(text) or "rank" in text:
        return ""
    negated = text.startswith("not ") or re.search(r"== 1\b|<= 1\b|< 2\b", text) is not None
    return "one" if negated else "many"


def caught(before: dict[str, Value], after: dict[str, Value], at: tuple[str, int]) -> dict[str, Value]:
    """What a handler assigned differs between the ranks that failed and the others."""
    origin: Taint = frozenset({Origin("exception", "whether this rank got an exception", *at)})
    changed = {
        name: value._replace(taint=union(value.taint, origin), ranks=None)
        for name, value in after.items()
        if before.get(name) is not value
    }
    return {**after, **changed}


def done_or_not(before: dict[str, Value], after: dict[str, Value], at: tuple[str, int]) -> dict[str, Value]:
    """Flags that the body of an attempt sets, `done = True`: a rank that failed has not come so far."""
    origin: Taint = frozenset({Origin("exception", "whether this rank got an exception", *at)})
    marked = dict(after)
    for name, value in after.items():
        old = before.get(name)
        if old is not None and old.ranks is not None and value.ranks is not None and old.ranks != value.ranks:
            marked[name] = value._replace(taint=union(value.taint, origin), ranks=None)
    return marked


def all_merged(envs: list[dict[str, Value]]) -> dict[str, Value]:
    merged = dict(envs[0])
    for env in envs[1:]:
        for name, value in env.items():
            if merged.get(name) is not value:
                merged[name] = join([merged.get(name, UNKNOWN), value])
    return merged
