"""What preflight found, as text, JSON, Markdown, HTML or JUnit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from whichrank.model.preflight import NOTHING_TO_CHECK
from whichrank.report._environment import findings_document
from whichrank.report._words import counted, listed, safe

if TYPE_CHECKING:
    from whichrank.model.evidence import Coverage
    from whichrank.model.findings import Finding
    from whichrank.model.preflight import HostCheck, LinkCheck

MARKS = {"healthy": "ok", "unhealthy": "BAD", "unknown": "?"}
_WIDE = 120
"""Columns. A matrix of hosts and checks that needs more, or more than the terminal has, becomes a list."""


class Told(Protocol):
    """What a flow hands over."""

    @property
    def hosts(self) -> Mapping[str, Sequence[HostCheck]]: ...
    @property
    def links(self) -> Sequence[LinkCheck]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def exclude(self) -> Sequence[str]: ...
    @property
    def coverage(self) -> Coverage: ...


def document(told: Told) -> dict[str, Any]:
    """The JSON of the contract."""
    return {
        **findings_document(told.findings, told.coverage),
        "hosts": [
            {"host": host, "checks": [
                {"check": c.check, "code": c.code, "state": c.state, "value": c.value, "why": c.why or None}
                for c in checks
            ]}
            for host, checks in told.hosts.items()
        ],
        "links": [{"a": x.a, "b": x.b, "state": x.state, "why": x.why or None} for x in told.links],
        "exclude": list(told.exclude),
    }  # fmt: skip


def as_json(told: Told) -> Iterator[str]:
    yield json.dumps(document(told), indent=2) + "\n"


def text(told: Told, *, width: int | None = None) -> Iterator[str]:
    """For a terminal: findings first, then the matrix, then what could not be told. Lines are not wrapped here."""
    yield from _findings(told)
    yield from _matrix(told.hosts, width or _WIDE)
    bad = [link for link in told.links if link.state == "unhealthy"]
    if told.links:
        yield f"\nlinks: {len(told.links)} pairs tested, {len(bad)} bad\n"
        for link in bad[:20]:
            yield f"  {safe(link.a)} – {safe(link.b)}: {safe(link.why)}\n"
    unknown = [(h, c) for h, checks in told.hosts.items() for c in checks if c.state == "unknown"]
    if unknown and len(told.hosts) > 1:  # of a single host they are in the list above
        yield "\ncould not tell:\n"
        yield from (f"  {safe(line)}\n" for line in _grouped(unknown))
    unseen = _not_looked_at(told)
    if unseen:
        yield "\nnot looked at:\n"
        yield from (f"  {safe(why)}\n" for why in unseen)
    if told.exclude:
        yield f"\nexclude: {','.join(told.exclude)}\n"


def _headline(told: Told) -> str:
    wrong = [f for f in told.findings if f.severity != "info"]
    hosts = counted(len(told.hosts), "host")
    if not wrong:
        return f"Ready: no fault found on {hosts} in what could be looked at."
    return f"Not ready: {counted(len(wrong), 'finding')} on {hosts}."


def _findings(told: Told) -> Iterator[str]:
    yield f"{_headline(told)}\n\n"
    for finding in told.findings:
        yield f"{finding.severity}: {safe(finding.message)} [{finding.code}]\n"
        for quote in _quotes(finding):
            yield f"    {safe(quote)}\n"
        for step in finding.fix[:2]:
            yield f"    fix: {safe(step)}\n"
    if told.findings:
        yield "\n"


def _quotes(finding: Finding) -> list[str]:
    """What was measured, where the message does not say it in the same words."""
    return [ref.quote for ref in finding.evidence[:2] if ref.quote.lower() not in finding.message.lower()]


def _matrix(hosts: Mapping[str, Sequence[HostCheck]], most: int) -> Iterator[str]:
    """Hosts × checks; of a single host a list with values."""
    if len(hosts) == 1:
        ((name, checks),) = hosts.items()
        width = max((len(c.check) for c in checks), default=0)
        yield f"{safe(name)}\n"
        for check in checks:
            value = "" if check.value is None or str(check.value) in check.why else str(check.value)
            detail = " · ".join(safe(part) for part in (value, check.why) if part)
            yield f"  {MARKS[check.state]:<3} {check.check:<{width}}  {detail}\n"
        return
    names = list(dict.fromkeys(c.check for checks in hosts.values() for c in checks))
    states = {host: {c.check: c.state for c in checks} for host, checks in hosts.items()}
    columns = list(hosts)
    width, wide = max(map(len, names), default=0), [max(4, len(safe(host))) for host in columns]
    if width + 1 + sum(w + 1 for w in wide) <= most:
        yield (
            " " * width + "  " + " ".join(f"{safe(h):<{w}}" for h, w in zip(columns, wide, strict=True)).rstrip() + "\n"
        )
        for name in names:
            cells = (f"{MARKS.get(states[h].get(name, ''), '-'):<{w}}" for h, w in zip(columns, wide, strict=True))
            yield f"{name:<{width}}  " + " ".join(cells).rstrip() + "\n"
        return
    for name in names:
        bad = [h for h in hosts if states[h].get(name) == "unhealthy"]
        blind = [h for h in hosts if states[h].get(name) == "unknown"]
        good = sum(1 for h in hosts if states[h].get(name) == "healthy")
        yield (
            f"{name}: {good} ok"
            + (f", BAD {listed(bad, 8)}" if bad else "")
            + (f", ? {len(blind)}" if blind else "")
            + "\n"
        )


def _grouped(unknown: Sequence[tuple[str, HostCheck]]) -> Iterator[str]:
    """One line for each reason and the hosts that have it."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for host, check in unknown:
        hosts.setdefault((check.check, check.why), []).append(host)
    checks: dict[tuple[str, str], list[str]] = {}
    for (check_, why), named in hosts.items():
        checks.setdefault((listed(named, 4), why), []).append(check_)
    for (where, why), names in checks.items():
        yield f"{', '.join(names)} on {where}: {why}"


