"""What hosts are called of which logs name only the address, or that go by two names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from whichrank.timeline.identity.who import by_short_name, host_in_name, short_name

if TYPE_CHECKING:
    from whichrank.records.host import HostName, PodPlace
    from whichrank.records.nccl import NcclProcess

_OF_EC2 = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})")
"""Amazon names a host after its address."""
_LOOPBACK = "127."


def names_of_addresses(rows: Iterable[HostName], processes: Iterable[NcclProcess] = ()) -> dict[str, str]:
    """The short name by address; of an address with two names none."""
    found: dict[str, set[str]] = {}
    for process in processes:  # they listen there
        address = process.bootstrap_address or ""
        if address and process.host and process.host != "localhost" and not address.startswith(_LOOPBACK):
            found.setdefault(address, set()).add(short_name(process.host))
    for row in rows:
        names = {short_name(name) for name in row.names} - {"localhost"}
        if not row.address.startswith(_LOOPBACK):
            found.setdefault(row.address, set()).update(names)
        for name in names:  # also where the row gives it another address: on its own host a name may lead to loopback
            if match := _OF_EC2.fullmatch(name):
                found.setdefault(".".join(match.groups()), set()).add(name)
    return {address: next(iter(names)) for address, names in found.items() if len(names) == 1}


def hosts_on_loopback(rows: Sequence[HostName]) -> frozenset[str]:
    """Hosts that give their own name a loopback address while others give theirs one of the network. Where no table
    says whose it is: hosts that one gives loopback and another the network; none where all are such, since then every
    host may have written it of itself."""
    own, by_name = _loops([row for row in rows if row.ref.host], own=True), _loops(rows)
    alone = {name for name, found in own.items() if found == {True}}
    if alone and {False} in own.values():
        return frozenset(alone)
    looped = {name for name, found in by_name.items() if found == {True, False}}
    return frozenset(looped) if looped < {name for name, found in by_name.items() if False in found} else frozenset()


def _loops(rows: Iterable[HostName], *, own: bool = False) -> dict[str, set[bool]]:
    """By name of a host whether its addresses are of loopback; `own`: only what its own table says."""
    found: dict[str, set[bool]] = {}
    for row in rows:
        for name in {short_name(name) for name in row.names} - {"localhost"}:
            if not own or short_name(row.ref.host or "") == name:
                found.setdefault(name, set()).add(row.address.startswith(_LOOPBACK))
    return found


def with_domains(hosts: Iterable[str]) -> dict[str, str]:
    """The short name of hosts that are also named with their domain, by that; of two domains none."""
    named = set(hosts)
    long: dict[str, set[str]] = {}
    for host in named:
        if (name := short_name(host)) != host and name in named:
            long.setdefault(name, set()).add(host)
    return {next(iter(hosts)): name for name, hosts in long.items() if len(hosts) == 1}


def whole_name(host: str, label: str, hosts: Mapping[str, str]) -> str | None:
    """The host after which a file is named, where what was taken for its name is only the end: `gpu7` of `ka-gpu7`. A
    file may also be named after that end alone."""
    file = label.rpartition("/")[2]
    if file.partition(".")[0].lower() == short_name(host):
        return by_ending(host, hosts)
    named = host_in_name(file, hosts)
    return named if named is not None and short_name(named).endswith(f"-{short_name(host)}") else None


def by_ending(name: str, hosts: Mapping[str, str]) -> str | None:
    """The one host that is called `train-worker-1` where somebody calls it `worker-1`."""
    ending = [host for short, host in hosts.items() if short.endswith(f"-{short_name(name)}")]
    return ending[0] if len(ending) == 1 else None


def with_beginnings(told: Iterable[tuple[str, str]], hosts: Iterable[str]) -> dict[str, str]:
    """The whole name of hosts of which files told only the end; `told` are hosts, each with the file that names it."""
    named = by_short_name(hosts)
    found: dict[str, set[str | None]] = {}
    for host, label in told:
        found.setdefault(host, set()).add(whole_name(host, label, named))
    return {host: name for host, (name, *others) in found.items() if name is not None and not others}


def pods_of_nodes(rows: Iterable[PodPlace]) -> dict[str, frozenset[str]]:
    """The pods of each node; one that moved is of neither, and one that is called like its node is that itself."""
    places: dict[str, set[str]] = {}
    for row in rows:
        places.setdefault(short_name(row.pod), set()).add(short_name(row.node))
    found: dict[str, set[str]] = {}
    for pod, nodes in places.items():
        if len(nodes) == 1 and pod not in nodes:
            found.setdefault(next(iter(nodes)), set()).add(pod)
    return {node: frozenset(pods) for node, pods in found.items()}
