"""A GPU is slowed down by heat or power.

## What it finds
GPUs that nvidia-smi shows slowed down by temperature (software or hardware), by the power brake of the chassis, or
capped far below their default power while their neighbours are not.

## Why it happens
Cooling that fails or is blocked, a rack's power event, a forgotten power limit. In a synchronous job the slowest GPU
sets the pace of all.

## How it decides
By the clock event reasons (`throttle reasons` in older drivers): thermal slowdown, hardware slowdown and power brake
are bad; idle and the software power cap at full load are normal. Idle GPUs are not judged. Counters of the time spent
slowed are compared between two reports. GPUs are compared with the others of the job.

## Example
`HW Thermal Slowdown : Active` on one of eight GPUs, SM clock 345 of 1980 MHz

## Fix
Heat: clean and check fans, airflow and coolant, move the job meanwhile. Power brake: look at the power supplies of the
chassis. Cap: `nvidia-smi -pl` back to the default.

## Limits
One look may miss short throttling, or see a rare one.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.hardware import GpuState
from whichrank.rules import building, hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "GPUH106"
CAUSE = "gpu-thermal-or-power"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=(
        "Heat: check fans, airflow and coolant of that host, and move the job meanwhile.",
        "Power brake: look at the chassis' power supplies; a low limit: set the default again (nvidia-smi -pl).",
    ),
    next=(
        NextStep(
            "nvidia-smi --query-gpu=index,clocks.sm,temperature.gpu,clocks_event_reasons.active --format=csv -l 5",
            "shows under load whether it stays slowed",
            ("gpu-thermal-or-power", "straggler"),
            "none",
        ),
    ),
)
_TOLD = building.Claim(
    CODE, CAUSE, fix=_CLAIM.fix, category="slow", severity="warning", blames="host", next=_CLAIM.next
)
_BAD = {
    "reason_hw_thermal": "hardware thermal slowdown",
    "reason_sw_thermal": "software thermal slowdown",
    "reason_power_brake": "power brake",
    "reason_hw_slowdown": "hardware slowdown",
}
_SPENT = {
    "slowed_hw_thermal": "hardware thermal slowdown",
    "slowed_sw_thermal": "software thermal slowdown",
    "slowed_power_brake": "power brake",
}
_CAPPED = 0.8
"""A limit below this share of the default, on few GPUs of the job: own threshold."""
_LONG_US = 1_000_000
_TELLING = ("reason", "slowed", "power_limit", "sm_clock")
_SLOW, _HOT, _BUSY = 0.5, 80.0, 90.0
"""Share of the highest clock, degrees, percent: own thresholds; a GPU at work keeps well above half of its clock."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    states = [s for s in case.hardware.gpus if any(k.startswith(_TELLING) for k in s.values)]
    if not states and (told := known_messages.seen(case, "gpu-throttled-line")):
        return building.judged(case, _TOLD, "{who} has a GPU that is slowed down: {what}.", found=told)
    if not states:
        return NotEvaluated("nvidia-smi -q (or a query of clock event reasons) of the hosts")
    slowed = [(s, words) for s in states if (words := _slowed(s))]
    if slowed:
        state, words = slowed[0]
        return [
            _finding(case, state, words, Grade.SUPPORTS, [hardware_findings.value_ref(s, w) for s, w in slowed[:4]])
        ]
    return _by_time_spent(case, states) or _by_cap(case, states) or _by_clock(case, states)


def _slowed(state: GpuState) -> str:
    """What slows it down now; idle GPUs are slow on purpose."""
    if state.is_yes("reason_idle"):
        return ""
    reasons = [words for key, words in _BAD.items() if state.is_yes(key)]
    if not reasons:
        return ""
    clock, most = state.number("sm_clock"), state.number("sm_clock_max")
    clocks = f", SM clock {clock:.0f} of {most:.0f} MHz" if clock and most else ""
    heat = state.number("temperature")
    return f"{reasons[0]} active{clocks}{f', {heat:.0f} C' if heat is not None else ''}"


def _by_time_spent(case: Case, states: Sequence[GpuState]) -> list[Finding]:
    first: dict[object, GpuState] = {}
    for state in states:
        before = first.setdefault((state.host, state.uuid or state.bus_id or state.index), state)
        for key, words in _SPENT.items():
            spent = (state.number(key) or 0) - (before.number(key) or 0)
            if key in before.values and spent > _LONG_US:
                told = f"{spent / 1e6:.0f} s of {words} between two reports"
                return [_finding(case, state, told, Grade.SUPPORTS, [hardware_findings.value_ref(state, told)])]
    return []


def _by_clock(case: Case, states: Sequence[GpuState]) -> list[Finding]:
    """Hot, not idle, and at less than half of its clock, where nobody asked for the reasons."""
    most_of = hardware_findings.most_of(states, "sm_clock")
    for state in states:
        clock, most = state.number("sm_clock"), most_of(state)
        heat, busy = state.number("temperature"), state.number("utilization")
        if any(key.startswith("reason") for key in state.values) or not (clock and most and heat):
            continue
        if clock < _SLOW * most and heat >= _HOT and (busy is None or busy >= _BUSY):
            load = f" and {busy:.0f} % load" if busy is not None else ""
            told = f"SM clock {clock:.0f} of {most:.0f} MHz at {heat:.0f} C{load}"
            return [_finding(case, state, told, Grade.SUPPORTS, [hardware_findings.value_ref(state, told)])]
    return []


def _by_cap(case: Case, states: Sequence[GpuState]) -> list[Finding]:
    newest = {(s.host, s.uuid or s.bus_id or s.index): s for s in states}
    most_of = hardware_findings.most_of(states, "power_limit")
    shares = {
        key: limit / usual
        for key, s in newest.items()
        if (limit := s.number("power_limit")) is not None and (usual := s.number("power_default") or most_of(s))
    }
    low = [key for key, share in shares.items() if share < _CAPPED]
    if not low or len(low) * 2 > len(shares):
        return []
    state = newest[low[0]]
    default = state.number("power_default")
    told = f"{default:g} W" if default else f"{most_of(state):g} W on the others"
    words = f"power limit {state.number('power_limit'):g} W of {told}"
    return [
        _finding(
            case, state, words, Grade.SUPPORTS, [hardware_findings.value_ref(newest[key], words) for key in low[:1]]
        )
    ]


def _finding(case: Case, state: GpuState, words: str, grade: Grade, refs: Sequence[Ref]) -> Finding:
    message = f"{hardware_findings.state_text(case, state)} is slowed down: {words}."
    subject = hardware_findings.state_subject(case, state)
    return hardware_findings.found(case, _CLAIM, refs, message, grade, weight=Weight("warning"), subject=subject)
