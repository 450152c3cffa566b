"""Tables of hosts, or of the GPUs of hosts, in a text: the one row whose cell all other rows have otherwise.

A preflight prints a heading and a row per host. The heading says what a cell is about, which the row alone does not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_HEADING = re.compile(
    r"(?P<prefix>(?:\[[^\]]{1,40}\]|[\w./-]{1,40}:)?[\s|]{0,16})"
    r"(?P<head>(?:host(?:_?name)?|node(?:_?name)?|machine|server|pod)\b(?![=:]).*)",
    re.IGNORECASE,
)
_RULER = re.compile(r"[\s|+=:_-]*")
_INDEX = re.compile(r"(?i)(?:gpu|device)?[_ ]?(?:idx|index|id|#|local[_ ]?rank)|gpu|device")
_NUMBER = re.compile(r"([-+]?\d{1,12}(?:\.\d{1,9})?)\s?[A-Za-z%/]{0,8}")
_COLUMNS, _ROWS, _MOST = 3, 3, 4096
_FAR = 3.0
"""How many times as large or small as all others a measured number is that counts."""


class Row(NamedTuple):
    """A line of a table, which begins with the host."""

    line: int
    text: str
    cells: list[str]


class OddCell(NamedTuple):
    """What one host, or one of its GPUs, has otherwise than all others."""

    column: str
    own: str
    usual: str
    gpu: int | None
    row: Row
    peer: Row
    """A row of the others."""
    hosts: int
    """How many the table has."""


def odd_cells(lines: Sequence[tuple[int, str]]) -> Iterator[OddCell]:
    """Of all tables of the text."""
    at = 0
    while at < len(lines):
        heading = _HEADING.fullmatch(lines[at][1].rstrip())
        at += 1
        if heading is None:
            continue
        for separator in _separators(heading["head"]):
            columns = _split(heading["head"], separator)
            rows = _rows(lines[at : at + _MOST], heading["prefix"].strip(), columns, separator)
            if len(columns) >= _COLUMNS and len(rows) >= _ROWS:
                at += len(rows)
                yield from _odd(columns, rows)
                break


def _separators(head: str) -> Iterator[re.Pattern[str]]:
    """What may stand between the columns, the likeliest first: names of columns may be of several words."""
    for mark in ("|", "\t", ","):
        if head.count(mark) >= _COLUMNS - 1:
            yield re.compile(rf"\s*{re.escape(mark)}\s*")
            return
    if len(re.findall(r"\S\s{2,}\S", head)) >= _COLUMNS - 1:
        yield re.compile(r"\s{2,}")
    yield re.compile(r"\s+")


def _split(line: str, separator: re.Pattern[str]) -> list[str]:
    # `df` is the one tool that everybody runs whose heading has a column of two words.
    return separator.split(line.strip().strip("|").strip().replace("Mounted on", "Mounted"))


def _rows(
    lines: Sequence[tuple[int, str]], prefix: str, columns: Sequence[str], separator: re.Pattern[str]
) -> list[Row]:
    """The rows below a heading, up to the first line that is none."""
    rows: list[Row] = []
    for number, line in lines:
        text = line.strip()
        body = text.removeprefix(prefix)
        if _RULER.fullmatch(body) and body:
            continue
        cells = _split(body, separator)
        if len(cells) != len(columns):
            break
        rows.append(Row(number, text, cells))
    return rows


def _odd(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[OddCell]:
    hosts = {row.cells[0] for row in rows}
    if len(hosts) < _ROWS:
        return
    index = next((at for at, name in enumerate(columns) if at and _INDEX.fullmatch(name.strip())), None)
    for at, column in enumerate(columns):
        if at and at != index and (found := _that_differs(at, rows)) is not None:
            row, peer = found
            number = row.cells[index] if index is not None and len(rows) > len(hosts) else ""
            gpu = int(number) if number.isdecimal() else None
            yield OddCell(column, row.cells[at], peer.cells[at], gpu, row, peer, len(hosts))


def _that_differs(at: int, rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """The row, or the first one of the host, that alone differs in this column; and a row of the others."""
    ((usual, _),) = Counter(row.cells[at] for row in rows).most_common(1)
    odd = [row for row in rows if row.cells[at] != usual]
    peer = next(row for row in rows if row.cells[at] == usual)
    if odd and len({(row.cells[0], row.cells[at]) for row in odd}) == 1 and odd[0].cells[0] != peer.cells[0]:
        of_host = sum(row.cells[0] == odd[0].cells[0] for row in rows)
        return (odd[0], peer) if len(odd) in (1, of_host) else None
    return _that_is_far(at, rows)


def _that_is_far(at: int, rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """The row whose number is several times as large, or as small, as that of every other."""
    numbers = [_NUMBER.fullmatch(row.cells[at]) for row in rows]
    values = sorted((float(number[1]), at) for at, number in enumerate(numbers) if number)
    if len(values) != len(rows) or values[0][0] < 0:
        return None
    (least, first), (second, _), (before, _), (most, last) = values[0], values[1], values[-2], values[-1]
    if _FAR * least <= second and most < _FAR * second:
        return rows[first], rows[last]
    if before * _FAR <= most and before < _FAR * max(least, 1e-9):
        return rows[last], rows[first]
    return None
