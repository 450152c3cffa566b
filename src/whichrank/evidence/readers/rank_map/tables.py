"""Tables of ranks with a header, and lists such as `13 -> node2/5`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.rank_map.ranks_of_hosts import HOST, Row

COLUMNS = {
    "rank": ("rank", "global_rank", "globalrank", "procid", "slurm_procid", "task", "world_rank", "globalid"),
    "pid": ("pid", "process_id", "processid"),
    "host": ("host", "hostname", "node", "nodename", "node_name", "machine", "pod"),
    "local_rank": ("local_rank", "localrank", "localid", "slurm_localid"),
    "gpu": ("gpu", "gpu_id", "gpu_index", "cuda_device", "device", "cuda"),
    "bus_id": ("bus_id", "busid", "pci.bus_id", "pci_bus_id"),
}
_RANKED = ("rank", "procid", "task", "globalid")
"""One of these stands in every header."""
TITLES = frozenset(word for column, words in COLUMNS.items() if column != "rank" for word in words)
"""In the header of a table one of these stands beside the rank."""
_NAMED = {word: column for column, words in COLUMNS.items() for word in words}
_CELLS = re.compile(r"\s*[|,;\t]\s*|\s+")
_NUMBER = re.compile(r"(?:rank|gpu|cuda:?|task)?[\s:#=]{0,2}(\d{1,7})", re.IGNORECASE)
_ARROW = re.compile(
    rf"\s{{0,8}}(?:rank\s?)?(?P<rank>\d{{1,7}})\s{{0,4}}(?:->|=>|→|:|=)\s{{0,4}}(?P<host>{HOST})"
    r"(?:\s{0,2}[/:, ]\s{0,2}(?:gpu|cuda|device)?[\s:=]{0,2}(?P<gpu>\d{1,3}))?\s{0,8}$",
    re.IGNORECASE,
)
_ARROWED = frozenset("0123456789rR")


def table(lines: list[tuple[int, str]]) -> Iterator[Row]:
    columns: list[str | None] = []
    for number, line in lines:
        if not columns and not any(map(line.lower().__contains__, _RANKED)):
            continue
        cells = _CELLS.split(line.strip().strip("|").strip()) if len(line) < 1000 else []
        named = [_NAMED.get(cell.lower().strip("#_")) for cell in cells]
        if "rank" in named and sum(name is not None for name in named) >= 2 and len(cells) <= 12:
            columns = _behind_a_comment(named, cells)
        elif columns and len(cells) >= len(columns):
            values = dict(_row(columns, cells))
            if "rank" in values and len(values) > 1:
                yield number, line, values
        elif columns and line.strip(" -+|=:\t"):
            columns = []  # the table has ended


def _behind_a_comment(named: list[str | None], cells: list[str]) -> list[str | None]:
    """The columns alone where words stand before them: `$ cat pids  # written at launch: pid rank gpu`."""
    first = next(at for at, name in enumerate(named) if name is not None)
    return named[first:] if first and cells[first - 1].endswith(("#", ":")) else named


def _row(columns: list[str | None], cells: list[str]) -> Iterator[tuple[str, str]]:
    for name, cell in zip(columns, cells, strict=False):
        if name in ("host", "bus_id"):
            if re.fullmatch(r"[\w.:-]{1,253}", cell) and not cell.isdigit():
                yield name, cell
        elif name is not None and (match := _NUMBER.fullmatch(cell)):
            yield name, match[1]


def _arrow(line: str) -> re.Match[str] | None:
    return _ARROW.match(line) if line.lstrip()[:1] in _ARROWED else None


def arrows(lines: list[tuple[int, str]]) -> list[Row]:
    """Only of a text that is such a list: an odd line of a log looks alike."""
    found = [(number, line, match) for number, line in lines if len(line) < 300 and (match := _arrow(line))]
    if not found:
        return []
    written = sum(bool(line.strip()) for _, line in lines)
    ranks = [int(match["rank"]) for _, _, match in found]
    if 10 * len(found) < 6 * written or len(set(ranks)) != len(ranks):
        return []
    return [(number, line, {k: v for k, v in match.groupdict().items() if v}) for number, line, match in found]
