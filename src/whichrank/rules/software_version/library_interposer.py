"""A preloaded or injected library stands between the job and CUDA.

## What it finds
Libraries that share or meter GPUs, or that are preloaded, in a job that failed in CUDA or NCCL or that hangs.

## Why it happens
Such libraries intercept CUDA calls. Many versions break peer-to-peer, IPC handles or the cuMem calls that NCCL needs.

## How it decides
The library announces itself in the output, or stands in LD_PRELOAD, and something fails or hangs for which no other
reason is at hand. A crash in native code is no reason of its own where the library announces itself.

## Example
`[HAMI-core Msg(812:140:libvgpu.c:836)]: Initializing.....`

## Fix
Run once without it: whole GPUs instead of shared ones, no LD_PRELOAD, no CUDA_INJECTION64_PATH. NCCL_P2P_DISABLE=1
and NCCL_CUMEM_ENABLE=0 may go around it.

## Limits
That the library is loaded does not prove that it is at fault.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.base import Event
from whichrank.records.events.communication import NcclError
from whichrank.records.events.processes import CudaError, NativeCrash
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTimeout
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "SOFT204"
CAUSE = "library-interposer"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Run once without it: whole GPUs instead of shared ones, no LD_PRELOAD, no CUDA_INJECTION64_PATH.",
        "Update the library; NCCL_P2P_DISABLE=1 and NCCL_CUMEM_ENABLE=0 may go around it.",
    ),
)
_CRASHED = (("rank-native-crash", "the program may crash without it too"),)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.of_cause(case, CAUSE)
    if not told or known_messages.has_run(case) or not _in_trouble(case):
        return []
    loaded = any(s.signature.grade >= Grade.SUPPORTS for s in told)
    announced = any(s.id == "interposer-vgpu" and s.group("library") for s in told)
    crashed = announced and bool(case.events(NativeCrash))
    claim = replace(_CLAIM, category="crash", alternatives=_CRASHED) if crashed else _CLAIM
    sure = Grade.SUPPORTS if loaded else Grade.HINTS
    return [
        building.tell_of(case, claim, "A library that intercepts calls is loaded into the job: {what}.", told, sure)
    ]


def _in_trouble(case: Case) -> bool:
    kinds: tuple[type[Event], ...] = (NcclError, CudaError, NativeCrash, WatchdogTimeout, WatchdogStuck)
    return bool(
        case.events(*kinds) or known_messages.stands_still(case) or known_messages.seen(case, "nccl-ipc-handle")
    )
