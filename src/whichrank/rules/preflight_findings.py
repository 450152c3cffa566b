"""What rules of preflight about several hosts share: naming hosts and links, and quoting what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whichrank.model.evidence import Ref
from whichrank.model.findings import Category, Endpoint, Finding, Grade, Link, Severity, Subject
from whichrank.model.preflight import Blame
from whichrank.records.inspection import RdmaRate


def found(
    code: str,
    cause: str,
    category: Category,
    subject: Subject,
    message: str,
    refs: Sequence[Ref],
    fix: tuple[str, ...],
    *,
    severity: Severity = "error",
) -> Finding:
    return Finding(code, cause, category, severity, Grade.PROVES, subject, message, tuple(refs), fix, kind="host")


def measured(probe: str, words: str, host: str | None = None) -> Ref:
    """A measurement as evidence: there is no file, the probe is the source."""
    return Ref(f"probe {probe}", host or "between hosts", words[:400], None, host)


def hosts(*names: str) -> Subject:
    return Subject(hosts=tuple(names))


def link(a: str, b: str) -> Subject:
    return Subject(links=(Link(Endpoint(a, ""), Endpoint(b, "")),))


def located(blame: Blame) -> Iterable[tuple[Subject, str]]:
    """Each thing that pairings blame, with words for it."""
    for host in blame.hosts:
        yield hosts(host), f"{host}: with every host it was tested with"
    for group in blame.groups:
        names = ", ".join(group[:6]) + (f" and {len(group) - 6} more" if len(group) > 6 else "")
        yield hosts(*group), f"between {names} and all others: what they share, an uplink or a switch"
    for a, b in blame.pairs:
        yield link(a, b), f"between {a} and {b} only"


def one_direction(subject: Subject, ways: Iterable[tuple[str, str]]) -> str:
    """Words for the direction, where all bad ways (from, to) of a host lead to it, or all away from it."""
    told = list(ways)
    if len(subject.hosts) != 1 or len(told) < 2:
        return ""
    if all(to == subject.hosts[0] for _, to in told):
        return ", in what it receives"
    return ", in what it sends" if all(sender == subject.hosts[0] for sender, _ in told) else ""


def of_subject(rates: Iterable[RdmaRate], subject: Subject) -> list[RdmaRate]:
    """Those between the ends of a link, or with one of the hosts."""
    ends = {end.host for link in subject.links for end in (link.a, link.b)}
    return [r for r in rates if ({r.a, r.b} <= ends if ends else bool({r.a, r.b} & set(subject.hosts)))]


def with_device(subject: Subject, device: str) -> Subject:
    """The same, with the adapter at both ends of its links."""
    links = tuple(Link(Endpoint(link.a.host, device), Endpoint(link.b.host, device)) for link in subject.links)
    return Subject(hosts=subject.hosts, links=links)
