"""Nodes that share a file system and nothing else: everything is a small file, and nobody listens anywhere.

`leader` is a lease: whoever renews it leads. `nodes/NAME/beat` is what a node sees, `requests/` what the leader wants,
`nodes/NAME/upload.TOKEN` the evidence of a node. Files appear whole, by a rename. Whether somebody is alive is told by
a number that grows, and by nobody's clock: times of files on such systems are coarse and may be another machine's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder
from whichrank.run.nodes import guard_mirror, protocol
from whichrank.run.nodes.clock import Offset
from whichrank.run.nodes.evidence_transfer import MOST as MOST_UPLOAD
from whichrank.run.nodes.evidence_transfer import pack
from whichrank.run.nodes.leases import Counted, Heartbeat, Lease, Order, prepare
from whichrank.run.nodes.protocol import Beat, Listing, Opening, Receipt, Request
from whichrank.run.nodes.roster import Roster, Upload
from whichrank.run.nodes.snapshot import Snapshot

TURN_S = 1.0
LEASE_S = 10.0
"""A lease that is not renewed for so long is anybody's; a node that is not heard for so long is silent."""
SETTLE_S = 1.0
"""After which whoever took the lease looks whether somebody else took it too."""
MOST = 4 << 20
MOST_NODES = 4096
MOST_RECEIPTS = 256


