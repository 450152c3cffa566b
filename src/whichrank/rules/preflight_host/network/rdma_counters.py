"""Errors of an RDMA port grow right now.

What it finds: links that went down, retrained or received damaged packets, discards, and retries while we looked.

Why it happens: a bad cable or transceiver, a congested or misconfigured fabric.

How it decides: by what counters grow within a second, never by what they have collected since the last reset: classic
counters saturate (link_downed at 255, some at 15) and old values say nothing. `port_xmit_wait` and relay errors of
switches are no faults.

Example: `mlx5_2/1: symbol_error +41 in 1.0 s`

Fix: clean, reseat or replace the cable; on RoCE check PFC and ECN along the path.

Limits: on an idle fabric little is counted; bench or --full gives it traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, number

CODE = "PREH122"
CAUSE = "ib-link-flap"
CHECK = "rdma-counters"
PROBE = "rdma"
FIX = ("Clean, reseat or replace the cable of that port; on RoCE check PFC and ECN along the path.",)
_BAD = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "local_link_integrity_errors", "port_xmit_discards", "local_ack_timeout_err", "rx_icrc_encapsulated",
)  # fmt: skip


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    window = number(values, "window_s") or 0.0
    if window <= 0:
        return unknown("counters were read only once")
    for port in items(values, "ports"):
        growth: Mapping[str, Any] = port.get("growth") or {}
        for name in _BAD:
            value = number(growth, name)
            if value and value > 0:
                words = f"{port.get('device')}/{port.get('port')}: {name} +{value:.0f} in {window:.1f} s"
                return unhealthy(words, words, severity="error" if name == "link_downed" else "warning")
    return healthy("no errors while looking")
