"""torch's worker server, where a job has started one on a unix socket: it answers with the interpreter held."""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from pathlib import Path

LIMIT_S = 3.0
MOST = 256 << 20
_CREDENTIALS = struct.Struct("3i")
_REQUEST = (
    b"POST /handler/fr_trace_json?includestacktraces=true HTTP/1.1\r\n"
    b"Host: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


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
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0] or not body.startswith(b"{"):
        return b"", "its worker server has no flight recorder"
    return body, ""


def _all(line: socket.socket) -> bytes:
    deadline, pieces, size = time.monotonic() + LIMIT_S, [], 0
    while size < MOST and time.monotonic() < deadline:
        piece = line.recv(1 << 16)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
