"""Output of torch jobs: messages of torch and its launchers, tracebacks, and the training's progress."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache

from whichrank.evidence.readers.torch_output import communication, completion, exits, process, progress, watchdog
from whichrank.evidence.readers.torch_output.bounded_events import FIRST
from whichrank.evidence.readers.torch_output.found import Matcher
from whichrank.evidence.readers.torch_output.listener import MARKS, Hearing
from whichrank.evidence.text import shared_pass, tracebacks
from whichrank.evidence.text.chunks import Chunk
from whichrank.evidence.text.lines import Piece, Pieces
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.evidence.text.repeated_lines import Held, Often, key_of, speaker
from whichrank.evidence.text.text_file import LONGEST, bounded, is_text
from whichrank.evidence.text.words import Found
from whichrank.model.contracts import Item, Reading
from whichrank.records.events.run_state import LossNonfinite
from whichrank.records.log import FINITE

NAME = "torch_output"

_MATCHERS = tuple(
    (words.encode(), (words, read))
    for module in (watchdog, communication, process, exits)
    for words, read in module.MATCHERS
)
_ALL_MARKS = frozenset((*MARKS, *(mark for mark, _ in _MATCHERS)))
_OPENING = frozenset(MARKS)
_TABLE = frozenset((b" FAILED", b"Root Cause", b"Failures:"))
_OTHER_OPENING = _OPENING - _TABLE
_TRACEBACK = b"most recent call"
_TRACEBACKS_OWN = frozenset((_TRACEBACK, *(mark for mark in MARKS if mark.startswith(b"File"))))
_TRACES, _TABLES = 8, 64
"""Tracebacks of one look that are heard at once, and at the end; tables of failures, each of which keeps all lines
behind it in suspense."""
_STAMP = 200
"""Of a line, the beginning in which its time stands, or the rest of a line that was wrapped."""
_WRAPPED = exits.WRAPPED.encode()
_ENOUGH = 8
"""Lines of one look in which a loss is not a number."""
_LOG_NAMES = (".log", ".out", ".err", ".txt", "stdout", "stderr")
_OTHER_NAMES = (".json", ".yaml", ".yml", ".xml", ".csv", ".md")
_SOURCE_STARTS = (b"import ", b"from ", b"def ", b"class ", b"#!/usr/bin/env python", b'"""')


def sniff(head: bytes, name: str) -> bool:
    """True for text that has, or by its name may have, something of torch's or of the training's."""
    lower = name.lower()
    if not is_text(head) or ".py" in lower or lower.endswith(_OTHER_NAMES) or _is_nccl_file(head, lower):
        return False
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    lines = head.splitlines()
    is_source = sum(line.startswith(_SOURCE_STARTS) for line in lines) > 2
    if not is_source and lower.endswith(_LOG_NAMES):
        return True
    if any(mark in head for mark in _ALL_MARKS if len(mark) > 8):
        return True
    return not is_source and any(progress.worth(line) for line in lines[:200])


def _is_nccl_file(head: bytes, name: str) -> bool:
    """A file of NCCL_DEBUG_FILE holds nothing of torch's and can be huge."""
    lines = [line for line in head.splitlines() if line.strip()]
    return "nccl" in name and all(b" NCCL " in line for line in lines[:-1]) and len(lines) > 1


def telling() -> frozenset[bytes]:
    """Words in lines that are read in detail."""
    return Listener.words


def read(item: Item) -> Reading:
    """Events in the order of the file, then one `Progress`, then stacks that faulthandler printed."""
    return shared_pass.read(item, [Listener(item)])[0]


