"""Values per rank or host, as trainers, timers and people print them: step times, waits, rates, checksums.

Four shapes, whatever the program: a table with a column for the rank or the host; a heading with one row per rank
below it (`rank 3: 212.4`); lines that begin with a rank and go on with names and values; one line with the values of
all ranks. And the ranks with the least and the most, as Megatron prints them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from whichrank.evidence.readers.rank_values.extremes import extremes
from whichrank.evidence.readers.rank_values.listed import listed
from whichrank.evidence.readers.rank_values.rows import MOST, measuring, rows
from whichrank.evidence.readers.rank_values.tables import tables
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.prefixes.clock import Clock, clock_of
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text, lowered
from whichrank.model.contracts import Item, Reading
from whichrank.records.rank_values import Member, RankValue, RankValues

NAME = "rank_values"
BESIDE = True

_LARGEST, _END = 1 << 20, 1 << 18
"""Of a longer text the end is read: what was measured last."""
_OFTEN = 3
"""Values of one name that a file of a single rank must have: other ranks have files of their own."""
_MOST_RANKS = 1 << 18
"""Ranks of all values together."""
_MEMBER = re.compile(
    rb"(?i)\b(?:rank|host|node|worker)|^\[[\w.-]{2,60}\]\[\d|/Rnk: |[\[(<][rwp]?\d{1,4}[ \])>]|\br(?:nk|k|)\d{1,4}[: ]"
)
_MEMBERS = (b"rank", b"/rnk: ", b"host", b"node", b"worker", b"[r", b" r", b"[w", b"[p", b"\nr")
_WORTH = re.compile(
    rb"(?i)\b(?:ranks?|hosts?|nodes?|workers?)[ _]?\d{0,7}\b[^\n]{0,120}"
    rb"(?:time|\bms\b|_ms|\dm?s\b|[ (_]s\b|/s\b|sha|md5|hash|sum|crc|digest|fingerprint|flops| d?t_[a-z])"
    rb"|rank\s{0,4}\d{1,7}\s?[:|=]\s{0,8}\d|(?:ms|time|sha1|sum|hash)\W[^\n]{0,80}\brank"
    rb"|\b(?:by|per|each|across)[ _-](?:all )?ranks?\b[^\n]{0,60}\[\s{0,4}\d"
    rb"|/Rnk: \d| Ranks with (?:low|high)est "
    rb"|\branks? \d{1,7}-\d{1,7}\b[^\n]{0,80}?=\d"
    rb"|\d[\s:|]{1,8}[a-z]\w{0,30}_m?s[\s:=|]{1,8}\d[\d.]{0,12}[ \t]{1,20}\d"
    rb"|\]\[\d{1,6}\][^\n]{0,80}(?:time|\dm?s\b|sha|md5|hash|sum|crc|digest|fingerprint)"
    rb"|\bwait[\"']?[ :=]{1,3}\d{1,6}\.\d"
    rb'|"rank" ?: ?\d[^\n]{0,200}: ?\["[0-9a-f]{6}'
)
_MEASURES = (
    b"time", b"ms", b"sha", b"md5", b"hash", b"sum", b"crc", b"digest", b"wait",
    b"fingerprint", b'": ["', b"flops", b" t_", b" dt_",
)  # fmt: skip
_SECONDS = re.compile(rb"s(?<=[\d (_/]s)\b")
_RANKED = re.compile(rb"rank(?:\s{0,4}\d{1,7}\s?[:|=]|s? \d{1,7}-\d)|(?:by|per|each|across)[ _-](?:all )?rank")
"""In lower case: one of these stands in a text that is worth it, found sooner than that."""
_OF_TORCHRUN = ("stdout.log", "stderr.log")
"""Files that torchrun writes for each rank: their lines need not name it."""
_IN_SERIES = re.compile(r"[A-Za-z][._-]\d{1,4}\.(?:log|out|err|txt)$|\d[-_.]?of[-_.]?\d{1,5}\.\w{2,5}$")
"""A file that may be one of several that a program numbers by rank."""
_NOT_LOGS = (".py", ".json", ".html", ".yaml", ".yml", ".ini", ".toml", ".sh", ".env", ".c", ".cc", ".cpp", ".h")


def sniff(head: bytes, name: str) -> bool:
    """Any text that speaks of ranks or hosts, or is called after a rank, or stands in its folder."""
    if name.lower().endswith(_NOT_LOGS) or not is_text(head):
        return False
    if name in _OF_TORCHRUN or hint_of_path(name).rank is not None or _may_be_numbered(name, head):
        return True
    speaks = head[:1] == b"[" or any(map(lowered(head).__contains__, _MEMBERS))
    return speaks and _MEMBER.search(head) is not None


def read(item: Item) -> Reading:
    """Every value with whom it belongs to."""
    first, data = tail(item, _LARGEST if item.size <= _LARGEST else _END)
    writer, clock = _writer(item), _clock(item)
    tagged = _tagged(clock_of(item))
    known = writer is not None or tagged is not None or clock.rank_key is not None
    if not _may_be_worth(data.lower()) or not (known or _WORTH.search(data)):
        return Reading([], "ignored", "no values by rank")
    lines = _lines(data, first)
    single = rows(lines, clock, measuring(data, first), writer, tagged)
    found = chain(tables(lines), extremes(lines), listed(lines), single)
    cells = sorted(_bounded(found), key=lambda cell: cell.line)
    alone = len({cell.member for cell in cells} - {Member()}) < 2
    often = max(Counter(cell.name for cell in cells).values(), default=0) >= _OFTEN
    if alone and not often:
        return Reading([], "ignored", "no values by rank")
    return Reading([RankValues(item.label, tuple(cells))], "complete")


def _writer(item: Item) -> Member | None:
    """Who wrote every line of a file: the rank that it is called after, or a rank that only torchrun's folder tells
    (`attempt_0/3/stderr.log`) or the numbers of the files beside it (`train.3.log`)."""
    hint = hint_of_path(item.label)
    if hint.rank is not None:
        return Member((hint.rank,))
    return Member() if hint.attempt is not None or _may_be_numbered(item.label, item.head()) else None


def _may_be_numbered(name: str, head: bytes) -> bool:
    """Whether its name ends in a number that is not the pid of NCCL's logs."""
    return _IN_SERIES.search(name) is not None and b"NCCL INFO" not in head


def _may_be_worth(lower: bytes) -> bool:
    measured = any(map(lower.__contains__, _MEASURES))
    return measured or _SECONDS.search(lower) is not None or _RANKED.search(lower) is not None


def _lines(data: bytes, first: int) -> list[tuple[int, str]]:
    """The lines with their numbers; of empty ones that follow each other the first."""
    found: list[tuple[int, str]] = []
    empty = False
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), first):
        if line or not empty:
            found.append((number, line))
        empty = not line
    return found


def _bounded(cells: Iterable[RankValue]) -> Iterator[RankValue]:
    """The first of them: a row may speak of many ranks at once (`0-65535`)."""
    left = _MOST_RANKS
    for cell in islice(cells, MOST):
        left -= len(cell.member.ranks)
        if left < 0:
            return
        yield cell


def _tagged(clock: Clock) -> Clock | None:
    """Who hears the rank in what the file puts before its lines."""
    return clock if clock.prefix is not None and "rank" in clock.prefix.groupindex else None


def _clock(item: Item) -> Clock:
    """What other readers heard of the file is taken from them, unless they learned a prefix: here it is a value."""
    clock = clock_of(item)
    return clock if clock.prefix is None else Clock(0)
