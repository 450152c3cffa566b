"""What hosts say of their clocks: chronyd, ntpd and ntpdate in logs, `chronyc tracking`, `timedatectl`."""

from __future__ import annotations

import re

from whichrank.evidence.readers.kernel_log.prefix import peel
from whichrank.evidence.text.host_marks import host_above
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.host import TimeService

_MOST_BYTES, _MOST = 8 << 20, 4096
_WORDS = ("chronyd", "ntpd", "System clock", "NTP ", "time server", "Leap status", "time reset")
"""One of these stands in every line that is read."""
_MARKS = tuple(word.encode() for word in _WORDS)
_OFFSET = re.compile(
    r"System clock (?:wrong|was stepped) by (?P<wrong>-?\d{1,12}(?:\.\d{1,9})?) seconds"
    r"|System time {1,12}: (?P<ntp>\d{1,12}(?:\.\d{1,9})?) seconds (?:fast|slow) of NTP time"
    r"|\btime reset (?P<reset>[+-]\d{1,12}(?:\.\d{1,9})?) s\b"
    r"|\b(?:step|adjust) time server \S{1,80} offset (?P<offset>[+-]?\d{1,12}(?:\.\d{1,9})?) sec"
)
_LOST = re.compile(
    r"Can't synchronise: |Leap status {1,12}: Not synchronised|(?:System clock|NTP) synchronized: no\b"
    r"|no server suitable for synchronization found"
)
_HELD = re.compile(
    r"chronyd\[\d{1,10}\]: Selected source |Leap status {1,12}: Normal|(?:System clock|NTP) synchronized: yes\b"
)


def fits(head: bytes) -> bool:
    """Whether the beginning has words of such a service."""
    return any(map(head.__contains__, _MARKS))


def read(item: Item) -> list[TimeService]:
    """One `TimeService` per statement, with the host that the line, a heading above it or the file names."""
    host = host_of_path(item.label)
    found: list[TimeService] = []
    for number, line in plain_lines(item, _MOST_BYTES):
        host = host_above(line) or host
        if len(found) >= _MOST or not any(map(line.__contains__, _WORDS)):
            continue
        said = peel(line.encode())
        offset = _OFFSET.search(said.text)
        held = False if _LOST.search(said.text) else True if _HELD.search(said.text) else None
        if offset is None and held is None:
            continue
        seconds = abs(float(next(value for value in offset.groups() if value))) if offset else None
        ref = Ref(item.label, f"line {number}", said.text.strip()[:300], None, said.host or host)
        found.append(TimeService(ref, said.host or host, seconds, held))
    return found