class Listener:
    """One pass over a file."""

    words = _ALL_MARKS | progress.NONFINITE

    def __init__(self, item: Item) -> None:
        self._item = item
        self._rank = hint_of_path(item.label).rank
        self._clock = clock_of(item)
        self._hearing = Hearing(item.label, self._clock)
        self._often = Often(FIRST)
        self._tracebacks = Often(_TRACES)
        self._tables = Often(_TABLES)
        self._repeated = (self._often, self._tracebacks, self._tables)
        self._nonfinite: set[tuple[int, str]] = set()
        self._suspects: Counter[object] = Counter()
        self._breaks = 0
        self._cut = 0

    def take(self, chunk: Chunk, found: Found) -> None:
        """Hear the lines with words in them, and those that may belong to an open message."""
        self._breaks += chunk.breaks
        pieces, hearing = Pieces(chunk, found), self._hearing
        while piece := pieces.any() if hearing.watching else pieces.told():
            number, start, end, words = piece
            if _TRACEBACK in words:
                self._hear_above(chunk, start)
                if self._is_repeated(chunk, pieces, piece):
                    continue
            line = bytes(chunk.view[start:end])
            if line.endswith(_WRAPPED):
                line += b" " + bytes(chunk.view[end + 1 : min(end + _STAMP, chunk.size)]).partition(b"\n")[0]
            if len(line) > LONGEST:
                line = bounded(line)
                self._cut += 1
            if not progress.NONFINITE.isdisjoint(words):
                self._note_nonfinite(number, line)
            self._hear(number, line, words)

    def _hear(self, number: int, line: bytes, words: tuple[bytes, ...]) -> None:
        hearing = self._hearing
        if not hearing.watching:
            if _ALL_MARKS.isdisjoint(words):
                return
            often = self._often if _OPENING.isdisjoint(words) else self._tables
            if _OTHER_OPENING.isdisjoint(words) and often.holds(
                Held(number, line, hearing.newest, words), key_of(line)
            ):
                return
        hearing.hear(number, listen(line, self._clock), _fitting(words))

    def _hear_above(self, chunk: Chunk, start: int) -> None:
        """The time and the level of the line above: a logger writes them there, and nothing into the traceback."""
        begin = chunk.buffer.rfind(b"\n", 0, max(start - 1, 0)) + 1
        above = bytes(chunk.view[begin : min(start, begin + _STAMP)])
        self._hearing.logged = _LOGGED.search(above) is not None
        of_rank = _OF_RANK.findall(above) if self._hearing.logged else []
        self._hearing.logged_rank = int(of_rank[0]) if len(of_rank) == 1 else None
        if not of_rank and self._clock.prefix is not None and (self._hearing.logged or _ANNOUNCED.search(above)):
            self._hearing.logged_rank = listen(above.rstrip(b"\n"), self._clock).rank
        told = listen(above, self._clock).time_ns
        if told is not None:
            self._hearing.newest = max(self._hearing.newest or 0, told)

    def _is_repeated(self, chunk: Chunk, pieces: Pieces, piece: Piece) -> bool:
        """Whether here begins a traceback of which enough were heard; then it is passed."""
        if self._hearing.watching or self._hearing.expecting:
            return False
        block = tracebacks.block(chunk.buffer, piece.start, piece.end, chunk.size)
        if block is None:
            return False
        end, named = block
        others = pieces.words_until(end).union(piece.words) - _TRACEBACKS_OWN
        # Frames and class tell it; the message too, where it has words that are known.
        text = bytes(chunk.view[piece.start : end])
        told = None if others else named - piece.start
        if not self._tracebacks.holds(Held(piece.number, text, self._hearing.newest, ()), key_of(text, told)):
            return False
        pieces.skip(end)
        return True

    def finish(self) -> Reading:
        """All that was heard."""
        self._hearing.close()
        for held in sorted(
            self._often.held() + self._tracebacks.held() + self._tables.held(), key=lambda item: item.number
        ):
            self._hearing.newest = held.after_ns
            for number, line in enumerate(held.text.split(b"\n"), held.number):
                words = held.words or tuple(mark for mark in _ALL_MARKS if mark in line)
                self._hearing.hear(number, listen(line, self._clock), _fitting(words))
            self._hearing.close()
        return self._reading()

    def _reading(self) -> Reading:
        for number, voice, event in completion.read(self._item, self._breaks, self._clock):
            self._hearing.emit(number, voice, event)
        records: list[object] = [*self._hearing.keeper.events()]
        steps = progress.read(self._item, self._breaks, self._clock, self._rank)
        records += [steps] if steps is not None else []
        records += self._hearing.stacks
        if not records:
            return Reading([], "ignored", "nothing of torch's and no progress in it")
        truncated, cut = self._hearing.truncated, self._cut
        dropped = self._hearing.keeper.dropped() + sum(often.dropped for often in self._repeated)
        notes = [f"{truncated} traceback(s) without an end"] if truncated else []
        notes += [f"{cut} overlong line(s) cut"] if cut else []
        notes += [f"{dropped} repeated event(s) not kept"] if dropped else []
        return Reading(records, "partial" if truncated or cut else "complete", "; ".join(notes))

    def _note_nonfinite(self, number: int, line: bytes) -> None:
        """The first of each rank becomes an event: the columns keep only the newest lines."""
        if not (progress.nonfinite(line) and progress.worth(line)):
            return
        who = speaker(line)
        self._suspects[who] += 1
        if self._suspects[who] > _ENOUGH or len(self._suspects) > 65536:
            return
        voice = listen(line, self._clock)
        step = progress.parse(voice)
        if step is None or len(self._nonfinite) > 65536:
            return
        rank = progress.rank_of(voice, self._rank, step)
        if (alone := progress.only_nonfinite(voice)) is not None:
            self._nonfinite.add((alone, "value"))
            event = LossNonfinite(what="value", value=str(math.nan), step=step.step, rank=alone)
            self._hearing.emit(number, voice, event)
            return
        values = {
            "loss": step.loss if step.loss_state > FINITE else 0.0,
            "grad_norm": progress.norm_of(voice),
        }
        if _PUT_RIGHT.search(voice.text):
            return
        plain = all(abs(value) < float("inf") for value in values.values()) and not _REDUCED.search(voice.text)
        if plain or progress.own_is_nonfinite(voice):
            values["value"] = math.nan
        for what, value in values.items():
            if abs(value) < float("inf") or (rank, what) in self._nonfinite:
                continue
            self._nonfinite.add((rank, what))
            event = LossNonfinite(what=what, value=str(value), step=step.step, rank=rank if rank >= 0 else None)
            self._hearing.emit(number, voice, event)


