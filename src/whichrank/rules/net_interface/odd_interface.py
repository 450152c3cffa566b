"""One host uses another network than all the others.

## What it finds
Hosts whose ranks talk over an interface of another name and another network than the rest of the job.

## Why it happens
A new host names its interfaces differently, its fast one is down or has no address, or NCCL_SOCKET_IFNAME is not set
and the first interface there is the management network.

## How it decides
NCCL prints the interface that it uses (`NET/Socket : Using [0]bond0:10.40.0.11<0>`). Most hosts, at least two, agree on
a name and on the first half of the address; the odd ones have another name and another network. It is told where the
job is slow, stands still or failed.

## Example
`rd-gpu:4401:4711 [1] NCCL INFO NET/Socket : Using [0]eno1:172.16.8.114<0>`, and bond0 on ra-gpu, rb-gpu and rc-gpu.

## Fix
Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the fast interface on all hosts, or repair it on the odd one.

## Limits
Whether the odd network is slower the log does not say.
"""

from __future__ import annotations

from collections import Counter

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.nccl import NcclProcess
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state.outcome import observed

CODE = "NETI104"
CAUSE = "wrong-interface"

_MAJORITY = 2


def judge(case: Case) -> list[Finding] | NotEvaluated:
    using = {short_name(p.host): p for p in case.nccl if p.host and p.bootstrap_interface and p.bootstrap_address}
    if len(using) <= _MAJORITY:
        return NotEvaluated("NCCL's log (NCCL_DEBUG=INFO) of three hosts or more")
    seen = observed(case)
    choices = Counter(_network(process) for process in using.values()).most_common()
    usual, count = choices[0]
    odd = {host: p for host, p in using.items() if p.bootstrap_interface != usual[0] and _network(p)[1] != usual[1]}
    if seen not in ("slow", "hang", "crash") or not odd or count < max(_MAJORITY, len(odd) + 1):
        return []
    host, process = min(odd.items())
    other = next(p for p in using.values() if _network(p) == usual)
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category=seen,
            severity="error",
            grade=Grade.SUPPORTS,
            subject=Subject(hosts=tuple(sorted(odd))),
            message=f"{host} uses {process.bootstrap_interface} ({process.bootstrap_address}), and the other "
            f"{count} hosts use {usual[0]}.",
            evidence=(_ref(process), _ref(other)),
            alternatives=(Alternative("slow-network", "the odd network may only be slower"),),
            next=(NextStep(f"ip -br addr   # on {host}", f"shows whether {usual[0]} is up there", (CAUSE,), "none"),),
            fix=(f"Set NCCL_SOCKET_IFNAME={usual[0]} and GLOO_SOCKET_IFNAME={usual[0]}; repair {usual[0]} on {host}.",),
        )
    ]


def _network(process: NcclProcess) -> tuple[str, str]:
    """The name of the interface, and the first half of its address."""
    address = process.bootstrap_address or ""
    parts = address.split(":") if ":" in address else address.split(".")
    return process.bootstrap_interface or "", ".".join(parts[: len(parts) // 2])


def _ref(process: NcclProcess) -> Ref:
    quote = f"Using {process.bootstrap_interface}:{process.bootstrap_address}"
    return Ref(process.source, f"line {process.first_line}", quote, None, process.host)
