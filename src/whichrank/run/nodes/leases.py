"""The small files of a shared folder: what they hold, and that nobody else may write them."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder
from whichrank.run.nodes import protocol
from whichrank.run.nodes.protocol import Beat, Listing, Receipt, Request
from whichrank.run.watch.results_folder import own_place


class Lease(msgspec.Struct, frozen=True):
    """Who leads, and what it answers to everybody."""

    name: protocol.Name
    instance: str
    count: int
    answered_ns: int = 0
    ended: bool = False
    answers: dict[str, tuple[int, int]] = {}
    """Node -> when its beat was sent by its clock, and arrived by the leader's."""
    receipts: list[Receipt] = []
    listed: Listing = []


class Heartbeat(msgspec.Struct, frozen=True):
    """A beat in a file."""

    instance: str
    count: int
    beat: Beat


class Order(msgspec.Struct, frozen=True):
    """A request in a file."""

    instance: str
    request: Request


def prepare(folder: Path) -> None:
    """A folder that nobody else may write to: what lies there is believed."""
    try:
        folder = own_place(folder)
        status = private_folder(folder).lstat()
        for name in ("nodes", "requests"):
            private_folder(folder / name)
    except OSError as error:
        raise UsageError(f"can't use the folder {folder}: {error.strerror}", "Give --shared another one.") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"other users can write to {folder}", "Give --shared a private folder of your own (mode 700).")


@dataclass(slots=True)
class Counted:
    """A number that somebody else renews, and when it last grew by our own clock."""

    instance: str = ""
    count: int = -1
    at: float = field(default_factory=time.monotonic)

    def grew(self, instance: str, count: int) -> bool:
        if (instance, count) == (self.instance, self.count):
            return False
        self.instance, self.count, self.at = instance, count, time.monotonic()
        return True
