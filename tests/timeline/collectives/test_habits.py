"""Who left the path that it took every time before, where no majority tells."""

from __future__ import annotations

from tests.timeline.by_hand import Did, dump
from whichrank.records.dump import Dump, GroupMembers
from whichrank.timeline.assemble import build_case
from whichrank.timeline.collectives.troubles.trouble import Trouble

PAIR = {"1": (0, 1)}
NODE = {"2": (0, 1)}


def trouble(*records: object) -> Trouble:
    (found,) = build_case(list(records)).troubles
    return found


def on_both(rank: int, *, steps: int, skips: bool) -> list[Dump]:
    """On GPUs an exchange, on the CPU a count, on GPUs an exchange; in the last step one rank leaves out the count."""
    gpu: list[Did] = []
    cpu: list[Did] = []
    for step in range(steps):
        at, last = 10 * step, step == steps - 1
        gpu.append(Did("1", "all_to_all", 2 * step + 1, line=93, at_ms=at))
        if not (last and skips):
            cpu.append(Did("2", "all_reduce", step + 1, line=75, at_ms=at + 2, done=not last))
        if not last or skips:
            gpu.append(Did("1", "all_to_all", 2 * step + 2, line=51, at_ms=at + 4, done=not last))
    return [dump(rank, PAIR, gpu), dump(rank, NODE, cpu, backend="gloo")]


def test_an_operation_of_the_cpu_that_one_of_two_left_out() -> None:
    told = [GroupMembers(rank, {"1": (0, 1), "2": (0, 1)}) for rank in (0, 1)]
    for odd in (0, 1):
        dumps = [each for rank in (0, 1) for each in on_both(rank, steps=8, skips=rank == odd)]
        found = trouble(*dumps, *told)
        assert (found.ranks, found.shape) == ((odd,), "skipped")


def pipeline(parts: list[int], expected: int) -> list[Dump]:
    """Rank 0 sends the parts of a batch, then receives as many; rank 1 receives a fixed number and sends them back."""
    first: list[Did] = []
    second: list[Did] = []

    def post(entries: list[Did], op: str, line: int, *, done: bool) -> None:
        entries.append(Did("0", op, len(entries) + 1, line=line, done=done, at_ms=float(len(entries))))

    for count in parts:
        whole = count == expected
        for _ in range(count):
            post(first, "send 0->1", 27, done=True)
        for _ in range(expected if whole else 1):
            post(first, "recv 0<-1", 32, done=whole)
        for part in range(expected if whole else count + 1):
            post(second, "recv 1<-0", 32, done=part < count)
        for _ in range(expected if whole else 0):
            post(second, "send 1->0", 27, done=True)
    world = {"0": (0, 1)}
    return [dump(0, world, first), dump(1, world, second)]


def test_fewer_messages_than_every_time_before() -> None:
    found = trouble(*pipeline([4, 4, 4, 4, 4, 3], 4))
    assert (found.ranks, found.shape, found.victims) == ((0,), "send-missing", (1,))


def test_without_a_habit_nobody_is_named_alone() -> None:
    found = trouble(*pipeline([4, 3], 4))
    assert found.tie or set(found.ranks) == {0, 1}
