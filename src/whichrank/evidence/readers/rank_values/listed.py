"""Values of all ranks in one line: `copy_s by rank 0:2.01 1:1.92 2:2.04`, `step time (ms) per rank: [21, 21, 39]`,
or in rows of one number per rank below a line that says so (`ms per step by rank`), or in rows of one number per rank
of a host (`node3 forward_ms 212 214 391 213`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from whichrank.model.late_pattern import late
from whichrank.records.rank_values import Member, RankValue, quantity

_LONGEST = 1 << 16
_LEAST = 3
_GAP = 60
"""Letters between the words and the values."""
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,3})?"
_WORDS = re.compile(r"(?i)\b(?:by|per|for each|of each|across)[ _-](?:all )?ranks?\b")
_NAME = late(r"[A-Za-z][\w./%-]{0,40}(?: \(?[A-Za-z][\w./%-]{0,40}\)?){0,3}(?=[\s:=,(]{0,4}$)")
_ONE = rf"(?P<rank>\d{{1,7}}) ?[:=] ?(?P<value>{_NUMBER}) ?(?P<unit>ms|us|s)?"
_PAIR = late(rf"{_ONE}\b")
_ANY = re.sub(r"\?P<\w+>", "?:", _ONE)
_PAIRS = late(rf"(?:(?:rank ?|r)?{_ANY}(?:[,;|]?\s{{1,4}}|[,;|]|$)){{{_LEAST},}}")
_ARRAY = late(rf"\[\s{{0,4}}{_NUMBER}(?:[,\s]{{1,4}}{_NUMBER}){{{_LEAST - 1},}},?\s{{0,4}}\]")
_STEP = late(r"(?i)\b(?:step|iter(?:ation)?)[ =:#]{1,3}(\d{1,12})\b")
_OF_STEPS = late(r"(?i)step|iter|batch|fwd|bwd|forward|backward|wait|/s|per[ _-]?s|throughput|flops|mfu")
_VALUES = rf"{_NUMBER}(?:[,\s|]{{1,20}}{_NUMBER}){{{_LEAST - 1},}}"
_ROW = late(rf"\s{{0,40}}(?P<name>[A-Za-z][\w./+%() -]{{0,40}}?)[\s:=|]{{1,20}}(?P<values>{_VALUES})\s{{0,8}}")
_HEADED = late(r"(?i)\b(ms|us|s|secs?|seconds|milliseconds)\b|\btim(?:es?|ings?|ers?)\b")
_HOST_ROW = late(
    rf"(?:^|[\s|\]])(?P<host>[A-Za-z][\w.-]{{0,40}}\d[\w.-]{{0,20}})[\s:|]{{1,8}}(?P<name>[A-Za-z][\w./+-]{{1,40}}?)"
    rf"[\s:=|]{{1,20}}(?P<values>{_NUMBER}(?:[ \t]{{1,20}}{_NUMBER}){{1,63}})\s{{0,8}}$"
)
_STEP_OF_BLOCK = late(r"(?i)(?<![\w.])(?:step|it(?:er(?:ation)?)?)[ =:#]{1,3}(\d{1,12})\b")
_SCALE = {"s": 1000.0, "us": 0.001}


def listed(lines: Sequence[tuple[int, str]]) -> Iterator[RankValue]:
    """The values of such lines; of a list without ranks the first is that of rank 0. What the name does not tell to be
    of every step counts where several lines tell it: a start may take one rank longer."""
    found = [*_listed(lines), *_below(lines), *_by_host(lines)]
    told = Counter(name for name, _ in {(cell.name, cell.line) for cell in found})
    yield from (cell for cell in found if told[cell.name] > 1 or _OF_STEPS.search(cell.name))


def _listed(lines: Sequence[tuple[int, str]]) -> Iterator[RankValue]:
    for number, line in lines:
        words = _WORDS.search(line) if "ank" in line and len(line) <= _LONGEST else None
        if words is None:
            continue
        row = _PAIRS.search(line, words.end()) or _ARRAY.search(line, words.end())
        if row is None or row.start() - words.end() > _GAP:
            continue
        told = _NAME.search(line[max(0, words.start() - 2 * _GAP) : words.start()])
        name = told or _NAME.search(line[words.end() : row.start()])
        cells = _cells(row[0], line)
        kind = quantity(name[0], timed=any(cell.unit for cell in cells)) if name else None
        if name is None or kind in (None, "checksum") or len({cell.rank for cell in cells}) != len(cells):
            continue
        step = int(at[1]) if (at := _STEP.search(line[: row.start()])) else -1
        for cell in cells:
            value = float(cell.value) * _SCALE.get(cell.unit, 1.0)
            yield RankValue(name[0], kind, Member((cell.rank,)), step, number, cell.quote, value)


def _below(lines: Sequence[tuple[int, str]]) -> Iterator[RankValue]:
    """The rows below a line that speaks of values by rank and has none itself; all of them have as many numbers."""
    headed, timed, step, width = False, False, -1, 0
    for number, line in lines:
        if "ank" in line and len(line) <= _LONGEST and _WORDS.search(line) and not _ARRAY.search(line):
            at = _STEP.search(line)
            headed, timed, step, width = True, _HEADED.search(line) is not None, int(at[1]) if at else -1, 0
            continue
        row = _ROW.fullmatch(line) if headed and len(line) <= _LONGEST else None
        values = re.findall(_NUMBER, row["values"]) if row else []
        headed = row is not None and len(values) == (width or len(values))
        if row is None or not headed:
            continue
        width, name = len(values), row["name"].strip()
        kind = quantity(name, timed=timed)
        if kind not in (None, "checksum"):
            for rank, value in enumerate(values):
                quote = f"{name}: {value} is number {rank + 1} of {width}"
                yield RankValue(name, kind, Member((rank,)), step, number, quote, float(value))


def _by_host(lines: Sequence[tuple[int, str]]) -> Iterator[RankValue]:
    """Rows of hosts, of as many numbers each: a number is that of a rank, the hosts count as their first rows do."""
    rows = [
        (at, row) for at, (_, line) in enumerate(lines) if _ends_in_numbers(line) and (row := _HOST_ROW.search(line))
    ]
    rows = [(at, row) for at, row in rows if quantity(row["name"], timed=False) not in (None, "checksum")]
    hosts = list(dict.fromkeys(row["host"] for _, row in rows))
    widths = {len(row["values"].split()) for _, row in rows}
    named: dict[str, set[str]] = {}
    for _, row in rows:
        named.setdefault(row["name"], set()).add(row["host"])
    if len(hosts) < 2 or len(widths) != 1 or any(len(of) != len(hosts) for of in named.values()):
        return
    (width,) = widths
    step, seen = -1, 0
    for at, row in rows:
        for _, line in lines[seen:at]:
            step = int(told[1]) if (told := _STEP_OF_BLOCK.search(line[:_LONGEST])) else step
        seen, number, kind = at, lines[at][0], quantity(row["name"], timed=False)
        for local, value in enumerate(row["values"].split() if kind is not None else ()):
            member = Member((hosts.index(row["host"]) * width + local,), row["host"])
            quote = f"{row['host']} {row['name']}: {value} is number {local + 1} of {width}"
            yield RankValue(row["name"], kind or "step", member, step, number, quote, float(value))


def _ends_in_numbers(line: str) -> bool:
    """Whether a line may be such a row: a quick look."""
    last = line.rsplit(None, 2) if len(line) <= _LONGEST else []
    return len(last) > 2 and last[1][:1].isdigit() and last[2][:1].isdigit()


class _Cell(NamedTuple):
    rank: int
    value: str
    unit: str
    quote: str


def _cells(row: str, line: str) -> list[_Cell]:
    if row.startswith("["):
        return [_Cell(rank, value, "", line.strip()) for rank, value in enumerate(re.findall(_NUMBER, row))]
    pairs = _PAIR.finditer(row)
    return [_Cell(int(pair["rank"]), pair["value"], pair["unit"] or "", pair[0]) for pair in pairs]
