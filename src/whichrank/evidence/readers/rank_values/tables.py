"""Tables with a header: one column says which rank or host a row is about, the others what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whichrank.records.rank_values import Member, Quantity, RankValue, quantity

_RANK = ("rank", "ranks", "global_rank", "global rank", "globalrank", "world_rank", "rank id", "rank_id")
_HOST = ("host", "hostname", "node", "nodename", "worker", "machine", "pod")
_STEP = ("step", "iter", "iteration", "global_step", "it")
_WHOSE = frozenset((*_RANK, *_HOST))
_MEMBERS = ("rank", "host", "node", "worker", "machine", "pod")
"""One of these stands in every header."""
_TITLES = frozenset(word for name in _WHOSE for word in name.replace("_", " ").split() if word not in ("global", "id"))
_AS_SPACES = str.maketrans(dict.fromkeys("|,;#*_`", " "))
_MARKS = bytes.maketrans(b"|,;#*_`", b" " * 7)
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_MOST_SHAPES = 1 << 12
_PLAIN_LINES: set[bytes] = set()
"""Shapes of lines that begin no table, of all files: logs repeat theirs."""
_MOST_COLUMNS, _LONGEST = 24, 400
_WIDE = re.compile(r"\s{2,}|\t")
_RANKS = re.compile(r"(?:rank[ _-]?)?(\d{1,7})(?:\s?(?:-|–|\.\.)\s?(\d{1,7}))?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z][\w.-]{0,252}")
_VALUE = re.compile(r"[-+]?\d{1,15}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,3})?(?:\s?(?:ms|s|us|x|%))?")
_TOKEN = re.compile(r"(?:0x)?[0-9a-fA-F]{6,128}")
_RULED = re.compile(r"[\s|+:=-]*")


class _Table:
    """The columns of one table."""

    def __init__(self, names: Sequence[str]) -> None:
        lower = [_plain(name) for name in names]
        self.width = len(names)
        self.rank = next((at for at, name in enumerate(lower) if name in _RANK), None)
        self.host = next((at for at, name in enumerate(lower) if name in _HOST), None)
        self.step = next((at for at, name in enumerate(lower) if name in _STEP), None)
        taken = (self.rank, self.host, self.step)
        self.values: dict[int, tuple[str, Quantity]] = {
            at: (name.strip(), kind)
            for at, name in enumerate(names)
            if at not in taken and (kind := quantity(name)) is not None
        }

    def is_one(self) -> bool:
        return (self.rank is not None or self.host is not None) and bool(self.values)

    def cells(self, line: int, quote: str, row: Sequence[str]) -> Iterator[RankValue]:
        """The values of a row; none where it is not a row of this table."""
        ranks = _ranks(row[self.rank]) if self.rank is not None else ()
        host = row[self.host] if self.host is not None and _NAME.fullmatch(row[self.host]) else None
        step = int(row[self.step]) if self.step is not None and row[self.step].isdecimal() else -1
        if not (ranks or (self.rank is None and host)):
            return
        for at, (name, kind) in self.values.items():
            if kind == "checksum":
                if _TOKEN.fullmatch(row[at]) or _VALUE.fullmatch(row[at]):
                    yield RankValue(name, kind, Member(ranks, host), step, line, quote, token=row[at])
            elif _VALUE.fullmatch(row[at]):
                yield RankValue(name, kind, Member(ranks, host), step, line, quote, float(row[at].rstrip(" musx%")))


def tables(lines: Sequence[tuple[int, str]]) -> Iterator[RankValue]:
    """The cells of every table."""
    table: _Table | None = None
    for number, line in lines:
        if len(line) > _LONGEST or not line.strip():
            table = None
            continue
        if _RULED.fullmatch(line):
            continue
        if table is not None:
            found = (
                list(table.cells(number, line.strip(), row))
                if len(row := _split(line, table.width)) == table.width
                else []
            )
            if found:
                yield from found
                continue
        table = _header(line)


def _header(line: str) -> _Table | None:
    """The table that begins with this line; lines that differ from one that begins none in digits alone begin none."""
    if not any(map(line.lower().__contains__, _MEMBERS)):
        return None
    shape = line.encode("utf-8", "replace").translate(_AS_ZEROS)
    if shape in _PLAIN_LINES:
        return None
    table = next((t for names in _headers(line) if (t := _Table(names)).is_one()), None)
    if table is None:
        if len(_PLAIN_LINES) >= _MOST_SHAPES:
            _PLAIN_LINES.clear()
        _PLAIN_LINES.add(shape)
    return table


def _headers(line: str) -> Iterator[list[str]]:
    """The names of the columns, if this is a header."""
    if _TITLES.isdisjoint(_words(line.lower())):
        return
    for names in (_cells(line), line.strip(" #").split()):
        if not 2 <= len(names) <= _MOST_COLUMNS or _WHOSE.isdisjoint(map(_plain, names)):
            continue
        if any(map(quantity, names)) and not any(map(_VALUE.fullmatch, names)):
            yield names


def _words(line: str) -> list[str]:
    # A table of bytes translates ten times as fast as one of characters.
    return (line.encode().translate(_MARKS).decode() if line.isascii() else line.translate(_AS_SPACES)).split()


def _plain(name: str) -> str:
    return name.lower().strip(" #*_`")


def _split(line: str, width: int) -> list[str]:
    cells = _cells(line)
    return cells if len(cells) == width else line.strip().split()


def _cells(line: str) -> list[str]:
    """Cells between bars, commas, tabs, or wide gaps."""
    text = line.strip().strip("|").strip("# ").strip()
    for mark in ("|", ",", ";"):
        if mark in text:
            return [cell.strip() for cell in text.split(mark)]
    return [cell.strip() for cell in _WIDE.split(text)] if "  " in text or "\t" in text else [text]


def _ranks(text: str) -> tuple[int, ...]:
    match = _RANKS.fullmatch(text.strip())
    if match is None:
        return ()
    first, last = int(match[1]), int(match[2] or match[1])
    return tuple(range(first, last + 1)) if 0 <= last - first < 65_536 else ()
