"""Known messages of failure, wherever they stand in text: the signatures of the knowledge base.

Any output may hold them: logs of ranks, of launchers, of libraries that no other reader knows, and what a person
wrote or pasted. Memory does not grow with the file: of each signature the first and the last of each process are kept.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import cast

import numpy as np
from msgspec.structs import replace

from whichrank.evidence.readers.known_messages.kept import FIRST, LAST, Alike, Kept
from whichrank.evidence.text import shared_pass
from whichrank.evidence.text.chunks import PADDING, UTF16, Chunk, Indices
from whichrank.evidence.text.path_hint import PathHint, hint_of_path
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.evidence.text.quotations import DOCUMENTS, Quotations, denied, set_off
from whichrank.evidence.text.repeated_lines import Held, Often, keys, look
from whichrank.evidence.text.text_file import bounded, is_text
from whichrank.evidence.text.words import Found, Words
from whichrank.facts.messages import KNOWN, REPORT, Signature, order
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.events.messages import KnownMessage
from whichrank.records.nccl import NcclLog

NAME = "known_messages"

_SURE, _LOOKS = 16, 4096
"""Lines that look alike and are searched for everything, and looks that are told apart."""
_SAME = 4
"""Lines of one look after which the others wait for the end of the file, where enough is kept of all that they say."""
_AT_ONCE, _AT_THE_END = 8192, 4096
"""Lines of a file that are read: both ends of one in which hardly two look alike."""
_SPEAKERS, _MOST = 4096, 16384
"""Processes told apart, and sightings kept in all."""
_A_NOTE = 1 << 16
"""What a person writes about a failure is not longer."""
_LITTLE = 1 << 13
"""Bytes of lines in which words are looked for one after the other."""
_QUOTE = 400
_SLICE = 256
"""Lines with known words that are read before it is asked which of the others look like them."""
_ROUND = 64
"""Lines after which the clock is asked: asking costs as much as looking at a line."""
_BUDGET_S = 20.0
"""CPU for the patterns of one file; 20 MB of output full of known words take two."""
# Programs and tables quote messages without having seen them. In documents the words of people count, and what
# programs printed only where it is set off as a quotation.
_NO_EVIDENCE = (
    ".py", ".pyi", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".ipynb", ".html", "conditions.json", "run.json",
)  # fmt: skip
# host:pid:tid [device], as NCCL and its plug-ins begin their lines.
_PROCESS = re.compile(r"(?:^|[\s>\]])((?!\d\d:)[A-Za-z0-9][\w.-]{0,253}):(\d{1,10}):(\d{1,10}) (?:\[-?\d{1,9}\] )?")
_IDS = re.compile(r":\d{1,10}:\d{1,10} ")
"""What stands in every such beginning, found sooner."""
_EXTRA = 80
_OUTPUT = re.compile(
    rb"NCCL (?:INFO|WARN|VERSION|TRACE|CALL)|[Ww]arning: |WARNING|ERROR|\bINFO\b|\.(?:py|cpp|cc|cu):\d"
)
_MARKS = (b"NCCL ", b"arning: ", b"WARNING", b"ERROR", b"INFO", b".py:", b".cpp:", b".cc:", b".cu:")
"""Marks of lines that a program printed, and what stands in each of them."""
_BEGINS = re.compile(rb"\s{0,8}File |\[(?!\d\d?:\d\d\] [A-Za-z])|\d{4}-\d\d")
"""How lines of programs begin; `[09:14] anya: ` is a person's."""


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning of the file holds a known message."""
    if not is_text(head) or name.lower().endswith(_NO_EVIDENCE):
        return False
    known = _all_anchors(KNOWN.edition)
    if name.lower().endswith(DOCUMENTS) and _words_of_people(KNOWN.edition).find(_chunk(head)):
        return True
    return bool(known.find(_chunk(head)))


def _chunk(head: bytes) -> Chunk:
    return Chunk(bytearray(head + bytes(PADDING)), len(head), 0, 1)


@lru_cache(maxsize=8)  # a line is asked about when it is met and when it is read
def _is_output(line: bytes) -> bool:
    if _BEGINS.match(line):
        return True
    return any(map(line.__contains__, _MARKS)) and _OUTPUT.search(line) is not None


@cache
def _searched(_edition: int, *, note: bool) -> tuple[dict[bytes, tuple[Signature, ...]], frozenset[bytes]]:
    """The signatures by their words, and the words to look for; in a note also those that only people use."""
    short = KNOWN.words if note else {}
    printed = KNOWN.anchors
    table = {word: (*printed.get(word, ()), *short.get(word, ())) for word in printed | short}
    return table, frozenset(table) - (KNOWN.harmless - short.keys())


@cache
def _all_anchors(_edition: int) -> Words:
    return Words(KNOWN.anchors)


@cache
def _words_of_people(_edition: int) -> Words:
    return Words(KNOWN.words)


def read(item: Item) -> Reading:
    """Every known message, in the order of the file."""
    return shared_pass.read(item, [Listener(item)])[0]


def of_records(item: Item, logs: Iterable[NcclLog]) -> Reading:
    """The known messages among the warnings that NCCL's reader found: a large log of NCCL alone is read once."""
    search = Listener(item)
    for log in logs:
        for process in log.processes:
            for warning in (*process.warnings, *process.notes):
                search.see(f"{process.label}:0 [0] NCCL {warning.level} {warning.text}".encode(), warning.line)
    return Reading(list(search.messages()), "complete" if search.messages() else "ignored")


