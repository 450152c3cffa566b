"""Which host runs another version of a library or driver than the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.records.events.run_state import NCCL_PACKAGE, Environment
from whichrank.timeline.identity.who import short_name

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_NCCL, _TORCH, _DRIVER = "nccl", "torch", "driver"
_OF_CAUSE = {
    "driver-mismatch": (_DRIVER,),
    "nccl-version-mismatch": (_NCCL, _TORCH),
    "nccl-library-conflict": (_NCCL, _TORCH),
}


def odd_hosts(case: Case, cause: str) -> tuple[str, ...]:
    """The hosts that differ from the others in what a cause is about."""
    found = (odd(by_host(case, name)) for name in _OF_CAUSE.get(cause, ()))
    return next((tuple(sorted(hosts)) for hosts in found if hosts), ())


def odd(versions: dict[str, tuple[str, Ref]]) -> dict[str, tuple[str, Ref]]:
    """Those that differ from the most common version, where it is that of two hosts and of more than half."""
    ordered = Counter(version for version, _ in versions.values()).most_common()
    if len(ordered) < 2 or ordered[0][1] <= max(1, len(versions) - ordered[0][1]):
        return {}
    return {host: told for host, told in versions.items() if told[0] != ordered[0][0]}


def by_host(case: Case, name: str) -> dict[str, tuple[str, Ref]]:
    """The version of each host that says only one, and where it says so."""
    told = [(v.host, v.versions[name], v.ref) for v in case.host_versions if v.host and name in v.versions]
    if name == _NCCL:
        told += [
            (e.host, v, e.ref) for e in case.events(Environment) if e.host and (v := e.variables.get(NCCL_PACKAGE))
        ]
    if name == _DRIVER:
        told += [(state.host, state.driver, state.ref) for state in case.hardware.gpus if state.host and state.driver]
    found = {short_name(host): (version, ref) for host, version, ref in told if host != "localhost"}
    several = {short_name(host) for host, version, _ in told if found.get(short_name(host), ("",))[0] != version}
    return {host: pair for host, pair in found.items() if host not in several}


def nccl_by_host(case: Case) -> dict[str, tuple[str, Ref]]:
    """The NCCL that each host says it runs or installs."""
    return by_host(case, _NCCL)
