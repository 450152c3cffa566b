"""Network interfaces: state, MTU, speed, addresses, and the counters of what they dropped."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from whichrank.evidence.probes import Missing, Place

NAME = "interfaces"
LIMIT_S = 8.0
WINDOW_S = 0.5
_COUNTERS = ("rx_errors", "rx_dropped", "rx_crc_errors", "tx_errors", "tx_dropped", "rx_missed_errors")
_OF_DRIVER = re.compile(
    r"^[ \t]{0,40}(rx_discards_phy|rx_prio\d_discards|[rt]x_prio\d_pause|rx_out_of_buffer|rx_crc_errors_phy"
    r"|rx_symbol_err_phy|tx_pause_storm_\w+|link_down_events_phy|rx_prio\d_bytes|np_cnp_sent|rx_ecn_mark): (\d{1,20})$",
    re.MULTILINE,
)
_MOST = 64


def measure(place: Place) -> dict[str, Any]:
    """`interfaces` in the kernel's order, with addresses where `ip` is there to tell."""
    names = [entry.name for entry in place.entries("/sys/class/net")][:_MOST]
    if not names:
        raise Missing("no network interface in /sys/class/net")
    addresses, order = _addresses(place)
    found = [_interface(place, name, addresses.get(name, [])) for name in names]
    found.sort(key=lambda i: order.index(i["name"]) if i["name"] in order else i["index"])
    if place.live:
        before = {i["name"]: _driver_counters(place, i["name"]) for i in found if i["physical"]}
        time.sleep(WINDOW_S)
        for interface in found:
            if first := before.get(interface["name"]):
                later = _driver_counters(place, interface["name"])
                interface["driver_counters"] = later
                interface["growth"] = {k: later[k] - v for k, v in first.items() if later.get(k, v) != v}
    return {
        "interfaces": found,
        "chosen_by_user": {n: v for n in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if (v := place.environ.get(n))},
        "has_ip": bool(order),
        "port_range": place.read("/proc/sys/net/ipv4/ip_local_port_range"),
        "congestion_control": place.read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "mtu_probing": place.read("/proc/sys/net/ipv4/tcp_mtu_probing"),
    }


def _interface(place: Place, name: str, addresses: list[str]) -> dict[str, Any]:
    folder = f"/sys/class/net/{name}"
    speed = place.read(f"{folder}/speed") or ""
    return {
        "name": name, "index": _number(place.read(f"{folder}/ifindex")) or 0,
        "state": place.read(f"{folder}/operstate") or "", "mtu": _number(place.read(f"{folder}/mtu")),
        "speed_mbit": int(speed) if speed.isdigit() else None,  # -1 where there is no cable
        "flags": int(place.read(f"{folder}/flags") or "0", 16),
        "physical": place.path(f"{folder}/device").exists(), "bridge": place.path(f"{folder}/bridge").exists(),
        "duplex": place.read(f"{folder}/duplex"), "addresses": addresses,
        "counters": {c: v for c in _COUNTERS if (v := _number(place.read(f"{folder}/statistics/{c}"))) is not None},
        "driver_counters": {}, "growth": {},
    }  # fmt: skip


def _addresses(place: Place) -> tuple[dict[str, list[str]], list[str]]:
    said, why = place.output(["ip", "-j", "addr"], 3.0)
    if why or not said:
        return ({}, []) if not place.live else _by_ioctl(place)
    try:
        rows = json.loads(said)
    except ValueError:
        return {}, []
    found: dict[str, list[str]] = {}
    for row in rows if isinstance(rows, list) else []:
        own = [a for a in row.get("addr_info", []) if "local" in a]
        found[str(row.get("ifname"))] = [f"{a['local']}/{a.get('prefixlen')}" for a in own]
    return found, list(found)


def _by_ioctl(place: Place) -> tuple[dict[str, list[str]], list[str]]:
    """IPv4 only: what a kernel tells without any program (SIOCGIFADDR)."""
    import fcntl
    import socket
    import struct

    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for entry in place.entries("/sys/class/net"):
            request = struct.pack("256s", entry.name[:15].encode())
            try:
                found[entry.name] = [socket.inet_ntoa(fcntl.ioctl(one, 0x8915, request)[20:24]) + "/0"]
            except OSError:
                found[entry.name] = []
    return found, []


def _driver_counters(place: Place, name: str) -> dict[str, int]:
    said, _ = place.output(["ethtool", "-S", name], 2.0)
    return {match[1]: int(match[2]) for match in _OF_DRIVER.finditer(said.decode("utf-8", "replace"))}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None
