"""The stacks of many processes as one prefix tree: where they part, the odd one out is seen at once."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from whichrank.model.views import StackNode
from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, ThreadStack, is_user_frame, main_thread

DEEPEST = 128
"""Frames per stack; of a deeper one the middle is left out."""


class _Node(Struct):
    ranks: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    children: dict[Frame, _Node] = field(default_factory=dict)


def merged(stacks: Iterable[tuple[int | None, ProcessStack]]) -> tuple[StackNode, ...]:
    """The tree of the threads that matter, outermost frame first; the branch with the most processes comes first."""
    root = _Node()
    for rank, stack in stacks:
        thread = chosen(stack)
        if thread is None:
            continue
        node = root
        for frame in _outermost_first(thread.frames):
            node = node.children.setdefault(frame, _Node())
            if rank is not None:
                node.ranks.add(rank)
            else:
                node.pids.add(stack.pid or 0)
    return _frozen(root)


def chosen(stack: ProcessStack) -> ThreadStack | None:
    """The thread that runs the script; where none is marked, the one that is in training code, or the first."""
    threads = [thread for thread in stack.threads if thread.frames]
    main = main_thread(stack)
    if main is not None and main.frames:
        return main
    return next((t for t in threads if any(map(is_user_frame, t.frames))), threads[0] if threads else None)


def _outermost_first(frames: tuple[Frame, ...]) -> list[Frame]:
    path = list(reversed(frames))
    if len(path) <= DEEPEST:
        return path
    left = len(path) - DEEPEST
    return [*path[: DEEPEST // 2], Frame(f"… {left} more frames", "", 0), *path[-DEEPEST // 2 :]]


def _frozen(node: _Node) -> tuple[StackNode, ...]:
    found = [
        StackNode(
            frame.file, frame.line, frame.function, tuple(sorted(child.ranks)), tuple(sorted(child.pids)),
            is_user_frame(frame), _frozen(child),
        )
        for frame, child in node.children.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.count, one.ranks, one.pids)))
