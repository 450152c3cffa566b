"""One kernel log: the events in it, their times and their hosts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from whichrank.evidence.readers.kernel_log.lines import MATCHERS, Match, Told, announced
from whichrank.evidence.readers.kernel_log.prefix import Said, peel
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.text_file import lines_with
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.model.moments import rfc3339_ns
from whichrank.records.hardware import KernelEvent

# What ties the time since boot to the wall clock.
_AUDIT = re.compile(r"audit\((\d{9,11})\.(\d{3}):\d{1,12}\)")
_RTC = re.compile(r"setting system clock to .{10,40}\((\d{9,11})\)")
_ANNOUNCED = b"NVRM: The NVIDIA GPU"
WORDS = (*(mark for mark, _ in MATCHERS), b"audit(", b"setting system clock", _ANNOUNCED)
_BELOW = 4
"""A message of three lines, and one of somebody else between them."""
_OF_EACH = 40
_MOST = 4000
_SECOND = 10**9


class Log:
    """One pass over a file."""

    def __init__(self, item: Item) -> None:
        self._item = item
        self._host = host_of_path(item.label)
        self._kept = _KeptEvents()
        self._boot_ns: int | None = None
        self._newest: dict[str, int] = {}
        self._announced: dict[str | None, tuple[int, str]] = {}
        """By host: the GPU of which the driver begins to tell something, and in which line."""

    def read(self) -> Reading:
        """The events that could harm a job, in the order of the file."""
        for number, line, words in lines_with(self._item.path, WORDS):
            self.hear(number, line, words)
        return self.finish()

    def hear(self, number: int, line: bytes, words: tuple[bytes, ...]) -> None:
        """One line with these words in it."""
        said = peel(line)
        self._note_clock(said)
        if _ANNOUNCED in words and len(self._announced) < _MOST:
            self._announced[said.host] = (number, announced(said.text))
        told = next((told for matcher in _fitting(words) if (told := matcher(said.text))), None)
        if told is not None:
            self._kept.add(self._event(number, said, told))

    def finish(self) -> Reading:
        """What was heard."""
        self._note_end()
        events = self._dated(self._kept.events())
        if not events:
            return Reading([], "complete", "nothing in it that could harm a job")
        dropped = self._kept.dropped
        return Reading([*events], "complete", f"{dropped} repeated event(s) not kept" if dropped else "")

    def _event(self, number: int, said: Said, told: Told) -> KernelEvent:
        host = said.host or self._host
        if told.kind == "gpu_lost" and not told.device:
            at, device = self._announced.get(said.host) or self._announced.get(None) or (0, "")
            told.device = device if 0 < number - at <= _BELOW else ""
        ref = Ref(self._item.label, f"line {number}", said.text.strip()[:400], None, host, None)
        return KernelEvent(
            told.kind, ref, said.time_ns, said.uptime_ns, host, told.pid, told.process, told.device, told.data, number
        )

    def _note_clock(self, said: Said) -> None:
        for clock, value in (("wall", said.time_ns), ("uptime", said.uptime_ns)):
            if value is not None:
                self._newest[clock] = max(self._newest.get(clock, value), value)
        if said.uptime_ns is None or self._boot_ns is not None:
            return
        if match := _AUDIT.search(said.text):
            self._boot_ns = int(match[1]) * _SECOND + int(match[2]) * 10**6 - said.uptime_ns
        elif match := _RTC.search(said.text):
            self._boot_ns = int(match[1]) * _SECOND - said.uptime_ns

    def _note_end(self) -> None:
        """The newest line may be one that says nothing of interest."""
        with self._item.path.open("rb") as stream:
            stream.seek(max(0, self._item.size - (1 << 14)))
            for line in stream.read(1 << 14).splitlines()[-20:]:
                self._note_clock(peel(line))

    def _dated(self, events: Iterable[KernelEvent]) -> list[KernelEvent]:
        """Wall times from the time since boot where the log ties them, how old each is, and the time in the quote."""
        done = []
        for event in events:
            time_ns, age = event.time_ns, None
            if time_ns is not None:
                age = self._newest["wall"] - time_ns
            elif event.uptime_ns is not None:
                age = self._newest["uptime"] - event.uptime_ns
                time_ns = self._boot_ns + event.uptime_ns if self._boot_ns is not None else None
            ref = replace(event.ref, time=rfc3339_ns(time_ns)) if time_ns and time_ns > 0 else event.ref
            done.append(replace(event, time_ns=time_ns, age_ns=age, ref=ref))
        return done


@lru_cache(maxsize=4096)
def _fitting(words: tuple[bytes, ...]) -> tuple[Match, ...]:
    """What reads a line with these words in it, in the order of the table."""
    return tuple(dict.fromkeys(match for mark, match in MATCHERS if mark in words))


class _KeptEvents:
    """The first and the last of each kind, device, code and process; bounded."""

    def __init__(self) -> None:
        self._first: list[KernelEvent] = []
        self._last: dict[tuple[object, ...], deque[KernelEvent]] = {}
        self._count: dict[tuple[object, ...], int] = {}
        self._seen = 0

    def add(self, event: KernelEvent) -> None:
        self._seen += 1
        key: tuple[object, ...] = (event.kind, event.host, event.device, event.code)
        if key not in self._count and len(self._count) >= _MOST:
            key = (event.kind,)
        self._count[key] = self._count.get(key, 0) + 1
        if self._count[key] <= _OF_EACH and len(self._first) < _MOST * 4:
            self._first.append(event)
        else:
            self._last.setdefault(key, deque(maxlen=_OF_EACH)).append(event)

    def events(self) -> list[KernelEvent]:
        rest = [event for last in self._last.values() for event in last]
        return sorted([*self._first, *rest], key=lambda event: event.line)

    @property
    def dropped(self) -> int:
        return self._seen - len(self._first) - sum(len(last) for last in self._last.values())