def _not_looked_at(told: Told) -> list[str]:
    """What no check could judge, by its reason; what hosts lack and nobody needs is left out."""
    said = {check.why for checks in told.hosts.values() for check in checks if check.state == "unknown"}
    alone = len(told.hosts) == 1
    reasons: dict[str, int] = {}
    for rule in told.coverage.not_evaluated:
        between = rule.code.startswith("PREF")
        why = "between hosts: only this host was asked (--hosts, --slurm …)" if alone and between else rule.missing
        if why not in said and why != NOTHING_TO_CHECK:
            reasons[why] = reasons.get(why, 0) + 1
    return [f"{why} ({counted(count, 'check')})" if count > 1 else why for why, count in reasons.items()]


def markdown(told: Told) -> Iterator[str]:
    yield f"# Preflight\n\n{_headline(told)}\n\n"
    for finding in told.findings:
        yield f"- **{finding.severity}** {_md(finding.message)} `{finding.code}`\n"
        for quote in _quotes(finding):
            yield f"  - {_md(quote)}\n"
        for step in finding.fix[:2]:
            yield f"  - fix: {_md(step)}\n"
    names = list(dict.fromkeys(c.check for checks in told.hosts.values() for c in checks))
    yield "\n| check | " + " | ".join(_md(h) for h in told.hosts) + " |\n|---|" + "---|" * len(told.hosts) + "\n"
    for name in names:
        states = [next((MARKS[c.state] for c in checks if c.check == name), "-") for checks in told.hosts.values()]
        yield f"| {name} | " + " | ".join(states) + " |\n"
    bad = [link for link in told.links if link.state == "unhealthy"]
    for number, link in enumerate(bad):
        yield f"{'' if number else chr(10)}- {_md(link.a)} – {_md(link.b)}: {_md(link.why)}\n"
    unseen = _not_looked_at(told)
    if unseen:
        yield "\nNot looked at: " + "; ".join(map(_md, unseen)) + "\n"
    if told.exclude:
        yield f"\nExclude: `{','.join(told.exclude)}`\n"