def retold(item: Item) -> list[KnownMessage]:
    """Messages of programs of which a person speaks in a document without quoting them."""
    if not item.label.lower().endswith(DOCUMENTS) or not is_text(item.head()):
        return []
    search = Listener(item, retold=True)
    shared_pass.read(item, [search])
    return [message for message in search.messages() if message.retold]


class Listener:
    """One pass over a file."""

    def __init__(self, item: Item, *, retold: bool = False) -> None:
        self._retold = retold
        """Whether what people say of messages in passing counts too."""
        self._ignored = item.label.lower().endswith(_NO_EVIDENCE)
        self._quotations = Quotations() if item.label.lower().endswith(DOCUMENTS) else None
        self._item = item
        self._is_note = item.size <= _A_NOTE
        self._by_place = not self._is_note and item.kept is None and item.head(2) not in UTF16
        """Whether its lines can be read again by their places."""
        self._signatures, words = _searched(KNOWN.edition, note=self._is_note)
        self.words = frozenset() if self._ignored else words
        self._total = 0
        self._label = item.label
        self._hint: PathHint = hint_of_path(item.label)
        self._clock = clock_of(item)
        self._newest: int | None = None
        self._kept: dict[tuple[str, object], Kept] = {}
        self._often = Often(FIRST)
        self._at_once = 0
        self._rest: deque[Held] = deque(maxlen=_AT_THE_END)
        self._alike: dict[tuple[object, ...], Alike] = {}
        self._spent_s = 0.0
        self._beside: Sequence[bytes] = tuple(KNOWN.harmless)
        self._prose = False
        """Whether the line is a person's own words in a document."""

    def take(self, chunk: Chunk, found: Found) -> None:
        """Look at the lines in which known words were found."""
        quoted = self._quotations.lines(chunk) if self._quotations is not None else None
        if found and self._spent_s < _BUDGET_S:
            self._see_all(self._lines(chunk, found, quoted))
            self._beside = tuple(KNOWN.harmless)

    def _lines(self, chunk: Chunk, found: Found, quoted: Container[int] | None) -> Iterator[Held]:
        """The lines with words in them that are read at once."""
        index = chunk.index(found.places)
        first = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
        index, begins, words = index[first], [*first.tolist(), len(found)], found.words()
        looks = keys(chunk, index)
        by_place = quoted is None and self._by_place
        rest = self._often.pass_over(looks, chunk, index, self._newest) if by_place else np.arange(len(index))
        while len(rest):
            left, rest = (rest[:_SLICE], rest[_SLICE:]) if by_place else (rest, rest[:0])
            self._beside = _harmless_in(chunk, index[left])
            texts = chunk.lines(index[left])
            for at, key, (line, text) in zip(left.tolist(), looks[left].tolist(), texts, strict=True):
                met = Held(chunk.first + line, bounded(text), self._newest, tuple(words[begins[at] : begins[at + 1]]))
                self._prose = quoted is not None and line not in quoted
                if not self._is_passed(met, key):
                    yield met
            if len(rest):  # of what the first of them say enough may be known now
                rest = rest[self._often.pass_over(looks[rest], chunk, index[rest], self._newest)]

    def _is_passed(self, met: Held, key: int) -> bool:
        """Whether a line is read later, or not at all."""
        if not self._prose and ((self._is_note and self._is_dull(met.text, met.words)) or self._often.holds(met, key)):
            return True
        self._at_once += 1
        if self._at_once > _AT_ONCE:
            self._rest.append(met)
        return self._at_once > _AT_ONCE

    def _is_dull(self, line: bytes, words: Iterable[bytes]) -> bool:
        """Whether a program printed the line, and only words that count in the sentences of people are in it."""
        known = KNOWN.anchors
        if any(word in known for word in words) or any(word in line for word in self._beside):
            return False
        return _is_output(line)

    def finish(self) -> Reading:
        """All that was found."""
        if self._ignored:
            return Reading([], "ignored", "code or a document, not output")
        self._see_all(self._again())
        records = self.messages()
        if not records:
            return Reading([], "ignored", "no known message in it")
        if self._spent_s >= _BUDGET_S:
            return Reading(
                list(records), "partial", f"not searched to its end: {_BUDGET_S:.0f} s of CPU were spent on it"
            )
        note = f"{self.dropped} repeated message(s) not kept" if self.dropped else ""
        return Reading(list(records), "complete", note)

    def _again(self) -> Iterator[Held]:
        """The lines that waited, the last first: of what was said often only the end is kept."""
        self._prose = False
        waiting = [*self._read_again(self._often.held()), *self._rest]
        for held in sorted(waiting, key=lambda line: line.number, reverse=True):
            said = cast("list[Kept] | None", held.said)
            if said and not any(kept.needs(held.number) for kept in said):
                for kept in said:
                    kept.count += 1 + held.skipped
                continue
            self._newest = held.after_ns
            yield held

    def _read_again(self, waiting: Sequence[Held]) -> Iterator[Held]:
        """The lines of which the places were kept, with their text and the words in them."""
        away = [held for held in waiting if held.place is not None]
        yield from (held for held in waiting if held.place is None)
        if not away:
            return
        with self._item.open() as stream:
            texts = [bounded(held.text_in(stream)) for held in away]
        chunk = _chunk(b"\n".join(texts))
        words: list[list[bytes]] = [[] for _ in away]
        found = _all_anchors(KNOWN.edition).find(chunk)
        for line, word in zip(chunk.index(found.places).tolist(), found.words(), strict=True):
            words[line].append(word)
        for held, text, said in zip(away, texts, words, strict=True):
            yield held._replace(text=text, words=tuple(said))

    def see(self, line: bytes, number: int) -> None:
        """Look at a single line."""
        self._see(Held(number, line, self._newest, tuple(word for word in self._signatures if word in line)))

    def _fitting(self, line: bytes, words: Iterable[bytes]) -> list[Signature]:
        words = [*words, *(word for word in self._beside if word in line)]
        found = {signature.id: signature for word in words for signature in self._signatures.get(word, ())}
        return sorted(found.values(), key=lambda signature: order()[signature.id])

    def _looking_like(self, line: bytes) -> Alike:
        key = (self._prose, *look(line))
        known = self._alike.get(key)
        if known is None:
            known = Alike()
            if len(self._alike) < _LOOKS:
                self._alike[key] = known
        return known

    def _see_all(self, lines: Iterable[Held]) -> None:
        """Look for messages; what the searches cost is counted, so that no file can hold up the others."""
        begun: float | None = None  # asking for the time costs as much as some lines: few of them need no budget
        for count, line in enumerate(lines, 1):
            if count % _ROUND == 0:
                now = time.thread_time()
                self._spent_s += now - (now if begun is None else begun)
                begun = now
            if self._spent_s >= _BUDGET_S:
                return
            self._see(line)
        if begun is not None:
            self._spent_s += time.thread_time() - begun

    def _see(self, met: Held) -> None:
        line = met.text
        voice: Voice | None = None
        record: Voice | None = None
        taken: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        """Places where a message stands; of a record of JSON in its words, and in all of it."""
        said: list[Kept] = []
        alike = self._looking_like(line)
        signatures = alike.signatures if alike.count >= _SURE else self._fitting(line, met.words)
        printed = any(signature.library == REPORT for signature in signatures) and _is_output(line)
        for signature in signatures:
            if signature.library == REPORT and printed:
                continue  # a program's words, not a person's
            if voice is None:
                voice = listen(line, self._clock)
            if signature.library == REPORT and (voice.rank is not None or voice.pid is not None):
                continue  # a process speaks
            spoken = voice
            found = signature.search(spoken.text)
            if found is None and line.startswith(b"{") and signature.library != REPORT:
                # A record of JSON may say it in another field than that of its words.
                spoken = record = record or replace(voice, text=line.decode("utf-8", "replace"))
                found = signature.search(spoken.text)
            if found is None:
                continue
            whole = spoken.text
            start = whole.find(found[0])
            span = (start, start + len(found[0]))
            if self._prose and denied(whole, start):
                continue
            in_passing = self._prose and signature.library != REPORT and not set_off(whole, *span)
            if in_passing and not (self._retold and signature.affirmed(whole)):
                continue  # a person speaks of what programs print
            alike.found[signature.id] = signature
            places = taken[spoken is record]
            if any(begin < span[1] and span[0] < end for begin, end in places):
                continue
            places.append(span)
            printed |= signature.library != REPORT and not self._prose
            captures = {name: value for name, value in found.groupdict().items() if value}
            kept = self._keep(signature, spoken, met.number, span, captures, retold=in_passing)
            kept.count += met.skipped
            said.append(kept)
        alike.count += 1
        full = said and alike.count >= _SAME and all(len(kept.first) == FIRST for kept in said)
        if not self._prose and (full or (not alike.found and alike.count >= _SURE)):
            self._often.settle(said)

    def _keep(
        self,
        signature: Signature,
        voice: Voice,
        number: int,
        span: tuple[int, int],
        captures: dict[str, str],
        *,
        retold: bool,
    ) -> Kept:
        text = voice.text
        host, pid = _process(text[: span[0] + 1]) or (voice.host, voice.pid)
        rank = voice.rank if voice.rank is not None else self._hint.rank
        local = voice.local_rank if voice.local_rank is not None else self._hint.local_rank
        quote = text.strip()
        if len(quote) > _QUOTE:
            quote = text[max(0, span[0] - _EXTRA) :].strip()[:_QUOTE]
        ref = Ref(self._label, f"line {number}", quote, rank, host)
        speaker = (rank, local, pid, host, voice.task, voice.place)
        kept = self._kept.get((signature.id, speaker))
        if kept is None:
            if len(self._kept) >= _SPEAKERS:
                speaker = (None, None, None, None, None, "")
            kept = self._kept.setdefault((signature.id, speaker), Kept())
        if voice.time_ns is not None:
            self._newest = max(voice.time_ns, self._newest or 0)
        after = None if voice.time_ns is not None else self._newest
        if self._total >= _MOST and 0 < kept.count < FIRST + LAST:
            kept.count += 1
            return kept
        message = KnownMessage(
            signature=signature.id, captures=captures, ref=ref, line=number, rank=rank, local_rank=local, pid=pid,
            host=host, task=voice.task, place=voice.place, time_ns=voice.time_ns, after_ns=after, count=kept.count + 1,
            retold=retold,
        )  # fmt: skip
        self._total += kept.add(message)
        return kept

    def messages(self) -> list[KnownMessage]:
        found = []
        for kept in self._kept.values():
            of_one = sorted((*kept.first, *(item[2] for item in kept.last)), key=lambda s: s.line)
            of_one[-1].count = kept.count
            found += of_one
        return sorted(found, key=lambda s: s.line)

    @property
    def dropped(self) -> int:
        return sum(kept.count - len(kept.first) - len(kept.last) for kept in self._kept.values())


def _harmless_in(chunk: Chunk, lines: Indices) -> list[bytes]:
    """The words of harmless messages that stand in one of these lines."""
    spans = zip(chunk.starts[lines].tolist(), chunk.ends[lines].tolist(), strict=True)
    text = b"\n".join([chunk.view[start:end] for start, end in spans])
    if len(text) <= _LITTLE:
        return [word for word in KNOWN.harmless if word in text]
    return list(set(shared_pass.finder(KNOWN.harmless).find(_chunk(text)).words()))


def _process(before: str) -> tuple[str, int] | None:
    """Host and pid by the prefix of NCCL that stands last before the message."""
    found = list(_PROCESS.finditer(before[-300:])) if _IDS.search(before, max(0, len(before) - 300)) else []
    return (found[-1][1], int(found[-1][2])) if found else None
