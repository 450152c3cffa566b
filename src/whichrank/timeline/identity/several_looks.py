"""Stacks of one process, taken at several moments: the newest counts, and one that was seen at two lines moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from whichrank.model.evidence import Ref
from whichrank.records.events.collectives import Moved
from whichrank.records.stack import ProcessStack, has_native_frames, is_user_frame, main_thread
from whichrank.timeline.identity.who import People

Where = tuple[tuple[str, int], ...]


def newest_looks(
    stacks: Sequence[ProcessStack],
) -> tuple[list[ProcessStack], dict[tuple[str | None, int], ProcessStack]]:
    """The stacks without the older ones of a process, and by host and pid the newest of those that moved between them.

    What is taken with C frames besides is no later look."""
    looks: dict[tuple[str | None, int], list[ProcessStack]] = defaultdict(list)
    for stack in stacks:
        if stack.pid is not None and stack.tool == "py-spy" and not has_native_frames(stack):
            looks[stack.host, stack.pid].append(stack)
    older: set[int] = set()
    moved = {}
    for who, taken in looks.items():
        if len({stack.source for stack in taken}) < 2:
            continue
        taken.sort(key=lambda stack: (stack.taken_at or 0, stack.source))
        older.update(id(stack) for stack in taken[:-1])
        if len({_where(stack) for stack in taken}) > 1:
            moved[who] = taken[-1]
    return [stack for stack in stacks if id(stack) not in older], moved


def _where(stack: ProcessStack) -> Where:
    """The lines of the training code that its main thread is at."""
    thread = main_thread(stack)
    return tuple((f.file, f.line) for f in thread.frames if is_user_frame(f)) if thread is not None else ()


def moves(moved: dict[tuple[str | None, int], ProcessStack], people: People) -> list[Moved]:
    """The ranks of the processes that moved."""
    found = []
    for (host, pid), stack in moved.items():
        rank = stack.rank if stack.rank is not None else people.rank_of(pid, host)
        if rank is not None:
            ref = Ref(stack.source, f"line {stack.line}", f"pid {pid} was at other lines before", rank, host)
            found.append(Moved(ref=ref, rank=rank, pid=pid, host=host))
    return found
