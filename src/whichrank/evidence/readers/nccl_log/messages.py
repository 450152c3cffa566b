"""What the messages of NCCL mean, written into the record of the process that printed them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar, cast

from whichrank.evidence.readers.nccl_log.prefix import NcclLine
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.records.nccl import (
    CommEnd,
    CommInit,
    Ending,
    ErrorTrail,
    InvalidValue,
    Level,
    NcclProcess,
    NcclWarning,
    NodeMap,
    Phase,
    RasPeer,
    Transport,
)

# A broken link can print the same warning for hours: the first ones tell the cause.
FIRST_KEPT, LAST_KEPT = 1000, 200
_PAIRS_KEPT = 65_536
_ENV_KEPT = 2000
TEXT_KEPT = 1023
_Kept = TypeVar("_Kept")
_NO_CLOCK = Clock(0)

_COMM = re.compile(
    rb"(?:(\w{1,80}) )?comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) n[rR]anks (\d{1,9}) (.{0,600}?)"
    rb"- (Init|Destroy|Abort|Revoke) (START|COMPLETE)"
)
_NODES = re.compile(
    rb"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nRanks (\d{1,9}) nNodes (\d{1,9})"
    rb" localRanks (\d{1,9}) localRank (\d{1,9})"
)
_VERSION = re.compile(rb"NCCL version (\d{1,4}\.\d{1,4}[\w.+-]{0,60})(?![\w.+-]| compiled)")
_BOOTSTRAP = re.compile(rb"Bootstrap ?: Using (?:\[\d+\])?([^\s:]{1,64}):([^\s<]{1,64})<\d+>")
_NETWORK = re.compile(rb"Using network (\S{1,80})")
_IB_DEVICE = re.compile(rb"\[\d+\](?:\{\d+\} )?(\S{1,80}:\d+/\w+)")
_TRAIL = re.compile(rb"(\S{1,160}:\d{1,9})(?: \(\w{1,80}\))? -> (\d{1,4})(.{0,200})")
_ENV = re.compile(rb"(NCCL_\w{1,80}) set (?:by environment )?to (.{0,1023})")
_INVALID = re.compile(rb"Invalid value (.{0,400}?) for (NCCL_\w{1,80}), using default (.{0,80}?)\.?$")
_CHANNEL = re.compile(
    rb"Channel \d+(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\](?: \[(send|receive)\])? via (.{1,120})"
)
_RAS_PEER = re.compile(rb"RAS peer (\d{1,9}): socket (\S{1,80}), pid (\d{1,10}), GPU (.{1,80}?)( \[this process\])?$")
# INFO lines worth keeping (shapes of 2.24 to 2.32): early signs of what a WARN says later, or elsewhere.
_TROUBLE = re.compile(
    rb"RAS declaring peer|closed by peer|RAS keep-alive timeout|, retrying \(|Mismatch|mismatch"
    rb"|mixed local Net device counts|do not appear to be working|HINT|marked as failed"
    rb"|RAS failed to establish"
)


# What a message that tells something begins with, or has in it (an arrow only before a result code).
OPENINGS = frozenset((b"NCCL", b"NET/", b"RAS ", b"[Ran", b"nccl", b"comm", b"Boot", b"Usin", b"Inva"))
# Each branch begins with a letter that is rare, and looks back from there: the search passes over the others at once.
SIGNS = re.compile(
    rb"Count |via (?<= via )|-> \d|NCCL |match(?<=ismatch)|, retrying|by(?<=closed by)|HINT|ked as f(?<=marked as f)"
    rb"|xed local(?<=mixed local)|ppear(?<=do not appear)"
)

SIGN_WORDS = (
    b"Count ", b" via ", b"NCCL ", b"ismatch", b", retrying", b"closed by", b"HINT", b"marked as f", b"mixed local",
    b"do not appear", *(b"-> %d" % digit for digit in range(10)),
)  # fmt: skip
"""The same as literals."""


def matters(message: bytes) -> bool:
    """Whether a message must be read; False for most that the chattier subsystems print."""
    return message[:4] in OPENINGS or len(message) > TEXT_KEPT or SIGNS.search(message) is not None


def channel_kind(message: bytes) -> tuple[str, bool] | None:
    """Transport of a channel, and whether the adapter reaches the GPU's memory; None for other messages."""
    found = _CHANNEL.search(message)
    if found is None:
        return None
    via = _text(found[4])
    return _kind(via), "GDRDMA" in via


