"""RDMA ports of two hosts have different MTUs, and transfers between the hosts fail.

## What it finds
The same adapter with another active MTU on one host than on the other, beside completions with an error.

## Why it happens
On RoCE the active MTU follows the interface's: one host was set up with jumbo frames, the other was not. Some versions
of NCCL use the smaller MTU of the two ends, some each end's own.

## How it decides
Ports of one name are compared between hosts, or between the files that describe them; or the MTUs that NCCL prints
with its queue pairs. It counts only where NCCL reports a failed completion.

## Example
`active_mtu: 1024 (3)` on one host, `active_mtu: 4096 (5)` on the other, and `Got completion … with status=1`

## Limits
Which of the two is wrong the ports don't say. A switch with a smaller MTU in between is not seen here.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.network import PortState
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.statements import Statement

CODE = "RDMA155"
CAUSE = "mtu-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    alternatives=(("nccl-bug", "some versions of NCCL don't agree on the smaller MTU"),),
    kind="host",
    next=(NextStep("ibv_devinfo | grep active_mtu", "on every host: it must be the same", ("mtu-mismatch",), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    ports = [port for port in case.hardware.ports if port.port is not None and port.mtu]
    queues = known_messages.seen(case, "nccl-ib-queue-mtu")
    if len(ports) < 2 and len(queues) < 2:
        return NotEvaluated("RDMA ports of two hosts (ibv_devinfo)")
    failed = statements.said_by_nccl(case, "Got completion")
    if failed and (told := _of_queues(case, queues, failed)):
        return told
    return [found for name in sorted({p.name for p in ports}) for found in _compared(case, name, ports, failed)]


def _of_queues(case: Case, queues: list[Seen], failed: list[Statement]) -> list[Finding]:
    """NCCL's own words on the MTU of its queue pairs, where each host has one and they differ."""
    by_host: dict[str, dict[int, Statement]] = {}
    for seen in queues:
        by_host.setdefault(seen.sign.host or "", {})[128 << int(seen.group("mtu"))] = seen.sign
    sizes = {size for told in by_host.values() for size in told}
    if len(sizes) < 2 or any(len(told) > 1 for told in by_host.values()):
        return []
    shown = [(host, *next(iter(mtus.items()))) for host, mtus in sorted(by_host.items())[:4]]
    told = " and ".join(f"{mtu} on {host}" for host, mtu, _ in shown)
    signs = [sign for _, _, sign in shown]
    message = f"The MTU of RDMA connections differs between hosts ({told}), and transfers fail."
    return [building.found(case, _CLAIM, [*signs, *failed[:2]], message, Grade.SUPPORTS)]


def _compared(case: Case, name: str, ports: list[PortState], failed: list[Statement]) -> list[Finding]:
    same = [port for port in ports if port.name == name]
    by_mtu = {port.mtu: port for port in same}
    places = {port.host or port.ref.source for port in by_mtu.values()}
    if len(by_mtu) < 2 or len(places) < 2 or not failed:
        return []
    shown = [Statement(f"active_mtu {mtu}", port.ref, host=port.host) for mtu, port in sorted(by_mtu.items())]
    told = " and ".join(f"{mtu} on {port.host or port.ref.source}" for mtu, port in sorted(by_mtu.items()))
    message = f"The MTU of {name} differs between hosts ({told}), and transfers fail."
    found = building.found(case, _CLAIM, [*shown, *failed[:2]], message, Grade.SUPPORTS)
    return [replace(found, subject=replace(found.subject, hosts=_odd_hosts(same)))]


def _odd_hosts(ports: list[PortState]) -> tuple[str, ...]:
    """The hosts whose MTU few have; none without a clear majority."""
    by_host = {port.host: port.mtu for port in ports if port.host}
    counts = Counter(by_host.values()).most_common(2)
    if len(counts) < 2 or counts[0][1] < 2 * counts[1][1]:
        return ()
    return tuple(sorted(host for host, mtu in by_host.items() if mtu != counts[0][0]))
