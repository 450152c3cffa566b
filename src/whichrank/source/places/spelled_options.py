"""Options of commands that are put together of texts from elsewhere, at the line that spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.model.evidence import Ref
from whichrank.records.launches import Launch, Told

_FIELDS = ("address", "rank", "port", "last")
_LISTS = ("itself", "drawn", "early")
_MOST_LINES, _LONGEST = 5_000, 2_000


def place(launches: Iterable[Launch], lines: list[str], label: str) -> None:
    """Let what launches are told stand at the one line that has the option, where the command itself does not."""
    rows: dict[str, Ref | None] = {}

    def moved(told: Told, launch: Launch) -> Told:
        if told.ref != launch.ref or not told.name.startswith("--") or told.name in told.ref.quote:
            return told  # it stands where it is set already
        if told.name not in rows:
            rows[told.name] = _row(told.name, lines, label)
        return told._replace(ref=rows[told.name] or told.ref)

    for launch in launches:
        for field in _FIELDS:
            if (told := getattr(launch, field)) is not None:
                setattr(launch, field, moved(told, launch))
        for field in _LISTS:
            setattr(launch, field, tuple(moved(each, launch) for each in getattr(launch, field)))


def _row(name: str, lines: list[str], label: str) -> Ref | None:
    wanted = re.compile(rf"{re.escape(name)}(?![\w-])")
    found = [
        at
        for at, row in enumerate(lines[:_MOST_LINES], 1)
        if wanted.search(row[:_LONGEST]) and not row.lstrip().startswith("#")
    ]
    return Ref(label, f"line {found[0]}", lines[found[0] - 1].strip()[:300]) if len(found) == 1 else None
