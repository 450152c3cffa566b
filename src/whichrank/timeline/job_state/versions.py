"""Which host runs another version of a library or driver than the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from whichrank.records.events.run_state import DRIVER, NCCL_PACKAGE, TORCH, Environment
from whichrank.timeline.identity.who import short_name

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_OF_CAUSE = {
    "driver-mismatch": (DRIVER,),
    "nccl-version-mismatch": (NCCL_PACKAGE, TORCH),
    "nccl-library-conflict": (NCCL_PACKAGE, TORCH),
}


def odd_hosts(case: Case, cause: str) -> tuple[str, ...]:
    """The hosts that differ from the others in what a cause is about: fewer than agree with each other."""
    for name in _OF_CAUSE.get(cause, ()):
        versions = _by_host(case, name)
        ordered = Counter(versions.values()).most_common()
        if len(ordered) > 1 and ordered[0][1] > max(1, len(versions) - ordered[0][1]):
            return tuple(sorted(host for host, version in versions.items() if version != ordered[0][0]))
    return ()


def _by_host(case: Case, name: str) -> dict[str, str]:
    told = [(e.host, e.variables[name]) for e in case.events(Environment) if e.host and name in e.variables]
    if name == DRIVER:
        told += [(state.host, state.driver) for state in case.hardware.gpus if state.host and state.driver]
    found = {(short_name(host), version) for host, version in told if host != "localhost"}
    hosts = Counter(host for host, _ in found)
    return {host: version for host, version in found if hosts[host] == 1}
