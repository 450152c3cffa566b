"""What the formats of the stack tree share."""

from __future__ import annotations

from whichrank.model.views import StackNode, StackReport
from whichrank.report._words import counted


def heading(report: StackReport) -> str:
    """`Stacks of 8 ranks and 1 process without a known rank`."""
    seen = [counted(len(report.ranks), "rank")] if report.ranks else []
    if report.pids:
        seen.append(f"{len(report.pids):,} process{'es' if len(report.pids) > 1 else ''} without a known rank")
    return f"Stacks of {' and '.join(seen)}" if seen else "No stacks."


def whose(node: StackNode) -> str:
    """`1,023 ranks`, `rank 7`, `process 4711`."""
    parts = []
    if node.ranks:
        parts.append(f"rank {node.ranks[0]}" if len(node.ranks) == 1 else f"{len(node.ranks):,} ranks")
    if node.pids:
        alone = f"process {node.pids[0]}" if node.pids[0] > 0 else "1 process"
        parts.append(alone if len(node.pids) == 1 else f"{len(node.pids):,} processes")
    return " and ".join(parts)


def chain(node: StackNode) -> list[StackNode]:
    """This frame and those below it that the same processes share."""
    found = [node]
    while len(node.children) == 1 and node.children[0].count == node.count:
        node = node.children[0]
        found.append(node)
    return found
