"""Packets are lost between hosts.

## What it finds
TCP connections that send one per cent or more of their segments again, and error counters of adapters that rose
between two looks: discards, CRC and symbol errors, discards of a lossless class, acknowledgements that never came.

## Why it happens
A marginal cable or module, congestion without flow control, a wrong traffic class, a receiver that cannot keep up.

## How it decides
In a capture a segment counts as sent again when it begins below the highest byte already sent; connections of fewer
than a hundred packets are not judged. Counters accumulate: one snapshot accuses nobody, and one at its ceiling says
nothing. Small rises are told as warnings.

## Example
`rx_discards_phy` rose by 48,211 on enp92s0 of node3

## Limits
A capture that dropped packets itself looks the same as loss on the wire.
"""

from __future__ import annotations

import re

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.records.network import CEILINGS, PortState, TcpFlow
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "NETI150"
CAUSE = "packet-loss"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=fix(CAUSE),
    next=(
        NextStep(
            "ethtool -S DEVICE (twice); nstat -az TcpRetransSegs TcpOutSegs",
            "shows which counter rises while the job runs",
            ("packet-loss", "ib-link-flap"),
            "none",
        ),
    ),
)
_LOSSY = re.compile(
    r"(?:rx_discards_phy|rx_prio[1-7]_discards|rx_crc_errors(?:_phy)?|rx_symbol_err_phy|rx_pcs_symbol_err_phy|rx_fcs_errors"
    r"|rx_errors|port_rcv_errors|symbol_error|port_xmit_discards|local_ack_timeout_err|packet_seq_err|out_of_sequence|rx_icrc_encapsulated"
    r"|port_rcv_remote_physical_errors|tx_pause_storm_error_events)$"
)
_BROKEN, _ENOUGH_PACKETS = 0.01, 100
"""One per cent is broken in a data centre, below a tenth per cent is nothing (own thresholds)."""
_MANY = 100


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.flows and not case.hardware.ports:
        return NotEvaluated("a packet capture, or counters of the adapters taken twice")
    return _by_flows(case) or _by_counters(case)


def _by_flows(case: Case) -> list[Finding]:
    lossy = [(f, share) for f in case.hardware.flows if (share := _share(f)) >= _BROKEN]
    if not lossy:
        return []
    flow, share = max(lossy, key=lambda pair: pair[1])
    others = f" ({len(lossy)} connections in all)" if len(lossy) > 1 else ""
    message = f"{flow.a} and {flow.b} send {share:.1%} of their segments again{others}: packets are lost between them."
    link = Link(Endpoint(flow.a, ""), Endpoint(flow.b, ""))
    refs = [f.ref for f, _ in lossy[:4]]
    return [
        hardware_findings.found(
            case, _CLAIM, refs, message, Grade.SUPPORTS, weight=Weight("warning"), subject=Subject(links=(link,)),
            onset_ns=flow.first_ns,
        )
    ]  # fmt: skip


def _share(flow: TcpFlow) -> float:
    sent = flow.a_to_b.packets + flow.b_to_a.packets
    if sent < _ENOUGH_PACKETS:
        return 0.0
    return max(way.again / way.packets if way.packets else 0.0 for way in (flow.a_to_b, flow.b_to_a))


def _by_counters(case: Case) -> list[Finding]:
    moments: dict[tuple[str | None, str], list[PortState]] = {}
    for port in case.hardware.ports:
        moments.setdefault((port.host, port.name), []).append(port)
    rises = []
    for (host, name), ports in moments.items():
        for counter in sorted({c for p in ports for c in p.counters if _LOSSY.match(c)}):
            told = [p for p in ports if counter in p.counters]
            low, high = min(p.counters[counter] for p in told), max(p.counters[counter] for p in told)
            if low < high and low < CEILINGS.get(counter, 1 << 63):
                rises.append((high - low, counter, host, name, told))
    if not rises:
        return []
    rise, counter, host, name, told = max(rises, key=lambda r: r[0])
    where = f" of {host}" if host else ""
    message = f"Packets are lost at {name}{where}: {counter} rose by {rise:,} between two looks."
    subject = Subject(hosts=(host,) if host else (), links=(Link(Endpoint(host or "", name), Endpoint("", "")),))
    refs = [_quoted(p, counter) for p in (told[0], told[-1])]
    sure = Grade.SUPPORTS if rise >= _MANY else Grade.HINTS
    return [hardware_findings.found(case, _CLAIM, refs, message, sure, weight=Weight("warning"), subject=subject)]


def _quoted(port: PortState, counter: str) -> Ref:
    ref = port.ref
    return Ref(ref.source, ref.locator, f"{port.name} {counter} {port.counters[counter]}", None, port.host, ref.time)
