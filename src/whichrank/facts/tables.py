"""The tables of this package: CSV files with a source per row."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from whichrank.model.errors import FactsError

HERE = Path(__file__).parent


def rows(name: str) -> Iterator[dict[str, str]]:
    """The rows of one table by its path in this folder: `variables/nccl.csv`."""
    try:
        with (HERE / name).open(encoding="utf-8", newline="") as stream:
            lines = csv.reader(stream)
            head = next(lines, [])
            yield from (dict(zip(head, line, strict=False)) for line in lines if line)
    except OSError as error:
        raise FactsError(f"the data file {name} can't be read: {error.strerror}") from error
