"""Blocked on storage: a rank does not reach the collective that the others wait in.

## What it finds
A rank sits in a file-system call that does not return.

## Why it happens
A network file system (NFS, Lustre, FUSE, Ceph) that hangs, a full or failing disk, a lock on a shared file.

## How it decides
The rank does not arrive at the collective, and its stack ends in a system call on files or in the file system's own
code; or, wherever its stack ends, the kernel shows its process in uninterruptible sleep (state D) at every look.
The only stack of a job, without any other sign, is half believed; without a rank it names nobody.

## Example
Rank 6 is in `fsync` at `ckpt.py:90`, the others wait in `barrier #12`.

## Fix
Check the mount on that host (df, dmesg, the file server) before restarting: a process in uninterruptible sleep
does not die. Keep checkpoints and data caches off the shared file system while the job runs.

## Limits
One stack is one moment: a rank that is only slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "HOST120"
CAUSE = "storage-stall"
_DRIVERS = ("nv", "uvm", "rm_", "os_")
FIX = (
    (
        "Check the mount on that host (df, dmesg, the file server) before restarting: a process in "
        "uninterruptible sleep does not die."
    ),
    "Keep checkpoints and data caches off the shared file system while the job runs.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "storage", CODE, CAUSE, "blocked on storage", FIX, also=_asleep(case))


def _asleep(case: Case) -> set[int]:
    """Ranks that were in uninterruptible sleep whenever somebody looked, and not in the driver of a GPU."""
    states: dict[int, list[bool]] = {}
    for host in case.hardware.hosts:
        for process in host.processes:
            rank = case.hardware.rank_of(process.pid, host.host)
            if rank is not None:
                states.setdefault(rank, []).append(process.state == "D" and not process.waits_in.startswith(_DRIVERS))
    return {rank for rank, seen in states.items() if len(seen) > 1 and all(seen)}
