"""Lines of the NCCL watchdog, its heartbeat monitor and the dumps, torch 2.0 to 2.15."""

from __future__ import annotations

import re
from typing import TypeVar

from whichrank.evidence.readers.torch_output.found import Matcher, number_after, number_list, of_group
from whichrank.records.events.base import Event, OfWork
from whichrank.records.events.collectives import DesyncReport
from whichrank.records.events.run_state import TorchEnv
from whichrank.records.events.startup import CommInit, DeviceGuess, GroupInit, GroupTeardown, WorldPlace
from whichrank.records.events.watchdog import (
    DumpFailed,
    DumpSignal,
    DumpStarted,
    DumpWritten,
    GilHeld,
    WatchdogProgress,
    WatchdogStuck,
    WatchdogTerminated,
    WatchdogTimeout,
)

_SEQ = re.compile(r"SeqNum=(\d{1,18})")
_NUMEL_IN = re.compile(r"NumelIn=(\d{1,18})")
_NUMEL_OUT = re.compile(r"NumelOut=(\d{1,18})")
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,18})")
_RAN = re.compile(r"ran for (\d{1,18}) milliseconds")
_OP = re.compile(r"OpType=(\w{1,64})")
_AT_WORK = re.compile(r"(?:work sequence id|at (?:NCCL )?work): (\d{1,18})")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18})")
_STARTED = re.compile(r"[Ll]ast started (?:NCCL )?work: (-?\d{1,18})")
_COMPLETED = re.compile(r"[Ll]ast completed (?:NCCL )?work: (-?\d{1,18})")
_FROM_RANK = re.compile(r"from  ?rank (-?\d{1,7})")
_SECONDS = re.compile(r"got stuck for (\d{1,9}) seconds")
_GIL = re.compile(r"within (\d{1,9}) ms")
_SIZE = re.compile(r"size: (\d{1,9})")
_GROUP_TIMEOUT = re.compile(r"TIMEOUT\(ms\): (\d{1,18})")
_GLOBAL_RANK = re.compile(r"global rank: (\d{1,7})")
_PG_NAME = re.compile(r"PG Name: (\S{1,200})")
_WORLD_PLACE = re.compile(r"\brank (\d{1,7}) in world size (\d{1,7}) is assigned as ")
"""vLLM's: `rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0`."""
_SETTING = re.compile(r"([A-Z][A-Z0-9_ ]{3,80}|NCCL version)(?: \([^)]{0,100}\))?: ([^,\s]{1,200})")
# XLA ends a process whose threads wait too long for the others: its watchdog has no other name.
_XLA_RENDEZVOUS = re.compile(
    r"Termination timeout for `([A-Za-z][\w -]{0,40}?)(?: for rank \d| RendezvousKey|[;:{(`])[^`]{0,2000}`?"
    r" of (\d{1,6}) seconds"
)
_LIST = r"\[([\d, -]{0,4000})\]"
_DESYNC = (
    ("timeout_at", re.compile(r"\[(\d{1,7})\] Timeout at collective: (\w{1,64}), #(\d{1,18})")),
    ("never_joined", re.compile(rf"ranks {_LIST} are the lagging ranks")),
    ("not_joined", re.compile(rf"{_LIST} finished collective #(\d{{1,18}}), but didn't join")),
    ("not_finished", re.compile(rf"{_LIST} joined but didn't finish collective #(\d{{1,18}})")),
)


W = TypeVar("W", bound=OfWork)


def of_work(event: W, text: str) -> W:
    """The event with its group and the values of `WorkNCCL(SeqNum=…, OpType=…)`, those that this version prints."""
    event.seq, event.numel_in = number_after(text, _SEQ), number_after(text, _NUMEL_IN)
    event.numel_out, event.timeout_ms = number_after(text, _NUMEL_OUT), number_after(text, _TIMEOUT)
    event.ran_ms = number_after(text, _RAN)
    if op := _OP.search(text):
        event.op = op[1]
    return of_group(event, text)


def _timeout(text: str) -> Event:
    event = of_work(WatchdogTimeout(), text)
    if bare := re.search(r"\[Rank (\d{1,7})\] (?:Watchdog c|C)aught", text):
        event.group_rank = int(bare[1])
    return event


def _counters(text: str) -> Event | None:
    work = number_after(text, _AT_WORK)
    if work is None:
        return None
    counts = [number_after(text, pattern) for pattern in (_ENQUEUED, _STARTED, _COMPLETED)]
    return of_group(WatchdogProgress(work=work, enqueued=counts[0], started=counts[1], completed=counts[2]), text)


def _dump_signal(text: str) -> Event:
    counts = [number_after(text, pattern) for pattern in (_ENQUEUED, _STARTED, _COMPLETED)]
    event = DumpSignal(enqueued=counts[0], started=counts[1], completed=counts[2], own="this local rank" in text)
    origin = number_after(text, _FROM_RANK)
    event.from_rank = origin if origin is not None and origin >= 0 else None
    return of_group(event, text)


