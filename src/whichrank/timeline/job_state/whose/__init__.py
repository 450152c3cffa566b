"""Whose a finding is, by the rest of the evidence: its ranks, its hosts, its GPUs.

A kernel log names a GPU, a launcher a host, a message nobody. If the structure of the failure (who raised, who ended
first, who did not come) points at one rank of that host, that is the rank the finding is about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding, Subject
from whichrank.model.grades import Grade
from whichrank.model.late_pattern import late
from whichrank.records.events.communication import NcclError
from whichrank.records.events.launchers import ActorDied, ProcessExit
from whichrank.records.events.startup import StoreError
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state.versions import odd_hosts
from whichrank.timeline.job_state.whose.gpus import OF_A_PROCESS, among_peers, at_address, at_index

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_OF_ONE_RANK = ("gpu-hardware", "cuda-fault", "host-resources", "slow-rank", "rdma-fabric")
_OF_ONE_HOST = ("rdma-fabric", "net-interface", "software-version", "host-resources")
_OF_THE_WHOLE_HOST = ("rdma-fabric", "net-interface", "software-version")
_LOSES_THE_HOST = ("host-lost",)
_UNSEEN_BY_THE_HOST = ("cache-not-shared",)
"""What is wrong with such a host is wrong for all of its ranks."""
_SERVES_THE_HOST = ("fabric-manager",)
"""A service that all ranks of a host need, whichever of them says that it is not there."""
_ON_ITS_DISK = ("stale-lock-or-store",)
_MOST_GPUS = 16
"""Of one host: NVIDIA DGX-2, https://docs.nvidia.com/dgx/dgx2-user-guide/."""
_OF_A_MACHINE = ("pcie-p2p",)
"""What is between two GPUs is in one machine."""
_KILLS = ("host-out-of-memory",)
_BETWEEN_TWO = ("ping-large-lost",)
"""Messages of a host about another: what is wrong may be at either end."""
_EITHER_END = ("nccl-bootstrap-truncated",)
"""Messages of who received what a peer should not have sent: which of the two is odd they don't tell."""
_NOBODYS = ("reports", "words")
"""Who says what others see, or what only sounds like a cause, does not speak of its own host."""
_ADDRESS = late(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_PEER = late(r"\bpeer (\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|[A-Za-z][\w.-]{1,253}(?=<\d))")
_PID = late(r"\bpid=(\d{1,9})\b")
_MISSES_THE_STORE = "rendezvous-endpoint"
_REMOTE = "remote process exited"
_NOT_REACHED = late(r"(?i:connect(?:ion)? .{0,80}(?:fail|refused|timed out|unreach)|no route to host)")


def with_whom(case: Case, finding: Finding) -> Finding:
    """The finding with the ranks, hosts and GPUs that the rest of the evidence gives it."""
    joins = (
        among_peers, _in_all_pairs, _of_some_hosts, at_address, _at_another_endpoint, _of_another_version,
        _of_the_actor, _of_host, at_index, _named_by_all,
        _of_whom, _with_ranks_of_host, _with_host_of_ranks, _with_fellows, _behind_a_lock, _on_the_only_host,
        _called,
    )  # fmt: skip
    for join in joins:
        finding = join(case, finding)
    return finding


def _in_all_pairs(case: Case, finding: Finding) -> Finding:
    """The host that takes part in all attempts that failed, where each message is one host's about another; nobody
    where there is none."""
    told = [s for s in case.sightings if s.signature in _BETWEEN_TWO and s.host and s.captures.get("peer")]
    cited = {(ref.source, ref.locator) for ref in finding.evidence}
    if not any((s.ref.source, s.ref.locator) in cited for s in told):
        return finding
    named = ((s.host or "", s.captures["peer"]) for s in told)
    pairs = {frozenset(short_name(case.host_names.get(host, host)) for host in pair) for pair in named}
    if len(pairs) < 2:
        return finding
    return replace(finding, subject=replace(finding.subject, hosts=tuple(sorted(frozenset.intersection(*pairs)))))


def _of_some_hosts(case: Case, finding: Finding) -> Finding:
    """Clocks that are wrong on all hosts are wrong where they were compared with."""
    hosts = {short_name(host) for host in finding.subject.hosts}
    if finding.cause != "clock-skew" or len(hosts) < 2 or hosts != hosts_spoken_of(case) | hosts:
        return finding
    return replace(finding, subject=replace(finding.subject, hosts=()))


def _at_another_endpoint(case: Case, finding: Finding) -> Finding:
    """The ranks that looked for the others where nobody was, by their own lines, while most looked elsewhere."""
    if finding.cause != _MISSES_THE_STORE or finding.subject != Subject(code=finding.subject.code):
        return finding
    from whichrank.timeline.job_state.known_messages import seen  # a diagnosis of dumps alone needs no messages

    failed = {f"{e.server}:{e.port}" for e in case.events(StoreError) if e.what.startswith("connect_")}
    told = {
        s.sign.rank: (s.group("peer"), s.sign.ref) for s in seen(case, "rank-endpoint-told") if s.sign.rank is not None
    }
    ranks = tuple(sorted(rank for rank, (where, _) in told.items() if where in failed))
    if not ranks or 2 * len(ranks) >= len(told):
        return finding
    others = tuple(rank for rank in sorted(told) if rank not in ranks)
    evidence = (*finding.evidence, told[ranks[0]][1], told[others[0]][1])
    return replace(finding, subject=replace(finding.subject, ranks=ranks), victims=others, evidence=evidence)


def _of_another_version(case: Case, finding: Finding) -> Finding:
    """The host that runs another version than the others, where versions are at fault and the finding names nobody."""
    if finding.subject != Subject(code=finding.subject.code):
        return finding
    hosts = odd_hosts(case, finding.cause)
    return replace(finding, subject=replace(finding.subject, hosts=hosts)) if hosts else finding


def _of_the_actor(case: Case, finding: Finding) -> Finding:
    """The one actor whose end Ray records, or whose pid it names, where a process was killed and nobody is named, or
    only its host."""
    subject = finding.subject
    if finding.cause not in _KILLS or subject != Subject(hosts=subject.hosts, code=subject.code):
        return finding
    there = {None, *map(short_name, subject.hosts)}
    ended = [e for e in case.events(ActorDied) if not subject.hosts or (e.host and short_name(e.host)) in there]
    died = {event.rank: event.ref for event in ended}
    for ref in finding.evidence:
        died |= {case.hardware.rank_of(int(pid), ref.host): ref for pid in _PID.findall(ref.quote)}
    if len(died) != 1:
        return finding
    ((rank, told),) = died.items()
    if rank is None:
        return finding
    evidence = tuple(dict.fromkeys((*finding.evidence, told)))
    return replace(finding, subject=replace(finding.subject, ranks=(rank,)), evidence=evidence)


def _of_host(case: Case, finding: Finding) -> Finding:
    """The host that is meant where the finding names nobody: all its evidence is of one host, or an address is."""
    subject, cause = finding.subject, causes().get(finding.cause)
    if cause is None or finding.kind in _NOBODYS or cause.slug in _LOSES_THE_HOST:
        return finding
    of_host = cause.family in (*_OF_ONE_HOST, *OF_A_PROCESS) or cause.slug in _ON_ITS_DISK
    if not of_host or subject != Subject(code=subject.code) or _of_either_end(case, finding):
        return finding
    known = hosts_spoken_of(case)
    meant = _announced(case, finding) if cause.family == "net-interface" else set()
    told = {ref.host for ref in finding.evidence}
    if any(address.startswith("127.") for address in _failed(finding)):
        told = set()  # who could not connect was given that address by another
    if told == {None} and cause.family in OF_A_PROCESS:
        told = set.intersection(*(_named_in(ref.quote, known) for ref in finding.evidence))
    if not meant and len(told) == 1 and None not in told and _alone_in_saying(case, finding):
        meant = {short_name(host) for host in told if host is not None}
    if not meant or not meant < known:
        return finding
    return replace(finding, subject=replace(subject, hosts=tuple(sorted(meant))))


def _named_in(quote: str, hosts: Collection[str]) -> set[str | None]:
    """The hosts that a line names as words of their own."""
    return {name for word in quote.split() if (name := short_name(word.strip("[](){}<>:,;'\""))) in hosts}


def _of_either_end(case: Case, finding: Finding) -> bool:
    cited = {(ref.source, ref.locator) for ref in finding.evidence}
    return any(s.signature in _EITHER_END and (s.ref.source, s.ref.locator) in cited for s in case.sightings)


def _alone_in_saying(case: Case, finding: Finding) -> bool:
    """Whether no other host says what the finding cites, which are only some of the lines."""
    cited = {(ref.source, ref.locator) for ref in finding.evidence}
    hosts = {ref.host for ref in finding.evidence}
    kinds = {s.signature for s in case.sightings if (s.ref.source, s.ref.locator) in cited}
    return all(s.host in hosts for s in case.sightings if s.signature in kinds)


def _named_by_all(case: Case, finding: Finding) -> Finding:
    """The host at which all connections end that failed, where the finding names nobody, or ranks of no known host."""
    subject = finding.subject
    known = subject.hosts or subject.candidates or subject.gpus or subject.links
    if finding.category not in ("hang", "crash") or known or any(map(case.people.host_of, subject.ranks)):
        return finding
    host = _common_end(case)
    owners = {case.host_names.get(address) for address in _failed(finding)}
    if host is None or (owners and host not in owners):  # what failed is another's address: this one only left
        return finding
    return replace(finding, subject=replace(subject, hosts=(host,)))


def _common_end(case: Case) -> str | None:
    """The host that all others name as their peer in NCCL's warnings, and nobody else; it may name others itself. Where
    nothing says whose that address is, it is of the one host that names others and not this."""
    owners = {p.bootstrap_address: short_name(p.host) for p in case.nccl if p.bootstrap_address and p.host}
    owners = case.host_names | owners
    named: dict[str, set[str]] = {}
    for process in case.nccl:
        peers = {owners.get(peer, short_name(peer)) for w in process.warnings for peer in _PEER.findall(w.text)}
        if process.host and peers:
            named.setdefault(short_name(process.host), set()).update(peers)
    alone = Counter(peer for peers in named.values() if len(peers) == 1 for peer in peers)
    end, times = max(alone.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    rest = [host for host, peers in named.items() if peers != {end} and host != end]
    if times < 2 or len(rest) > 1:
        return None
    if not _ADDRESS.fullmatch(end):
        return end if not rest else None
    return rest[0] if rest and end not in named[rest[0]] else None


def hosts_spoken_of(case: Case) -> set[str]:
    """Every host that the evidence speaks of."""
    named = {e.host for e in case.log_events} | {s.host for s in case.sightings} | {p.host for p in case.nccl}
    named |= case.headed_hosts
    return case.people.hosts() | {short_name(host) for host in named if host and host != "localhost"}


def _announced(case: Case, finding: Finding) -> set[str]:
    """The hosts that gave the others an address of which the finding speaks, if not all gave it."""
    spoken = {address for ref in finding.evidence for address in _ADDRESS.findall(ref.quote)}
    owners: dict[str, set[str]] = {}
    for told in case.sightings:
        if told.host and (address := told.captures.get("address", "")) and told.captures.get("interface"):
            owners.setdefault(address, set()).add(short_name(told.host))
    found = {host for address in spoken for host in owners.get(address, ())}
    blamed = {host for address in _failed(finding) for host in owners.get(address, ())}
    return blamed or (found if len(owners) > 1 else set())


def _failed(finding: Finding) -> set[str]:
    """The addresses that could not be reached."""
    quotes = [ref.quote for ref in finding.evidence if _NOT_REACHED.search(ref.quote)]
    return {address for quote in quotes for address in _ADDRESS.findall(quote)}


def _of_whom(case: Case, finding: Finding) -> Finding:
    subject = finding.subject
    cause = causes().get(finding.cause)
    if subject.ranks or subject.candidates or cause is None or cause.family not in _OF_ONE_RANK:
        return finding
    if finding.category not in ("hang", "crash") or cause.role in ("generic", "ending") or len(case.first_to_fail) != 1:
        return finding
    (rank,) = case.first_to_fail
    host = case.people.host_of(rank)
    hosts = set(subject.hosts) | {gpu.host for gpu in subject.gpus} | {ref.host for ref in finding.evidence if ref.host}
    if hosts and host is not None and host not in hosts and "localhost" not in (host, *hosts):
        return finding
    others = tuple(r for r in range(case.world) if r != rank)
    return replace(finding, subject=replace(subject, ranks=(rank,)), victims=finding.victims or others)


def _with_ranks_of_host(case: Case, finding: Finding) -> Finding:
    """The ranks of the hosts that are meant: all of them where the cause acts on the whole host, or where all others
    waited for them; else as candidates."""
    subject, cause = finding.subject, causes().get(finding.cause)
    named = subject.ranks or subject.candidates or subject.gpus or subject.links
    if cause is None or named or not subject.hosts or finding.category not in ("hang", "crash"):
        return finding
    ranks = tuple(sorted({rank for host in subject.hosts for rank in case.people.ranks_on(host)}))
    ranks = ranks or tuple(rank for rank in _failed_themselves(case) if case.people.host_of(rank) is None)
    if not ranks or len(ranks) >= case.world:
        return finding
    whole = cause.family in _OF_THE_WHOLE_HOST or cause.slug in _UNSEEN_BY_THE_HOST
    whole = whole or (cause.slug in _LOSES_THE_HOST and finding.grade > Grade.HINTS)
    whole = whole or (cause.slug == "store-lost" and _all_others_lost_it(case, ranks))
    if whole or (cause.family in _OF_ONE_HOST and _all_others_wait(case, ranks)):
        others = tuple(r for r in range(case.world) if r not in ranks)
        return replace(finding, subject=replace(subject, ranks=ranks), victims=finding.victims or others)
    # A rank of which nobody says where it is may be there as well.
    all_placed = all(case.people.host_of(rank) is not None for rank in range(case.world))
    fits = cause.family in _OF_ONE_HOST and all_placed
    return replace(finding, subject=replace(subject, candidates=ranks)) if fits else finding


def _all_others_lost_it(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether every rank but these says that it lost the store, and none of these does: they went with it."""
    lost = {event.rank for event in case.events(StoreError) if event.rank is not None}
    return lost == set(range(case.world)).difference(ranks)


def _all_others_wait(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether every rank but these timed out in one collective, and none of these did; where not all say so, whether
    ranks of every other host did."""
    from whichrank.timeline.collectives.stuck import standings

    standing = standings(case)
    if standing is None or not set(standing.waiting).isdisjoint(ranks):
        return False
    others = set(range(case.world)).difference(ranks)
    hosts = {case.people.host_of(rank) for rank in others}
    heard = {case.people.host_of(rank) for rank in standing.waiting}
    return set(standing.waiting) == others or (None not in hosts and len(hosts) > 1 and heard == hosts)


def _failed_themselves(case: Case) -> tuple[int, ...]:
    """The ranks of which NCCL says that a call of their own failed, where all others only lost a peer."""
    said = {e.rank: e.text for e in case.events(NcclError) if e.rank is not None}
    lost = {rank for rank, text in said.items() if _REMOTE in text}
    own = said.keys() - lost
    return tuple(sorted(own)) if lost and len(own) < case.world and len(said) == case.world else ()


def _with_host_of_ranks(case: Case, finding: Finding) -> Finding:
    """The hosts of the ranks that are meant: where to look. What the program does wrong has to do with a host only
    where there are others."""
    subject, cause = finding.subject, causes().get(finding.cause)
    if cause is None or not subject.ranks or subject.hosts:
        return finding
    hosts = {case.people.host_of(rank) for rank in subject.ranks}
    known = sorted(host for host in hosts if host is not None and host != "localhost")
    if (cause.family == "code-collective" and not _are_others(case, known)) or len(known) < len(hosts):
        return finding
    return replace(finding, subject=replace(subject, hosts=tuple(known)))


def _are_others(case: Case, hosts: list[str]) -> bool:
    """Whether the job has more hosts than these: others are known, or the launch says so, or the ranks are too many."""
    others = set(map(short_name, hosts)) < case.people.hosts()
    return others or case.people.nodes > len(hosts) or case.world > _MOST_GPUS * len(hosts)


def _with_fellows(case: Case, finding: Finding) -> Finding:
    """All ranks of the host, where one of them says that a service of the host is not there, or several that its files
    are not."""
    subject = finding.subject
    of_host = finding.cause in _SERVES_THE_HOST or (finding.cause in _UNSEEN_BY_THE_HOST and len(subject.ranks) > 1)
    if not of_host or not subject.ranks or len(subject.hosts) != 1:
        return finding
    fellows, known = set(case.people.ranks_on(subject.hosts[0])), {*range(case.world), *case.people.by_rank}
    for ended in case.events(ProcessExit):  # Slurm's tasks, where the rank that speaks is one of them
        known |= set(ended.tasks)
        if ended.host and short_name(ended.host) == subject.hosts[0] and set(subject.ranks) <= set(ended.tasks):
            fellows |= set(ended.tasks)
    ranks = tuple(sorted({*subject.ranks, *fellows}))
    if set(ranks) >= known:
        return finding
    victims = tuple(rank for rank in finding.victims if rank not in ranks)
    return replace(finding, subject=replace(subject, ranks=ranks), victims=victims)


def _behind_a_lock(case: Case, finding: Finding) -> Finding:
    """All ranks of the host, where one of them waits for the lock of a build: each began it there, and none is through
    with it, while other hosts are."""
    subject = finding.subject
    if finding.cause not in _ON_ITS_DISK or len(subject.hosts) != 1:
        return finding
    told = [(s.signature, short_name(s.host)) for s in case.sightings if s.host]
    host, fellows = short_name(subject.hosts[0]), case.people.ranks_on(subject.hosts[0])
    through = {place for signature, place in told if signature == "done-extension"}
    began = told.count(("doing-extension", host)) >= len(fellows) > 1
    if not began or not through or host in through or not set(subject.ranks) < set(fellows) < set(range(case.world)):
        return finding
    victims = tuple(rank for rank in finding.victims if rank not in fellows)
    return replace(finding, subject=replace(subject, ranks=fellows), victims=victims)


def _on_the_only_host(case: Case, finding: Finding) -> Finding:
    """The host that all ranks are on, for what happens within one machine."""
    subject, cause = finding.subject, causes().get(finding.cause)
    if cause is None or cause.family not in _OF_A_MACHINE or subject != Subject(code=subject.code):
        return finding
    if len(case.people.by_rank) < 2:  # a line of one process is a hint, and accuses no host
        return finding
    hosts = hosts_spoken_of(case)
    return replace(finding, subject=replace(subject, hosts=tuple(hosts))) if len(hosts) == 1 else finding


def _called(case: Case, finding: Finding) -> Finding:
    """Hosts by their names, where the finding has their addresses."""
    hosts = tuple(dict.fromkeys(case.host_names.get(host, host) for host in finding.subject.hosts))
    return (
        finding if hosts == finding.subject.hosts else replace(finding, subject=replace(finding.subject, hosts=hosts))
    )
