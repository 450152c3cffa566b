"""Names of network interfaces as errors of Gloo hold them."""

from __future__ import annotations

import re

from whichrank.records.events.communication import GlooInitError
from whichrank.timeline.job_state.statements import Statement

SIGNS = ("^", "=", "!")
"""NCCL's own: not these, exactly these."""
_NAMED = re.compile(
    r"(?P<host>rp != nullptr\. )?Unable to find (?:address|interface) for:? ?(?P<name>\[?[\w.^=!,:-]{1,253}\]?)"
)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


def wanted(sign: Statement) -> str:
    """The interface that Gloo looked for, where the message names it."""
    told = sign.event.interface if isinstance(sign.event, GlooInitError) else ""
    found = None if told else _NAMED.search(sign.text)
    return told or (found["name"] if found and not found["host"] else "")


def host_name(sign: Statement) -> str:
    """The host name that Gloo could not resolve to an address of the host, where it speaks of one."""
    found = _NAMED.search(sign.text)
    return found["name"].rstrip(".") if found and found["host"] else ""


def is_foreign(name: str) -> bool:
    """Whether this is NCCL's syntax, or an address, where Gloo wants the name of an interface."""
    return name.startswith(SIGNS) or _ADDRESS.fullmatch(name) is not None
