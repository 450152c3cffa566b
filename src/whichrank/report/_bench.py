"""What a benchmark measured, as text, JSON, Markdown or an HTML page with curves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from whichrank.report._environment import findings_document
from whichrank.report._words import counted, safe

if TYPE_CHECKING:
    from whichrank.model.evidence import Coverage
    from whichrank.model.findings import Finding


class Result(Protocol):
    """One collective at one size, as records have it."""

    collective: str
    bytes: int
    dtype: str
    ranks: int
    time_us: float
    algbw_gbs: float | None
    busbw_gbs: float | None
    correct: bool | None
    spread: float | None
    expected_gbs: float | None


class Told(Protocol):
    @property
    def run(self) -> Any: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def coverage(self) -> Coverage: ...


_FEW = 8
_FIELDS = (
    "collective",
    "bytes",
    "dtype",
    "ranks",
    "time_us",
    "algbw_gbs",
    "busbw_gbs",
    "expected_gbs",
    "correct",
    "spread",
    "in_place",
)


def document(told: Told) -> dict[str, Any]:
    """The JSON of the contract; also what `--save` keeps."""
    run = told.run
    return {
        **findings_document(told.findings, told.coverage),
        "results": [{name: getattr(result, name) for name in _FIELDS} for result in run.results],
        "job": {
            "backend": run.backend, "device": run.device, "hosts": list(run.hosts), "torch": run.torch,
            "nccl": run.nccl, "settings": dict(run.settings),
        },
        "failures": dict(run.failures),
        "stopped": run.stopped or None,
        "stragglers": {name: [list(rounds) for rounds in ranks] for name, ranks in run.stragglers.items()},
    }  # fmt: skip


def as_json(told: Told) -> Iterator[str]:
    yield json.dumps(document(told), indent=2) + "\n"


def text(told: Told) -> Iterator[str]:
    run = told.run
    for finding in told.findings:
        yield f"{finding.severity}: {safe(finding.message)} [{finding.code}]\n"
        for step in finding.fix[:2]:
            yield f"    fix: {safe(step)}\n"
    hosts = len(set(run.hosts)) or 1
    ranks = counted(len(run.hosts), "rank") if run.hosts else "ranks"
    device = safe(run.device or "an unknown device")
    yield f"\n{safe(run.backend or run.origin)} on {device}, {ranks} on {counted(hosts, 'host')}\n"
    before = {r.key: r.time_us for r in run.baseline}
    known = any(r.expected_gbs is not None for r in run.results)
    expected = f"{'expected':>9}" if known else ""
    yield f"{'collective':<14}{'bytes':>11}{'ranks':>6}{'time us':>11}{'algbw':>8}{'busbw':>8}{expected}"
    yield f"  noise{'  change' if before else ''}  correct\n"
    for r in run.results:
        expected = f"{_gb(r.expected_gbs):>9}" if known else ""
        yield (
            f"{r.collective:<14}{r.bytes:>11}{r.ranks:>6}{r.time_us:>11.1f}{_gb(r.algbw_gbs):>8}{_gb(r.busbw_gbs):>8}"
            f"{expected}  {_share(r.spread):>5}{_change(r.time_us, before, r.key)}  {_right(r.correct)}"
            f"{', in place' if r.in_place else ''}\n"
        )
    for name, why in run.failures.items():
        yield f"{name}: not measured: {safe(why)}\n"
    yield from _work(run.stragglers)
    if run.results:
        yield "algbw and busbw in GB/s (10^9 bytes), as nccl-tests defines them; noise: quartiles apart"
        yield "; change: of the time, against the earlier run.\n" if before else ".\n"


def _work(stragglers: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[str]:
    """Of each kind of work what every rank took; of many ranks the slowest."""
    for kind, ranks in stragglers.items():
        took = {rank: 1000 * median(rounds) for rank, rounds in enumerate(ranks) if rounds}
        if not took:
            continue
        shown = took if len(took) <= _FEW else dict(sorted(took.items(), key=lambda one: -one[1])[:3])
        each = ", ".join(f"rank {rank} {ms:.2f} ms" for rank, ms in shown.items())
        yield f"{kind}: median {median(took.values()):.2f} ms; {'' if shown is took else 'slowest: '}{each}\n"


def _gb(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _change(now_us: float, before: Mapping[Any, float], key: object) -> str:
    """Of the time, where there is an earlier run; `new` where that did not measure it."""
    if not before:
        return ""
    earlier = before.get(key)
    return f"  {now_us / earlier - 1:>+6.0%}" if earlier else f"  {'new':>6}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _right(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "NO"


def markdown(told: Told) -> Iterator[str]:
    yield "# Bench\n\n"
    for finding in told.findings:
        yield f"- **{finding.severity}** {safe(finding.message)} `{finding.code}`\n"
    titles, rows = _table(told.run)
    yield f"\n| {' | '.join(titles)} |\n|---|{'---:|' * (len(titles) - 2)}---|\n"
    for cells in rows:
        yield f"| {' | '.join(cells)} |\n"


def _table(run: Any) -> tuple[list[str], list[list[str]]]:
    """Titles and rows; with the change against an earlier run where there is one."""
    before = {r.key: r.time_us for r in run.baseline}
    titles = ["collective", "bytes", "ranks", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "expected", "noise"]
    rows = [
        [f"{r.collective}{', in place' if r.in_place else ''}", str(r.bytes), str(r.ranks), f"{r.time_us:.1f}",
         _gb(r.algbw_gbs), _gb(r.busbw_gbs), _gb(r.expected_gbs), _share(r.spread),
         *([_change(r.time_us, before, r.key).strip()] if before else []), _right(r.correct)]
        for r in run.results
    ]  # fmt: skip
    return [*titles, *(["change of time"] if before else []), "correct"], rows


def html(told: Told) -> Iterator[str]:
    """A table and curves; nothing is loaded from elsewhere."""
    from whichrank.report._curves import series, svg

    yield "<!doctype html><meta charset=utf-8><title>whichrank bench</title>"
    yield "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 9px;text-align:right}</style>"
    yield "<h1>Bench</h1><ul>"
    for finding in told.findings:
        yield f"<li><b>{finding.severity}</b> {escape(safe(finding.message))}</li>"
    curves = series(told.run.results, told.run.baseline)
    yield "</ul>" + svg(curves, "message size (bytes)", "bus bandwidth (GB/s)")
    titles, rows = _table(told.run)
    yield "<table><tr>" + "".join(f"<th>{title}" for title in titles) + "</tr>"
    for cells in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>"
    yield "</table>\n"


FORMATS: dict[str, Callable[[Told], Iterator[str]]] = {
    "text": text, "json": as_json, "markdown": markdown, "html": html,
}  # fmt: skip
