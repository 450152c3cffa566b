"""A pretend training job: programs of tensor-, data- and pipeline-parallel ranks, and one fault on purpose.

`build` makes the programs and breaks one; `tests.jobs.pretend_run` plays them; `tests.jobs.pretend_dumps` writes
what each rank's recorder would hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Place = tuple[str, int, str]
LOOP, AFTER = 40, 90
"""Lines of `main` in train.py: the training loop, and what comes behind it."""


@dataclass(frozen=True)
class Op:
    """One operation of a program."""

    group: tuple[str, int]
    name: str
    numel: int
    place: Place | None
    """None for gradient buckets, which a C++ thread issues."""
    peer: int | None = None
    dtype: str = "Float"
    host_waits: bool = True
    joins: bool = True
    """Whether the GPU's later work waits for it."""
    gathers: bool = False
    """Whether it waits for everything before it, buckets included."""
    parts: int = 1
    work_ns: int = 300_000
    """Time that the host spends before it."""

    @property
    def agreement(self) -> tuple[str, int, str]:
        return self.name, self.numel, self.dtype


@dataclass(frozen=True)
class Plan:
    """Everything that shapes a job and its evidence."""

    tp: int = 2
    dp: int = 2
    pp: int = 1
    steps: int = 6
    layers: int = 2
    buckets: int = 3
    eager: bool = False
    """Hosts wait for every tensor-parallel operation; otherwise they run ahead to the end of the step."""
    coalesce: bool = False
    apart: bool = False
    """The whole world never meets: groups that share no rank know nothing of each other."""
    fault: str = "none"
    culprits: int = 1
    culprit: int | None = None
    at: float | None = None
    """Where in the program the fault sits, 0 to 1; by the seed if None."""
    pairing: str = "strict"
    """What NCCL does with sizes that differ: "strict" hangs, "loose" finishes, "partial" finishes the smaller."""
    backend: str = "nccl"
    timing: bool = True
    wrap: int = 0
    lose_culprit: bool = False
    lose: int = 0
    repeat_names: bool = False
    skew_ns: int = 0
    formats: tuple[str, ...] = ("pickle",)
    second_recorder: bool = False
    seed: int = 0

    @property
    def world(self) -> int:
        return self.tp * self.dp * self.pp


@dataclass
class Job:
    """Programs and the truth about them."""

    plan: Plan
    programs: list[list[Op]]
    culprits: tuple[int, ...] = ()
    causes: tuple[str, ...] = ("healthy",)
    stops: dict[int, int] = field(default_factory=dict)
    """Rank -> index of the operation that its host never issues."""
    dead_gpu: dict[int, int] = field(default_factory=dict)
    """Rank -> index of the first operation that its GPU never begins."""
    dead_lane: tuple[int, int] | None = None
    """(rank, index) of an operation that never ends although everybody comes."""
    at: int = 0
    """Index in the culprit's program where the fault sits."""


def members(plan: Plan, group: tuple[str, int]) -> list[int]:
    """The global ranks of a group, in the usual order: tp innermost, then dp, then pp."""
    axis, number = group
    stage = plan.tp * plan.dp
    if axis == "tp":
        return [number * plan.tp + t for t in range(plan.tp)]
    if axis == "dp":
        base = number // plan.tp * stage + number % plan.tp
        return [base + d * plan.tp for d in range(plan.dp)]
    if axis == "pp":
        return [number + p * stage for p in range(plan.pp)]
    return list(range(plan.world))


