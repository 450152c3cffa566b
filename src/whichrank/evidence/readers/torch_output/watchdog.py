"""Lines of the NCCL watchdog, its heartbeat monitor and the dumps, torch 2.0 to 2.15."""

from __future__ import annotations

import re

from whichrank.evidence.readers.torch_output.found import Found, Matcher, group_of, number_list, put_numbers
from whichrank.records.log import EventKind, Value

_WORK = {
    "seq": re.compile(r"SeqNum=(\d{1,18})"),
    "numel_in": re.compile(r"NumelIn=(\d{1,18})"),
    "numel_out": re.compile(r"NumelOut=(\d{1,18})"),
    "timeout_ms": re.compile(r"Timeout\(ms\)=(\d{1,18})"),
    "ran_ms": re.compile(r"ran for (\d{1,18}) milliseconds"),
}
_OP = re.compile(r"OpType=(\w{1,64})")
_COUNTERS = {
    "work": re.compile(r"(?:work sequence id|at (?:NCCL )?work): (\d{1,18})"),
    "enqueued": re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18})"),
    "started": re.compile(r"[Ll]ast started (?:NCCL )?work: (-?\d{1,18})"),
    "completed": re.compile(r"[Ll]ast completed (?:NCCL )?work: (-?\d{1,18})"),
}
_FROM_RANK = re.compile(r"from  ?rank (-?\d{1,7})")
_SECONDS = re.compile(r"got stuck for (\d{1,9}) seconds")
_GIL = re.compile(r"within (\d{1,9}) ms")
_OPTIONS = {
    "size": re.compile(r"size: (\d{1,9})"),
    "timeout_ms": re.compile(r"TIMEOUT\(ms\): (\d{1,18})"),
}
_GLOBAL_RANK = re.compile(r"global rank: (\d{1,7})")
_PG_NAME = re.compile(r"PG Name: (\S{1,200})")
_SETTING = re.compile(r"([A-Z][A-Z0-9_ ]{3,80}|NCCL version)(?: \([^)]{0,100}\))?: ([^,\s]{1,200})")
_LIST = r"\[([\d, -]{0,4000})\]"
_DESYNC = (
    ("timeout_at", re.compile(r"\[(\d{1,7})\] Timeout at collective: (\w{1,64}), #(\d{1,18})")),
    ("never_joined", re.compile(rf"ranks {_LIST} are the lagging ranks")),
    ("not_joined", re.compile(rf"{_LIST} finished collective #(\d{{1,18}}), but didn't join")),
    ("not_finished", re.compile(rf"{_LIST} joined but didn't finish collective #(\d{{1,18}})")),
)


def work_values(text: str) -> dict[str, Value]:
    """The values of `WorkNCCL(SeqNum=…, OpType=…)`, those that this version prints."""
    data: dict[str, Value] = {}
    put_numbers(data, text, _WORK)
    if op := _OP.search(text):
        data["op"] = op[1]
    return data


def _timeout(text: str) -> Found:
    names, group_rank = group_of(text)
    if bare := re.search(r"\[Rank (\d{1,7})\] (?:Watchdog c|C)aught", text):
        group_rank = int(bare[1])
    return Found("watchdog_timeout", names | work_values(text), group_rank=group_rank)


def _counters(text: str) -> Found | None:
    names, group_rank = group_of(text)
    put_numbers(names, text, _COUNTERS)
    return Found("watchdog_progress", names, group_rank=group_rank) if "work" in names else None


def _dump_signal(text: str) -> Found:
    names, group_rank = group_of(text)
    put_numbers(names, text, _COUNTERS)
    names.pop("work", None)
    names["own"] = int("this local rank" in text)
    origin = _FROM_RANK.search(text)
    if origin and int(origin[1]) >= 0:
        names["from_rank"] = int(origin[1])
    return Found("dump_signal", names, group_rank=group_rank)


