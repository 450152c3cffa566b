"""Output of torch jobs: messages of torch and its launchers, tracebacks, and the training's progress."""

from __future__ import annotations

from whichrank.evidence.readers import (
    _messages_comm,
    _messages_process,
    _messages_watchdog,
    _progress,
)
from whichrank.evidence.readers._found import Found, Matcher
from whichrank.evidence.readers._hearing import MARKS, Hearing
from whichrank.evidence.readers._prefixes import Clock, hint_of_path, listen, stated_year
from whichrank.evidence.readers._textscan import Scan, is_text
from whichrank.model.contracts import Item, Reading
from whichrank.records.log import FINITE

NAME = "torch_output"

_MATCHERS = tuple(
    (words.encode(), (words, read))
    for words, read in (*_messages_watchdog.MATCHERS, *_messages_comm.MATCHERS, *_messages_process.MATCHERS)
)
_ALL_MARKS = (*MARKS, *(mark for mark, _ in _MATCHERS))
_LOG_NAMES = (".log", ".out", ".err", ".txt", "stdout", "stderr")
_OTHER_NAMES = (".json", ".yaml", ".yml", ".xml", ".csv", ".md")
_SOURCE_STARTS = (b"import ", b"from ", b"def ", b"class ", b"#!/usr/bin/env python", b'"""')


def sniff(head: bytes, name: str) -> bool:
    """True for text that has, or by its name may have, something of torch's or of the training's."""
    lower = name.lower()
    if not is_text(head) or ".py" in lower or lower.endswith(_OTHER_NAMES) or _is_nccl_file(head, lower):
        return False
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or any(mark in head for mark in _ALL_MARKS if len(mark) > 8):
        return True
    lines = head.splitlines()
    if sum(line.startswith(_SOURCE_STARTS) for line in lines) > 2:
        return False
    return lower.endswith(_LOG_NAMES) or any(_progress.worth(line) for line in lines[:200])


def _is_nccl_file(head: bytes, name: str) -> bool:
    """A file of NCCL_DEBUG_FILE holds nothing of torch's and can be huge."""
    lines = [line for line in head.splitlines() if line.strip()]
    return "nccl" in name and all(b" NCCL " in line for line in lines[:-1]) and len(lines) > 1


def read(item: Item) -> Reading:
    """Events in the order of the file, then one `Progress`, then stacks that faulthandler printed."""
    return _Reader(item).read()


class _Plans:
    """What to do with a line, by its words: decided once for each shape, and then a number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bool, bool, bool, tuple[int, ...]], int] = {}
        self.plans: list[tuple[bool, bool, bool, tuple[Matcher, ...]]] = [(False, False, False, ())]

    def judge(self, line: bytes) -> int:
        fitting = tuple(i for i, (mark, _) in enumerate(_MATCHERS) if mark in line)
        heard = bool(fitting) or any(mark in line for mark in MARKS)
        worth = _progress.worth(line)
        if not (heard or worth):
            return 0
        plan = (heard, worth, worth and _progress.nonfinite(line), fitting)
        number = self._numbers.get(plan)
        if number is None:
            number = self._numbers[plan] = len(self.plans)
            self.plans.append((*plan[:3], tuple(_MATCHERS[i][1] for i in fitting)))
        return number


class _Reader:
    def __init__(self, item: Item) -> None:
        self._item = item
        self._rank = hint_of_path(item.label).rank
        self._clock = Clock(item.mtime_ns, stated_year(_edges(item)))
        self._hearing = Hearing(item.label, self._clock)
        self._lines = _progress.Lines(item.label)
        self._nonfinite: set[tuple[int, str]] = set()

    def read(self) -> Reading:
        plans, hearing = _Plans(), self._hearing
        words = (*_ALL_MARKS, *_progress.NONFINITE)
        scan = Scan(words, _progress.STEMS, plans.judge, lambda: hearing.watching)
        keep = self._lines.add
        for number, plan, line in scan.lines_of(self._item.path, self._item.size):
            heard, worth, nonfinite, matchers = plans.plans[plan]
            if worth:
                keep((number, line))
                if nonfinite:
                    self._note_nonfinite(number, line)
            if heard or hearing.watching:
                hearing.hear(number, listen(line, self._clock), matchers)
        hearing.close()
        return self._reading(scan.cut)

    def _reading(self, cut: int) -> Reading:
        records: list[object] = [*self._hearing.keeper.events()]
        progress = self._lines.progress(self._clock, self._rank)
        records += [progress] if progress is not None else []
        records += self._hearing.stacks
        if not records:
            return Reading([], "ignored", "nothing of torch's and no progress in it")
        truncated, dropped = self._hearing.truncated, self._hearing.keeper.dropped()
        notes = [f"{truncated} traceback(s) without an end"] if truncated else []
        notes += [f"{cut} overlong line(s) cut"] if cut else []
        notes += [f"{dropped} repeated event(s) not kept"] if dropped else []
        return Reading(records, "partial" if truncated or cut else "complete", "; ".join(notes))

    def _note_nonfinite(self, number: int, line: bytes) -> None:
        """The first of each rank becomes an event: the columns keep only the newest lines."""
        voice = listen(line, self._clock)
        step = _progress.parse(voice)
        if step is None or len(self._nonfinite) > 65536:
            return
        rank = _progress.rank_of(voice, self._rank, step)
        values = {
            "loss": step.loss if step.loss_state > FINITE else 0.0,
            "grad_norm": _progress.norm_of(voice),
        }
        for what, value in values.items():
            if abs(value) < float("inf") or (rank, what) in self._nonfinite:
                continue
            self._nonfinite.add((rank, what))
            found = Found("loss_nonfinite", {"what": what, "value": str(value), "step": step.step})
            found.rank = rank if rank >= 0 else None
            self._hearing.emit(number, voice, found)


def _edges(item: Item) -> bytes:
    """The file's first and last 64 KiB."""
    with item.path.open("rb") as stream:
        head = stream.read(1 << 16)
        if item.size > 1 << 17:
            stream.seek(-(1 << 16), 2)
        return head + stream.read(1 << 16)
