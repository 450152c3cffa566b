"""The host's own name, and what it resolves to here."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors.processes import boot_id
from whichrank.evidence.probes import Missing, Place

NAME = "names"
LIMIT_S = 8.0
"""A name server that does not answer costs its own time limit, five seconds by default."""


def measure(place: Place) -> dict[str, Any]:
    if not place.live:
        raise Missing("a recorded tree can't resolve names")
    name = socket.gethostname()
    domain = (place.read("/etc/resolv.conf") or "")[:500]
    return {
        "hostname": name, "addresses": resolve(name), "domain": domain, "boot_id": boot_id(),
        "namespaces": _namespaces(),
    }  # fmt: skip


def _namespaces() -> list[str]:
    """Which namespaces this process is in: containers of one machine differ in some; empty where nobody tells."""
    try:
        return [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("mnt", "net", "pid", "uts")]
    except OSError:
        return []


def usual(addresses: Iterable[str]) -> str:
    """The address that a job would use: IPv4 where there is one, else IPv6 beyond this link; "" for none."""
    every = list(addresses)
    wide = [a for a in every if ":" in a and not a.lower().startswith("fe80")]
    return next((a for a in [*(a for a in every if ":" not in a), *wide]), "")


def resolve(name: str) -> list[str]:
    """Addresses in the order of getaddrinfo(3), IPv4 before anything else only if it says so; empty for none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    return list(dict.fromkeys(a.removeprefix("::ffff:") for a in addresses))