def _terminated(text: str) -> Found:
    names, group_rank = group_of(text)
    _, _, reason = text.partition("terminated with exception: ")
    if not reason:
        _, _, reason = text.partition("dump debug info, due to ")
    return Found("watchdog_terminated", names | {"reason": reason[:2000].strip()}, group_rank=group_rank)


def _stuck(text: str) -> Found:
    names, group_rank = group_of(text)
    if seconds := _SECONDS.search(text):
        names["seconds"] = int(seconds[1])
    return Found("watchdog_stuck", names, group_rank=group_rank)


def _gil(text: str) -> Found:
    wait = _GIL.search(text)
    return Found("gil_held", {"ms": int(wait[1])} if wait else {})


def _path(kind: EventKind, words: str) -> Matcher:
    def read(text: str) -> Found | None:
        path = text.partition(words)[2].strip()[:1000]
        names, group_rank = group_of(text)
        return Found(kind, names | {"path": path}, group_rank=group_rank) if path else None

    return words, read


def _dump_failed(text: str) -> Found:
    path = re.search(r"(?:to file: |debug info: |for writing: )(\S{1,1000})", text)
    found = Found("dump_failed", {"reason": text[-300:].strip()})
    if path:
        found.data["path"] = path[1]
    return found


def _group_init(text: str) -> Found:
    names, group_rank = group_of(text)
    put_numbers(names, text, _OPTIONS)
    if name := _PG_NAME.search(text):
        names["name"] = name[1]
    world = _GLOBAL_RANK.search(text)
    return Found("group_init", names, rank=int(world[1]) if world else None, group_rank=group_rank)


def _environment(text: str) -> Found:
    names, group_rank = group_of(text)
    for name, value in _SETTING.findall(text):
        names[name.strip()] = value
    return Found("torch_env", names, group_rank=group_rank)


def _desync(text: str) -> Found | None:
    for what, pattern in _DESYNC:
        match = pattern.search(text)
        if match is None:
            continue
        data: dict[str, Value] = {"what": what}
        if what == "timeout_at":
            data |= {"op": match[2], "seq": int(match[3])}
            return Found("desync_report", data, group_rank=int(match[1]))
        data["ranks"] = number_list(match[1])
        if what != "never_joined":
            data["seq"] = int(match[2])
        return Found("desync_report", data)
    return None


def _communicator(text: str) -> Found | None:
    match = re.search(r"Rank (\d{1,7}): creating NCCL communicator", text)
    return Found("comm_init", {}, group_rank=int(match[1])) if match else None


def _teardown(what: str, words: str) -> Matcher:
    def read(text: str) -> Found:
        names, group_rank = group_of(text)
        return Found("group_teardown", names | {"what": what}, group_rank=group_rank)

    return words, read


MATCHERS: tuple[Matcher, ...] = (
    ("aught collective operation timeout", _timeout),
    ("timeout watchdog detected operation timeout", _timeout),
    ("timed out in blocking wait", _timeout),
    ("ast enqueued", lambda text: None if "signal" in text or "global timeout" in text else _counters(text)),
    ("Received a dump signal", _dump_signal),
    ("Received a timeout signal from", _dump_signal),
    ("Received a global timeout from", _dump_signal),
    ("watchdog thread terminated with exception", _terminated),
    ("Terminating the process after attempting to dump debug info", _terminated),
    ("watchdog got stuck for", _stuck),
    ("Heartbeat monitor timed out", _stuck),
    ("Could not acquire GIL", _gil),
    _path("dump_started", "dumping nccl trace to "),
    _path("dump_written", "Finished writing Flight Recorder debug info to "),
    _path("dump_written", "Finished writing NCCLPG debug info to "),
    ("Error writing Flight Recorder debug info", _dump_failed),
    ("Error opening file for writing", _dump_failed),
    ("Flight recorder dump in heartbeatMonitor timed out", _dump_failed),
    ("initialization options: size", _group_init),
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
    ("Guessing device ID based on global rank", lambda _: Found("device_guess")),
)