def count_channels(process: NcclProcess, kind: str, gdr: bool, count: int = 1) -> None:
    """So many more channels of this kind."""
    process.transport_counts[kind] += count
    if gdr:
        process.transport_counts["GDRDMA"] += count


def shown(message: bytes) -> str:
    """A message as text, bounded."""
    return _text(message[:TEXT_KEPT])


def apply(process: NcclProcess, entry: NcclLine, number: int) -> None:
    """Note what this message says; calls are not its business."""
    if not process.first_line:
        process.first_line = number
        process.launcher = _text(entry.before[-120:]).strip()
        process.stated_rank = listen(entry.before[-120:], _NO_CLOCK).rank if process.launcher else None
    process.last_line = number
    if entry.device is not None:
        process.cuda_dev = entry.device
    text = entry.message[:TEXT_KEPT]
    process.last_text = _text(text)
    if entry.level in ("WARN", "ATTN", "DIAG"):
        process.warnings_total += 1
        _keep(process.warnings, _warning(entry, text, number))
        return
    if found := _VERSION.search(text):
        process.version = _text(found[1])
        return
    for marker, reader in _READERS:
        if marker in text:
            reader(process, entry, text, number)
            return


def version(line: bytes) -> str | None:
    """The version that a line names, with or without a prefix."""
    found = _VERSION.search(line)
    return _text(found[1]) if found else None


def started(text: bytes) -> CommInit | None:
    """The communicator that this message creates, if it is such a message."""
    found = _COMM.search(text)
    if found is None or found[6] != b"Init":
        return None
    return _init(found, 0, None)


