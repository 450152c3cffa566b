"""The words of preflight: what will be launched, what a check says of a host, what a link is like."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from whichrank.model.findings import Severity

State = Literal["healthy", "unhealthy", "unknown"]
DEFAULT_PORT = 29500
"""torchrun's own default for the rendezvous and for MASTER_PORT."""


NOTHING_TO_CHECK = "nothing to check"
"""Why a check was left out that does not concern a host."""


class Launch(Struct, frozen=True):
    """What is about to be started."""

    hosts: int = 1
    ranks_per_host: int | None = None
    port: int = DEFAULT_PORT
    folders: tuple[str, ...] = ()
    """Where dumps, logs and checkpoints will go."""
    load: bool = False
    """Probes may load disks, CPUs and GPUs."""

    @property
    def world_size(self) -> int | None:
        return None if self.ranks_per_host is None else self.hosts * self.ranks_per_host


class Check(Struct, frozen=True):
    """The answer of one rule about one host."""

    state: State
    value: str | int | float | None = None
    why: str = ""
    severity: Severity = "error"
    """Of the finding that an unhealthy check becomes."""
    fix: tuple[str, ...] = ()
    """Steps for this very case, before those of the rule."""
    gpus: tuple[int, ...] = ()
    quote: str = ""
    """What the evidence says, where it is not the value."""


def healthy(value: str | float | None = None, why: str = "") -> Check:
    return Check("healthy", value, why)


def unknown(why: str) -> Check:
    return Check("unknown", None, why)


def unhealthy(
    value: str | float | None,
    why: str,
    *,
    severity: Severity = "error",
    fix: tuple[str, ...] = (),
    gpus: tuple[int, ...] = (),
    quote: str = "",
) -> Check:
    return Check("unhealthy", value, why, severity, fix, gpus, quote)


class HostCheck(Struct, frozen=True):
    """A check as the report has it."""

    check: str
    code: str
    state: State
    value: str | int | float | None
    why: str


class LinkCheck(Struct, frozen=True):
    """What is known about the way between two hosts; `a` to `b` where a direction is meant."""

    a: str
    b: str
    state: State
    why: str


class Blame(Struct, frozen=True):
    """What pairings have shown: hosts that fail with everybody, groups that fail towards the others, single pairs."""

    hosts: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    """Hosts that reach each other but not the rest: what they share, an uplink or a switch, is bad."""
    pairs: tuple[tuple[str, str], ...] = ()
    unsettled: tuple[str, ...] = ()
    """Hosts that failed once and could not be tested again."""
    rounds: int = 0
