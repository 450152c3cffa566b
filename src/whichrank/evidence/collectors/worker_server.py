"""torch's worker server, where a job has started one: it answers with the interpreter held.

On a unix socket, or on a TCP port of its own that `torch.distributed.debug.start_debug_server` (torch 2.11 and newer)
has chosen on every rank.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from whichrank.evidence.collectors.job_sockets import JobSocket

LIMIT_S = 3.0
MOST = 256 << 20
_MOST_PORTS = 4
_CREDENTIALS = struct.Struct("3i")
_REST = b"?includestacktraces=true HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_REQUEST = b"POST /handler/fr_trace_json" + _REST
_REQUESTS = (b"POST /handler/dump_nccl_trace_json" + _REST, _REQUEST)
"""The recorder of NCCL, and that of all other backends."""


def dump(path: Path, pid: int) -> tuple[bytes, str]:
    """The flight recorder of a process by its socket, as JSON; and why there is none."""
    try:
        status = path.stat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            return b"", "its worker server is not this user's socket"
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(LIMIT_S)
            line.connect(str(path))
            if _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0] != pid:
                return b"", "the worker server there is of another process"
            line.sendall(_REQUEST)
            answer = _all(line)
    except OSError as error:
        return b"", f"its worker server: {error.strerror or error}"
    body = _body(answer)
    return (body, "") if body else (b"", "its worker server has no flight recorder")


def dump_by_port(pid: int, sockets: Sequence[JobSocket], *, without: int = 0) -> bytes:
    """The flight recorder of a process by its debug server; empty where it has none.

    Which port that is, nobody says. Asked are ports on which the rank itself listens on every address of the host and
    nobody is connected: what torch, Gloo and NCCL use among ranks is bound to one address, and the store (`without`)
    has all ranks connected to it.
    """
    used = {each.port for each in sockets if each.established}
    ports = {each.port for each in sockets if each.pid == pid and each.listens and each.anywhere}
    for port in sorted(ports - used - {without})[:_MOST_PORTS]:
        for request in _REQUESTS:
            body = _body(_asked(port, request))
            if b'"profiling_name"' in body:
                return body
    return b""


def _asked(port: int, request: bytes) -> bytes:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family) as line:
                line.settimeout(LIMIT_S)
                line.connect((address, port))
                line.sendall(request)
                return _all(line)
        except OSError:
            continue
    return b""


def _body(answer: bytes) -> bytes:
    """Of an answer that is a JSON object."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if b" 200 " in head.partition(b"\r\n")[0] and body.startswith(b"{") else b""


def _all(line: socket.socket) -> bytes:
    deadline, pieces, size = time.monotonic() + LIMIT_S, [], 0
    while size < MOST and time.monotonic() < deadline:
        piece = line.recv(1 << 16)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
