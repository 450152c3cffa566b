"""The host's own name does not resolve to one of its addresses.

What it finds: a name that resolves to nothing, or to an address of another host.

Why it happens: a missing or wrong line in /etc/hosts, DNS that does not know the node, a renamed machine. Gloo and
torchrun look the name up.

How it decides: getaddrinfo of the host's name against the addresses of its interfaces. Loopback is an answer too; the
check of the interface says where that hurts. On a single machine nobody needs the name.

Example: `node7 resolves to 10.0.0.9, which is not an address of this host`

Fix: correct /etc/hosts or DNS; or set GLOO_SOCKET_IFNAME.

Limits: what the other hosts see is compared by another rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.findings import Severity
from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH125"
CAUSE = "hostname-resolution"
CHECK = "host-name"
PROBE = "names"
FIX = ("Correct the host's line in /etc/hosts, or DNS.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:
    name, addresses = text(values, "hostname"), [str(a) for a in values.get("addresses") or []]
    severity: Severity = "error" if launch.hosts > 1 else "info"  # ranks of one machine find each other by loopback
    if not addresses:
        return unhealthy(name, f"{name} does not resolve on this host", severity=severity)
    own = {
        str(a).partition("/")[0]
        for interface in items(host.values("interfaces") or {}, "interfaces")
        for a in interface.get("addresses") or []
    }
    if not own:
        return unknown("the addresses of the interfaces can't be told")
    foreign = [a for a in addresses if a not in own and not a.startswith("127.") and a != "::1"]
    if foreign and len(foreign) == len(addresses):
        words = f"{name} resolves to {foreign[0]}, which is not an address of this host"
        return unhealthy(foreign[0], words, severity=severity)
    return healthy(addresses[0])
