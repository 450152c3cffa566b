"""A PCIe link runs with fewer lanes or slower than it should.

## What it finds
Links narrower than the GPU's own maximum, or (under load) of a lower generation, network adapters that the kernel
started on a slower link than they could use, and floods of corrected PCIe errors.

## Why it happens
A badly seated board or riser, a damaged slot, a switch that trained down after errors.

## How it decides
By nvidia-smi: current against maximum width, or against the other GPUs of the same model where nobody asked for the
maximum. A lower generation of an idle GPU is power saving and is not judged. Where every GPU of the host shows the same
width the machine may be built so: told with little confidence. So is an adapter of half its bandwidth or less by the
kernel's own line, unless the logs of other hosts have no such line. Corrected errors in the kernel log count from a
hundred of one device on.

## Example
`Link Width / Max : 16x, Current : 8x` on one of eight GPUs

## Fix
Reseat the board or riser, then check again under load; have the slot or the board replaced if it stays.

## Limits
nvidia-smi shows the link at the GPU only, not the one above a switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.hardware import GpuState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "PCIE151"
CAUSE = "pcie-degraded"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=("Reseat the board or its riser and check the link under load; have slot or board replaced if it stays.",),
    next=(
        NextStep(
            "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
            "pcie.link.width.max --format=csv",
            "under load, shows which link is narrow or slow",
            ("pcie-degraded",),
            "none",
        ),
    ),
)
_FLOOD = 100


def judge(case: Case) -> list[Finding] | NotEvaluated:
    states = [s for s in case.hardware.gpus if "pcie_width" in s.values]
    if not states and not case.hardware.kernel:
        return NotEvaluated("nvidia-smi -q, or the kernel log, of the hosts")
    newest = {(s.host, s.uuid or s.bus_id or s.index): s for s in states}
    most_of = {key: hardware_findings.most_of(list(newest.values()), key) for key in ("pcie_width", "pcie_gen")}
    narrow = [s for s in newest.values() if _short(s, "pcie_width", most_of["pcie_width"])]
    slow = [s for s in newest.values() if _short(s, "pcie_gen", most_of["pcie_gen"]) and _busy(s)]
    odd = narrow or slow
    if odd:
        state = odd[0]
        key = "pcie_width" if narrow else "pcie_gen"
        words = f"PCIe {'width' if narrow else 'generation'} {state.values[key]} of {most_of[key](state):g}"
        alone = len(odd) * 2 <= len(newest)
        message = f"{hardware_findings.state_text(case, state)} runs at {words}."
        refs = [hardware_findings.value_ref(s, words) for s in odd[:3]]
        return [
            _found(
                case,
                refs,
                message,
                Grade.SUPPORTS if alone else Grade.HINTS,
                hardware_findings.state_subject(case, state),
            )
        ]
    return _by_kernel(case) or _by_errors(case)


def _by_kernel(case: Case) -> list[Finding]:
    """Adapters that got half of what they could use or less; drivers print it when they start."""
    limited = case.hardware.of_kind("pcie_limited")
    told = [e for e in limited if 2 * (e.number("gbps") or 0) <= (e.number("able_gbps") or 0)]
    if not told:
        return []
    # The driver says it of every host that is built so.
    alone = len({e.host for e in told}) * 2 <= len({e.host for e in case.hardware.kernel})
    event = told[-1]
    where = f" of {event.host}" if event.host else ""
    message = (
        f"The device {event.device}{where} gets {event.number('gbps')} of {event.number('able_gbps')} Gb/s from PCIe: "
        f"it is limited by a {event.text('what')}."
    )
    subject = Subject(hosts=(event.host,) if event.host else ())
    return [_found(case, [event.ref], message, Grade.SUPPORTS if alone else Grade.HINTS, subject)]


def _short(state: GpuState, key: str, most_of: Callable[[GpuState], float | None]) -> bool:
    have, most = state.number(key), most_of(state)
    return have is not None and most is not None and 0 < have < most


def _busy(state: GpuState) -> bool:
    return (
        state.values.get("pstate") == "P0"
        and (state.number("utilization") or 0) > 0
        and not state.is_yes("reason_idle")
    )


def _by_errors(case: Case) -> list[Finding]:
    told = [e for e in case.hardware.of_kind("pcie_error") if e.text("severity") == "corrected"]
    counted = Counter((e.host, e.device) for e in told if case.hardware.when(e) != "before")
    # The reader keeps eighty of each device: that many stand for a flood.
    many = [place for place, count in counted.items() if count >= min(_FLOOD, 80)]
    if not many:
        return []
    host, device = many[0]
    refs = [e.ref for e in told if (e.host, e.device) == many[0]]
    where = f" of {host}" if host else ""
    message = f"The PCIe port {device}{where} corrects errors again and again: a marginal link."
    return [_found(case, [refs[0], refs[-1]], message, Grade.HINTS, Subject(hosts=(host,) if host else ()))]


def _found(case: Case, refs: Sequence[Ref], message: str, grade: Grade, subject: Subject) -> Finding:
    return hardware_findings.found(case, _CLAIM, refs, message, grade, weight=Weight("warning"), subject=subject)
