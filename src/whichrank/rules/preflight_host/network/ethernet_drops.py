"""An adapter drops packets or is held back by flow control right now.

What it finds: discards, CRC errors, link losses and pause storms that grew while we looked; half duplex; an interface
that is up without a carrier.

Why it happens: a bad cable, a lossless class that is not lossless (PFC), a receiver that is too slow.

How it decides: by what counters grew within half a second, in the kernel and in the driver (`ethtool -S`). A few drops
of the kernel (unknown protocols) are normal and not judged.

Example: `enp5s0: rx_prio3_discards +812`

Fix: check PFC and ECN on adapter and switch for the class that RoCE uses; clean or replace the cable.

Limits: an idle adapter drops nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, number, text

CODE = "PREH123"
CAUSE = "packet-loss"
CHECK = "ethernet"
PROBE = "interfaces"
FIX = ("Check cable and switch port; for RoCE check PFC and ECN of its class on adapter and switch.",)
_BAD = re.compile(r"discards|crc_errors|symbol_err|pause_storm|link_down_events")


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    adapters = [i for i in items(values, "interfaces") if i.get("physical")]
    if not adapters:
        return None
    for interface in adapters:
        name = text(interface, "name")
        growth: Mapping[str, Any] = interface.get("growth") or {}
        for counter in growth:
            value = number(growth, counter)
            if _BAD.search(counter) and value and value > 0:
                return unhealthy(f"{counter} +{value:.0f}", f"{name}: {counter} +{value:.0f}", severity="warning")
        if text(interface, "duplex") == "half" and text(interface, "state") == "up":
            return unhealthy("half duplex", f"{name}: half duplex", severity="warning")
    return healthy(f"{len(adapters)} adapter{'' if len(adapters) == 1 else 's'}")
