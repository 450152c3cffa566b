"""What a host says of its network: ports with counters at one moment, and connections in a packet capture."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class PortState:
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
    line: int = 0

    @property
    def name(self) -> str:
        return f"{self.device}/{self.port}" if self.port is not None else self.device


@dataclass(frozen=True, slots=True)
class Way:
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


@dataclass(frozen=True, slots=True)
class TcpFlow:
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