def _communicator(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    if found := _COMM.search(text):
        if found[6] == b"Init":
            if len(process.inits) < _PAIRS_KEPT:
                process.inits.append(_init(found, number, entry.time))
            return
        phase = cast(Phase, found[7].decode().lower())
        kind = cast(Ending, found[6].decode().lower())
        end = CommEnd(_text(found[2]), int(found[3]), int(found[4]), kind, phase, number, entry.time)
        _keep(process.ends, end)
    elif found := _NODES.search(text):
        rank, nranks, nodes, local_ranks, local_rank = (int(value) for value in found.groups()[1:])
        _keep(process.nodes, NodeMap(_text(found[1]), rank, nranks, nodes, local_ranks, local_rank, number))
    elif _TROUBLE.search(text):
        _trouble(process, entry, text, number)


def _init(found: re.Match[bytes], number: int, time: str | None) -> CommInit:
    # The fields between nranks and the dash changed with nearly every release: names before values.
    words = found[5].split()
    values = dict(zip(words[::2], words[1::2], strict=False))
    comm_id = values.get(b"commId")
    return CommInit(
        api=_text(found[1] or b""),
        comm=_text(found[2]),
        comm_id=None if comm_id is None else _text(comm_id.removeprefix(b"0x")).zfill(16),
        rank=int(found[3]),
        nranks=int(found[4]),
        phase=cast(Phase, found[7].decode().lower()),
        line=number,
        cuda_dev=_integer(values.get(b"cudaDev")),
        nvml_dev=_integer(values.get(b"nvmlDev")),
        bus_id=_text(values[b"busId"]) if b"busId" in values else None,
        parent=_text(values[b"parent"]) if b"parent" in values else None,
        color=_integer(values.get(b"color")),
        key=_integer(values.get(b"key")),
        child=_integer(values.get(b"splitCount", values.get(b"childCount"))),
        time=time,
    )


def _channel(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    del entry
    found = _CHANNEL.search(text)
    if found is None:
        return
    via = _text(found[4])
    kind, gdr = _kind(via), "GDRDMA" in via
    count_channels(process, kind, gdr)
    src, dst, direction = int(found[1]), int(found[2]), _text(found[3] or b"")
    # Channels of one pair come one after the other, mixed with the pair of the other direction.
    for back in range(1, min(8, len(process.transports)) + 1):
        last = process.transports[-back]
        if (last.src, last.dst, last.kind, last.gdr, last.direction) == (src, dst, kind, gdr, direction):
            channels = last.channels + 1
            process.transports[-back] = Transport(src, dst, kind, gdr, direction, channels, last.line)
            return
    if len(process.transports) < _PAIRS_KEPT:
        process.transports.append(Transport(src, dst, kind, gdr, direction, 1, number))


def _kind(via: str) -> str:
    if via.startswith(("SHM", "direct shared memory")):
        return "SHM"
    # Behind the first two parts stand the device, a proxy rank in parentheses, GDRDMA, "read"…
    return "/".join(via.split("/")[:2]).split("(")[0].strip()


def _bootstrap(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    del entry, number
    if found := _BOOTSTRAP.search(text):
        process.bootstrap_interface, process.bootstrap_address = _text(found[1]), _text(found[2])


def _network(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    del entry, number
    if found := _NETWORK.search(text):
        process.network = _text(found[1])


def _ib(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    if b"No device found" in text:
        process.no_ib_device = True
    elif b": Using " in text:
        process.ib_devices = tuple(_text(name) for name in _IB_DEVICE.findall(text))
    elif _TROUBLE.search(text):
        _trouble(process, entry, text, number)


def _environment(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    del entry, number
    found = _ENV.search(text)
    if found and len(process.env) < _ENV_KEPT:
        value = _text(found[2])
        # Integers are echoed with a full stop; names and paths are not.
        process.env[_text(found[1])] = value[:-1] if re.fullmatch(r"-?\d+\.", value) else value


def _invalid(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    del entry
    if found := _INVALID.search(text):
        item = InvalidValue(_text(found[2]), _text(found[1]), _text(found[3]), number)
        _keep(process.invalid, item)


def _trail(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    if found := _TRAIL.match(text):
        _keep(process.trails, ErrorTrail(_text(found[1]), int(found[2]), _text(found[3]).strip(), number))
    elif _TROUBLE.search(text):
        _trouble(process, entry, text, number)


def _ras(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    if found := _RAS_PEER.search(text):
        if len(process.ras_peers) < _PAIRS_KEPT:
            process.ras_peers.append(
                RasPeer(int(found[1]), _text(found[2]), int(found[3]), _text(found[4]), bool(found[5]), number)
            )
    elif _TROUBLE.search(text):
        _trouble(process, entry, text, number)


def _trouble(process: NcclProcess, entry: NcclLine, text: bytes, number: int) -> None:
    if _TROUBLE.search(text):
        _keep(process.notes, _warning(entry, text, number))


def _warning(entry: NcclLine, text: bytes, number: int) -> NcclWarning:
    level = cast(Level, entry.level if entry.level in ("WARN", "ATTN", "DIAG") else "INFO")
    return NcclWarning(level, _text(text), entry.place, entry.function, entry.time, number, entry.tid)


_Reading = Callable[[NcclProcess, NcclLine, bytes, int], None]
_READERS: tuple[tuple[bytes, _Reading], ...] = (
    (b"Channel ", _channel),
    (b"Bootstrap", _bootstrap),
    (b"Using network", _network),
    (b"Invalid value", _invalid),
    (b" set ", _environment),
    (b"NET/IB", _ib),
    (b"RAS ", _ras),
    (b" rank ", _communicator),
    (b" -> ", _trail),
    (b"", _trouble),
)


def _keep(items: list[_Kept], item: _Kept) -> None:
    """Keep the first and the last ones."""
    if len(items) >= FIRST_KEPT + LAST_KEPT:
        del items[FIRST_KEPT]
    items.append(item)


def _integer(value: bytes | None) -> int | None:
    # Splits of 2.24 to 2.28 print "key 3- Init START".
    value = value.rstrip(b"-") if value else value
    return int(value) if value and re.fullmatch(rb"-?\d{1,18}", value) else None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
