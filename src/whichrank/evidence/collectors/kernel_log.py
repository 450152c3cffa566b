"""The kernel log since a moment, from whichever source this user may read: /dev/kmsg, dmesg, the journal."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from whichrank.evidence.collectors.tools import ask
from whichrank.model.moments import rfc3339

LIMIT_S = 3.0
MOST_LINES = 20_000
SLACK_S = 5.0
"""Before the moment: the kernel's clock and the wall clock drift apart."""
_RECORD = re.compile(rb"\d{1,5},\d{1,20},(\d{1,18}),[^;]{1,80};(.{0,2000})")
_DMESG = re.compile(rb"(?:<\d{1,3}>)?\[ {0,12}(\d{1,10})\.(\d{6})\] ?(.{0,2000})")
_HOST = re.compile(r"[\w.-]{1,253}")


def since(start_s: float, kmsg: Path = Path("/dev/kmsg")) -> tuple[bytes, str]:
    """The lines since a moment (seconds since 1970), with wall-clock times; and why there are none."""
    whys = []
    for name, source in (("/dev/kmsg", partial(_from_kmsg, kmsg)), ("dmesg", _from_dmesg)):
        try:
            return _text(source(), start_s), ""
        except OSError as error:
            whys.append(f"{name}: {error.strerror or error}")
    journal, why = _from_journal(start_s)
    return journal, "" if journal else "; ".join([*whys, f"journalctl: {why}"])


def _text(records: Iterable[tuple[float, bytes]], start_s: float) -> bytes:
    """Lines as syslog writes them; at least one, so that a silent log is told apart from none."""
    boot_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    host = socket.gethostname()
    host = host if _HOST.fullmatch(host) else "localhost"
    lines = [f"# kernel log of {host} since {_moment(start_s)}".encode()]
    for uptime_s, message in records:
        at = boot_s + uptime_s
        if at >= start_s - SLACK_S:
            lines.append(f"{_moment(at)} {host} kernel: ".encode() + message)
    if len(lines) > MOST_LINES:
        lines = [lines[0], b"# the oldest lines are left out", *lines[-MOST_LINES:]]
    return b"\n".join(lines) + b"\n"


def _moment(seconds: float) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, timezone.utc))


def _from_kmsg(path: Path) -> Iterator[tuple[float, bytes]]:
    """Every read is one record; the device says EAGAIN at the end, and EPIPE where records were overwritten."""
    device = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return _records(device, time.monotonic() + LIMIT_S)


def _records(device: int, deadline: float) -> Iterator[tuple[float, bytes]]:
    try:
        while time.monotonic() < deadline:
            try:
                raw = os.read(device, 8192)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
                return
            if not raw:
                return
            match = _RECORD.match(raw.partition(b"\n")[0])
            if match:
                yield int(match[1]) / 1e6, match[2]
    finally:
        os.close(device)


def _from_dmesg() -> Iterator[tuple[float, bytes]]:
    program = shutil.which("dmesg")
    if program is None:
        raise OSError(errno.ENOENT, "is not installed")
    said, why = ask([program], LIMIT_S)
    if why:
        raise OSError(errno.EPERM, why)
    matches = (_DMESG.match(line) for line in said.splitlines())
    return ((int(m[1]) + int(m[2]) / 1e6, m[3]) for m in matches if m)


def _from_journal(start_s: float) -> tuple[bytes, str]:
    program = shutil.which("journalctl")
    if program is None:
        return b"", "is not installed"
    command = [program, "-k", "-q", "--no-pager", "-o", "short-iso-precise", f"--since=@{int(start_s - SLACK_S)}"]
    # Of others' journals it says nothing, with code 0: silence is no clean log.
    said, why = ask([*command, "-n", str(MOST_LINES)], LIMIT_S)
    return said, why or ("it showed nothing" if not said.strip() else "")
