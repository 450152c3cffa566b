"""A GPU is slowed down by heat, power, or a limit that somebody set.

What it finds: thermal slowdown, hardware slowdown or the power brake active; little room left to the temperature
limit; an enforced power limit below the default.

Why it happens: cooling that fails or is blocked, a power event of the chassis, a forgotten `nvidia-smi -pl`. In a
synchronous job the slowest GPU sets the pace.

How it decides: by the clock event reasons. Idle, chosen application clocks and the software power cap at full load are
normal. The margin to the limit must be above 10 C, or the temperature that much below the slowdown threshold.

Example: `GPU 5: hardware thermal slowdown`

Fix: check fans, airflow and coolant; look at the power supplies; set the default power limit again.

Limits: one look may miss short throttling; an idle GPU does not show a cooling problem: use --full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unknown
from whichrank.records.inspection import HostProbes
from whichrank.rules.preflight_gpus import Sign, number, states, worst

CODE = "PREH105"
CAUSE = "gpu-thermal-or-power"
CHECK = "gpu-clocks"
PROBE = "gpus"
FIX = ("Check fans, airflow and coolant of the host, and the power supplies of the chassis.",)
_BAD = {
    "reason_hw_thermal": "hardware thermal slowdown",
    "reason_sw_thermal": "software thermal slowdown",
    "reason_power_brake": "power brake of the chassis",
    "reason_hw_slowdown": "hardware slowdown",
}
_MARGIN_C = 10.0
"""Of the facts on hardware probes: healthy is a T.Limit margin above 10 C."""
_CAPPED = 0.95
"""Below this share of the default limit somebody set a cap; rounding of vendors' tools stays above."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    told = False
    signs = []
    for index, state in states(values):
        told = told or any(key.startswith("reason") for key in state)
        if words := next((words for key, words in _BAD.items() if str(state.get(key, "")).lower() == "active"), ""):
            signs.append(Sign(index, f"{words} is active"))
            continue
        if words := _hot(state):
            signs.append(Sign(index, words, "warning"))
        limit, default = number(state, "power_limit"), number(state, "power_default")
        if limit and default and limit < _CAPPED * default:
            words = f"power limit {limit:.0f} W of {default:.0f} W"
            signs.append(Sign(index, words, "warning", (f"nvidia-smi -i {index} -pl {default:.0f}",)))
    if bad := worst(signs):
        return bad
    return healthy("not slowed") if told else unknown("the driver does not tell its clock event reasons")


def _hot(state: Mapping[str, Any]) -> str:
    margin = number(state, "temperature_margin")
    heat, slowdown = number(state, "temperature"), number(state, "temperature_slowdown")
    if margin is None and heat is not None and slowdown is not None and slowdown > 0:
        margin = slowdown - heat
    return f"only {margin:.0f} C below its temperature limit" if margin is not None and margin <= _MARGIN_C else ""
