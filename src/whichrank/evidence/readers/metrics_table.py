"""Tables of training metrics: CSV files of loggers, and programs that print their steps so.

Lightning's `metrics.csv`, `pandas.to_csv`, `print(rank, step, loss, sep=",")`: a line of titles with a step and a loss,
and rows below it. Each rank may write its own, or they have a column for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.plain_lines import plain_lines, reading_of
from whichrank.evidence.text.text_file import is_text, lowered
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.events.run_state import LossNonfinite
from whichrank.records.log import FINITE, INFINITE, NOT_A_NUMBER, Progress

NAME = "metrics_table"
BESIDE = True

_LARGEST = 16 << 20
_MOST = 200_000
"""Rows that are kept."""
_TITLES = re.compile(rb"(?:^|\n)[ \t]*\"?[a-z_][\w ./%()-]{0,60}\"?(?:[,;\t]\"?[\w ./%()-]{0,60}\"?){2,200}\r?(?:\n|$)")
"""In lower case."""
_STEP = ("step", "global_step", "iteration", "iter", "it", "update", "batch", "epoch")
_LOSS = ("loss", "train_loss", "train/loss", "training_loss", "loss_step", "train_loss_step", "local_loss", "own_loss")
_RANK = ("rank", "global_rank")
_SECONDS = ("step_time", "time_per_step", "seconds_per_step", "sec_per_step", "step_seconds", "step_s", "iter_time")


class _Columns(Struct, frozen=True):
    """Where the values stand in a row."""

    by: str
    """What stands between the cells."""
    count: int
    step: int
    loss: int
    rank: int | None
    seconds: int | None


class _Row(Struct, frozen=True):
    number: int
    text: str
    step: int
    loss: float
    rank: int
    seconds: float


def sniff(head: bytes, name: str) -> bool:
    """A text in whose beginning a line names a step and a loss as columns."""
    if not is_text(head) or name.lower().endswith((".py", ".json", ".md", ".html")):
        return False
    low = lowered(head)
    return b"loss" in low and any(_columns(match[0].decode("utf-8", "replace")) for match in _TITLES.finditer(low))


def read(item: Item) -> Reading:
    """The steps in columns, and of each rank the first loss that is not finite."""
    of_file = hint_of_path(item.label).rank
    rows = list(_rows(item, -1 if of_file is None else of_file))
    if not rows:
        return Reading([], "ignored", "no table of steps and losses in it")
    return reading_of(item, [_progress(item.label, rows), *_turned(item.label, rows)], _LARGEST)


def _columns(line: str) -> _Columns | None:
    by = max(",;\t", key=line.count)
    titles = [title.strip(" \"\r\n'").lower() for title in line.split(by)]
    step, loss, rank, seconds = (_first(titles, names) for names in (_STEP, _LOSS, _RANK, _SECONDS))
    return None if step is None or loss is None else _Columns(by, len(titles), step, loss, rank, seconds)


def _first(titles: Sequence[str], names: Sequence[str]) -> int | None:
    return next((titles.index(name) for name in names if name in titles), None)


def _rows(item: Item, rank: int) -> Iterator[_Row]:
    columns, given = None, 0
    for number, line in plain_lines(item, _LARGEST):
        if "loss" in line.lower() and (found := _columns(line)):
            columns = found
        elif columns is not None and (row := _row(line, number, columns, rank)):
            yield row
            given += 1
        if given >= _MOST:
            return


def _row(line: str, number: int, columns: _Columns, rank: int) -> _Row | None:
    """The values of a row; an evaluation leaves the cell of the loss empty."""
    cells = line.split(columns.by)
    if len(cells) != columns.count:
        return None
    try:
        step, loss = int(float(cells[columns.step])), float(cells[columns.loss])
        rank = rank if columns.rank is None else int(cells[columns.rank])
        seconds = math.nan if columns.seconds is None else float(cells[columns.seconds])
    except (ValueError, OverflowError):
        return None
    return (
        _Row(number, line.strip()[:300], step, loss, rank, seconds) if 0 <= step < 1 << 62 and rank < 1 << 24 else None
    )


def _state(loss: float) -> int:
    return NOT_A_NUMBER if math.isnan(loss) else INFINITE if math.isinf(loss) else FINITE


def _progress(source: str, rows: Sequence[_Row]) -> Progress:
    count = len(rows)
    return Progress(
        source=source,
        step=np.array([row.step for row in rows], np.int64),
        total=np.full(count, -1, np.int64),
        epoch=np.full(count, np.nan),
        time_ns=np.zeros(count, np.int64),
        loss=np.array([row.loss for row in rows], np.float64),
        loss_state=np.array([_state(row.loss) for row in rows], np.int8),
        seconds_per_step=np.array([row.seconds for row in rows], np.float64),
        rank=np.array([row.rank for row in rows], np.int32),
        line=np.array([row.number for row in rows], np.int64),
    )


def _turned(source: str, rows: Sequence[_Row]) -> Iterator[LossNonfinite]:
    first: dict[int, _Row] = {}
    for row in rows:
        if _state(row.loss) != FINITE:
            first.setdefault(row.rank, row)
    for rank, row in first.items():
        told = rank if rank >= 0 else None
        ref = Ref(source, f"line {row.number}", row.text, told)
        yield LossNonfinite(ref=ref, line=row.number, what="loss", value=str(row.loss), step=row.step, rank=told)
