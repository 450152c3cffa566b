"""More evidence with each start of a job that fails for no known reason, and back to normal once there is a verdict.

What costs little comes first. What the user has set stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from whichrank.worker.exits import COUNTS
from whichrank.worker.exits import VARIABLE as EXITS

UNEXPLAINED = ("", "unknown")
"""Causes of attempts that nobody could explain."""
NEED_A_LINE = ("rank-exception",)
"""Causes that say who ended, and only with a line of the code why."""


@dataclass(frozen=True, slots=True)
class Level:
    """What one start of the job has in addition."""

    name: str
    cost: str
    variables: Mapping[str, str] = field(default_factory=dict)
    guard: str = ""
    gdb: bool = False


_MORE = {
    # Ten times the usual ring; an entry takes a few hundred bytes, and more with its frames.
    "TORCH_FR_BUFFER_SIZE": "20000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "20000",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "TORCH_DISTRIBUTED_DEBUG": "INFO",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
    EXITS: "1",
}
_EVERY = {
    **_MORE,
    # Not TORCH_DISTRIBUTED_DEBUG=DETAIL: it brings failures of its own (DDP on Gloo crashes with it in torch 2.13). The
    # guard compares the collectives instead.
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,COLL,P2P",
}
LEVELS = (
    Level("normal", "nothing", {EXITS: COUNTS}),
    Level(
        "more evidence",
        "longer logs and some memory per rank for a larger flight recorder; the job runs at its usual speed",
        _MORE,
    ),
    Level(
        "every collective checked",
        "every collective is compared between the ranks before it runs, so the job is slower, and logs are large; "
        "when it hangs, ranks stand still for seconds while gdb looks at them",
        _EVERY,
        guard="strict",
        gdb=True,
    ),
    Level(
        "one kernel at a time",
        "as before, and the CPU waits for every CUDA kernel: often several times slower",
        {**_EVERY, "CUDA_LAUNCH_BLOCKING": "1"},
        guard="strict",
        gdb=True,
    ),
)


def next_level(level: int, cause: str) -> int:
    """After a failed attempt: one more while nobody knows why, and back to normal when the cause is known."""
    return min(level + 1, len(LEVELS) - 1) if cause in UNEXPLAINED else 0


def exhausted(level: int, cause: str) -> bool:
    """Whether there is nothing more to add to a failure that stays unexplained."""
    return cause in UNEXPLAINED and level == len(LEVELS) - 1


def added(level: Level, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables of a level, and the names of those that the user has set already."""
    kept = sorted(name for name in level.variables if name in environ)
    return {name: value for name, value in level.variables.items() if name not in environ}, kept
