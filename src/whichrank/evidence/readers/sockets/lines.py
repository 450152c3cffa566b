"""The lines of `ss`: a socket, and what TCP knows of it."""

from __future__ import annotations

import re

from msgspec import Struct, field

End = tuple[str, int]

_STATES = "ESTAB|SYN-SENT|SYN-RECV|FIN-WAIT-1|FIN-WAIT-2|TIME-WAIT|UNCONN|CLOSE-WAIT|LAST-ACK|LISTEN|CLOSING"
_SOCKET = re.compile(
    rf"(?:tcp\s{{1,8}})?({_STATES})\s{{1,12}}(\d{{1,12}})\s{{1,12}}(\d{{1,12}})\s{{1,60}}(\S{{3,80}}?):(\d{{1,5}}|\*|[a-z][\w-]{{0,30}})"
    r"\s{1,60}(\S{1,80}?):(\d{1,5}|\*|[a-z][\w-]{0,30})(?:\s|$)"
)
_PID = re.compile(r"\bpid=(\d{1,10})\b")
_TIMER = re.compile(r"\btimer:\((\w{1,12}),([\w.]{1,20}),(\d{1,4})\)")
_PAIR = re.compile(r"(?<![\w(])([a-z][a-z_]{1,20}):(\d{1,20}(?:\.\d{1,9})?)(ms)?(?:/(\d{1,12}(?:\.\d{1,9})?))?")
_RATE = re.compile(r"\b(pacing_rate|delivery_rate) (\d{1,20}(?:\.\d{1,9})?)([KMG])?bps")
_UNITS = {None: 1, "K": 10**3, "M": 10**6, "G": 10**9}
_MAPPED = "::ffff:"


class Line(Struct):
    """A socket while its values come in."""

    number: int
    text: str
    state: str
    recv_queue: int
    send_queue: int
    local: End
    peer: End
    pid: int | None = None
    timer: str = ""
    values: dict[str, float] = field(default_factory=dict)

    def quote(self) -> str:
        """The socket and the values that matter, in ss's own words."""
        told = [f"{name}:{self.values[name]:.12g}" for name in _TOLD if self.values.get(name)]
        if self.values.get("total_retrans"):
            told.append(f"retrans:{self.values['retrans']:g}/{self.values['total_retrans']:g}")
        if self.timer:
            told.append(f"timer:({self.timer},…,{self.values['tries']:g})")
        return " ".join([*self.text.split()[:5], *told])[:400]


_TOLD = ("backoff", "unacked", "lost", "sacked", "rtt", "minrtt", "mss", "bytes_sent", "bytes_retrans", "bytes_acked",
         "lastsnd", "lastrcv", "lastack")  # fmt: skip
_KEPT = frozenset({
    *_TOLD, "rto", "rttvar", "pmtu", "cwnd", "bytes_received", "data_segs_out", "data_segs_in", "dsack_dups", "notsent",
    "busy", "rwnd_limited", "sndbuf_limited",
})  # fmt: skip


def socket_line(number: int, text: str) -> Line | None:
    """The first line of a socket, with all that stands on it."""
    match = _SOCKET.match(text.lstrip())
    if match is None:
        return None
    state, received, sent, *ends = match.groups()
    line = Line(number, match[0].strip(), state, int(received), int(sent), _end(*ends[:2]), _end(*ends[2:]))
    details(line, text.lstrip()[match.end() :])
    return line


def details(line: Line, text: str) -> None:
    """More words about the same socket."""
    if line.pid is None and (match := _PID.search(text)):
        line.pid = int(match[1])
    if match := _TIMER.search(text):
        line.timer = match[1]
        line.values["tries"] = float(match[3])
    for name, value, _, second in _PAIR.findall(text):
        if name == "retrans":
            line.values["retrans"], line.values["total_retrans"] = float(value), float(second or value)
        elif name == "rtt":
            line.values["rtt"], line.values["rttvar"] = float(value), float(second or 0)
        elif name in _KEPT:
            line.values.setdefault(name, float(value))
    for name, value, unit in _RATE.findall(text):
        line.values[name] = float(value) * _UNITS[unit or None]
    if " app_limited" in text:
        line.values["app_limited"] = 1.0


def _end(address: str, port: str) -> End:
    """Without brackets and interface; IPv4 in IPv6 clothes is IPv4."""
    plain = address.strip("[]").partition("%")[0].strip("[]").lower()
    if plain.startswith(_MAPPED) and "." in plain:
        plain = plain.removeprefix(_MAPPED)
    return plain, int(port) if port.isdecimal() else 0