@dataclass(slots=True)
class Shared:
    """Leads or follows, as the lease has it."""

    folder: Path
    name: str
    tell: Callable[[str], None]
    leads: bool = False
    roster: Roster = field(default_factory=Roster)
    leader: str = ""
    listed: Listing = field(default_factory=list)
    offset: Offset = field(default_factory=Offset)
    receipts: dict[str, str] = field(default_factory=dict)
    goodbye: bool = False
    closed: bool = False
    why: str = "nobody leads yet"
    heard: float = float("-inf")
    heard_ns: int = 0
    turn_s: float = TURN_S
    lease_s: float = LEASE_S
    guards: guard_mirror.Outgoing = field(default_factory=guard_mirror.Outgoing)
    """Records of guards that whoever leads compares."""
    _instance: str = field(default_factory=lambda: secrets.token_hex(8))
    _lease: Counted = field(default_factory=Counted)
    _count: int = 0
    _last: Snapshot = field(default_factory=Snapshot)
    _signs: dict[str, Counted] = field(default_factory=dict)
    _answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _receipts: deque[Receipt] = field(default_factory=lambda: deque(maxlen=MOST_RECEIPTS))
    _told: Listing = field(default_factory=list)
    _orders: deque[Request] = field(default_factory=deque)
    _requests: deque[Request] = field(default_factory=lambda: deque(maxlen=64))
    _known: set[str] = field(default_factory=set)
    _answered: int = 0
    _complained: str = ""
    _taken: float | None = None
    _bell: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        prepare(self.folder)
        self._known = {path.name for path in (self.folder / "requests").iterdir()}
        self.name = self._own_name()
        for path in (self._home / guard_mirror.FOLDER).glob("*"):  # of an earlier job
            path.unlink(missing_ok=True)
        lease = self._read(self.folder / "leader", Lease)
        if lease is None or lease.ended:
            self._take(None)

    def _own_name(self) -> str:
        """A folder for this node alone: a second one of the same name gets another."""
        for number in range(1, MOST_NODES):
            name = self.name if number == 1 else f"{self.name}-{number}"
            home = self.folder / "nodes" / name
            before = self._read(home / "beat", Heartbeat)
            if before is not None:  # whether its owner lives shows within two turns
                time.sleep(2 * self.turn_s)
                now = self._read(home / "beat", Heartbeat)
                if now is not None and now.count != before.count:
                    continue
            private_folder(home)
            return name
        raise UsageError(f"too many nodes are called {self.name}", "Give each a --node-name.")

    @property
    def joined(self) -> bool:
        return not self.leads and not self.goodbye and time.monotonic() - self.heard < self.lease_s

    def start(self, uploads: Path) -> None:  # noqa: ARG002 - they stay in the shared folder
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shared", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """The last words of this node in the folder."""
        self._stop.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(5.0)
        with contextlib.suppress(OSError):
            if self.leads:
                self._renew(ended=True)
            self._beat()
            if not self._last.ended:
                (self._home / "beat").unlink(missing_ok=True)

    @property
    def _home(self) -> Path:
        return self.folder / "nodes" / self.name

    # -- what the watcher asks for

    def post(self, snapshot: Snapshot, *, urgent: bool = False) -> None:
        self._last = snapshot
        if urgent:
            self._bell.set()

    def asked(self) -> list[Request]:
        return [self._requests.popleft() for _ in range(len(self._requests))]

    def ask(self, request: Request) -> None:
        self._orders.append(request)
        self._bell.set()

    def guard_folders(self) -> list[Path]:
        """Where the records of other nodes' guards are."""
        with self.roster.lock:
            names = list(self.roster.nodes)
        return [self.folder / "nodes" / name / guard_mirror.FOLDER for name in names]

    def announce(self, listed: Listing) -> None:
        self._told = listed

    def deliver(self, folder: Path, token: str, *, final: bool) -> None:
        """Put a bundle where the leader finds it."""
        box, note = pack(folder)
        with box:
            with _draft(self._home / f"upload.{token}") as out:
                while piece := box.read(1 << 20):
                    out.write(piece)
            Path(out.name).replace(self._home / f"upload.{token}")
        self._write(self._home / f"opening.{token}", protocol.write(Opening(token, final, note)))

    # -- the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
                self._complained = ""
            except OSError as error:
                if self._complained != str(error):
                    self._complained = str(error)
                    self.tell(f"the shared folder can't be used ({error}); this node goes on alone until it can")
            self._bell.wait(self.turn_s)
            self._bell.clear()

    def _turn(self) -> None:
        self._beat()
        lease = self._read(self.folder / "leader", Lease)
        if self.leads and (lease is None or lease.instance == self._instance):
            self._lead()
        elif lease is not None and lease.instance == self._instance:
            self._settle()
        elif lease is not None:
            self._follow(lease)
        if not self.leads and (lease is None or self._expired(lease)):
            self._take(lease)

    def _beat(self) -> None:
        for piece in self.guards.pieces():
            guard_mirror.keep(self._home / guard_mirror.FOLDER, piece)
        self._count += 1
        ahead, error = self.offset.best or (None, None)
        sign = Heartbeat(self._instance, self._count, Beat(time.time_ns(), self._last, ahead, error))
        self._write(self._home / "beat", protocol.write(sign))

    def _expired(self, lease: Lease) -> bool:
        if lease.ended or lease.instance == self._instance or self._lease.count < 0:
            return False
        return time.monotonic() - self._lease.at > self.lease_s

    def _take(self, before: Lease | None) -> None:
        """Take the lease; it is ours when it still is after a while."""
        lease = Lease(self.name, self._instance, 1)
        if before is None:
            draft = self._draft(self.folder / "leader", protocol.write(lease))
            try:
                os.link(draft, self.folder / "leader")
                self.leads = True
            except FileExistsError:
                self._replace_ended(draft)
            finally:
                draft.unlink(missing_ok=True)
        else:
            self._write(self.folder / "leader", protocol.write(lease))
        self._taken = time.monotonic()

    def _replace_ended(self, draft: Path) -> None:
        """What an earlier job left is nobody's."""
        lease = self._read(self.folder / "leader", Lease)
        if lease is None or lease.ended:
            draft.replace(self.folder / "leader")

    def _settle(self) -> None:
        if self._taken is not None and time.monotonic() - self._taken >= SETTLE_S:
            self.leads = True

    def _lead(self) -> None:
        now_ns = time.time_ns()
        for home in sorted((self.folder / "nodes").iterdir())[:MOST_NODES]:
            if home.name != self.name and protocol.plain(home.name):
                self._hear(home, now_ns)
        while self._orders:
            request = self._orders.popleft()
            order = Order(self._instance, request)
            self._write(self.folder / "requests" / request.token, protocol.write(order))
        self._renew()

    def _renew(self, *, ended: bool = False) -> None:
        self._count += 1
        lease = Lease(
            self.name, self._instance, self._count, time.time_ns(), ended, self._answers, list(self._receipts),
            self._told,
        )  # fmt: skip
        self._write(self.folder / "leader", protocol.write(lease))

    def _hear(self, home: Path, now_ns: int) -> None:
        """What a node has written since the last turn."""
        sign = self._read(home / "beat", Heartbeat)
        seen = self._signs.get(home.name)
        if sign is None:
            self._gone(home.name)
            return
        if seen is None:  # it may be what an earlier job left
            self._signs[home.name] = Counted(sign.instance, sign.count)
            return
        if not seen.grew(sign.instance, sign.count):
            return
        with self.roster.lock:
            node = self.roster.nodes.get(home.name)
            if node is None or node.instance != sign.instance:
                node = self.roster.admit(home.name, sign.instance, "", self.name)
                node.least_s = self.lease_s
            node.open, node.closed = True, False
            node.beat(sign.beat)
        self._answers[home.name] = (sign.beat.sent_ns, now_ns)
        self._look_for_upload(home)

    def _gone(self, name: str) -> None:
        """It has taken its beat away: it went, and its host is there."""
        with self.roster.lock:
            node = self.roster.nodes.get(name)
            if node is not None and node.open:
                node.open, node.closed = False, True

    def _look_for_upload(self, home: Path) -> None:
        for path in home.glob("opening.*"):
            opening = self._read(path, Opening)
            if opening is None or any(r.token == opening.token for r in self._receipts):
                continue
            box = home / f"upload.{opening.token}"
            upload = Upload(opening.token, opening.final, box, note=opening.note, done=True)
            try:
                upload.size = box.stat().st_size
                upload.why = "" if upload.size <= MOST_UPLOAD else f"it is larger than {MOST_UPLOAD >> 20} MiB"
            except OSError as error:
                upload.why = f"it can't be read: {error.strerror}"
            with self.roster.lock:
                self.roster.nodes[home.name].upload = upload
            self._receipts.append(Receipt(opening.token, upload.why))

    def _follow(self, lease: Lease) -> None:
        if self.leads:
            self.leads = False
            self.tell(f"{lease.name} leads now")
        self.leader, self._taken = lease.name, None
        first = self._lease.count < 0
        if not self._lease.grew(lease.instance, lease.count) or first:
            return  # a lease that never grows may be what an earlier job left
        self.heard, self.heard_ns, self.goodbye = time.monotonic(), time.time_ns(), lease.ended
        if lease.listed:
            self.listed = lease.listed
        answer = lease.answers.get(self.name)
        if answer is not None and answer[0] != self._answered:
            self._answered = answer[0]
            self.offset.learn(answer[0], answer[1], lease.answered_ns, self.heard_ns)
        for receipt in lease.receipts:
            self.receipts[receipt.token] = receipt.why
        self._read_orders(lease)

    def _read_orders(self, lease: Lease) -> None:
        for path in sorted((self.folder / "requests").iterdir()):
            if path.name in self._known or path.name.startswith("."):
                continue
            self._known.add(path.name)
            order = self._read(path, Order)
            if order is not None and order.instance == lease.instance:
                self._requests.append(order.request)

    # -- files

    def _write(self, path: Path, data: bytes) -> None:
        self._draft(path, data).replace(path)

    def _draft(self, path: Path, data: bytes) -> Path:
        with _draft(path) as stream:
            stream.write(data)
        return Path(stream.name)

    def _read(self, path: Path, form: type[protocol.M]) -> protocol.M | None:
        try:
            with open(path, "rb", opener=_no_link) as stream:
                return protocol.read(form, stream.read(MOST))
        except OSError:
            return None


def _draft(path: Path) -> IO[bytes]:
    """A file of this user alone that nobody else could have put there."""
    return tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:100]}.", delete=False)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
