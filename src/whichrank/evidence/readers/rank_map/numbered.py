"""Processes that number themselves in words of their own: `member 3 pid 8995`, `node 0: pid 9131`, `score[2/4579]: `.

Whatever the program calls its ranks: lines that are alike but for their numbers, in which one number counts from 0
without a gap and always stands beside the same other number, which is said to be a pid or comes again in other lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations

_READ = 1 << 15
"""Bytes at the beginning in which every rank has spoken."""
_LINES, _LINE, _NUMBERS = 400, 160, 4
"""The lines that are looked at, the part of each in which the two stand, and among how many of its numbers."""
_STAMP = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T _,]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\[default\d{1,4}\]:?"
)
_MEASURED = re.compile(r"\d{1,12}(?:\.\d{1,12}){1,3}")
_COUNTED = re.compile(r"\d{1,10}")
_IS_PID = re.compile(r"(?:\bpid|\bprocess(?: id)?)[\s:=#\[(]{0,3}$|^[a-z][\w.-]{1,60}\[$", re.IGNORECASE)
"""What stands before a pid; also `trainer[4410] INFO `, as syslog and loggers begin their lines."""
_NO_RANK = re.compile(
    r"(?:worker|loader|thread|gpu|cuda|device|shard|slot|step|epoch|iter\w{0,8}|attempt|local[_ ]?rank)"
    r"[\s:=#_\[(-]{0,3}$",
    re.IGNORECASE,
)
_LEAST_PID, _MOST_RANKS = 100, 4096
MARKS = re.compile(rb"(?i:\bpid\b|\bprocess\b)|[\[(<]\d{1,4}[/:]\d{3,7}[\])>]|\w\[\d{3,7}\] ")
"""One of these stands in every text that says so."""


def numbered(text: str) -> dict[int, tuple[int, int]]:
    """By rank: the line in which it stands first, and its pid; nothing where that is said in two ways."""
    alike: dict[str, list[tuple[int, list[int]]]] = defaultdict(list)
    for number, line in enumerate(text[:_READ].split("\n")[:_LINES], 1):
        words = _MEASURED.sub("~", _STAMP.sub("", line))[:_LINE].lstrip()
        counts = [int(count) for count in _COUNTED.findall(words)[:_NUMBERS]]
        if len(counts) > 1:
            alike[_COUNTED.sub("#", words)].append((number, counts))
    said: dict[frozenset[tuple[int, int]], int] = defaultdict(int)
    first: dict[tuple[int, int], int] = {}
    for shape, lines in alike.items():
        for pairs, is_pid in _one_to_one(shape, lines):
            said[frozenset(pairs)] += 2 if is_pid else 1
            for pair, number in pairs.items():
                first[pair] = min(number, first.get(pair, number))
    sure = [pairs for pairs, weight in said.items() if weight > 1]
    return {rank: (first[rank, pid], pid) for rank, pid in sorted(sure[0])} if len(sure) == 1 else {}


def _one_to_one(
    shape: str, lines: Sequence[tuple[int, list[int]]]
) -> Iterator[tuple[dict[tuple[int, int], int], bool]]:
    """The pairs of two of the numbers, with their lines, where one counts from 0 and each goes with one of the other;
    and whether the other is called a pid."""
    before = shape.split("#")
    for rank_at, pid_at in permutations(range(len(lines[0][1])), 2):
        if _NO_RANK.search(before[rank_at]):
            continue
        pairs: dict[tuple[int, int], int] = {}
        for number, counts in lines:
            pairs.setdefault((counts[rank_at], counts[pid_at]), number)
        ranks, pids = {rank for rank, _ in pairs}, {pid for _, pid in pairs}
        counted = 1 < len(pairs) <= _MOST_RANKS and ranks == set(range(len(pairs)))
        if counted and len(pids) == len(pairs) and min(pids) >= max(_LEAST_PID, len(pairs)):
            yield pairs, _IS_PID.search(before[pid_at]) is not None
