"""Two hosts have the same address, or two names lead to one host.

What it finds: the address of a host, as its name resolves, on an interface of another host too; hosts that are listed
twice under different names.

Why it happens: a machine that was cloned, a static address inside the range of DHCP, a floating address that was not
taken back.

How it decides: the addresses that names resolve to, against the interfaces of all hosts. Whoever answers first gets the
packets, so connections fail now and then, or end at the wrong host. Bridges of containers have the same addresses
everywhere; nobody's name resolves to those. Hosts that have all their addresses in common are one machine; where boot
and namespaces are the same too, they are one host under two names, and its GPUs would get twice the ranks.

Example: `10.0.0.5 is an address of node4 and of node5`

Fix: remove the address from the host that should not have it.

Limits: a host that was not asked may have the address as well.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF114"
CAUSE = "hostname-resolution"
FIX = ("See who has it (ip -brief address), and remove it where it does not belong: ip address del ADDRESS dev DEV.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    own = {host: set(addresses) for host, addresses in inspection.addresses.items() if addresses}
    if len(own) < 2:
        return NotEvaluated("the addresses of at least two hosts")
    findings = _twice(inspection)
    for address in sorted({a for answers in inspection.names.values() for known in answers.values() for a in known}):
        holders = [host for host, addresses in own.items() if address in addresses]
        if len(holders) < 2 or all(own[host] == own[holders[0]] for host in holders):
            continue
        message = f"{address} is an address of {' and of '.join(holders)}."
        refs = [measured("interfaces", f"{host}: {', '.join(sorted(own[host])[:6])}", host) for host in holders[:4]]
        findings.append(found(CODE, CAUSE, "hang", hosts(*holders), message, refs, FIX))
    return findings


def _twice(inspection: Inspection) -> list[Finding]:
    same: dict[tuple[str, ...], list[str]] = {}
    for host in inspection.reached():
        names = host.values("names") or {}
        if names.get("boot_id") and names.get("namespaces"):
            key = (str(names["boot_id"]), *map(str, names["namespaces"]))
            same.setdefault(key, []).append(host.host)
    findings = []
    for listed in same.values():
        # Where all are one, somebody tries things out on one machine.
        if 1 < len(listed) < len(inspection.hosts):
            message = f"{' and '.join(listed)} are the same host: its GPUs would get the ranks of {len(listed)} hosts."
            refs = [measured("names", f"{host}: the same boot and the same namespaces", host) for host in listed[:4]]
            fix = ("List it once.",)
            findings.append(found(CODE, CAUSE, "config", hosts(*listed), message, refs, fix, severity="warning"))
    return findings
