"""A node's side of its connection to the leader: it tells what it sees, does what it is asked, and comes back."""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from whichrank.run.nodes import protocol, wire
from whichrank.run.nodes.clock import Offset
from whichrank.run.nodes.evidence_transfer import pack
from whichrank.run.nodes.guard_mirror import FOLDER, Outgoing
from whichrank.run.nodes.leader import FAN_IN, Leader
from whichrank.run.nodes.protocol import Answer, Beat, Closing, Leads, Listing, Opening, Receipt, Request
from whichrank.run.nodes.snapshot import Below, Snapshot
from whichrank.run.nodes.wire import Kind, Referral, RefusedError, Stream, WireError

BEAT_S = 1.0
LEADER_S = 6.0
"""Without an answer for so long the leader is lost."""
CONNECT_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
NOBODY_YET_S = 1.0
"""Until it is asked again, where nobody could be named that has room."""
READ = 64 << 10
FULL = 512 << 10
"""Bytes that may wait: an upload goes out piece by piece, with beats between."""


class _ReferredError(Exception):
    """The leader has enough nodes of its own."""

    def __init__(self, to: Referral) -> None:
        super().__init__(to.name)
        self.to = to


@dataclass(slots=True)
class _Sending:
    """An upload on its way."""

    token: str
    box: IO[bytes]
    size: int = 0


@dataclass(slots=True)
class _Line:
    """One connection."""

    connection: socket.socket
    stream: Stream = field(default_factory=Stream)
    outbox: bytearray = field(default_factory=bytearray)
    sending: _Sending | None = None

    def say(self, kind: Kind, payload: bytes) -> None:
        self.outbox += self.stream.pack(kind, payload)


