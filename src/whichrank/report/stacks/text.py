"""The merged stacks for a terminal: one line per frame, a fork where ranks part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whichrank.model.views import StackNode, StackReport
from whichrank.report._stacks import chain, heading, whose
from whichrank.report._words import counted, ranges, safe, shortened

NAME = "text"
LONG_CHAIN, MISSING = 8, 12


def render(report: StackReport) -> Iterator[str]:
    """The tree, outermost frame first, then the processes without a stack."""
    yield f"{heading(report)}\n"
    yield from _branches(report.tree, "")
    if report.missing:
        yield "\nNo stack of:\n"
    for one in report.missing[:MISSING]:
        who = f"rank {one.rank}" if one.rank is not None else "a process"
        pid = f" (pid {one.pid})" if one.pid is not None else ""
        yield f"  {who}{pid}: {safe(one.why)}\n"
    if len(report.missing) > MISSING:
        yield f"  and {len(report.missing) - MISSING:,} more\n"


def _branches(nodes: Sequence[StackNode], indent: str) -> Iterator[str]:
    for index, node in enumerate(nodes):
        last = index == len(nodes) - 1
        numbers = f": {ranges(node.ranks)}" if len(node.ranks) > 1 else ""
        yield f"{indent}{'└' if last else '├'}─ {whose(node)}{numbers}\n"
        inner = indent + ("   " if last else "│  ")
        frames = chain(node)
        for line in _frames(frames):
            yield f"{inner}{line}\n"
        yield from _branches(frames[-1].children, inner)


def _frames(frames: Sequence[StackNode]) -> Iterator[str]:
    """Own code and the innermost frames; of the inside of libraries only how much there is."""
    hidden = 0
    for index, frame in enumerate(frames):
        if len(frames) > LONG_CHAIN and not frame.own and index < len(frames) - 2:
            hidden += 1
            continue
        if hidden:
            yield f"  … {counted(hidden, 'library frame')}"
            hidden = 0
        place = f"{frame.file}:{frame.line}" if frame.line else frame.file
        yield f"  {safe(shortened(frame.function, 160))} ({safe(shortened(place, 200))})"
