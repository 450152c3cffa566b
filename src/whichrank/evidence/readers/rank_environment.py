"""The environment that a rank was started with, as a bundle keeps it: `environment/rank_3.env`."""

from __future__ import annotations

import re

from whichrank.evidence.readers.flight_recorder.names import rank_from_name
from whichrank.facts.variables.environment import catalogue
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.records.events.run_state import Environment

NAME = "rank_environment"

_MOST = 1 << 20
_LAUNCH = frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"})
_LINE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,200}=")


def sniff(head: bytes, name: str) -> bool:
    """True for `*.env` files whose first line sets something."""
    return name.endswith(".env") and _LINE.match(head) is not None


def read(item: Item) -> Reading:
    """The variables that libraries of training read, with the rank that had them."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are no environment")
    variables: dict[str, str] = {}
    rank = rank_from_name(item.label.rpartition("/")[2])
    for line in item.read().decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and name == "RANK" and value.isdigit() and len(value) < 8:
            rank = int(value)
        if equals and (name in catalogue() or name in _LAUNCH):
            variables[name] = value[:300]
    if rank is None:
        return Reading(quality="ignored", note="the settings of a process that is not a rank")
    ref = Ref(item.label, "whole file", f"rank {rank} was started with {len(variables)} settings", rank)
    return Reading([Environment(ref=ref, rank=rank, variables=variables)])
