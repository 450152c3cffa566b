"""Events of a trace decoded with msgspec: any batch, and only what is needed of each event."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from whichrank.evidence.readers.kineto.collectives import Arguments

_NOTHING = msgspec.Raw(b"")
Place = int | str | float | None


class Args(msgspec.Struct, gc=False):
    """What is used of an event's arguments."""

    stream: Place = -1
    correlation: int | float | str | None = -1
    collective: str | None = msgspec.field(name="Collective name", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    size: Any = msgspec.field(name="Group size", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    desc: Any = msgspec.field(name="Process Group Description", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)


class Span(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """A complete event."""

    cat: str | None = None
    name: str | None = ""
    pid: Place = None
    tid: Place = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None


class ExactSpan(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """The same where a float would lose nanoseconds: microseconds since 1970 with decimals."""

    cat: str | None = None
    name: str | None = ""
    pid: Place = None
    tid: Place = None
    ts: Decimal | None = None
    dur: int | float | None = None
    args: Args | None = None


class _Label(msgspec.Struct, gc=False):
    name: Any = None


class Title(msgspec.Struct, gc=False, tag="M", tag_field="ph"):
    """The name of a process or thread."""

    name: str | None = ""
    pid: Place = None
    tid: Place = None
    args: _Label | None = None


# Flows, instants, counters and the like are passed over as cheaply as the decoder can.
_REST = tuple(
    msgspec.defstruct(f"Phase{number}", [], tag=phase, tag_field="ph", gc=False)
    for number, phase in enumerate("BEICitsfPNODSTpFRcvVabenG(),=x")
)


def decoder(span: Any = Span) -> Callable[[bytes], list[Any]]:
    """How to decode a batch of events, whatever is in it."""
    union: Any = span
    for other in (Title, *_REST):
        union = union | other
    strict = msgspec.json.Decoder(list[union])
    phased: Any = msgspec.json.Decoder(list[dict[str, Any]])

    def decode(data: bytes) -> list[Any]:
        try:
            return strict.decode(data)
        except msgspec.ValidationError:
            return [_lenient(event, span) for event in _plain(phased, data)]
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error

    return decode


def _lenient(event: dict[str, Any], span: Any) -> Any:
    """An event of odd types: what is not of its kind counts as absent."""
    kind: Any = {"X": span, "M": Title}.get(str(event.get("ph")), _REST[0])
    try:
        return msgspec.convert(event, kind, strict=False)
    except msgspec.ValidationError:
        args = event.get("args")
        kept = {k: v for k, v in args.items() if isinstance(v, int | str)} if isinstance(args, dict) else {}
        slim = {k: v for k, v in event.items() if isinstance(v, int | float | str) and not isinstance(v, bool)}
        try:
            return msgspec.convert({**slim, "args": kept}, kind, strict=False)
        except msgspec.ValidationError:
            return _REST[0]()


def _plain(phased: Any, data: bytes) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = phased.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    return found


NO_ARGS = Args()


def tells(args: Args) -> bool:
    """Whether the arguments list tensors."""
    return args.shapes is not _NOTHING


def arguments(args: Args) -> Arguments:
    """What of them concerns a collective."""
    shapes, types = (json.loads(bytes(raw)) if raw is not _NOTHING else None for raw in (args.shapes, args.types))
    return Arguments(
        args.collective, args.sent, args.received, args.dtype, args.size, args.group, args.desc, args.ranks, args.seq,
        shapes, types,
    )  # fmt: skip
