"""Whether the kernel's clock is kept in step with another, as adjtimex(2) has it."""

from __future__ import annotations

import ctypes
import time
from typing import Any

from whichrank.evidence.probes import Missing, Place

NAME = "clock"
LIMIT_S = 10.0
_UNSYNC = 0x40
"""STA_UNSYNC of <linux/timex.h>."""


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_char * 256),
    ]  # fmt: skip


def measure(place: Place) -> dict[str, Any]:
    if not place.live:
        raise Missing("a recorded tree has no clock to ask")
    timex = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        raise Missing("adjtimex is not allowed here")
    return {
        "synchronised": not timex.status & _UNSYNC,
        "max_error_s": timex.maxerror / 1e6,
        "now_s": time.time(),
    }
