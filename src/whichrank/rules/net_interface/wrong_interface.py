"""Communication uses an interface that does not reach the peers.

## What it finds
Ranks that announce or try addresses which only their own host knows, and interfaces that lead nowhere: loopback,
bridges of docker or libvirt, tunnels, link-local addresses.

## Why it happens
NCCL takes the first interface that is up unless NCCL_SOCKET_IFNAME says otherwise; Gloo takes the address that the
host's name resolves to, which /etc/hosts often maps to 127.0.1.1.

## How it decides
Failed connections to such addresses say it outright, be it by the address itself or by a list of the interfaces of its
host (`ip addr`), or where the two hosts share another network. Otherwise the interface that NCCL says it uses is
judged: a link-local address counts where nothing has run yet; loopback, bridges and tunnels where the job spans hosts
or a connection failed, also as one of several interfaces; IP over InfiniBand, which NCCL takes first, where the ranks'
first sockets failed. Who said that its own name leads nowhere, and took loopback, is named where the others did not.

## Example
`Gloo connectFullMesh failed … Connection refused, remote=[127.0.0.1]:40213`

## Limits
An interface that looks right and does not reach the peers is told as a firewall.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.run_state import Environment
from whichrank.records.events.startup import StoreError
from whichrank.records.network import PortState
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.outcome import failures
from whichrank.timeline.job_state.whose import hosts_spoken_of

CODE = "NETI201"
CAUSE = "wrong-interface"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    category="hang",
    blames="host",
    next=(NextStep("ip -br addr", "shows the interfaces and which of them the hosts share", (CAUSE,), "none"),),
)
_FAILED = Claim(CODE, CAUSE, fix=_CLAIM.fix, blames="host", next=_CLAIM.next)
_CHOICES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_USED = ("nccl-bootstrap-shape-old", "nccl-bootstrap-shape-new", "nccl-net-interface-old")
_NOWHERE = re.compile(r"(?:ip6?tnl|tun|tap|tailscale|wg|sit|gre|usb|dummy|kube-ipvs|nodelocaldns)\w*")
_IP_OVER_IB = re.compile(r"ib(?:[ps]\d\w*|\d{1,3})")
_SYSTEM_ERROR = 2
_BRIDGE = re.compile(r"(?:docker|br-|virbr|cni|flannel|cali|lxc|lxdbr|podman)[\w.-]*")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.of_cause(case, CAUSE)
    if known_messages.seen(case, "torch-filestore"):  # addresses of an earlier run lie in a file: LNCH201 tells
        told = [s for s in told if s.signature.id not in ("gloo-mesh", "gloo-loopback") or "refused" not in s.sign.text]
    if any(s.signature.role == "root" for s in told):
        sure = known_messages.grade(told)
        message = "A rank can't be reached at the address that it announced: {what}."
        found = building.tell_of(case, _FAILED, message, told, sure)
        told_of = _of_those_that_chose_loopback(case, _of_those_that_fell_back(case, found))
        return [_of_the_other_host(case, told_of, told)]
    return _by_its_owner(case) or _by_the_other_network(case) or _by_the_choice(case)


def _by_its_owner(case: Case) -> list[Finding]:
    """By lists of interfaces: what can't be reached is the address of a host's tunnel or bridge."""
    aside = [port for port in case.hardware.ports if _leads_nowhere(port.device)]
    failed = [
        (s, port)
        for s in (*known_messages.of_cause(case, "firewall"), *known_messages.of_cause(case, CAUSE))
        for port in aside
        if known_messages.address(s.group("peer")) in port.addresses
    ]
    if not failed:
        return []
    seen, port = failed[0]
    others = [p for p in case.hardware.ports if p.addresses and p.host == port.host and not _leads_nowhere(p.device)]
    better = next((f"; {p.device} ({p.addresses[0]}) is there too" for p in others if p.device != "lo"), "")
    where = f" of {port.host}" if port.host else ""
    message = (
        f"{known_messages.address(seen.group('peer'))} is the address of {port.device}{where}, which does not lead to "
        f"other hosts{better}."
    )
    claim = _CLAIM if known_messages.stands_still(case) or not failures(case) else _FAILED
    found = building.found(case, claim, [s.sign for s, _ in failed], message, Grade.SUPPORTS)
    hosts = {p.host for _, p in failed if p.host}
    named = tuple(sorted(hosts)) if hosts < {p.host for p in case.hardware.ports if p.host} else ()
    proof = (*found.evidence[:3], port.ref, *(p.ref for p in others[:1]))
    return [replace(found, subject=Subject(hosts=named), evidence=proof)]


def _by_the_other_network(case: Case) -> list[Finding]:
    """A store that can't be reached at one address of its host, and another is in a network of the host that tried."""
    for sign in statements.of_kind(case, StoreError, where=lambda e: e.what in ("connect_timeout", "connect_failed")):
        server = sign.event.server if isinstance(sign.event, StoreError) else ""
        owner = next((p for p in case.hardware.ports if server in p.addresses and p.host), None)
        if owner is None or sign.host is None or short_name(owner.host or "") == short_name(sign.host):
            continue
        theirs, mine = _networks(case, owner.host or ""), _networks(case, sign.host)
        shared = [port for network, port in theirs.items() if network in mine]
        near = {_network(network) for network in mine}  # the length of the prefix is not known: two numbers may do
        if _network(_network(server)) in near or not shared:
            continue
        better = shared[0]
        message = (
            f"{server} is the address of {owner.device} of {owner.host}, which {sign.host} does not reach; "
            f"{better.device} ({better.addresses[0]}) is in a network of both."
        )
        claim = _CLAIM if known_messages.stands_still(case) else _FAILED
        found = building.found(case, claim, [sign], message, Grade.SUPPORTS)
        proof = (*found.evidence[:3], owner.ref, better.ref)
        return [replace(found, subject=Subject(hosts=(owner.host or "",)), evidence=proof)]
    return []


