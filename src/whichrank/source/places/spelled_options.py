"""Options of commands that are put together of texts from elsewhere, at the line that spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.model.evidence import Ref
from whichrank.records.launches import Count, Launch, Told

_FIELDS = ("address", "rank", "port", "nodes", "per_host", "last")
_LISTS = ("itself", "drawn", "early")
_MOST_LINES, _LONGEST = 5_000, 2_000


def place(launches: Iterable[Launch], lines: list[str], label: str) -> None:
    """Let what launches are told stand at the one line that has the option, where the command itself does not."""
    rows: dict[str, Ref | None] = {}

    def moved(told: Told | Count) -> Told | Count:
        name = told.name if isinstance(told, Told) else told.said
        if told.ref.source != label or not name.startswith("--") or name in told.ref.quote:
            return told
        if name not in rows:
            rows[name] = _row(name, lines, label)
        ref = rows[name]
        return told._replace(ref=ref) if ref is not None else told

    for launch in launches:
        for field in _FIELDS:
            if (told := getattr(launch, field)) is not None:
                setattr(launch, field, moved(told))
        for field in _LISTS:
            setattr(launch, field, tuple(moved(each) for each in getattr(launch, field)))


def _row(name: str, lines: list[str], label: str) -> Ref | None:
    wanted = re.compile(rf"{re.escape(name)}(?![\w-])")
    found = [
        at
        for at, row in enumerate(lines[:_MOST_LINES], 1)
        if wanted.search(row[:_LONGEST]) and not row.lstrip().startswith("#")
    ]
    return Ref(label, f"line {found[0]}", lines[found[0] - 1].strip()[:300]) if len(found) == 1 else None
