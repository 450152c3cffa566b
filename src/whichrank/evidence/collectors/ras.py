"""NCCL's RAS: every process of a job answers for the whole job, on a socket of its own host."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "NCCL_RAS_ADDR"
SWITCH = "NCCL_RAS_ENABLE"
DEFAULT = "localhost:28028"
GREETING_S = 1.0
"""For the first answer: a stopped process behind a shared port gives none, and another attempt finds the next."""
ATTEMPTS = 4
GATHERING_S = 3
"""What RAS itself is told to wait for other processes; its own default of 5 s makes a report take 10 s."""
LIMIT_S = 8.0
MOST = 64 << 20
_PID = re.compile(
    rb'"pid": {0,4}(\d{1,10})|\bprocess (\d{1,10}) on node |^\s{0,8}Process (\d{1,10}) on node ', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A report, and the form that it has; or why there is none."""

    data: bytes = b""
    form: str = ""
    why: str = ""

    def pids(self) -> set[int]:
        """The processes that it speaks of; a text names only those that stand out."""
        return {int(next(filter(None, found))) for found in _PID.findall(self.data)}


def own_address(environ: Mapping[str, str]) -> dict[str, str]:
    """An address for one job: of two jobs on the common one either may answer. What the user has set stays."""
    if VARIABLE in environ:
        return {}
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return {VARIABLE: f"127.0.0.1:{probe.getsockname()[1]}"}
    except OSError:
        return {}


def ask(address: str) -> Answer:
    """The report of a job: as JSON where NCCL has it (2.28.7), else as text."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        return Answer(why=f"'{address[:80]}' is not an address")
    deadline = time.monotonic() + LIMIT_S
    why = ""
    for _ in range(ATTEMPTS):
        try:
            with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=GREETING_S) as line:
                return _Talk(line, deadline).report()
        except ConnectionRefusedError:
            return Answer(why=f"nobody listens at {address}: no NCCL communicator yet, or an NCCL before 2.24")
        except OSError as error:
            why = f"no answer at {address}: {error.strerror or error}"
        if time.monotonic() > deadline:
            break
    return Answer(why=why)


class _Talk:
    """One connection: commands are lines, and the answer to the last one ends with the connection."""

    def __init__(self, line: socket.socket, deadline: float) -> None:
        self.line, self.deadline, self.rest = line, deadline, b""

    def report(self) -> Answer:
        greeting = self.say(b"CLIENT PROTOCOL 2", GREETING_S)
        if not greeting.startswith(b"SERVER PROTOCOL"):
            return Answer(why="what listens there is not RAS")
        self.say(b"TIMEOUT %d" % GATHERING_S, GREETING_S)
        form = "json" if self.say(b"SET FORMAT json", GREETING_S).startswith(b"OK") else "txt"
        self.line.sendall(b"STATUS\n" if form == "json" else b"VERBOSE STATUS\n")
        while len(self.rest) < MOST and self.more(self.deadline - time.monotonic()):
            pass
        head = b"" if form == "json" else greeting + b"\n"
        return Answer(head + self.rest, form) if self.rest else Answer(why="RAS closed the connection without a report")

    def say(self, command: bytes, limit_s: float) -> bytes:
        """Send a command and read the line that answers it."""
        self.line.sendall(command + b"\n")
        until = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            if len(self.rest) > 4096 or not self.more(until - time.monotonic()):
                return b""
        answer, _, self.rest = self.rest.partition(b"\n")
        return answer.strip()

    def more(self, limit_s: float) -> bool:
        if limit_s <= 0:
            raise TimeoutError("it took too long")
        self.line.settimeout(limit_s)
        piece = self.line.recv(1 << 16)
        self.rest += piece
        return bool(piece)


def foreign(address: str, pids: Collection[int], proc: Path = Path("/proc")) -> bool:
    """Whether a process of another job listens there too; true where it can't be told."""
    port = int(address.rpartition(":")[2])
    listening: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = [row.split() for row in (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]]
        except OSError:
            continue
        listening |= {row[9] for row in rows if len(row) > 9 and row[3] == "0A" and int(row[1][-4:], 16) == port}
    return not listening or not listening <= _sockets(pids, proc)


def _sockets(pids: Collection[int], proc: Path) -> set[str]:
    found = set()
    for pid in pids:
        try:
            for entry in (proc / str(pid) / "fd").iterdir():
                link = str(entry.readlink())
                if link.startswith("socket:["):
                    found.add(link[8:-1])
        except OSError:
            continue
    return found
