"""Tables of training metrics: CSV files of loggers, and programs that print their steps so.

Lightning's `metrics.csv`, `pandas.to_csv`, `print(rank, step, loss, sep=",")`: a line of titles with a step and a loss,
and rows below it. Each rank may write its own, or they have a column for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from whichrank.evidence.readers.metrics_table.rows import Row, columns_of, row_of
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


def sniff(head: bytes, name: str) -> bool:
    """A text in whose beginning a line names a step and a loss as columns."""
    if not is_text(head) or name.lower().endswith((".py", ".json", ".md", ".html")):
        return False
    low = lowered(head)
    return b"loss" in low and any(columns_of(match[0].decode("utf-8", "replace")) for match in _TITLES.finditer(low))


def read(item: Item) -> Reading:
    """The steps in columns, and of each rank the first loss that is not finite."""
    of_file = hint_of_path(item.label).rank
    rows = list(_rows(item, -1 if of_file is None else of_file))
    if not rows:
        return Reading([], "ignored", "no table of steps and losses in it")
    return reading_of(item, [_progress(item.label, rows), *_turned(item.label, rows)], _LARGEST)


def _rows(item: Item, rank: int) -> Iterator[Row]:
    columns, given = None, 0
    for number, line in plain_lines(item, _LARGEST):
        if "loss" in line.lower() and (found := columns_of(line)):
            columns = found
        elif columns is not None and (row := row_of(line, number, columns, rank)):
            yield row
            given += 1
        if given >= _MOST:
            return


def _state(loss: float) -> int:
    return NOT_A_NUMBER if math.isnan(loss) else INFINITE if math.isinf(loss) else FINITE


def _progress(source: str, rows: Sequence[Row]) -> Progress:
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


def _turned(source: str, rows: Sequence[Row]) -> Iterator[LossNonfinite]:
    first: dict[int, Row] = {}
    for row in rows:
        if _state(row.loss) != FINITE:
            first.setdefault(row.rank, row)
    for rank, row in first.items():
        told = rank if rank >= 0 else None
        ref = Ref(source, f"line {row.number}", row.text, told)
        yield LossNonfinite(ref=ref, line=row.number, what="loss", value=str(row.loss), step=row.step, rank=told)