_LOGGED = re.compile(rb"(?<![\w.])(?:ERROR|WARNING|WARN|CRITICAL)\b")
"""The level that a logger puts before a message."""
_ANNOUNCED = re.compile(
    rb"(?i)(?:Error|Exception)\b|\b(?:fail(?:s|ed|ure)|crash(?:es|ed)?|died|aborted|unhandled|uncaught)\b"
)
"""What a program says of itself before it prints a traceback."""
_OF_RANK = re.compile(
    rb"(?i)(?<!to )(?<!from )(?<!with )(?<!for )(?<!by )(?<!peer )(?<!lost )(?<!and )(?<![\w-])"
    rb"rank[ =:#_]{0,2}(\d{1,7})\b"
)
"""The rank that a message is about, unless it is one that somebody waits for or has lost."""
_PUT_RIGHT = re.compile(r"(?i)\b(?:zeroed|masked|replaced|clipped|dropped|skipp(?:ed|ing)|ignor(?:ed|ing))\b")
"""What became of a value that was not finite: it goes into no reduction."""
_REDUCED = re.compile(r"(?i)norm|loss")
"""What all ranks have alike once it is reduced."""


@lru_cache(maxsize=4096)
def _fitting(words: tuple[bytes, ...]) -> tuple[Matcher, ...]:
    """What reads a line with these words in it, in the order of the table."""
    return tuple(matcher for mark, matcher in _MATCHERS if mark in words)
