"""What happened when: one lane per host with its events on a common clock, and the same as a table."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.moments import rfc3339_ns
from whichrank.model.verdict import Diagnosis
from whichrank.model.views import Moment
from whichrank.report._words import counted, ranges, shortened
from whichrank.report.html.page import filled, section, table, text

MOST_LANES, MOST_ROWS = 24, 40
NOBODY = "the job"
"""The lane of events whose host nothing says."""


def events_over_hosts(diagnosis: Diagnosis) -> str:
    """The section, or nothing where fewer than two events have a time."""
    moments = diagnosis.moments
    if len(moments) < 2:
        return ""
    proof = {
        (ref.source, ref.locator)
        for finding in diagnosis.findings
        if finding.cause == diagnosis.verdict.cause
        for ref in finding.evidence
    }
    named = [(one.source, one.locator) in proof for one in moments]
    hosts = len({one.host for one in moments if one.host})
    span = _duration(moments[-1].time_ns - moments[0].time_ns)
    where = f" on {counted(hosts, 'host')}" if hosts > 1 else ""
    hint = f"{counted(len(moments), 'event')}{where} within {span}."
    more = len(moments) - MOST_ROWS
    left = f'<p class="hint">and {more:,} more</p>' if more > 0 else ""
    return section("Events over time", _lanes(moments, named), _table(moments, named), left, hint=hint)


def _lanes(moments: Sequence[Moment], named: Sequence[bool]) -> str:
    begin, end = moments[0].time_ns, moments[-1].time_ns
    width = max(end - begin, 1)
    lanes: dict[str, list[str]] = {}
    for one, proof in zip(moments, named, strict=True):
        tone = "proof" if proof else "host" if one.of_host else "job"
        word = " ".join(filter(None, (_when(one, moments[0]), one.what, _ranks(one))))
        left = 100 * (one.time_ns - begin) / width
        dot = f'<i class="{tone}" style="left:{left:.2f}%" title="{text(shortened(word, 200))}"></i>'
        lanes.setdefault(one.host or NOBODY, []).append(dot)
    rows = "".join(
        f'<span>{text(shortened(host, 40))}</span><div class="lane">{"".join(dots)}</div>'
        for host, dots in list(lanes.items())[:MOST_LANES]
    )
    ends = f'<span></span><div class="ends"><span>{_clock(begin)}</span><span>{_clock(end)}</span></div>'
    legend = (
        '<div class="legend"><span><i class="proof"></i>proof of the verdict</span>'
        '<span><i class="host"></i>said by the kernel</span><span><i class="job"></i>said by the job</span></div>'
    )
    hidden = len(lanes) - MOST_LANES
    left_out = f'<p class="hint">{hidden:,} more hosts are not drawn.</p>' if hidden > 0 else ""
    return f'{legend}<div class="lanes" aria-hidden="true">{rows}{ends}</div>{left_out}'


def _table(moments: Sequence[Moment], named: Sequence[bool]) -> str:
    rows = [
        [
            rfc3339_ns(one.time_ns) or "", _when(one, moments[0]), one.host or "–", _ranks(one) or "–",
            one.what + (" ← the verdict" if proof else ""), shortened(one.quote.strip().split("\n", 1)[0], 160),
        ]
        for one, proof in zip(moments[:MOST_ROWS], named, strict=False)
    ]  # fmt: skip
    headings = ["time", "after", "host", "ranks", "what", "in the words of the evidence"]
    return f'<div class="events">{table(*filled(headings, rows), range(len(headings)))}</div>'


def _ranks(one: Moment) -> str:
    return f"rank{'s' if len(one.ranks) > 1 else ''} {ranges(one.ranks, 6)}" if one.ranks else ""


def _when(one: Moment, first: Moment) -> str:
    return "first" if one.time_ns == first.time_ns else f"+{_duration(one.time_ns - first.time_ns)}"


def _clock(time_ns: int) -> str:
    return (rfc3339_ns(time_ns) or "")[11:23]


def _duration(nanoseconds: int) -> str:
    seconds = nanoseconds / 1e9
    if seconds < 10:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
