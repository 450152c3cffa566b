"""The conditions of a watched run: `conditions.json`. They are for comparing two runs, and accuse nobody."""

from __future__ import annotations

import json

from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.host import FileSystem, HostState

NAME = "conditions"

_ROOMY, _LARGEST = 1 << 30, 1 << 24
_IGNORED = Reading([], "ignored", "the conditions of the run, for whichrank compare")


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_conditions"' in head[:64]


def read(item: Item) -> Reading:
    """The size of a large /dev/shm, which speaks against a guess; versions and settings are no sign of a failure."""
    try:
        told = json.loads(item.read()) if item.size <= _LARGEST else {}
        host, shm = told.get("host", {}).get("name"), told.get("host", {}).get("shm_kb")
    except (ValueError, AttributeError, RecursionError):
        return _IGNORED
    if not isinstance(host, str) or type(shm) is not int or not _ROOMY <= shm << 10 < 1 << 62:
        return _IGNORED
    ref = Ref(item.label, "host", f"{host} has {shm >> 10} MiB of shared memory", None, host)
    return Reading([HostState(ref, host, file_systems=(FileSystem("/dev/shm", "shm", shm << 10),))])  # noqa: S108
