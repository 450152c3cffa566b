"""What a host says of its network: ports, TCP's counters and sockets at one moment, connections in a capture."""

from __future__ import annotations

from msgspec import Struct, field

from whichrank.model.evidence import Ref

CEILINGS = {
    "link_downed": 255,
    "link_error_recovery": 255,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "port_rcv_switch_relay_errors": 65535,
    "port_xmit_discards": 65535,
    "port_xmit_constraint_errors": 255,
    "port_rcv_constraint_errors": 255,
    "vl15_dropped": 65535,
}
"""Widths of the classic counters of a port (rdma-core, libibmad/fields.c): at its ceiling one says "at least"."""


class PortState(Struct, frozen=True):
    """A port of an RDMA adapter, or a network interface, as one command or file shows it."""

    ref: Ref
    device: str
    """`mlx5_0`, `eth0`."""
    port: int | None = None
    """Of an RDMA adapter; none for a network interface."""
    host: str | None = None
    taken_ns: int | None = None
    snapshot: str = ""
    """What was read together: the folder of a sysfs tree; else the file and the place in it."""
    state: str = ""
    """`ACTIVE`, `DOWN`, `INIT`, `UP`; in upper case."""
    physical: str = ""
    """`LINKUP`, `POLLING`, `DISABLED` …; in upper case, without separators."""
    rate: float | None = None
    """Gb/s."""
    layer: str = ""
    mtu: int | None = None
    """Of the RDMA port (active) or of the interface, in bytes."""
    counters: dict[str, int] = field(default_factory=dict)
    """By the kernel's names."""
    addresses: tuple[str, ...] = ()
    """Of an interface, without the length of the prefix."""
    line: int = 0

    @property
    def name(self) -> str:
        return f"{self.device}/{self.port}" if self.port is not None else self.device


class Way(Struct, frozen=True):
    """One direction of a connection."""

    packets: int = 0
    octets: int = 0
    again: int = 0
    """Segments that begin below the highest byte already sent: retransmitted (or, at a receiver, late)."""
    zero_windows: int = 0
    resets: int = 0
    opens: int = 0
    """SYN segments."""
    largest: int = 0
    """Bytes of the largest segment."""
    last_ns: int | None = None
    unanswered_again: int = 0
    """The longest run of retransmissions of one segment that the other side did not acknowledge."""
    stuck_octets: int = 0
    """Bytes of that segment."""


class TcpFlow(Struct, frozen=True):
    """One TCP connection in a packet capture."""

    ref: Ref
    a: str
    """`10.0.0.1:41234`, the side that was seen first."""
    b: str
    a_to_b: Way
    b_to_a: Way
    host: str | None = None
    first_ns: int | None = None
    last_ns: int | None = None


class TcpCounters(Struct, frozen=True):
    """What TCP has counted in one network namespace up to one moment (/proc/net/snmp and netstat)."""

    ref: Ref
    host: str | None = None
    taken_ns: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    """By the kernel's names: `OutSegs`, `RetransSegs`, `TCPTimeouts`."""
    line: int = 0


class TcpSocket(Struct, frozen=True):
    """One end of a TCP connection at one moment, as `ss` prints it."""

    ref: Ref
    state: str
    """`ESTAB`, `SYN-SENT`, `LISTEN`."""
    local: str
    """The address without its port; IPv4 also where it was written as IPv6."""
    local_port: int
    peer: str
    peer_port: int
    recv_queue: int = 0
    send_queue: int = 0
    host: str | None = None
    rank: int | None = None
    pid: int | None = None
    timer: str = ""
    """`on` while data is sent again, `persist` while the other side has no room."""
    values: dict[str, float] = field(default_factory=dict)
    """By the names of ss; times in milliseconds, rates in bits per second."""

    def number(self, name: str) -> float:
        """A value; what ss leaves out is zero."""
        return self.values.get(name, 0.0)

    @property
    def tries(self) -> int:
        """How often in a row the same data was sent without an answer."""
        return int(max(self.number("backoff"), self.number("tries") if self.timer == "on" else 0))

    @property
    def here(self) -> tuple[str, int]:
        return self.local, self.local_port

    @property
    def there(self) -> tuple[str, int]:
        return self.peer, self.peer_port


class Ping(Struct, frozen=True):
    """How many packets somebody sent to a host, and how many answers came."""

    ref: Ref
    target: str
    """As it was asked for: a name or an address."""
    address: str
    """Empty where the output does not say it."""
    sent: int
    received: int
    size: int = 0
    """Bytes of data in each packet; 0 where the output does not say it."""
    host: str | None = None
    """Where it ran."""
