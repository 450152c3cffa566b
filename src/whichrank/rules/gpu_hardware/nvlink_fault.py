"""An NVLink or an NVSwitch has failed.

## What it finds
Xid 74 (to Hopper), 136 and 144-150 (Blackwell) where they are fatal, fatal SXids of NVSwitches, links that nvidia-smi
shows inactive while those of the other GPUs are up, link recoveries between two looks.

## Why it happens
A marginal signal, a loose board, bridge or cable, a defective switch port.

## How it decides
By the kernel log within the run; of several GPUs the first one is named, since both ends of a link and the switch
tell the same fault. Where the log has only an Xid 45 "caused by previous Xid 149", that one counts, with less
grade. Counters of `nvidia-smi nvlink -e` count since the driver was loaded: only recoveries that were
added between two reports are held against a link; replays are corrected retries.

## Example
`nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`

## Fix
Reset the GPUs on that link (or reboot the node); check seating and cables; have the hardware inspected if it happens
again.

## Limits
The end that reports first is not always the end that failed.
"""

from __future__ import annotations

from collections import Counter

from whichrank.facts.hardware import xids
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.hardware import GpuState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "GPUH104"
CAUSE = "nvlink-fault"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Reset the GPUs on that link, or reboot the node; check the seating of boards, bridges and cables.",
        "Have the hardware inspected if it happens again.",
    ),
    next=(
        NextStep(
            "nvidia-smi nvlink -s; nvidia-smi nvlink -e",
            "shows links that are down; taken twice, which counters rise",
            ("nvlink-fault",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel and not any(state.links for state in case.hardware.gpus):
        return NotEvaluated("the kernel log, or nvidia-smi nvlink -s, of the hosts")
    return _by_kernel(case) or _by_recoveries(case) or _by_links(case)


def _by_kernel(case: Case) -> list[Finding]:
    events, weight = kernel_events.counting(case, kernel_events.xid_events(case, "nvlink"))
    events = kernel_events.first_events(events)
    if not events:
        return []
    first = events[0]
    fact = xids.sxid(first.code or 0) if first.kind == "sxid" else xids.xid(first.code or 0)
    if first.kind == "sxid":
        who = f"NVSwitch {first.device.removeprefix('nvidia-nvswitch')}{' of ' + first.host if first.host else ''}"
    else:
        who = hardware_findings.gpu_text(case, first.host, first.device)
    link = first.number("link")
    where = f", link {link}" if link is not None and link >= 0 else ""
    name = f": {fact.name}" if fact else ""
    number = f"{'SXid' if first.kind == 'sxid' else 'Xid'} {first.code}"
    message = f"{who} reports an NVLink fault ({number}{name}{where}).{hardware_findings.aside(case, events, weight)}"
    return [
        hardware_findings.found(
            case, _CLAIM, [e.ref for e in events], message, Grade.PROVES, weight=weight, fix=fact.fix if fact else (),
            subject=hardware_findings.subject_of(case, events), onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip


def _by_recoveries(case: Case) -> list[Finding]:
    seen: dict[tuple[object, int], int] = {}
    for state in case.hardware.gpus:
        for link in state.links:
            count = link.counters.get("recovery errors", link.counters.get("link recovery failed events"))
            if count is None:
                continue
            key = ((state.host, state.uuid or state.index), link.link)
            before = seen.setdefault(key, count)
            if count > before:
                words = f"link {link.link}: recovery errors rose from {before} to {count}"
                return [_of_state(case, state, words, Grade.SUPPORTS, Weight("warning"))]
    return []


def _by_links(case: Case) -> list[Finding]:
    """A link that is down on one GPU alone: boards that use fewer links show the same on all."""
    newest = {(s.host, s.uuid or s.index): s for s in case.hardware.gpus if any(x.active is not None for x in s.links)}
    down = {key: tuple(x.link for x in s.links if x.active is False) for key, s in newest.items()}
    usual = Counter(len(links) for links in down.values())
    if len(down) < 2:
        return []
    least = min(usual)
    odd = [key for key, links in down.items() if len(links) > least]
    if not odd or len(odd) * 2 > len(down):
        return []
    state, links = newest[odd[0]], down[odd[0]]
    words = f"NVLink {', '.join(map(str, links[:6]))} inactive"
    return [_of_state(case, state, words, Grade.SUPPORTS, kernel_events.state_weight(case))]


def _of_state(case: Case, state: GpuState, words: str, grade: Grade, weight: Weight) -> Finding:
    message = f"{hardware_findings.state_text(case, state)}: {words}."
    subject = hardware_findings.state_subject(case, state)
    return hardware_findings.found(
        case, _CLAIM, [hardware_findings.value_ref(state, words)], message, grade, weight=weight, subject=subject
    )