def _networks(case: Case, host: str) -> dict[str, PortState]:
    """The interfaces of a host that lead to others, by the first three numbers of their address."""
    ports = [p for p in case.hardware.ports if p.host and short_name(p.host) == short_name(host)]
    told = ((address, p) for p in ports if not _leads_nowhere(p.device) for address in p.addresses)
    return {_network(address): port for address, port in told if not address.startswith("127.")}


def _network(address: str) -> str:
    return address.rpartition(".")[0]


def _leads_nowhere(device: str) -> bool:
    return bool(_NOWHERE.fullmatch(device) or _BRIDGE.fullmatch(device))


def _of_those_that_fell_back(case: Case, finding: Finding) -> Finding:
    """The finding about who fell back to the loopback address, if the others did not."""
    signs = [s.sign for s in known_messages.seen(case, "gloo-own-name")]
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    hosts = {sign.host for sign in signs if sign.host}
    named = tuple(sorted(hosts)) if len(hosts) < len(hosts_spoken_of(case)) else ()
    if not ranks and not named:
        return finding
    who = wording.ranks_text(ranks).capitalize() if ranks else ", ".join(named)
    told = f"{who} fell back to the loopback address: the host's own name does not resolve. The others can't reach it."
    refs = tuple(dict.fromkeys((*building.refs(signs)[:2], *finding.evidence)))
    return replace(finding, subject=Subject(ranks=ranks, hosts=named), message=told, evidence=refs)


def _of_those_that_chose_loopback(case: Case, finding: Finding) -> Finding:
    """The finding about the ranks that were started with the loopback interface, if the others were not."""
    chose = {
        event.rank: (event.ref, f"{name}={value}")
        for event in case.events(Environment)
        for name, value in event.variables.items()
        if event.rank is not None and name in _CHOICES and value.lstrip("=") == "lo"
    }
    ranks = tuple(sorted(chose))
    if finding.subject.ranks or not ranks or len(ranks) == case.world:
        return finding
    who = wording.ranks_text(ranks).capitalize()
    message = (
        f"{who} use the loopback interface ({chose[ranks[0]][1]}): the others can't reach the address that it has."
    )
    refs = (*(ref for ref, _ in chose.values()), *finding.evidence)
    hosts = {host for rank in ranks if (host := case.people.host_of(rank))}
    subject = Subject(ranks=ranks, hosts=tuple(sorted(hosts)))
    return replace(finding, subject=subject, message=message, evidence=refs[:6])


