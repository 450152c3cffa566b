"""Two hosts have the same address.

What it finds: the address of a host, as its name resolves, on an interface of another host too.

Why it happens: a machine that was cloned, a static address inside the range of DHCP, a floating address that was not
taken back.

How it decides: the addresses that names resolve to, against the interfaces of all hosts. Whoever answers first gets the
packets, so connections fail now and then, or end at the wrong host. Bridges of containers have the same addresses
everywhere; nobody's name resolves to those. Hosts that have all their addresses in common are one machine.

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
    findings = []
    for address in sorted({a for answers in inspection.names.values() for known in answers.values() for a in known}):
        holders = [host for host, addresses in own.items() if address in addresses]
        if len(holders) < 2 or all(own[host] == own[holders[0]] for host in holders):
            continue
        message = f"{address} is an address of {' and of '.join(holders)}."
        refs = [measured("interfaces", f"{host}: {', '.join(sorted(own[host])[:6])}", host) for host in holders[:4]]
        findings.append(found(CODE, CAUSE, "hang", hosts(*holders), message, refs, FIX))
    return findings
