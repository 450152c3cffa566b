"""The host's clock is kept by nobody.

What it finds: whether the kernel considers its clock synchronised.

Why it happens: no chrony, ntpd or systemd-timesyncd; in many virtual machines and containers the host outside keeps
the clock and the kernel inside does not know.

How it decides: a synchronised clock is healthy. One that is not may be right all the same, so it is never called
unhealthy here: between several hosts the real difference is measured.

Example: `the kernel does not know whether its clock is synchronised`

Fix: run chrony or systemd-timesyncd.

Limits: see above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unknown
from whichrank.records.inspection import HostProbes, number

CODE = "PREH126"
CAUSE = "clock-skew"
CHECK = "clock"
PROBE = "clock"
FIX = ("Run chrony or systemd-timesyncd on every host.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    if not values.get("synchronised"):
        return unknown("the kernel does not know whether its clock is synchronised")
    return healthy(f"within {number(values, 'max_error_s') or 0:.3f} s")
