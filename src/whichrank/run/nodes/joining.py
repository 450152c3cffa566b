"""How the watchers of one job find each other: who leads, who follows, or that each works alone."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whichrank.model.errors import UsageError
from whichrank.run.nodes.follower import Follower
from whichrank.run.nodes.leader import MOST_CLIENTS, Leader
from whichrank.run.nodes.shared import Shared
from whichrank.run.token import VARIABLE, load_token, own_token

Tell = Callable[[str], None]
_COUNTS = ("--nnodes", "--num_machines", "--num-machines")
_COUNTED_BY = ("PET_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")


@dataclass(frozen=True, slots=True)
class Joining:
    """What the command line asked for."""

    nodes: int | None = None
    leader: str = ""
    shared: Path | None = None
    name: str = ""
    token_file: Path | None = None


@dataclass(slots=True)
class Link:
    """This node's tie to the others; nothing at the other end where it works alone."""

    own: str
    nodes: int
    """How many there should be."""
    side: Leader | Follower | Shared | None = None

    @property
    def name(self) -> str:
        """What this node is called."""
        if isinstance(self.side, Follower):
            return self.side.known or self.own
        return self.side.name if self.side is not None else self.own

    @property
    def leading(self) -> Leader | Shared | None:
        """What this node judges others by; one that takes others for its leader judges them when that is lost."""
        if isinstance(self.side, Follower) and not self.side.joined:
            return self.side.below
        if isinstance(self.side, Leader) or (isinstance(self.side, Shared) and self.side.leads):
            return self.side
        return None

    @property
    def following(self) -> Follower | Shared | None:
        if isinstance(self.side, Follower) or (isinstance(self.side, Shared) and not self.side.leads):
            return self.side
        return None

    @property
    def below(self) -> Leader | None:
        """Where this node takes others for its leader, and passes on what they say."""
        return self.side.below if isinstance(self.side, Follower) else None

    @property
    def judges(self) -> bool:
        """Whether the verdict is this node's to give: it leads, or nobody does."""
        return self.following is None or not self.following.joined

    def start(self, uploads: Path) -> None:
        if self.side is not None:
            self.side.start(uploads)

    def close(self) -> None:
        if self.side is not None:
            self.side.close()


def join(wish: Joining, command: Sequence[str], tell: Tell, environ: Mapping[str, str] = os.environ) -> Link | None:
    """The tie to the other nodes; None for a job of one node. What can't work is said before the job starts."""
    nodes = wish.nodes or count(command, environ)
    name = own_name(wish.name, environ)
    if wish.leader and wish.shared is not None:
        raise UsageError("--leader and --shared can't be combined", "Give one of them.")
    if wish.leader:
        return Link(name, nodes, _by_address(wish, name, tell))
    if wish.shared is not None:
        return Link(name, nodes, Shared(wish.shared.absolute(), name, tell))
    if nodes < 2:
        return None
    tell(
        f"the job runs on {nodes} nodes and each watches its own ranks alone: give every node --leader HOST:PORT or "
        "--shared DIR for one verdict"
    )
    return Link(name, nodes)


def count(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """How many nodes the launcher was told, at the most; 1 where nothing says so."""
    words = list(command)
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _COUNTS:
            return _most(value if equals else next(iter(words[at + 1 : at + 2]), ""))
    return max(_most(environ.get(name, "")) for name in _COUNTED_BY)


def _most(text: str) -> int:
    """`2`, or `1:4` for a range."""
    last = text.rpartition(":")[2]
    return int(last) if re.fullmatch(r"\d{1,6}", last) else 1


def own_name(given: str, environ: Mapping[str, str] = os.environ) -> str:
    """What this node is called: as it was told, as Slurm calls it, or as it calls itself."""
    name = given or environ.get("SLURMD_NODENAME") or socket.gethostname() or "node"
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".-")[:80] or "node"


def _by_address(wish: Joining, name: str, tell: Tell) -> Leader | Follower:
    host, port = _place(wish.leader)
    token = load_token(wish.token_file)
    addresses = _resolved(host, port)
    local = any(ipaddress.ip_address(address).is_loopback for _, address in addresses)
    if any(ipaddress.ip_address(address).is_unspecified for _, address in addresses):
        raise UsageError(
            f"--leader {wish.leader} is not the address of one host", "Give the address of the one node that leads."
        )
    if local and not _means_loopback(host):
        raise UsageError(
            f"{host} is {addresses[0][1]} here, where no other node can reach it", "Give the address that others use."
        )
    if token is None and (not local or not addresses):
        raise UsageError(
            "other hosts can reach the leader: a token is needed",
            f"Give every node the same secret by --token-file FILE (mode 600) or {VARIABLE}.",
        )
    # The loopback is open to every user of this host: nobody joins, and nobody is followed, without a proof.
    token = token or own_token()
    listener = _listen(addresses, port)
    if listener is not None:
        return Leader(listener, name, token, tell)
    return Follower((host, port), name, token, tell)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"'{text}' is not a valid leader address", "Write it as HOST:PORT, for example node1:29777.")
    return host, int(port)


def _resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Empty where the name is not known here (yet): then another node leads."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(family, str(place[0]).partition("%")[0]) for family, _, _, _, place in found]


def _means_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(addresses: Sequence[tuple[socket.AddressFamily, str]], port: int) -> socket.socket | None:
    """The socket that this node leads by; None where the address is another's, or somebody leads there already."""
    for family, address in addresses:
        try:
            return socket.create_server((address, port), family=family, backlog=min(MOST_CLIENTS, 512))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                why = os.strerror(error.errno) if error.errno else str(error)
                raise UsageError(f"can't listen on {address}:{port}: {why}", "Give --leader another port.") from error
    return None