def _md(words: str) -> str:
    return safe(words).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def html(told: Told) -> Iterator[str]:
    """One page without anything from outside."""
    style = (
        "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #ccc;padding:3px 7px}"
        ".unhealthy{background:#f8b4b4}.healthy{background:#c6efce}.unknown{background:#eee}"
    )
    yield f"<!doctype html><meta charset=utf-8><title>whichrank preflight</title><style>{style}</style>"
    yield f"<h1>Preflight</h1><p>{escape(_headline(told))}</p><ul>"
    for finding in told.findings:
        yield f"<li><b>{finding.severity}</b> {escape(safe(finding.message))} <code>{finding.code}</code><ul>"
        lines = [*_quotes(finding), *(f"fix: {step}" for step in finding.fix[:2])]
        yield "".join(f"<li>{escape(safe(line))}</li>" for line in lines) + "</ul></li>"
    names = list(dict.fromkeys(c.check for checks in told.hosts.values() for c in checks))
    yield "</ul><table><tr><th></th>" + "".join(f"<th>{escape(safe(h))}</th>" for h in told.hosts) + "</tr>"
    for name in names:
        yield f"<tr><th>{escape(name)}</th>"
        for checks in told.hosts.values():
            found = next((c for c in checks if c.check == name), None)
            if found is None:
                yield "<td></td>"
                continue
            words = escape(safe(str(found.value if found.value is not None else found.why)))
            yield f'<td class="{found.state}" title="{escape(safe(found.why))}">{words}</td>'
        yield "</tr>"
    yield "</table>"
    bad = [link for link in told.links if link.state == "unhealthy"]
    if bad:
        yield (
            "<h2>Links</h2><ul>"
            + "".join(f"<li>{escape(safe(x.a))} – {escape(safe(x.b))}: {escape(safe(x.why))}</li>" for x in bad)
            + "</ul>"
        )
    if unseen := _not_looked_at(told):
        yield "<h2>Not looked at</h2><ul>" + "".join(f"<li>{escape(safe(why))}</li>" for why in unseen) + "</ul>"
    if told.exclude:
        yield f"<p>Exclude: <code>{escape(safe(','.join(told.exclude)))}</code></p>"
    yield "\n"


def junit(told: Told) -> Iterator[str]:
    """One suite per host, one case per check; findings between hosts are a suite of their own."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="whichrank preflight">\n'
    for host, checks in told.hosts.items():
        bad, blind = (sum(c.state == s for c in checks) for s in ("unhealthy", "unknown"))
        yield f'<testsuite name="{_xml(host)}" tests="{len(checks)}" failures="{bad}" skipped="{blind}">\n'
        for check in checks:
            yield f'<testcase classname="{_xml(host)}" name="{_xml(check.check)}">'
            if check.state == "unhealthy":
                yield f'<failure message="{_xml(check.why)}"/>'
            elif check.state == "unknown":
                yield f'<skipped message="{_xml(check.why)}"/>'
            yield "</testcase>\n"
        yield "</testsuite>\n"
    between = [f for f in told.findings if f.code.startswith("PREF")]
    yield f'<testsuite name="between hosts" tests="{max(1, len(between))}" failures="{len(between)}">\n'
    for finding in between:
        yield f'<testcase classname="between" name="{finding.code}">'
        yield f'<failure message="{_xml(finding.message)}"/></testcase>\n'
    if not between:
        yield '<testcase classname="between" name="links"/>\n'
    yield "</testsuite>\n</testsuites>\n"


def _xml(words: str) -> str:
    return escape(safe(words), quote=True)


FORMATS: dict[str, Callable[[Told], Iterator[str]]] = {
    "text": text, "json": as_json, "markdown": markdown, "html": html, "junit": junit,
}  # fmt: skip
