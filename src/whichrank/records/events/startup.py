"""How the job comes together and parts: rendezvous, the store, process groups."""

from __future__ import annotations

import re

from whichrank.records.events.base import Event, OfGroup, Reasoned

NO_HEARTBEAT = "no_heartbeat"
# The agent's own name for a node: address, pid and a number.
_NODES = re.compile(r"\b([\w.-]{1,253}?)_(\d{1,10})_\d{1,6}\b")


class MemberBegins(Event, kw_only=True):
    """Lightning: this rank is about to make the group."""

    size: int | None = None


class MembersMet(Event, kw_only=True):
    """Lightning: all ranks have made the group."""


class StorePassed(Event, kw_only=True):
    """The start barrier in the store is behind this rank."""

    key: str = ""


class StoreError(Reasoned, kw_only=True):
    """The store could not be reached, or did not answer, or somebody did not come to it."""

    what: str = ""
    """connect_timeout, connect_failed, clients_missing, key_timeout, port_in_use, closed, dns, …"""
    server: str = ""
    port: int | None = None
    key: str = ""
    seconds: int | None = None
    ms: int | None = None
    joined: int | None = None
    expected: int | None = None
    world_size: int | None = None
    timeout: str = ""

    @property
    def waited_ms(self) -> int:
        return self.ms or 0


class RendezvousError(Reasoned, kw_only=True):
    """The rendezvous of the elastic agents failed."""

    error: str = ""
    """The class, or no_heartbeat."""

    @property
    def dropped(self) -> list[str]:
        """The hosts whose agents were dropped, because nothing was heard of them."""
        return [match[1] for match in _NODES.finditer(self.words)] if self.error == NO_HEARTBEAT else []


class InitError(Reasoned, kw_only=True):
    """init_process_group can't begin."""

    what: str = ""
    """env_missing, no_nccl, bad_timeout or bad_env."""
    name: str = ""
    """The variable."""


class NotJoined(Event, kw_only=True):
    """A rank had not begun to make its process group when it was looked at, or ended."""

    size: int | None = None


class GroupInit(OfGroup, kw_only=True):
    """A process group was made."""

    size: int | None = None
    timeout_ms: int | None = None
    name: str = ""


class CommInit(Event, kw_only=True):
    """This rank begins to create a communicator."""

    size: int | None = None
    """Of the job, where it is known."""


class WorldPlace(Event, kw_only=True):
    """A process of a server says which rank of the server's world it is."""

    number: int = 0
    size: int = 0


class GroupTeardown(OfGroup, kw_only=True):
    """A process group ends."""

    what: str = ""
    """destructor, not_destroyed, destroying, flushed or destroyed (and the process goes on)."""


class DeviceGuess(Event, kw_only=True):
    """torch guesses the device from the rank."""