def groups_of(plan: Plan, rank: int) -> dict[str, tuple[str, int]]:
    stage = plan.tp * plan.dp
    mine = {
        "tp": ("tp", rank // plan.tp),
        "dp": ("dp", rank // stage * plan.tp + rank % plan.tp),
        "pp": ("pp", rank % stage),
        "world": ("world", 0),
    }
    sizes = {"tp": plan.tp, "dp": plan.dp, "pp": plan.pp, "world": 2}
    return {axis: group for axis, group in mine.items() if sizes[axis] > 1}


WORLD = ("world", 0)


def one_step(plan: Plan, rank: int, step: int) -> list[Op]:
    mine, stage = groups_of(plan, rank), plan.tp * plan.dp
    place = rank // stage
    ops: list[Op] = []
    if "pp" in mine and place > 0:
        ops.append(
            Op(mine["pp"], "recv", 4096, ("pipeline.py", 31, "forward"), peer=rank - stage, host_waits=plan.eager)
        )
    if "tp" in mine:
        for _ in range(plan.layers):
            ops.append(Op(mine["tp"], "all_gather", 8192, ("layer.py", 12, "forward"), host_waits=plan.eager))
            ops.append(Op(mine["tp"], "reduce_scatter", 8192, ("layer.py", 19, "forward"), host_waits=plan.eager))
        ops.append(Op(mine["tp"], "all_reduce", 512, ("loss.py", 44, "cross_entropy"), host_waits=plan.eager))
    if "pp" in mine and place < plan.pp - 1:
        ops.append(Op(mine["pp"], "send", 4096, ("pipeline.py", 37, "forward"), peer=rank + stage, host_waits=False))
    if "dp" in mine:
        for b in range(plan.buckets):
            parts = 3 if plan.coalesce and b == 0 else 1
            ops.append(Op(mine["dp"], "all_reduce", 65536 >> b, None, host_waits=False, joins=False, parts=parts))
    if step % 3 == 2:
        ops.append(Op(WORLD, "broadcast", 16, ("train.py", LOOP + 6, "main"), gathers=True))
    ops.append(Op(WORLD, "all_reduce", 1, ("train.py", LOOP + 8, "main"), gathers=True, work_ns=2_000_000))
    return ops


def after_loop() -> list[Op]:
    return [
        Op(WORLD, "all_reduce_barrier", 1, ("train.py", AFTER, "main"), gathers=True),
        Op(WORLD, "all_gather", 7, ("train.py", AFTER + 2, "main"), gathers=True),
    ]


def program(plan: Plan, rank: int, steps: int) -> list[Op]:
    ops = [op for step in range(steps) for op in one_step(plan, rank, step)] + after_loop()
    return [op for op in ops if op.group != WORLD] if plan.apart else ops


class Breaker:
    """Puts a plan's fault into its programs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.job = Job(plan, [program(plan, rank, plan.steps) for rank in range(plan.world)])
        first = plan.culprit if plan.culprit is not None else self.rng.randrange(plan.world)
        others = [rank for rank in range(plan.world) if rank != first]
        self.ranks = tuple(sorted([first, *self.rng.sample(others, min(plan.culprits - 1, len(others)))]))

    def pick(self, rank: int, fits: Callable[[int, Op], bool]) -> int:
        """The index of a fitting operation within the loop, somewhere in the middle unless the plan says where."""
        ops = self.job.programs[rank]
        fitting = [i for i, op in enumerate(ops[:-2]) if fits(i, op)]
        if self.plan.at is not None:
            return fitting[min(int(self.plan.at * len(fitting)), len(fitting) - 1)]
        middle = [i for i in fitting if len(ops) // 3 < i < len(ops) - 6] or fitting
        return self.rng.choice(middle)

    def guilty(self, *causes: str, ranks: tuple[int, ...] | None = None) -> None:
        self.job.culprits = ranks if ranks is not None else self.ranks
        self.job.causes = causes

    def stuck(self) -> None:
        for rank in self.ranks[:1]:
            self.job.stops[rank] = self.job.at = self.pick(rank, lambda i, op: True)
        self.guilty("collective-desync", "p2p-unmatched", ranks=self.ranks[:1])

    def skip(self) -> None:
        index = self.pick(self.ranks[0], _is_collective)
        for rank in self.ranks:
            del self.job.programs[rank][index]
        self.guilty("conditional-collective", "uneven-inputs")

    def skip_step(self) -> None:
        """The last part of a step is left out, as by `continue`."""
        rank = self.ranks[0]
        ops = self.job.programs[rank]
        index = self.pick(rank, lambda i, op: op.group == WORLD)
        begin = max([i for i in range(index) if ops[i].group == WORLD], default=-1) + 1
        ops[begin : index + 1] = [op for op in ops[begin : index + 1] if op.peer is not None or op.group[0] == "tp"]
        self.guilty("conditional-collective", "uneven-inputs", ranks=(rank,))

    def extra(self) -> None:
        rank = self.ranks[0]
        index = self.pick(rank, _is_collective)
        old = self.job.programs[rank][index]
        added = replace(
            old, name="all_gather", numel=333, place=("metrics.py", 71, "collect"), host_waits=True, parts=1
        )
        self.job.programs[rank].insert(index, added)
        self.guilty("conditional-collective", "rank0-only-collective", ranks=(rank,))

    def alone(self) -> None:
        rank = self.ranks[0]
        index = self.pick(rank, lambda i, op: op.group == WORLD)
        added = Op(WORLD, "all_reduce_barrier", 1, ("checkpoint.py", 55, "save"), gathers=True)
        self.job.programs[rank].insert(index + 1, added)
        causes = ("rank0-only-collective",) if rank == 0 else ("conditional-collective", "rank0-only-collective")
        self.guilty(*causes, ranks=(rank,))

    def swap(self) -> None:
        rank = self.ranks[0]
        ops = self.job.programs[rank]
        index = self.pick(
            rank,
            lambda i, op: (
                _is_collective(i, op)
                and ops[i + 1].group == op.group
                and ops[i + 1].agreement != op.agreement
                and ops[i + 1].joins == op.joins
            ),
        )
        ops[index], ops[index + 1] = ops[index + 1], ops[index]
        # What runs next decides whether the second ever comes: then it is the same as having skipped the first.
        self.guilty("collective-order", "conditional-collective", ranks=(rank,))

    def cross(self) -> None:
        """Everyone gains a world and a tp reduction; one rank issues them the other way round."""
        rank = self.ranks[0]
        own = groups_of(self.plan, rank)["tp"]
        place = [i for i, op in enumerate(one_step(self.plan, rank, 0)) if op.group == WORLD][-1]
        step = max(1, self.plan.steps // 2) if self.plan.at is None else int(self.plan.at * self.plan.steps)
        wait = self.plan.eager
        for member in range(self.plan.world):
            start = sum(len(one_step(self.plan, member, s)) for s in range(step))
            last = start + len(one_step(self.plan, member, step))
            both = [Op(WORLD, "all_reduce", 33, ("reset.py", 8, "sync"), gathers=True, host_waits=wait)]
            group = groups_of(self.plan, member)["tp"]
            if group == own:
                tp = Op(group, "all_reduce", 55, ("reset.py", 9, "sync"), gathers=True, host_waits=wait)
                both = [tp, *both] if member == rank else [*both, tp]
            self.job.programs[member][last:last] = both
        self.job.at = place
        tie = self.plan.tp == 2
        self.guilty("process-group-order", ranks=tuple(members(self.plan, own)) if tie else (rank,))

    def orphan(self) -> None:
        senders = [r for r in range(self.plan.world) if any(op.name == "send" for op in self.job.programs[r])]
        rank = self.ranks[0] if self.ranks[0] in senders else self.rng.choice(senders)
        del self.job.programs[rank][self.pick(rank, lambda i, op: op.name == "send")]
        self.guilty("p2p-unmatched", ranks=(rank,))

    def p2p_cycle(self) -> None:
        """Two stages both receive first; they have talked before, so the recorder shows it."""
        one, two = self.rng.choice([(r, r + self.plan.tp * self.plan.dp) for r in range(self.plan.tp * self.plan.dp)])
        step = self.plan.steps // 2
        for rank, peer in ((one, two), (two, one)):
            at = sum(len(one_step(self.plan, rank, s)) for s in range(step))
            group = groups_of(self.plan, rank)["pp"]
            halves = [
                Op(group, half, 99, ("exchange.py", 5 + n, "swap"), peer=peer)
                for n, half in enumerate(("recv", "send"))
            ]
            self.job.programs[rank][at:at] = halves
        self.guilty("p2p-deadlock", ranks=(one, two))

    def size(self) -> None:
        index = self.pick(self.ranks[0], lambda i, op: _is_collective(i, op) and op.numel > 1)
        for rank in self.ranks:
            old = self.job.programs[rank][index]
            self.job.programs[rank][index] = replace(old, numel=old.numel * 3 + 1)
        self.guilty("size-mismatch")

    def dtype(self) -> None:
        rank = self.ranks[0]
        index = self.pick(rank, lambda i, op: _is_collective(i, op) and op.numel > 1)
        self.job.programs[rank][index] = replace(self.job.programs[rank][index], dtype="BFloat16")
        self.guilty("dtype-mismatch", ranks=(rank,))

    def uneven(self) -> None:
        for rank in self.ranks:
            self.job.programs[rank] = program(self.plan, rank, self.plan.steps - 2)
        # A lone call of rank 0 below the loop may as well stand under a condition on the rank.
        alone = ("rank0-only-collective",) if self.ranks == (0,) else ()
        self.guilty("uneven-inputs", "conditional-collective", *alone)

    def kernel(self) -> None:
        rank = self.ranks[0]
        self.job.dead_gpu[rank] = self.pick(rank, _is_collective)
        self.guilty("gpu-kernel-stuck", ranks=(rank,))

    def stalled(self) -> None:
        rank = self.ranks[0]
        self.job.dead_lane = (rank, self.pick(rank, _is_collective))
        self.guilty("collective-stalled", ranks=())

    def straggler(self) -> None:
        rank = self.ranks[0]
        self.job.programs[rank] = [replace(op, work_ns=op.work_ns * 12) for op in self.job.programs[rank]]
        self.guilty("straggler", ranks=(rank,))

    def none(self) -> None:
        return


def _is_collective(_: int, op: Op) -> bool:
    return op.peer is None


def build(plan: Plan) -> Job:
    """The job of a plan, broken as it says."""
    breaker = Breaker(plan)
    getattr(breaker, plan.fault)()
    return breaker.job
