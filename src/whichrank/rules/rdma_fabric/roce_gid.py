"""The GID index, RoCE version or traffic class is wrong.

## What it finds
Queue pairs that refuse their attributes, GIDs that can't be read or that changed, and RoCE transfers that nobody
ever acknowledged or connections that found nobody behind the GID that the job chose.

## Why it happens
NCCL_IB_GID_INDEX points at another kind of address than the peer uses (RoCE v1 instead of v2, IPv6 instead of IPv4,
another VLAN), or differs between hosts.

## How it decides
The messages of NCCL or of the verbs library. A transfer that nobody acknowledged (status 12) counts here only where its
place in the run or its addresses fit: see how far the run had come, RoCE or InfiniBand (by the addresses, by NCCL's
list of devices, or by the link layer of the ports), one network or two. If the local GID is an IPv4 address and the
remote one is link-local, the remote host is at fault; it is named if `show_gids` tells whose GID that is.

## Example
`NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1`

## Limits
An MTU that does not fit gives the same refusal.
"""

from __future__ import annotations

from ipaddress import IPv6Address

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.model.late_pattern import late
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.network import rdma_retries

_ENDS = late(r"\blocal GID ([\da-fA-F:.]{2,45}), remote GID ([\da-fA-F:.]{2,45})")

CODE = "RDMA202"
CAUSE = "roce-gid"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    blames="host",
    alternatives=(
        ("ib-fabric-partition", "two networks without a route between them look the same"),
        ("mtu-mismatch", "a path with a smaller MTU refuses too"),
        ("ib-link-flap", "a link that is down does not answer either"),
    ),
    next=(NextStep("show_gids", "lists the addresses and their RoCE versions", ("roce-gid",), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.id != "nccl-ib-status-12"]
    unanswered, reading = rdma_retries.unanswered(case)
    more = [*(unanswered if reading == "gid" else []), *rdma_retries.of_chosen_gid(case)]
    if not any(s.signature.role == "root" for s in [*told, *more]):
        return []
    sure = known_messages.grade(told or more)
    tell = "The address that {who} uses on the fabric does not fit: {what}."
    found = building.tell_of(case, _CLAIM, tell, told or more, sure)
    speaking = told or more
    peers = [gid for s in speaking if (gid := _odd_peer(s.sign.text)) is not None]
    if not peers or len(peers) < len(speaking):
        return [found]
    hosts = tuple(sorted({case.host_names[gid] for gid in peers if gid in case.host_names}))
    message = f"A peer uses a link-local address on the fabric, which does not reach this host: {peers[0]}."
    return [replace(found, message=message, subject=replace(found.subject, hosts=hosts, ranks=()), victims=())]


def _odd_peer(text: str) -> str | None:
    """The GID of the other side, where it is link-local and the own one is an address of IPv4."""
    ends = _ENDS.search(text)
    try:
        own, peer = map(IPv6Address, ends.groups()) if ends else (None, None)
    except ValueError:
        return None
    odd = own is not None and peer is not None and own.ipv4_mapped is not None and peer.is_link_local
    return peer.compressed if odd and peer is not None else None
