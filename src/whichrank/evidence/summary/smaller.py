"""Records that hold more than a verdict asks for, without that."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from whichrank.records.nccl import CommCalls, KeptLines, NcclLog
from whichrank.records.network import TcpSocket

_THOUSANDTHS = "~"
_HERE, _THERE = ":<", ":>"
"""Ports in a quote: they are among the values already."""
_MORE = "bytes_acked", "bytes_sent"
"""The first is kept as what it has beyond the second: mostly one."""
_ENDS = 5
"""Words of a line of ss up to the other end of the connection."""
CALLS = 1024
"""Calls of a communicator that are kept of a log; some 1.5 bytes each when packed."""
ASKED = frozenset(
    ("backoff", "busy", "bytes_acked", "bytes_received", "bytes_sent", "data_segs_out", "dsack_dups", "lastack", "lost",
     "minrtt", "mss", "pmtu", "rto", "rtt", "rttvar", "rwnd_limited", "sacked", "total_retrans", "tries", "unacked")
)  # fmt: skip
"""Values of a connection that rules ask for; a test compares this with the rules."""


def connection(socket: TcpSocket) -> TcpSocket:
    """A quiet one is nobody's proof, only what others are compared with: its ends are quoted, and little is kept."""
    quiet = not (socket.send_queue or socket.recv_queue or socket.timer)
    values = dict(_shorter(name, value) for name, value in socket.values.items() if not quiet or name in ASKED)
    if _MORE[0] in values and _MORE[1] in values:
        values[_MORE[0]] -= values[_MORE[1]]
    words = socket.ref.quote.split(" ")
    if len(words) >= _ENDS:
        words[_ENDS - 2 : _ENDS] = (
            _without(words[_ENDS - 2], socket.local_port, _HERE),
            _without(words[_ENDS - 1], socket.peer_port, _THERE),
        )
    quote = " ".join(words[:_ENDS] if quiet else words)
    return replace(socket, ref=replace(socket.ref, quote=quote), values=values)


def _without(end: str, port: int, sign: str) -> str:
    return end.removesuffix(f":{port}") + sign if end.endswith(f":{port}") else end


def _shorter(name: str, value: float) -> tuple[str, float]:
    """A whole number takes less room: thousandths, where that is exact."""
    if value.is_integer():
        return name, int(value)
    thousandths = round(value * 1000)
    return (name + _THOUSANDTHS, thousandths) if thousandths / 1000 == value else (name, value)


def whole_connection(socket: TcpSocket) -> TcpSocket:
    """Its values as they were."""
    values = {
        name.rstrip(_THOUSANDTHS): value / 1000 if name.endswith(_THOUSANDTHS) else float(value)
        for name, value in socket.values.items()
    }
    if _MORE[0] in values and _MORE[1] in values:
        values[_MORE[0]] += values[_MORE[1]]
    words = socket.ref.quote.split(" ")
    if len(words) >= _ENDS:
        for at, port, sign in ((_ENDS - 2, socket.local_port, _HERE), (_ENDS - 1, socket.peer_port, _THERE)):
            if words[at].endswith(sign):
                words[at] = words[at].removesuffix(sign) + f":{port}"
    return replace(socket, ref=replace(socket.ref, quote=" ".join(words)), values=values)


def nccl_log(log: NcclLog) -> NcclLog:
    """The lines of its calls, without what stands between them in the file."""
    return replace(log, calls=[_calls(part) for part in log.calls])


def _calls(part: CommCalls) -> CommCalls:
    lines = list(part.kept)[-CALLS:]
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    starts = ends - np.array([len(line) for line in lines], np.int64)
    kept = KeptLines(b"".join(lines), starts, ends, part.kept.numbers[-CALLS:])
    return CommCalls(
        part.process, part.comm, part.generation, part.comm_id, part.rank, part.nranks, part.total, kept
    )  # fmt: skip
