"""The prefix of a NCCL line: who printed it, whatever a launcher put in front."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

LEVEL = re.compile(rb"NCCL (INFO|WARN|ATTN|TRACE|CALL|DIAG)(?= |$)")

_ANSI = re.compile(rb"\x1b\[[0-9;?]{0,32}[@-~]")
_IDS = re.compile(rb":(\d{1,10}):(\d{1,10}) ")
_PID_ONLY = re.compile(rb":(\d{1,10}) $")
# What may stand between "host:pid:tid " and "NCCL": device, a TRACE clock, file:line, (function).
_PLACE = re.compile(rb"(?:\[(-?\d{1,10})\] )?(?:\d{1,12}\.\d{1,9} )?(?:([^\s:]{1,160}:\d{1,9}) (?:\((\w{1,80})\) )?)?")
_BARE_PLACE = re.compile(rb"([\w./+-]{1,160}:\d{1,9}) (?:\((\w{1,80})\) )?$")
_HOST_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")

# The prefix of NCCL itself is far below this; the rest is a launcher's.
_PREFIX_WINDOW = 400
# NCCL cuts lines at 1,023 characters up to 2.28; 2.29 and later let long values through.
_LONGEST_LINE = 8192


class NcclLine(Struct, frozen=True):
    """One message with what its prefix says."""

    host: str | None
    pid: int | None
    tid: int | None
    device: int | None
    level: str
    place: str | None
    """file:line of the source that warned."""
    function: str | None
    message: bytes
    before: bytes
    """What stands before the host: launcher prefixes, time stamps."""
    glued: bool = False
    """Another message stands before it in its line, cut off by this one."""

    @property
    def time(self) -> str | None:
        """The last time stamp before the host, as printed."""
        stamps = _TIME.findall(self.before)
        return stamps[-1].decode("ascii") if stamps else None


def plain(line: bytes) -> bytes:
    """The line without colours, and with the middle of a monstrous one left out."""
    if len(line) > _LONGEST_LINE:
        line = line[: _LONGEST_LINE // 2] + b" " + line[-_LONGEST_LINE // 2 :]
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    return line.rstrip(b"\r\n")


def messages(line: bytes) -> Iterator[NcclLine]:
    """Every NCCL message of a line: two, when processes wrote into each other's line."""
    levels = list(LEVEL.finditer(line))
    if not levels:
        return
    prefixes = []
    edge = 0
    for level in levels:
        prefixes.append(_prefix(line, edge, level))
        edge = level.end()
    for number, (level, prefix) in enumerate(zip(levels, prefixes, strict=True)):
        end = prefixes[number + 1].start if number + 1 < len(prefixes) else len(line)
        yield NcclLine(
            prefix.host,
            prefix.pid,
            prefix.tid,
            prefix.device,
            level[1].decode("ascii"),
            prefix.place,
            prefix.function,
            line[level.end() + 1 : end],
            prefix.before,
            number > 0,
        )


def process_span(line: bytes) -> tuple[int, int] | None:
    """From where to where "host:pid:" stands in a line with exactly one message."""
    levels = list(LEVEL.finditer(line))
    if len(levels) != 1:
        return None
    prefix = _prefix(line, 0, levels[0])
    if prefix.host is None or prefix.tid is None:
        return None
    colon = line.index(b":", prefix.start + len(prefix.host) + 1)
    return prefix.start, colon + 1


class _Prefix(Struct, frozen=True):
    start: int
    host: str | None = None
    pid: int | None = None
    tid: int | None = None
    device: int | None = None
    place: str | None = None
    function: str | None = None
    before: bytes = b""


def _prefix(line: bytes, edge: int, level: re.Match[bytes]) -> _Prefix:
    begin = max(edge, level.start() - _PREFIX_WINDOW)
    found = _parsed(line[begin : level.start()], level[1] == b"DIAG")
    return replace(found, start=begin + found.start) if begin else found


@lru_cache(maxsize=4096)
def _parsed(head: bytes, diagnostics: bool) -> _Prefix:
    # The rightmost pair of numbers is the one: clocks of launchers look alike and stand to the left.
    for ids in reversed(list(_IDS.finditer(head))):
        host, start = _host_before(head, ids.start())
        place = _PLACE.fullmatch(head, ids.end())
        if host is None or (place is None and not head[ids.end() :].startswith(b"[")):
            continue
        device, where, function = place.groups() if place else (None, None, None)
        return _Prefix(
            start,
            host,
            int(ids[1]),
            int(ids[2]),
            None if device is None else int(device),
            _text(where),
            _text(function),
            head[:start],
        )
    return _without_thread(head, diagnostics)


def _without_thread(head: bytes, diagnostics: bool) -> _Prefix:
    if diagnostics and (pid := _PID_ONLY.search(head)):
        host, start = _host_before(head, pid.start())
        return _Prefix(start, host, int(pid[1]), before=head[:start])
    if bare := _BARE_PLACE.search(head[-260:]):
        return _Prefix(len(head), place=_text(bare[1]), function=_text(bare[2]), before=head)
    return _Prefix(len(head), before=head)


def _host_before(head: bytes, colon: int) -> tuple[str | None, int]:
    start = len(head[:colon].rstrip(_HOST_CHARACTERS))
    return (head[start:colon].decode("ascii") if start < colon else None), start


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
