"""The titles of a table of metrics, and what a row below them says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

_STEP = ("step", "global_step", "iteration", "iter", "it", "update", "batch", "epoch")
_LOSS = ("loss", "train_loss", "train/loss", "training_loss", "loss_step", "train_loss_step", "local_loss", "own_loss")
_RANK = ("rank", "global_rank")
_SECONDS = ("step_time", "time_per_step", "seconds_per_step", "sec_per_step", "step_seconds", "step_s", "iter_time")


class Columns(Struct, frozen=True):
    """Where the values stand in a row."""

    by: str
    """What stands between the cells."""
    count: int
    step: int
    loss: int
    rank: int | None
    seconds: int | None


class Row(Struct, frozen=True):
    number: int
    text: str
    step: int
    loss: float
    rank: int
    seconds: float


def columns_of(line: str) -> Columns | None:
    by = max(",;\t", key=line.count)
    titles = [title.strip(" \"\r\n'").lower() for title in line.split(by)]
    step, loss, rank, seconds = (_first(titles, names) for names in (_STEP, _LOSS, _RANK, _SECONDS))
    return None if step is None or loss is None else Columns(by, len(titles), step, loss, rank, seconds)


def _first(titles: Sequence[str], names: Sequence[str]) -> int | None:
    return next((titles.index(name) for name in names if name in titles), None)


def row_of(line: str, number: int, columns: Columns, rank: int) -> Row | None:
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
        Row(number, line.strip()[:300], step, loss, rank, seconds) if 0 <= step < 1 << 62 and rank < 1 << 24 else None
    )