def _of_the_other_host(case: Case, finding: Finding, told: list[Seen]) -> Finding:
    """The finding about the one other host, where all that were refused at a loopback address are on one of two: what a
    rank of their own host had announced they would have reached."""
    refused = [s.sign for s in told if "127.0.0.1" in s.sign.text and "refused" in s.sign.text]
    here = {short_name(sign.host or "") for sign in refused}
    seen = {*hosts_spoken_of(case), *case.headed_hosts, *(port.host for port in case.hardware.ports if port.host)}
    others = {short_name(host) for host in seen} - here
    if finding.subject.ranks or finding.subject.hosts or len(here) != 1 or "" in here or len(others) != 1:
        return finding
    host = others.pop()
    ranks = case.people.ranks_on(host)
    return replace(finding, subject=Subject(ranks=ranks if len(ranks) < case.world else (), hosts=(host,)))


def _by_the_choice(case: Case) -> list[Finding]:
    """By the interface that NCCL chose, where the job did not come further."""
    if known_messages.has_run(case):
        return []
    broken = _cannot_connect(case)
    several = known_messages.many_hosts(case)
    doubted = [(s, _doubt(s, several=several, broken=broken)) for s in known_messages.seen(case, *_USED)]
    odd = [s for s, doubt in doubted if doubt is not None]
    sure = max((doubt for _, doubt in doubted if doubt is not None), default=Grade.HINTS)
    beside = known_messages.seen(case, "nccl-virtual-interfaces") if broken and not odd else []
    if odd:
        name, where = odd[0].group("interface"), odd[0].group("address")
        message = f"NCCL uses the interface {name} ({where}), which does not lead to other hosts."
    elif beside:
        odd, sure = beside, Grade.HINTS
        name = odd[0].group("interface")
        message = f"NCCL also uses the interface {name}, which does not lead to other hosts, and a connection failed."
    else:
        return _over_infiniband(case)
    alternatives = (("firewall", "what does not answer may also be blocked"),)
    claim = Claim(
        CODE, CAUSE, fix=_CLAIM.fix, category="hang", blames="host", next=_CLAIM.next, alternatives=alternatives
    )
    return [building.found(case, claim, [s.sign for s in odd], message, sure)]


def _over_infiniband(case: Case) -> list[Finding]:
    """IP over InfiniBand, which NCCL takes before all others, where the first sockets failed."""
    chosen = [
        s
        for s in known_messages.seen(case, *_USED, "nccl-oob-interface")
        if _IP_OVER_IB.fullmatch(s.group("interface"))
    ]
    trails = (trail for process in case.nccl for trail in process.trails)
    failed = [t for t in trails if t.code == _SYSTEM_ERROR and t.place.startswith("bootstrap.cc")]
    if not chosen or not failed:
        return []
    name, where = chosen[0].group("interface"), chosen[0].group("address")
    message = f"NCCL bootstraps over {name} ({where}), which is IP over InfiniBand, and its first connections failed."
    claim = Claim(
        CODE, CAUSE, fix=_CLAIM.fix, next=_CLAIM.next,
        alternatives=(("firewall", "what does not answer may also be blocked"),),
    )  # fmt: skip
    return [building.found(case, claim, [s.sign for s in chosen], message, Grade.HINTS)]


def _doubt(s: Seen, *, several: bool, broken: bool) -> Grade | None:
    """How much it suggests that this choice leads nowhere."""
    name, where = s.group("interface"), s.group("address")
    if where.startswith(("fe80", "169.254.")):
        return Grade.SUPPORTS
    if _NOWHERE.fullmatch(name):
        return Grade.SUPPORTS if broken else Grade.HINTS
    if name.startswith("lo") or where.startswith("127."):
        return Grade.SUPPORTS if several else None
    if _BRIDGE.fullmatch(name) and (several or broken):
        return Grade.SUPPORTS if broken else Grade.HINTS
    return None


def _cannot_connect(case: Case) -> bool:
    tried = known_messages.of_cause(case, "firewall") or known_messages.seen(case, "nccl-connect-retried")
    return bool(tried or known_messages.timed_out(case))
