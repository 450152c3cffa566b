"""The files `net.*.txt` of a bundle: looks at one network namespace, each under a line with its time."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from msgspec import Struct

from whichrank.model.moments import rfc3339_ns

_HEADING = re.compile(rb"== (?:start |now )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})Z ==")
_ADDRESS = re.compile(r"\s{2,8}inet6? ([\da-f.:]{2,45})/\d{1,3}\b")
_NOWHERE = ("127.", "::1", "fe80", "169.254.")


class Moment(Struct):
    """When a look was taken, and the address that the namespace is known by."""

    taken_ns: int | None = None
    address: str = ""

    @property
    def told(self) -> str | None:
        return rfc3339_ns(self.taken_ns) if self.taken_ns else None


def moment_of(raw: bytes) -> int | None:
    """The time in such a line, which stands at the beginning; None for other lines."""
    match = _HEADING.match(raw)
    if match is None:
        return None
    try:
        then = datetime.strptime(match[1].decode(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return int(then.timestamp()) * 10**9 + int(match[2]) * 10**6


def address_of(line: str) -> str:
    """The address in a line of `ip addr`, unless other hosts can't know it."""
    match = _ADDRESS.match(line)
    return match[1] if match and not match[1].startswith(_NOWHERE) else ""