@dataclass(slots=True)
class Follower:
    """One thread; nothing here waits for the leader, and the leader never waits for the job."""

    place: tuple[str, int]
    name: str
    token: str
    tell: Callable[[str], None]
    known: str = ""
    """What the leader calls this node."""
    leader: str = ""
    """What the leader calls itself, once it has been heard."""
    listed: Listing = field(default_factory=list)
    offset: Offset = field(default_factory=Offset)
    receipts: dict[str, str] = field(default_factory=dict)
    """Upload -> why it could not be kept; empty where it was."""
    goodbye: bool = False
    """The leader has ended, and said so."""
    why: str = ""
    """Why there is no connection."""
    heard: float = float("-inf")
    heard_ns: int = 0
    closed: bool = False
    """Whether the leader closed the connection itself."""
    below: Leader | None = None
    """Where this node takes others in its leader's place."""
    fan_in: int = FAN_IN
    guards: Outgoing = field(default_factory=Outgoing)
    """Records of guards that the leader compares."""
    _uploads_at: Path = Path()
    _referred: Referral | None = None
    _above: list[str] = field(default_factory=list)
    _told_below: list[Below] = field(default_factory=list)
    _avoid: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    """Nodes that it was referred to, and could not reach."""
    _instance: str = field(default_factory=lambda: secrets.token_hex(8))
    _fresh: Snapshot | None = None
    _last: Snapshot = field(default_factory=Snapshot)
    _requests: deque[Request] = field(default_factory=lambda: deque(maxlen=64))
    _uploads: deque[tuple[IO[bytes], Opening]] = field(default_factory=deque)
    _bell: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _refused: bool = False

    @property
    def joined(self) -> bool:
        return time.monotonic() - self.heard < LEADER_S and not self.goodbye

    def start(self, uploads: Path) -> None:
        self._uploads_at = uploads
        if self._thread is None:
            for end in self._bell:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._ring()
        if self._thread is not None:
            self._thread.join(2.0)
        if self.below is not None:
            self.below.close()
        for end in self._bell:
            end.close()

    def post(self, snapshot: Snapshot, *, urgent: bool = False) -> None:
        """What this node sees; it goes out with the next beat, or at once."""
        self._fresh = self._last = snapshot
        if urgent:
            self._ring()

    def asked(self) -> list[Request]:
        """What the leader wants, since the last call."""
        return [self._requests.popleft() for _ in range(len(self._requests))]

    def deliver(self, folder: Path, token: str, *, final: bool) -> None:
        """Send a bundle; `receipts` tells what became of it."""
        box, note = pack(folder)
        self._uploads.append((box, Opening(token, final, note)))
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._bell[1].send(b"!")

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            joined, referred = self.heard, self._referred
            try:
                self._connect()
            except _ReferredError as error:
                self._referred = error.to if error.to.host else None
                self._stop.wait(0.05 if error.to.host else NOBODY_YET_S * (1 + secrets.randbelow(8)) / 8)
                continue
            except RefusedError as error:
                self.why = str(error)
                if not self._refused:
                    self._refused = True
                    self.tell(f"the leader at {self._shown} and this node don't agree: {error}")
                pause = LONGEST_PAUSE_S
            except (OSError, WireError) as error:
                self.why = str(getattr(error, "strerror", None) or error)
            if referred is not None:  # back to the leader of all
                self._referred = None
                if self.heard == joined:
                    self._avoid.append(referred.name)
            pause = FIRST_PAUSE_S if self.heard > joined else min(pause * 2, LONGEST_PAUSE_S)
            self._stop.wait(pause)

    @property
    def _shown(self) -> str:
        return f"{self.place[0]}:{self.place[1]}"

    def _connect(self) -> None:
        to = self._referred
        with socket.create_connection((to.host, to.port) if to is not None else self.place, CONNECT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = _Line(connection)
            early = self._shake_hands(line)
            connection.setblocking(False)
            self.goodbye = self.closed = False
            self.heard, self.heard_ns = time.monotonic(), time.time_ns()
            self._fresh, self._told_below = self._last, []
            self.guards.again()
            try:
                for kind, payload in early:
                    self._hear(line, kind, payload)
                if self.below is not None:
                    line.say(Kind.LEADS, protocol.write(Leads(self.below.port)))
                self._talk(line)
            finally:
                if line.sending is not None:  # half an upload is none
                    line.sending.box.close()
                    self.receipts[line.sending.token] = "the connection broke"

    def _shake_hands(self, line: _Line) -> list[tuple[Kind, bytes]]:
        """Both sides prove that they know the token; returns what the leader has said beyond that."""
        hello = self._expect(line, Kind.HELLO, wire.Hello)
        if hello.version != wire.VERSION:
            raise RefusedError(f"it speaks version {hello.version}, not {wire.VERSION}")
        mine = wire.nonce()
        about = (hello.nonce, mine, self.name, self._instance)
        join = wire.Join(self.name, self._instance, mine, wire.proof(self.token, "node", *about), list(self._avoid))
        line.connection.sendall(line.stream.pack(Kind.JOIN, protocol.write(join)))
        welcome = self._expect(line, Kind.WELCOME, wire.Welcome)
        side = welcome.referral.side if welcome.referral is not None else "leader"
        if not wire.same(welcome.proof, wire.proof(self.token, side, *about)):
            raise RefusedError("it does not know the token")
        if welcome.referral is not None:
            raise _ReferredError(welcome.referral)
        if self._instance in welcome.above:
            raise WireError("it follows this node")
        leader, member = wire.keys(self.token, hello.nonce, mine)
        line.stream.seal(member, leader)
        self.leader, self.known, self._above = welcome.leader, welcome.name, [*welcome.above, self._instance]
        if self.below is not None:
            self.below.above = self._above
        return list(line.stream.feed(b""))

    def _expect(self, line: _Line, wanted: Kind, form: type[protocol.M]) -> protocol.M:
        """The next frame, read byte by byte up to its end: what follows is signed."""
        deadline = time.monotonic() + CONNECT_S
        data = b""
        while time.monotonic() < deadline:
            for kind, payload in line.stream.feed(data):
                if kind is Kind.REFUSED:
                    raise RefusedError(payload.decode("utf-8", "replace")[:200])
                message = protocol.read(form, payload) if kind is wanted else None
                if message is None:
                    raise WireError("whoever answers there is no leader")
                return message
            data = line.connection.recv(READ)
            if not data:
                raise WireError("it closed the connection")
        raise WireError("it does not answer")

    def _talk(self, line: _Line) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            if now - self.heard > LEADER_S:
                raise WireError("it no longer answers")
            urgent = self._rung(line, max(0.0, due - now))
            if urgent or time.monotonic() >= due:
                self._send_guards(line)
                self._beat(line)
                due = time.monotonic() + BEAT_S
            self._load(line)
            self._flush(line)
        with contextlib.suppress(OSError, WireError):
            line.say(Kind.BYE, b"{}")
            self._flush(line)

    def _rung(self, line: _Line, limit_s: float) -> bool:
        """Wait; hear what there is to hear; whether something is to be said at once."""
        poll = select.poll()  # select.select can't take descriptors beyond 1,023
        poll.register(line.connection, select.POLLIN | (select.POLLOUT if line.outbox or line.sending else 0))
        poll.register(self._bell[0], select.POLLIN)
        ready = dict(poll.poll(limit_s * 1000))
        if ready.get(line.connection.fileno(), 0) & ~select.POLLOUT:
            data = line.connection.recv(READ)
            if not data:
                self.closed = True
                raise WireError("it has gone")
            for kind, payload in line.stream.feed(data):
                self._hear(line, kind, payload)
        if self._bell[0].fileno() not in ready:
            return False
        with contextlib.suppress(OSError):
            self._bell[0].recv(4096)
        return True

    def _hear(self, line: _Line, kind: Kind, payload: bytes) -> None:
        self.heard, self.heard_ns = time.monotonic(), time.time_ns()
        if kind is Kind.ANSWER and (answer := protocol.read(Answer, payload)) is not None:
            self.offset.learn(answer.sent_ns, answer.arrived_ns, answer.answered_ns, self.heard_ns)
        elif kind is Kind.REQUEST and (request := protocol.read(Request, payload)) is not None:
            self._requests.append(request)
        elif kind is Kind.ROSTER and (listed := protocol.read(Listing, payload)) is not None:
            self.listed = listed
        elif kind is Kind.RECEIPT and (receipt := protocol.read(Receipt, payload)) is not None:
            self.receipts[receipt.token] = receipt.why
        elif kind is Kind.LEAD:
            self._lead(line)
        elif kind is Kind.BYE and self._referred is not None:
            raise WireError("it has ended")  # the one that passed words on; the leader of all may be there
        elif kind is Kind.BYE:
            self.goodbye = True
            raise WireError("it has ended")

    def _lead(self, line: _Line) -> None:
        """Take others, at the address by which the leader is reached; the connection says by itself that it failed."""
        if self.below is None:
            try:
                listener = socket.create_server((line.connection.getsockname()[0], 0), family=line.connection.family)
            except OSError as error:
                self.tell(f"can't take other nodes, as the leader asks: {error.strerror}")
                return
            self.below = Leader(listener, self.known or self.name, self.token, self.tell, fan_in=self.fan_in)
            self.below.above = self._above
            self.below.start(self._uploads_at)
            self.guards.passed_on = self._uploads_at / FOLDER
        line.say(Kind.LEADS, protocol.write(Leads(self.below.port)))

    def _send_guards(self, line: _Line) -> None:
        """Before the beat: whoever hears that the job has ended here has its records."""
        if self.guards.places and len(line.outbox) < FULL:
            for piece in self.guards.pieces():
                line.say(Kind.GUARD, protocol.write(piece))

    def _beat(self, line: _Line) -> None:
        snapshot, self._fresh = self._fresh, None
        if snapshot is not None and snapshot.below is not None:
            news = snapshot.below if snapshot.below != self._told_below else None
            self._told_below = snapshot.below
            snapshot = msgspec.structs.replace(snapshot, below=news)
        ahead, error = self.offset.best or (None, None)
        line.say(Kind.BEAT, protocol.write(Beat(time.time_ns(), snapshot, ahead, error)))

    def _load(self, line: _Line) -> None:
        """As much of an upload as may wait."""
        if line.sending is None and self._uploads:
            box, opening = self._uploads.popleft()
            line.sending = _Sending(opening.token, box)
            line.say(Kind.OPENING, protocol.write(opening))
        while (sending := line.sending) is not None and len(line.outbox) < FULL:
            piece = sending.box.read(wire.PIECE)
            if piece:
                sending.size += len(piece)
                line.say(Kind.PIECE, piece)
            else:
                sending.box.close()
                line.sending = None
                line.say(Kind.CLOSING, protocol.write(Closing(sending.size)))

    def _flush(self, line: _Line) -> None:
        with contextlib.suppress(BlockingIOError):
            while line.outbox:
                del line.outbox[: line.connection.send(line.outbox)]
