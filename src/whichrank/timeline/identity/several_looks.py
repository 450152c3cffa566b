"""Stacks of one process, taken at several moments: the newest counts, and one that was seen at two lines moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from whichrank.model.evidence import Ref
from whichrank.records.events.collectives import Moved
from whichrank.records.stack import ProcessStack, has_native_frames, is_user_frame, main_thread
from whichrank.timeline.identity.who import People

Where = tuple[tuple[str, int], ...]
Who = tuple[str | None, int]


def newest_looks(stacks: Sequence[ProcessStack]) -> tuple[list[ProcessStack], dict[Who, ProcessStack]]:
    """The stacks without the older ones of a process, and by host and pid the newest of those that moved between them.

    A look is a folder, or a file, with the stacks of the same processes as every other: hosts have pids of their own.
    What names its rank, or was taken with C frames besides, is no later look."""
    seen = [
        s for s in stacks if s.pid is not None and s.tool == "py-spy" and s.rank is None and not has_native_frames(s)
    ]
    for of_folder in (True, False):
        looks: dict[str, dict[Who, ProcessStack]] = defaultdict(dict)
        for stack in seen:
            look = stack.source.rpartition("/")[0] if of_folder else stack.source
            looks[look][stack.host, stack.pid or 0] = stack
        pids = {frozenset(look) for look in looks.values()}
        if len(looks) > 1 and len(pids) == 1 and len(next(iter(pids))) > 1:
            return _compared(stacks, [looks[name] for name in sorted(looks)])
    return list(stacks), {}


def _compared(
    stacks: Sequence[ProcessStack], looks: list[dict[Who, ProcessStack]]
) -> tuple[list[ProcessStack], dict[Who, ProcessStack]]:
    older = {id(stack) for look in looks[:-1] for stack in look.values()}
    newest = looks[-1]
    moved = {who: stack for who, stack in newest.items() if len({_where(look[who]) for look in looks}) > 1}
    return [stack for stack in stacks if id(stack) not in older], moved


def _where(stack: ProcessStack) -> Where:
    """The lines of the training code that its main thread is at."""
    thread = main_thread(stack)
    return tuple((f.file, f.line) for f in thread.frames if is_user_frame(f)) if thread is not None else ()


def moves(moved: dict[Who, ProcessStack], people: People) -> list[Moved]:
    """The ranks of the processes that moved."""
    found = []
    for (host, pid), stack in moved.items():
        rank = stack.rank if stack.rank is not None else people.rank_of(pid, host)
        if rank is not None:
            ref = Ref(stack.source, f"line {stack.line}", f"pid {pid} was at other lines before", rank, host)
            found.append(Moved(ref=ref, rank=rank, pid=pid, host=host))
    return found
