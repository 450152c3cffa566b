"""What stands before a line of the kernel log: dmesg, journalctl, syslog, /dev/kmsg, and a collector's host name."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone

from msgspec import Struct

from whichrank.evidence.text.prefixes.ansi import strip_ansi

_SECOND = 10**9
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_LONGEST, _LONGEST_JSON = 1280, 1 << 15
"""The kernel cuts its own lines there (LOG_LINE_MAX); a prefix may make them a little longer."""
NO_YEAR = 1969
"""Times without a year are put there, before every real one; 1969 is no leap year, so 29 February gets none."""

_HOST = r"[A-Za-z0-9][\w.-]{0,252}"
# pdsh, ansible and others: `node7: [12.3] …`, `node7: Nov  2 04:10:51 …`
_COLLECTED = re.compile(
    rf"({_HOST}): (?=\[ {{0,12}}\d|<\d{{1,3}}>|\[[A-Z][a-z]{{2}} |kern "
    r"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d )"
)
# The name of the file that grep prints before a line, with its number or without, or the label of `srun --label`.
_GREPPED = re.compile(
    r"(?:[\w./-]{1,200}:(?:\d{1,9}:)?| {0,6}\d{1,6}: )"
    r"(?=[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d |\d{4}-\d\d-\d\d[T ]|\[ {0,12}\d)"
)
_LEVEL = re.compile(r"<\d{1,3}>|(?:kern|user|daemon|syslog) {0,6}:\w{1,7} {0,6}: ?")
_UPTIME = re.compile(r"\[ {0,12}(\d{1,10})\.(\d{1,9})\] ?")
_CTIME = re.compile(r"\[(?:[A-Z][a-z]{2} )([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\] ?")
_SYSLOG = re.compile(rf"([A-Z][a-z]{{2}}) {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:\.(\d{{1,9}}))? ({_HOST}) ")
_ISO = re.compile(r"\[?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?:\] ?| )")
# `node7 kernel: `, and what a watcher of nodes writes into the job's log: `[nodewatch node7] kernel: `.
_HOST_KERNEL = re.compile(rf"(?:\[(?:[\w.-]{{1,40}} )?)?({_HOST})\]? (?=kernel(?:\[\d{{1,10}}\])?: )")
_KERNEL = re.compile(r"kernel(?:\[\d{1,10}\])?: ?")
_KMSG = re.compile(r"\d{1,5},\d{1,12},(\d{1,18}),[^;]{1,40};")


class Said(Struct):
    """One line of the kernel log without what stands before it."""

    text: str
    time_ns: int | None = None
    uptime_ns: int | None = None
    host: str | None = None


def peel(line: bytes) -> Said:
    """The words of a line, with the time and the host that its prefixes tell."""
    if line[:1] == b"{" and b'"MESSAGE"' in line:
        return _from_json(line[:_LONGEST_JSON].decode("utf-8", "replace"))
    text = strip_ansi(line[:_LONGEST].decode("utf-8", "replace")).strip("\r\n\0")
    said = Said(text)
    if match := _GREPPED.match(said.text):
        said.text = said.text[match.end() :]
    if match := _COLLECTED.match(said.text):
        said.host, said.text = match[1], said.text[match.end() :]
    if match := _LEVEL.match(said.text):
        said.text = said.text[match.end() :]
    _peel_time(said)
    if match := _UPTIME.match(said.text):
        _peel_uptime(said, match)
    if said.host is None and (match := _HOST_KERNEL.match(said.text)):
        said.host, said.text = match[1], said.text[match.end() :]
    if match := _KERNEL.match(said.text):
        said.text = said.text[match.end() :]
    if said.uptime_ns is None and (match := _UPTIME.match(said.text)):
        _peel_uptime(said, match)
    return said


def _peel_uptime(said: Said, match: re.Match[str]) -> None:
    said.uptime_ns = _uptime(match[1], match[2])
    said.text = said.text[match.end() :]


def _peel_time(said: Said) -> None:
    text = said.text
    if match := _CTIME.match(text):
        said.time_ns = _wall(int(match[6]), _MONTHS.get(match[1]), match[2], match[3], match[4], match[5], "", "")
    elif match := _SYSLOG.match(text):
        said.time_ns = _wall(NO_YEAR, _MONTHS.get(match[1]), match[2], match[3], match[4], match[5], match[6] or "", "")
        said.host = match[7]
    elif match := _ISO.match(text):
        year, month = int(match[1]), int(match[2])
        said.time_ns = _wall(year, month, match[3], match[4], match[5], match[6], match[7] or "", match[8] or "")
    elif match := _KMSG.match(text):
        said.uptime_ns = int(match[1]) * 1000
    else:
        return
    said.text = text[match.end() :]


def _wall(
    year: int, month: int | None, day: str, hour: str, minute: str, second: str, fraction: str, zone: str
) -> int | None:
    if month is None:
        return None
    try:
        moment = datetime(year, month, int(day), int(hour), int(minute), min(int(second), 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    shift = 0
    if zone and zone != "Z":
        shift = (int(zone[1:3]) * 60 + int(zone[-2:])) * (-1 if zone[0] == "-" else 1)
    return (int(moment.timestamp()) - shift * 60) * _SECOND + int(fraction.ljust(9, "0") or "0")


def _uptime(seconds: str, fraction: str) -> int:
    return int(seconds) * _SECOND + int(fraction.ljust(9, "0"))


def _from_json(text: str) -> Said:
    """A line of `journalctl -o json`."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return Said(text)
    if not isinstance(entry, dict) or not isinstance(entry.get("MESSAGE"), str):
        return Said("")
    host = entry.get("_HOSTNAME")
    return Said(
        entry["MESSAGE"][:_LONGEST],
        _microseconds(entry.get("__REALTIME_TIMESTAMP")),
        _microseconds(entry.get("__MONOTONIC_TIMESTAMP")),
        host if isinstance(host, str) and host else None,
    )


def _microseconds(value: object) -> int | None:
    return int(value) * 1000 if isinstance(value, str) and value.isdecimal() and len(value) < 18 else None
