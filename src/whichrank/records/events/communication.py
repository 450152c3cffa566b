"""Failures of Gloo and NCCL."""

from __future__ import annotations

from whichrank.records.events.base import Event, OfWork, Reasoned


class GlooTimeout(Event, kw_only=True):
    """A rank waited in send or recv; no peer is named."""

    direction: str = ""
    ms: int | None = None

    @property
    def waited_ms(self) -> int:
        return self.ms or 0


class GlooInitError(Reasoned, kw_only=True):
    """The full mesh, the interface or the host's name failed."""

    interface: str = ""
    hostname: str = ""
    size: int | None = None
    address: str = ""


class GlooMismatch(Event, kw_only=True):
    """Sizes differ between ranks, in bytes."""

    got: int | None = None
    expected: int | None = None


class PeerClosed(Event, kw_only=True):
    """A victim: its peer went away."""

    via: str = ""
    """gloo or nccl."""
    peer: str = ""


class NcclError(OfWork, kw_only=True):
    """A call of NCCL failed."""

    text: str = ""
    error: str = ""
    """The class: ncclRemoteError and the like."""
    last_error: str = ""
    """NCCL's own words."""
    version: str = ""

    @property
    def words(self) -> str:
        return "\n".join(filter(None, (self.last_error, self.text))) or self.ref.quote
