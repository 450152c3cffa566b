"""The leader's side of the connections: one thread, one address to listen on, and everybody proves who they are."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.run.nodes import guard_mirror, protocol, wire
from whichrank.run.nodes.protocol import Answer, Beat, Closing, Leads, Listing, Opening, Receipt, Request
from whichrank.run.nodes.receiving import Receiving
from whichrank.run.nodes.roster import Node, Roster
from whichrank.run.nodes.wire import Kind, Referral, Stream, WireError

MOST_CLIENTS = 4096
FAN_IN = 64
"""Nodes that report to one; others are referred to these, so that a tree grows."""
MOST_STRANGERS = 64
"""Connections that have not yet proved who they are; a quarter of the descriptors where there are few."""
AT_ONCE = 4
"""Nodes that are asked to take others, when there is no room."""
HANDSHAKE_S = 10.0
ANSWERS_S, AGAIN_S = 3.0, 30.0
"""A node that is asked to lead says so within this time; else another is asked, and this one later again."""
TURN_S = 0.5
READ = 256 << 10
MOST_WAITING = 16 << 20
"""Bytes that a node has not taken: then it is let go, and may come back."""
MOST_REFUSED = 16
"""Addresses that are told as refused; more would only fill the log."""
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


def _most_strangers() -> int:
    return max(1, min(MOST_STRANGERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    address: str
    since: float = field(default_factory=time.monotonic)
    stream: Stream = field(default_factory=Stream)
    hello: str = field(default_factory=wire.nonce)
    outbox: bytearray = field(default_factory=bytearray)
    node: Node | None = None
    receiving: Receiving | None = None


@dataclass(slots=True)
class Leader:
    """Listens from the moment it is made; hears once it is started."""

    listener: socket.socket
    name: str
    token: str
    tell: Callable[[str], None]
    uploads: Path = Path()
    """Where uploads wait to be opened."""
    fan_in: int = FAN_IN
    above: list[str] = field(default_factory=list)
    """Instances from the root down to this node; empty for the root."""
    roster: Roster = field(default_factory=Roster)
    _clients: dict[int, _Client] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _refused: set[str] = field(default_factory=set)
    _jobs: list[Callable[[], None]] = field(default_factory=list)
    _bell: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _listed: Listing = field(default_factory=list)
    _spare: int | None = field(default_factory=_spare)
    """A descriptor to give up when there is no other."""

    def start(self, uploads: Path) -> None:
        self.uploads = uploads
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Say goodbye; whoever still watches goes on alone."""
        if self._thread is not None:
            self._later(lambda: self._all(Kind.BYE, b"{}"))
            self._later(self._stop.set)
            self._thread.join(3.0)
        self.listener.close()
        for end in self._bell:
            end.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        self._selector.close()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def ask(self, request: Request) -> None:
        """Ask every node that is there."""
        self._later(lambda: self._all(Kind.REQUEST, protocol.write(request)))

    def guard_folders(self) -> list[Path]:
        """Where the records of other nodes' guards are."""
        return [self.uploads / guard_mirror.FOLDER]

    def announce(self, listed: Listing) -> None:
        """Tell everybody who is where; those that come later hear it too."""
        self._later(lambda: self._announce(listed))

    def _announce(self, listed: Listing) -> None:
        self._listed = listed
        self._all(Kind.ROSTER, protocol.write(listed))

    def _later(self, job: Callable[[], None]) -> None:
        """Have it done by the thread that owns the connections."""
        self._jobs.append(job)
        with contextlib.suppress(OSError):
            self._bell[1].send(b"!")

    def _run(self) -> None:
        self.listener.setblocking(False)
        self._bell[0].setblocking(False)
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._selector.register(self._bell[0], selectors.EVENT_READ)
        while not self._stop.is_set():
            for key, events in self._selector.select(TURN_S):
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj is self._bell[0]:
                    with contextlib.suppress(OSError):
                        self._bell[0].recv(4096)
                elif (client := self._clients.get(key.fd)) is not None:
                    self._attend(client, events)
            while self._jobs:
                self._jobs.pop(0)()
            self._forget_strangers()
        for client in list(self._clients.values()):
            self._flush(client)
            self._drop(client, closed=True)

    def _accept(self) -> None:
        try:
            connection, place = self.listener.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                self._make_room()
            return
        if self._spare is None:
            self._spare = _spare()
        if len(self._clients) >= MOST_CLIENTS:
            connection.close()
            return
        strangers = [client for client in self._clients.values() if client.node is None]
        if len(strangers) >= _most_strangers():
            self._turn_away(strangers)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = self._clients[connection.fileno()] = _Client(connection, str(place[0]))
        self._selector.register(connection, selectors.EVENT_READ)
        self._send(client, Kind.HELLO, protocol.write(wire.Hello(client.hello)))

    def _turn_away(self, strangers: list[_Client]) -> None:
        """Whoever has stood there longest, of the address that most of them come from: who has the token is quick."""
        crowds = Counter(client.address for client in strangers)
        most = max(crowds.values())
        self._drop(next(client for client in strangers if crowds[client.address] == most), closed=True)

    def _make_room(self) -> None:
        """No descriptor is left: strangers go, or else the newcomer, by the descriptor that is kept for this."""
        strangers = [client for client in self._clients.values() if client.node is None]
        if strangers:
            self._turn_away(strangers)
            return
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        with contextlib.suppress(OSError):
            self.listener.accept()[0].close()
        self._spare = _spare()
        if self._spare is None:
            time.sleep(TURN_S / 10)  # others of this process were faster: no busy loop meanwhile

    def _forget_strangers(self) -> None:
        now = time.monotonic()
        for client in [c for c in self._clients.values() if c.node is None and now - c.since > HANDSHAKE_S]:
            self._drop(client, closed=True)

    def _attend(self, client: _Client, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(client)
            if not events & selectors.EVENT_READ:
                return
            data = client.connection.recv(READ)
            if not data:
                self._drop(client, closed=True)
                return
            for kind, payload in client.stream.feed(data):
                self._hear(client, kind, payload)
                if client.connection.fileno() < 0:
                    return
        except BlockingIOError:
            return
        except WireError as error:
            self._refuse(client, str(error))
        except OSError as error:
            self._drop(client, closed=error.errno not in _UNREACHABLE)

    def _hear(self, client: _Client, kind: Kind, payload: bytes) -> None:
        if client.node is None:
            if kind is not Kind.JOIN:
                raise WireError("it does not say who it is")
            self._admit(client, payload)
        elif kind is Kind.BEAT:
            self._beat(client, client.node, payload)
        elif kind is Kind.OPENING:
            self._open(client, client.node, payload)
        elif kind is Kind.PIECE:
            if client.receiving is not None:
                client.receiving.take(payload)
        elif kind is Kind.CLOSING:
            self._close_upload(client, client.node, payload)
        elif kind is Kind.LEADS:
            self._leads(client.node, payload)
        elif kind is Kind.GUARD:
            self._keep_guard(payload)
        elif kind is Kind.BYE:
            self._drop(client, closed=True)
        else:
            raise WireError(f"a {kind.name.lower()} is not for a leader")

    def _admit(self, client: _Client, payload: bytes) -> None:
        join = protocol.read(wire.Join, payload)
        if join is None or not protocol.plain(join.name) or not protocol.plain(join.instance):
            raise WireError("it does not say who it is")
        about = (client.hello, join.nonce, join.name, join.instance)
        if not wire.same(join.proof, wire.proof(self.token, "node", *about)):
            raise WireError("wrong token")
        if not any(node.instance == join.instance for node in self._direct()):
            referral = self._referral(join)
            if referral is not None:
                self._welcome(client, join, join.name, about, referral)
                return  # it goes by itself; else as a stranger after a while
        node = self.roster.admit(join.name, join.instance, client.address, self.name)
        for other in [c for c in self._clients.values() if c.node is node]:
            other.node = None  # it came back before its old connection was seen to be dead
            self._drop(other, closed=True)
        self._welcome(client, join, node.name, about)
        client.node = node
        if self._listed:
            self._send(client, Kind.ROSTER, protocol.write(self._listed))

    def _welcome(
        self, client: _Client, join: wire.Join, name: str, about: tuple[str, str, str, str],
        referral: Referral | None = None,
    ) -> None:  # fmt: skip
        mine = wire.proof(self.token, referral.side if referral is not None else "leader", *about)
        welcome = wire.Welcome(self.name, name, mine, self.above, referral)
        self._send(client, Kind.WELCOME, protocol.write(welcome))
        leader, member = wire.keys(self.token, client.hello, join.nonce)
        client.stream.seal(leader, member)

    def _direct(self) -> list[Node]:
        return [client.node for client in self._clients.values() if client.node is not None]

    def _referral(self, join: wire.Join) -> Referral | None:
        """Where a node goes for which there is no room here; None where it stays, however many there are."""
        direct = self._direct()
        if len(direct) < self.fan_in:
            return None
        usable = [node for node in direct if node.name not in join.avoid]
        leading = [node for node in usable if node.port]
        chosen = min(leading, key=lambda node: node.load, default=None)
        full = chosen is None or chosen.load >= self.fan_in
        if full and self._promote(usable):
            return Referral()  # there will be room in a moment
        if chosen is None:
            return None
        chosen.referred.append(time.monotonic())
        return Referral(chosen.name, chosen.address, chosen.port)

    def _promote(self, usable: list[Node]) -> bool:
        """Have some more nodes take others; whether one was asked, and may answer yet."""
        now = time.monotonic()
        if any(not node.port and now - node.asked_to_lead < ANSWERS_S for node in usable):
            return True
        able = [c for c in self._clients.values() if c.node in usable and c.node is not None and not c.node.port]
        asked = [c for c in able if c.node is not None and now - c.node.asked_to_lead > AGAIN_S][:AT_ONCE]
        for client in asked:
            if client.node is not None:
                client.node.asked_to_lead = now
            self._send(client, Kind.LEAD, b"{}")
        return bool(asked)

    def _leads(self, node: Node, payload: bytes) -> None:
        told = protocol.read(Leads, payload)
        if told is None:
            raise WireError("it leads at no port")
        node.port = told.port

    def _beat(self, client: _Client, node: Node, payload: bytes) -> None:
        arrived = time.time_ns()
        beat = protocol.read(Beat, payload)
        if beat is None:
            raise WireError("its beat can't be read")
        with self.roster.lock:
            node.beat(beat)
        self._send(client, Kind.ANSWER, protocol.write(Answer(beat.sent_ns, arrived, time.time_ns())))

    def _open(self, client: _Client, node: Node, payload: bytes) -> None:
        opening = protocol.read(Opening, payload)
        if opening is None:
            raise WireError("its upload has no name")
        self._abandon(client)
        client.receiving = Receiving.begin(self.uploads, node.name, opening)

    def _close_upload(self, client: _Client, node: Node, payload: bytes) -> None:
        closing, receiving = protocol.read(Closing, payload), client.receiving
        if closing is None or receiving is None:
            raise WireError("it ends an upload that was not begun")
        client.receiving = None
        upload = receiving.end(closing)
        with self.roster.lock:
            node.upload = upload
        self._send(client, Kind.RECEIPT, protocol.write(Receipt(upload.token, upload.why)))

    def _keep_guard(self, payload: bytes) -> None:
        piece = protocol.read(guard_mirror.GuardPiece, payload)
        if piece is None:
            raise WireError("its records of a guard can't be read")
        guard_mirror.keep(self.uploads / guard_mirror.FOLDER, piece)

    def _abandon(self, client: _Client) -> None:
        if client.receiving is not None:
            client.receiving.abandon()
        client.receiving = None

    def _refuse(self, client: _Client, why: str) -> None:
        if client.address not in self._refused and len(self._refused) < MOST_REFUSED:
            self._refused.add(client.address)
            self.tell(f"a connection from {client.address} was refused: {why}")
        if client.node is None:
            with contextlib.suppress(OSError, WireError):
                client.connection.send(client.stream.pack(Kind.REFUSED, why.encode()))
        self._drop(client, closed=True)

    def _all(self, kind: Kind, payload: bytes) -> None:
        for client in [c for c in self._clients.values() if c.node is not None]:
            self._send(client, kind, payload)

    def _send(self, client: _Client, kind: Kind, payload: bytes) -> None:
        client.outbox += client.stream.pack(kind, payload)
        try:
            self._flush(client)
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(client, closed=error.errno not in _UNREACHABLE)

    def _flush(self, client: _Client) -> None:
        if client.connection.fileno() < 0:
            return
        try:
            if client.outbox:
                del client.outbox[: client.connection.send(client.outbox)]
        except BlockingIOError:
            pass
        if len(client.outbox) > MOST_WAITING:
            self._drop(client, closed=False)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outbox else 0)
        if self._selector.get_key(client.connection).events != wanted:
            self._selector.modify(client.connection, wanted)

    def _drop(self, client: _Client, *, closed: bool) -> None:
        self._abandon(client)
        if self._clients.pop(client.connection.fileno(), None) is not None:
            self._selector.unregister(client.connection)
        client.connection.close()
        if client.node is not None:
            with self.roster.lock:
                client.node.open, client.node.closed = False, closed
