"""NCCL or Gloo would choose an interface that does not reach other hosts.

What it finds: the interface that NCCL takes for bootstrap and sockets, and the address that Gloo takes, by their own
rules, where that is loopback, a bridge of containers, or nothing.

Why it happens: NCCL takes `ib*` first, then anything that is not docker, lo or virbr; Gloo takes the address that the
host's name resolves to, which Debian maps to 127.0.1.1 in /etc/hosts.

How it decides: the order of NCCL's socket code over the interfaces that are up and have an address, and the addresses
of the host's own name. On a single host every choice works, so it is told and not judged.

Example: `Gloo would use 127.0.1.1: the host name resolves to loopback`

Fix: export NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME with the interface of the cluster network, or correct
/etc/hosts.

Limits: NCCL with RDMA uses this interface for its bootstrap only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH124"
CAUSE = "wrong-interface"
CHECK = "interface"
PROBE = "interfaces"
FIX = ("Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface that the hosts share.",)
_UP = 0x1
_LOOPBACK = "127.0.0.1"
_LAST = ("docker", "lo", "virbr")
"""NCCL's own order (src/misc/socket.cc): all others first, then these, one after the other."""
_CONTAINERS = ("docker", "br-", "cni", "flannel", "cali", "virbr", "podman", "lxc", "veth", "tailscale", "usb", "idrac")


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:
    usable = [i for i in items(values, "interfaces") if int(i.get("flags") or 0) & _UP and _addresses(i)]
    if not usable:
        return unknown("the addresses of the interfaces can't be told (no `ip` command)")
    chosen: Mapping[str, Any] = values.get("chosen_by_user") or {}
    nccl = by_nccl(usable, text(chosen, "NCCL_SOCKET_IFNAME"))
    gloo = _by_gloo(usable, text(chosen, "GLOO_SOCKET_IFNAME"), host)
    told = f"NCCL {nccl or 'none'}, Gloo {gloo or 'none'}"
    if launch.hosts < 2:
        return healthy(told)
    for library, name, variable in (("NCCL", nccl, "NCCL_SOCKET_IFNAME"), ("Gloo", gloo, "GLOO_SOCKET_IFNAME")):
        wished = text(chosen, variable)
        if not name:
            return unhealthy(
                told, f"{library} finds no interface{f' that matches {variable}={wished}' if wished else ''}"
            )
        if name == "lo" or name.startswith("127."):
            return unhealthy(told, f"{library} would use loopback ({name}): no other host can be reached over it")
        if name.startswith(_CONTAINERS) and not wished:
            return unhealthy(told, f"{library} would use {name}, a bridge of this host", severity="warning")
    return healthy(told)


def by_nccl(usable: list[Mapping[str, Any]], wished: str) -> str:
    """The first interface that NCCL takes: prefixes unless "=", all but these after "^"."""
    names = [text(i, "name") for i in usable]
    if wished:
        exclude, exact = wished.startswith("^"), wished.lstrip("^").startswith("=")
        words = [word for word in wished.lstrip("^=").split(",") if word]
        fits = {
            n
            for n in names
            if any(n == w.partition(":")[0] if exact else n.startswith(w.partition(":")[0]) for w in words)
        }
        return next((n for n in names if (n in fits) != exclude), "")
    first = [n for n in names if n.startswith("ib")] or [n for n in names if not n.startswith(_LAST)]
    rest = [n for prefix in _LAST for n in names if n.startswith(prefix)]
    return next(iter([*first, *rest]), "")


def _by_gloo(usable: list[Mapping[str, Any]], wished: str, host: HostProbes) -> str:
    """The interface of the host's name; torch takes loopback where the name leads to no address of this host."""
    if wished:
        name = wished.partition(",")[0]
        return name if name in [text(i, "name") for i in usable] else ""
    addresses = (host.values("names") or {}).get("addresses") or []
    own = {address: text(i, "name") for i in usable for address in _addresses(i)}
    found = next((a for a in addresses if isinstance(a, str) and (a in own or a.startswith("127."))), _LOOPBACK)
    return found if found.startswith("127.") else own[found]


def _addresses(interface: Mapping[str, Any]) -> list[str]:
    """Without those that only hold on one cable."""
    every = [str(a).partition("/")[0] for a in interface.get("addresses") or []]
    return [a for a in every if not a.lower().startswith("fe80")]