def _terminated(text: str) -> Event:
    _, _, reason = text.partition("terminated with exception: ")
    if not reason:
        _, _, reason = text.partition("dump debug info, due to ")
    return of_group(WatchdogTerminated(reason=reason[:2000].strip()), text)


def _stuck(text: str) -> Event:
    return of_group(WatchdogStuck(seconds=number_after(text, _SECONDS)), text)


def _gil(text: str) -> Event:
    return GilHeld(ms=number_after(text, _GIL))


def _path(kind: type[DumpStarted | DumpWritten], words: str) -> Matcher:
    def read(text: str) -> Event | None:
        path = text.partition(words)[2].strip()[:1000]
        return of_group(kind(path=path), text) if path else None

    return words, read


def _dump_failed(text: str) -> Event:
    path = re.search(r"(?:to file: |debug info: |for writing: )(\S{1,1000})", text)
    return DumpFailed(reason=text[-300:].strip(), path=path[1] if path else "")


def _group_init(text: str) -> Event:
    name = _PG_NAME.search(text)
    event = GroupInit(size=number_after(text, _SIZE), timeout_ms=number_after(text, _GROUP_TIMEOUT))
    event.name, event.rank = name[1] if name else "", number_after(text, _GLOBAL_RANK)
    return of_group(event, text)


def _environment(text: str) -> Event:
    return of_group(TorchEnv(variables={name.strip(): value for name, value in _SETTING.findall(text)}), text)


def _desync(text: str) -> Event | None:
    for what, pattern in _DESYNC:
        match = pattern.search(text)
        if match is None:
            continue
        if what == "timeout_at":
            return DesyncReport(what=what, op=match[2], seq=int(match[3]), group_rank=int(match[1]))
        seq = int(match[2]) if what != "never_joined" else None
        return DesyncReport(what=what, ranks=number_list(match[1]), seq=seq)
    return None


def _communicator(text: str) -> Event | None:
    match = re.search(r"Rank (\d{1,7}): creating NCCL communicator", text)
    return CommInit(group_rank=int(match[1])) if match else None


def _teardown(what: str, words: str) -> Matcher:
    return words, lambda text: of_group(GroupTeardown(what=what), text)


def _xla_rendezvous(text: str) -> Event | None:
    match = _XLA_RENDEZVOUS.search(text)
    return WatchdogTimeout(op=match[1], timeout_ms=int(match[2]) * 1000, ran_ms=int(match[2]) * 1000) if match else None


def _world_place(text: str) -> Event | None:
    match = _WORLD_PLACE.search(text)
    return WorldPlace(number=int(match[1]), size=int(match[2])) if match else None


MATCHERS: tuple[Matcher, ...] = (
    ("aught collective operation timeout", _timeout),
    ("timeout watchdog detected operation timeout", _timeout),
    ("timed out in blocking wait", _timeout),
    ("Termination timeout for `", _xla_rendezvous),
    ("ast enqueued", lambda text: None if "signal" in text or "global timeout" in text else _counters(text)),
    ("Received a dump signal", _dump_signal),
    ("Received a timeout signal from", _dump_signal),
    ("Received a global timeout from", _dump_signal),
    ("watchdog thread terminated with exception", _terminated),
    ("Terminating the process after attempting to dump debug info", _terminated),
    ("watchdog got stuck for", _stuck),
    ("Heartbeat monitor timed out", _stuck),
    ("Could not acquire GIL", _gil),
    _path(DumpStarted, "dumping nccl trace to "),
    _path(DumpWritten, "Finished writing Flight Recorder debug info to "),
    _path(DumpWritten, "Finished writing NCCLPG debug info to "),
    ("Error writing Flight Recorder debug info", _dump_failed),
    ("Error opening file for writing", _dump_failed),
    ("Flight recorder dump in heartbeatMonitor timed out", _dump_failed),
    ("initialization options: size", _group_init),
    (" in world size ", _world_place),
    ("ProcessGroupNCCL environments:", _environment),
    ("HeartbeatMonitor environments:", _environment),
    ("Watchdog environments:", _environment),
    ("Timeout at collective: ", _desync),
    ("are the lagging ranks", _desync),
    ("collective #", _desync),
    ("creating NCCL communicator", _communicator),
    _teardown("destructor", "ProcessGroupNCCL destructor entered"),
    _teardown("not_destroyed", "destroy_process_group() was not called"),
    _teardown("destroying", "Starting to destroy process group"),
    _teardown("flushed", "Operations flushed, joining watchdog"),
    ("Guessing device ID based on global rank", lambda _: DeviceGuess()),
)
