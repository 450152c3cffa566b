"""A network link of a host went down or flapped during the run.

## What it finds
Link-down events of real adapters in the kernel log, ports that change between down and active in repeated listings,
and `link_downed`, `link_error_recovery` or `carrier_changes` counters that rose between two looks.

## Why it happens
A bad cable, module or switch port, a switch that restarts. Connections over that port time out; NCCL reports a
completion error on both ends.

## How it decides
The kernel log counts within the run; a link that came up at boot does not. Counters accumulate for the life of the
port: only their rise between two snapshots is evidence, and a counter at its ceiling (255 for `link_downed`) cannot
rise any more. A port that is down in a single listing is told as a hint only where siblings are up: many hosts have
unused ports.

## Example
`mlx5_core 0000:5c:00.0 enp92s0: Link down`

## Fix
Look at the cable, the module and the switch port of that device; leave it out meanwhile (NCCL_IB_HCA=^DEVICE) or move
the job off the host.

## Limits
Both ends of a cable see the same flap: the log does not tell which end is at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Category, Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.records.events.communication import NcclError
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.records.hardware import KernelEvent
from whichrank.records.network import CEILINGS, PortState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "RDMA151"
CAUSE = "ib-link-flap"

_FIX = (
    "Check cable, module and switch port of that device; exclude it meanwhile (NCCL_IB_HCA=^DEVICE) or leave the host.",
    "Take the counters before and after a run (perfquery, /sys/class/infiniband): link_downed must not rise.",
)
_NEXT = (
    NextStep(
        "rdma link; grep . /sys/class/infiniband/*/ports/*/counters/link_downed",
        "taken twice, shows whether the link still flaps",
        ("ib-link-flap",),
        "none",
    ),
)
_UPTIME_OF_BOOT_NS = 600 * 10**9
_RETRIES_NS = 60 * 10**9
"""Transports repeat what a short interruption lost no longer than this."""
_APART_NS = 3 * 10**9
"""Times of several ranks are good to that."""
_COUNTERS = ("link_downed", "link_error_recovery", "link_down_events_phy", "carrier_changes")
_UP = ("ACTIVE", "UP")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel and not case.hardware.ports:
        return NotEvaluated("the kernel log, or port states and counters, of the hosts")
    return _by_kernel(case) or _by_states(case) or _by_counters(case)


def _claim(case: Case) -> Claim:
    hangs = case.stands_still or any(t.hangs for t in case.troubles)
    category: Category = "slow" if case.goes_on else "hang" if hangs and not _ended_first(case) else "crash"
    return Claim(CODE, CAUSE, category=category, fix=_FIX, next=_NEXT)


def _ended_first(case: Case) -> bool:
    """Whether NCCL's errors ended ranks before others timed out."""
    ended, timed_out = (
        min((e.time_ns for e in case.events(kind) if e.time_ns is not None), default=None)
        for kind in (NcclError, WatchdogTimeout)
    )
    return ended is not None and timed_out is not None and ended + _APART_NS < timed_out


def _at(case: Case, subject: Subject, port: PortState) -> Subject:
    """With the ranks whose addresses that interface has."""
    place = next((p for address in port.addresses if (p := case.connections.place_of(address))), None)
    return replace(subject, ranks=place.ranks, hosts=(place.name,)) if place else subject


def _subject(host: str | None, device: str) -> Subject:
    link = Link(Endpoint(host or "", device), Endpoint("", ""))
    return Subject(hosts=(host,) if host else (), links=(link,))


def _by_kernel(case: Case) -> list[Finding]:
    down = [e for e in case.hardware.of_kind("link_down") if not _at_boot(e)]
    events, weight = kernel_events.counting(case, down)
    if not events:
        return []
    first = events[0]
    same = [e for e in events if (e.host, e.device) == (first.host, first.device)]
    back = [e for e in case.hardware.of_kind("link_up") if (e.host, e.device) == (first.host, first.device)]
    times = f" {len(same)} times" if len(same) > 1 else ""
    where = f" of {first.host}" if first.host else ""
    healed = _healed(case, same, back)
    then = ", and came back well before the first failure" if healed else ""
    message = f"The link {first.device}{where} went down{times}{then}.{hardware_findings.aside(case, same, weight)}"
    refs = [same[0].ref, *(e.ref for e in back[:1]), *(e.ref for e in same[1:3])]
    sure = Grade.HINTS if healed else Grade.PROVES if len(same) > 1 or kernel_events.failed(case) else Grade.SUPPORTS
    return [_found(case, refs, message, sure, weight, _subject(first.host, first.device), kernel_events.onset(same))]


