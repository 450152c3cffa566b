"""Ways to run a command on another host: one file per engine, found by its folder.

An engine is a function from words of the command line to an `Engine`: the hosts, and how a command becomes a command
on one of them. All of them carry standard streams both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field


class Engine(Struct, frozen=True):
    """Hosts, and how to run a command there."""

    name: str
    hosts: tuple[str, ...]
    wrap: Callable[[str, Sequence[str]], list[str]]
    """Host and command -> the command to start on this machine."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Host -> by what the others reach it, where that is not its name."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Host -> ranks, where a hostfile says so."""
    again: Callable[[str, Sequence[str]], list[str]] | None = None
    """The same by another way, for a host that was reached and then did not answer."""

    def address(self, host: str) -> str:
        return self.addresses.get(host, host.rpartition("@")[2])
