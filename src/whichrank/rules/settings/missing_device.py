"""An interface or RDMA device that this host does not have.

What it finds, for the live environment or with --this-host: names in NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME,
TP_SOCKET_IFNAME and NCCL_IB_HCA that match nothing here, and exclusions that leave nothing.

Why it happens: names differ between hosts, images and kernels (eth0, ens5, enp1s0f0np0).

How it decides: NCCL's names are prefixes unless "=" leads, Gloo's are exact; both are compared with
/sys/class/net and /sys/class/infiniband.

Example: `NCCL_SOCKET_IFNAME=eth0` on a host with lo and ens5: NCCL finds no interface and fails.

Fix: a name of this host, or no name at all.

Limits: says nothing about other hosts, nor whether the interface reaches them.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV114"
CAUSE = "wrong-environment"

_EXACT = frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"})


def judge(settings: Settings) -> list[Finding] | NotEvaluated:
    if settings.interfaces is None:
        return NotEvaluated("that these settings are for this host (--this-host)")
    found: list[Finding] = []
    for assignment in settings.assignments():
        if not assignment.value:
            continue
        if assignment.name in _EXACT:
            found += _gloo(assignment, settings.interfaces)
        elif assignment.name == "NCCL_SOCKET_IFNAME":
            found += _nccl(assignment, settings.interfaces, "network interface")
        elif assignment.name == "NCCL_IB_HCA":
            found += _nccl(assignment, settings.hcas or frozenset(), "RDMA device")
    return found


def _gloo(assignment: Assignment, interfaces: frozenset[str]) -> list[Finding]:
    absent = [name for name in (assignment.value or "").split(",") if name and name not in interfaces]
    if not absent or any(name.startswith(("^", "=")) for name in absent):
        return []
    message = f"{assignment.name}: this host has no interface '{absent[0]}' (it has {_listed(interfaces)})."
    return [flagged(CODE, assignment, "error", message, "Name an interface of this host.")]


def _nccl(assignment: Assignment, present: frozenset[str], what: str) -> list[Finding]:
    text = assignment.value or ""
    excludes, text = text.startswith("^"), text.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    names = [token.partition(":")[0] for token in text.split(",") if token]
    if not present:
        message = f"{assignment.name}={assignment.value}: this host has no {what} at all."
        return [] if excludes else [flagged(CODE, assignment, "warning", message, f"Remove {assignment.name} here.")]
    matched = {p for p in present for n in names if (p == n if exact else p.startswith(n))}
    left = present - matched if excludes else matched
    if left:
        return []
    done = "excludes every" if excludes else "matches no"
    message = f"{assignment.name}={assignment.value} {done} {what} of this host (it has {_listed(present)})."
    return [flagged(CODE, assignment, "error", message, f"Name a {what} of this host, or remove the variable.")]


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)[:12]) or "none"