def _healed(case: Case, down: Sequence[KernelEvent], back: Sequence[KernelEvent]) -> bool:
    """Whether the link was up again longer before the first failure than transports repeat what was lost."""
    since = kernel_events.failing_since_ns(case)
    last = max((e.time_ns for e in down if e.time_ns), default=None)
    up = max((e.time_ns for e in back if e.time_ns), default=None)
    return None not in (since, last, up) and last < up < since - _RETRIES_NS  # type: ignore[operator]


def _at_boot(event: KernelEvent) -> bool:
    return event.uptime_ns is not None and event.uptime_ns < _UPTIME_OF_BOOT_NS


def _by_port(ports: Sequence[PortState]) -> dict[tuple[str | None, str], list[PortState]]:
    found: dict[tuple[str | None, str], list[PortState]] = {}
    for port in ports:
        found.setdefault((port.host, port.name), []).append(port)
    return found


def _by_states(case: Case) -> list[Finding]:
    for (host, name), moments in _by_port(case.hardware.ports).items():
        told = [m for m in moments if m.state]
        changes = [(a, b) for a, b in pairwise(told) if (a.state in _UP) != (b.state in _UP) and _repeated(a, b)]
        retraining = [m for m in told if m.physical == "LINKERRORRECOVERY"]
        if not changes and not retraining:
            continue
        refs = [m.ref for pair in changes[:2] for m in pair] or [m.ref for m in retraining]
        where = f" of {host}" if host else ""
        how = "changes between down and up" if changes else "is in link error recovery"
        message = f"The link {name}{where} {how}."
        weight = kernel_events.weight_of_hang(case)
        return [_found(case, refs, message, Grade.PROVES, weight, _at(case, _subject(host, name), told[-1]))]
    return []


def _repeated(one: PortState, other: PortState) -> bool:
    """Two looks with one command: listings of different commands may speak of one moment."""
    return (
        one.ref.source == other.ref.source or one.ref.source.rpartition("/")[2] != other.ref.source.rpartition("/")[2]
    )


def _by_counters(case: Case) -> list[Finding]:
    for (host, name), moments in _by_port(case.hardware.ports).items():
        for counter in _COUNTERS:
            told = [m for m in moments if counter in m.counters]
            low, high = (
                min((m.counters[counter] for m in told), default=0),
                max((m.counters[counter] for m in told), default=0),
            )
            if high <= low or low >= CEILINGS.get(counter, 1 << 63):
                continue
            refs = [_quoted(m, counter) for m in (told[0], told[-1])]
            at_least = "at least " if high >= CEILINGS.get(counter, 1 << 63) else ""
            where = f" of {host}" if host else ""
            message = f"The link {name}{where} went down or retrained: {counter} rose by {at_least}{high - low}."
            weight = Weight("warning") if case.goes_on else Weight("error")
            return [_found(case, refs, message, Grade.SUPPORTS, weight, _at(case, _subject(host, name), told[-1]))]
    return []


def _quoted(moment: PortState, counter: str) -> Ref:
    ref = moment.ref
    return Ref(
        ref.source, ref.locator, f"{moment.name} {counter} {moment.counters[counter]}", None, moment.host, ref.time
    )


def _found(
    case: Case,
    refs: Sequence[Ref],
    message: str,
    grade: Grade,
    weight: Weight,
    subject: Subject,
    onset: int | None = None,
) -> Finding:
    return hardware_findings.found(
        case, _claim(case), refs, message, grade, weight=weight, subject=subject, onset_ns=onset
    )
