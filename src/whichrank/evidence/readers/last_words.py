"""The last words of a job's processes, as `whichrank run` writes them into a bundle."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.records.dump import ranks_of_spans
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import InOperation, Moved, OperationsCounted, StoodStill
from whichrank.records.events.launchers import LauncherEnded, ProcessExit, ProcessLeft
from whichrank.records.events.startup import CommInit, GroupInit, GroupTeardown, NotJoined

NAME = "last_words"

_MOST = 64 << 20
_STILL_S = 20.0
"""Longer than a step, and than what a rank does between two of them."""
_MOVES_S = 5.0
"""Several heartbeats: on a GPU that other jobs share, a single line may take longer than one."""
_BEFORE = ("started", "importing torch", "torch imported")
_MOST_RANKS = 1 << 20
_FRESH_NS = 3 * 10**9
"""Who has been silent for longer than another one on its host is held or stopped, and may be elsewhere by now."""
_INSIDE = re.compile(r"([a-z_]{1,40})(?: (from|to) (\d{1,7}))?(?: of ([\d,-]{1,64}))?$")


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_last_words"' in head[:64]


def read(item: Item) -> Reading:
    """Who was who, and how processes ended."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are no last words")
    try:
        content = json.loads(item.read().decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: no valid JSON ({error})") from error
    rows = content.get("processes") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise UnreadableError(f"{item.label}: no processes in it")
    host = content.get("host") if isinstance(content.get("host"), str) else None
    events: list[Event] = []
    ranks = [
        (index, row)
        for index, row in enumerate(rows[:65_536])
        if isinstance(row, dict) and _whole(row, "rank", _MOST_RANKS) is not None
    ]
    newest_ns = max((_whole(row, "heard_ns") or 0 for _, row in ranks), default=0)
    # A job that nobody watched from its start has said nothing at all.
    silent_s = max(0, (_whole(content, "taken_ns") or 0) - newest_ns) / 1e9 if newest_ns else 0.0
    fresh_ns = newest_ns - _FRESH_NS
    silent = silent_s >= _STILL_S
    for index, row in ranks:
        events += [*_events(item.label, index, row, host, silent=silent), *_counted(item.label, index, row, host)]
        if row.get("alive") is True and (_whole(row, "heard_ns") or 0) >= fresh_ns:
            events += _inside(item.label, index, row, host)
            if silent:
                events += _silent(item.label, index, row, host, silent_s)
            else:
                events += [*_still(item.label, index, row, host), *_moving(item.label, index, row, host)]
    launchers = content.get("launchers")
    for index, row in enumerate(launchers[:64] if isinstance(launchers, list) else []):
        if isinstance(row, dict):
            events += _launcher(item.label, index, row, host)
    return Reading([*events], "complete")


def _launcher(label: str, index: int, row: dict[str, Any], host: str | None) -> list[Event]:
    """A launcher that was ended by a signal."""
    pid, number = _whole(row, "pid"), _whole(row, "signal", 128)
    if row.get("alive") is not False or not number:
        return []
    ref = Ref(label, f"launcher {index}", f"the launcher (process {pid}) ended by signal {number}", None, host)
    return [LauncherEnded(ref=ref, time_ns=_whole(row, "ended_ns"), pid=pid, host=host, signal=number)]


def _events(label: str, index: int, row: dict[str, Any], host: str | None, *, silent: bool) -> list[Event]:
    """How far it came and how it ended; who is silent and lives may have come further than it could say."""
    rank, pid = _whole(row, "rank", _MOST_RANKS), _whole(row, "pid")
    found: list[Event] = []
    size = _whole(row, "world_size", _MOST_RANKS) or None
    if size and str(row.get("phase")) in ("joined", "leaving", "ended", "failed", "left"):
        ref = Ref(label, f"process {index}", f"rank {rank} is process {pid}, one of {size}", rank, host)
        found.append(GroupInit(ref=ref, time_ns=_whole(row, "started_ns"), rank=rank, pid=pid, host=host, size=size))
    elif silent and row.get("alive") is True:
        pass
    elif row.get("phase") == "joining":
        words = f"rank {rank} (process {pid}) is making its process group"
        ref = Ref(label, f"process {index}", words, rank, host)
        found.append(CommInit(ref=ref, time_ns=_whole(row, "changed_ns"), rank=rank, pid=pid, host=host, size=size))
    elif row.get("phase") in _BEFORE:
        state = "has ended" if row.get("alive") is False else "lives"
        quote = f"rank {rank} (process {pid}) {state} and never began to make a process group ({row['phase']})"
        ref = Ref(label, f"process {index}", quote, rank, host)
        found.append(NotJoined(ref=ref, time_ns=_whole(row, "changed_ns"), rank=rank, pid=pid, host=host, size=size))
    if row.get("phase") == "left" and row.get("alive") is True:
        words = f"rank {rank} (process {pid}) has destroyed its process group and still runs"
        ref = Ref(label, f"process {index}", words, rank, host)
        at = _whole(row, "changed_ns")
        found.append(GroupTeardown(ref=ref, time_ns=at, rank=rank, pid=pid, host=host, what="destroyed"))
    code, number = _whole(row, "exit_code"), _whole(row, "signal", 128)
    if row.get("alive") is False and (code or number):
        found.append(_ended(label, index, row, (rank, pid, host), (code, number)))
    if row.get("alive") is False and (how := _left(row, code, number)):
        ref = Ref(label, f"process {index}", f"rank {rank} (process {pid}) {how}", rank, host)
        found.append(ProcessLeft(ref=ref, time_ns=_whole(row, "ended_ns"), rank=rank, pid=pid, host=host))
    return found


def _counted(label: str, index: int, row: dict[str, Any], host: str | None) -> list[Event]:
    rank, issued, at = _whole(row, "rank", _MOST_RANKS), _whole(row, "issued"), _whole(row, "changed_ns")
    if not issued or not at:
        return []
    ref = Ref(label, f"process {index}", f"rank {rank} has issued {issued:,} operations", rank, host)
    return [OperationsCounted(ref=ref, time_ns=at, rank=rank, pid=_whole(row, "pid"), host=host, issued=issued)]


def _inside(label: str, index: int, row: dict[str, Any], host: str | None) -> list[Event]:
    """The operation that it is in, where that has a peer, a root or a group of some ranks."""
    inside = _INSIDE.match(str(row.get("in") or ""))
    if inside is None or not (inside[3] or inside[4]):
        return []
    rank, pid, step = _whole(row, "rank", _MOST_RANKS), _whole(row, "pid"), _whole(row, "step")
    place = str(row.get("place") or "?")[:200]
    quote = f"rank {rank} (process {pid}) is in {inside[0]}, at {place}" + (f", step {step}" if step else "")
    ref = Ref(label, f"process {index}", quote, rank, host)
    event = InOperation(ref=ref, time_ns=_whole(row, "heard_ns"), rank=rank, pid=pid, host=host, op=inside[1])
    if inside[3]:
        event.word, event.peer = inside[2], int(inside[3])
    event.ranks, event.step = _members(inside[4]) if inside[4] else (), step
    return [event]


def _still(label: str, index: int, row: dict[str, Any], host: str | None) -> list[Event]:
    """A living rank that is in no collective and has not moved; one that leaves may wait for its own threads."""
    told = row.get("still_s")
    seconds = float(told) if isinstance(told, int | float) and 0 <= told < 1e9 else 0.0
    phase = row.get("phase")
    alone = (row.get("waiting") is False and phase in ("joined", "left")) or (phase == "leaving" and not row.get("in"))
    if row.get("alive") is not True or not alone or seconds < _STILL_S:
        return []
    rank, pid, place = _whole(row, "rank", _MOST_RANKS), _whole(row, "pid"), str(row.get("place") or "?")[:200]
    quote = f"rank {rank} (process {pid}) has not moved for {seconds:.0f} s, at {place}"
    ref = Ref(label, f"process {index}", quote, rank, host)
    at = _whole(row, "heard_ns")
    return [StoodStill(ref=ref, time_ns=at, rank=rank, pid=pid, host=host, seconds=seconds, place=place)]


def _silent(label: str, index: int, row: dict[str, Any], host: str | None, seconds: float) -> list[Event]:
    """A living rank that was in no collective, and says nothing any more, like all others: where it is now only its
    stack tells."""
    if row.get("waiting") is not False:
        return []
    rank, pid = _whole(row, "rank", _MOST_RANKS), _whole(row, "pid")
    quote = f"the interpreter of rank {rank} (process {pid}) has not run for {seconds:.0f} s"
    ref = Ref(label, f"process {index}", quote, rank, host)
    return [StoodStill(ref=ref, time_ns=_whole(row, "heard_ns"), rank=rank, pid=pid, host=host, seconds=seconds)]


def _moving(label: str, index: int, row: dict[str, Any], host: str | None) -> list[Event]:
    """A living rank that has issued nothing for long and is in no collective, but goes from line to line."""
    heard, changed, told = _whole(row, "heard_ns"), _whole(row, "changed_ns"), row.get("still_s")
    alone = row.get("alive") is True and row.get("waiting") is False and row.get("phase") == "joined"
    if not alone or heard is None or changed is None or heard - changed < _STILL_S * 1e9:
        return []
    if not isinstance(told, int | float) or not 0 <= told < _MOVES_S:
        return []
    rank, pid, place = _whole(row, "rank", _MOST_RANKS), _whole(row, "pid"), str(row.get("place") or "?")[:200]
    quote = f"rank {rank} (process {pid}) moves, at {place}, {(heard - changed) / 1e9:.0f} s after its last collective"
    ref = Ref(label, f"process {index}", quote, rank, host)
    return [Moved(ref=ref, time_ns=heard, rank=rank, pid=pid, host=host)]


def _left(row: dict[str, Any], code: int | None, number: int | None) -> str:
    """How a process went that had nothing more to do; empty where it had."""
    if code == 0 and row.get("phase") in ("joined", "leaving", "ended", "left"):
        return "ended by exit code 0"
    # Its launcher ended it with the others, after its script had come to an end.
    over = number == signal.SIGTERM and row.get("phase") == "ended" and not row.get("error")
    return "had come to the end of its script" if over else ""


def _ended(
    label: str, index: int, row: dict[str, Any], who: tuple[int | None, int | None, str | None],
    how: tuple[int | None, int | None],
) -> Event:  # fmt: skip
    rank, pid, host = who
    code, number = how
    # Who comes to the end of its script without an exception left by its own decision, whatever it did a moment before.
    # By 1 also the processes of torch.multiprocessing end that have put their exception into a queue.
    left = row.get("phase") == "ended" and not row.get("error") and code is not None and code > 1
    words = f"signal {number}" if number is not None else f"exit code {code}"
    place = str(row.get("place") or "")[:200]
    ended, heard = _whole(row, "ended_ns"), _whole(row, "heard_ns")
    age = f" {max(0, ended - heard) / 1e9:.1f} s before" if ended and heard else ""
    quote = f"rank {rank} (process {pid}) ended by {words}" + (f", last seen at {place}{age}" if place else "")
    ref = Ref(label, f"process {index}", quote, rank, host)
    event = ProcessExit(ref=ref, time_ns=ended, rank=rank, pid=pid, host=host, by="whichrank", signal=number)
    event.exitcode = -number if number is not None else code
    event.waiting, event.how = row.get("waiting") is True and not left, "sys.exit" if left else ""
    return event


def _whole(row: dict[str, Any], key: str, most: int = 1 << 62) -> int | None:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most else None


def _members(spans: str) -> tuple[int, ...]:
    try:
        return ranks_of_spans(spans)
    except ValueError:
        return ()
