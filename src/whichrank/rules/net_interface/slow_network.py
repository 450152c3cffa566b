"""Traffic between hosts runs over a slow network.

## What it finds
Jobs over several hosts whose data goes through TCP sockets, with a measured bandwidth (or a report) that
says it is slow.

## Why it happens
RDMA is not there, is switched off, or was not found; the interface is a slow one.

## How it decides
NCCL says that its network is sockets; and nccl-tests measured less than 3 GB/s of bus bandwidth between hosts, or the
report says that several hosts are slower than one.

## Example
`Using network Socket`, `# Avg bus bandwidth    : 0.9`

## Fix
Use RDMA where the hosts have it; otherwise the fastest interface (NCCL_SOCKET_IFNAME), with several sockets per
connection (NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD).

## Limits
Without a measurement nothing is said: sockets alone are not a fault.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "NETI203"
CAUSE = "slow-network"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    severity="warning",
    fix=(
        "Use RDMA where the hosts have it: see why NCCL did not (NET/IB lines of NCCL_DEBUG=INFO).",
        "Otherwise the fastest interface: NCCL_SOCKET_IFNAME, with NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD.",
    ),
    alternatives=(
        ("ib-missing-userspace", "RDMA may be there and its libraries missing"),
        ("ib-device-not-exposed", "RDMA may be there and not be given to the container"),
    ),
)
_SLOW_GBS = 3.0
"""25 Gbit/s Ethernet, the slowest that clouds give to GPU hosts, carries about 3 GB/s."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    sockets = known_messages.seen(case, "nccl-network-socket", "nccl-network-socket-new", "nccl-net-sockets")
    tested = [s for s in known_messages.seen(case, "nccl-tests-mark") if s.group("bandwidth")]
    measured = [s for s in tested if _number(s.group("bandwidth")) < _SLOW_GBS]
    told = known_messages.seen(case, "told-slow", "told-ethernet")
    plain = [s for s in told if s.id == "told-ethernet"]
    if not sockets and plain and len(plain) < len(told):  # a person says both
        message = "Somebody says that it is slow, and that the hosts have a plain network between them."
        return [building.found(case, _CLAIM, [s.sign for s in (*plain, *told)], message, Grade.HINTS)]
    if not sockets or not (told or (measured and known_messages.many_hosts(case))):
        return []
    rate = f" ({measured[0].group('bandwidth')} GB/s)" if measured else ""
    message = f"Data between the hosts goes over TCP sockets and is slow{rate}."
    signs = [s.sign for s in (*measured, *told, *sockets)]
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS if measured else Grade.HINTS)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")
