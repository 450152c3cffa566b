"""The map of ranks over time: a canvas that zooms and stays quick with hundreds of ranks.

Any report can draw one: rows with a label, the moments at which their state changes, and the names of the states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec
from msgspec import Struct, field

from whichrank.report._words import safe

SCRIPT = "map.js"


class Row(Struct, frozen=True):
    """One rank: its states from each moment on, in microseconds from the map's beginning."""

    label: str
    at_us: Sequence[float]
    state: Sequence[int]
    """Indices into the states; the last one ends the row."""
    marks_us: Sequence[float] = ()
    """Where steps begin."""
    flag: str = ""
    """A word beside the label, for rows that stand out."""
    words: Sequence[str] = ()
    """What to say of each state instead of its name; empty for none."""
    keys: Mapping[str, int | str] = field(default_factory=dict)
    """What rows can be ordered by: rank, host, tp, dp, pp."""


class State(Struct, frozen=True):
    name: str
    colour: str
    """A custom property of the style sheet: `--compute`, `--exposed`, …"""


def rank_map(rows: Sequence[Row], states: Sequence[State]) -> str:
    """The map with its legend; the page must carry `SCRIPT`."""
    words: dict[str, int] = {}
    data: dict[str, Any] = {
        "states": [{"name": safe(s.name), "colour": s.colour} for s in states],
        "rows": [
            {
                "label": safe(row.label),
                "flag": safe(row.flag),
                "at": _differences(row.at_us),
                "state": list(row.state),
                "marks": _differences(row.marks_us),
                "words": [words.setdefault(safe(word), len(words)) for word in row.words],
                "keys": {safe(name): safe(key) if isinstance(key, str) else key for name, key in row.keys.items()},
            }
            for row in rows
        ],
    }
    axes = list(dict.fromkeys(axis for row in rows for axis in row.keys if axis != "rank"))
    orders = "".join(f'<option value="{escape(safe(axis))}">by {escape(safe(axis))}</option>' for axis in axes)
    order = f'<select data-order><option value="">by behaviour</option>{orders}</select>'
    chooser = f"<label>Order {order}</label>" if axes else ""
    data["words"] = list(words)
    # "<" never occurs inside: the text can't end the element.
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    return (
        '<div class="map" data-map>'
        '<div class="map-bar"><div class="legend" role="group" aria-label="States"></div>'
        f'<div class="tools">{chooser}<button type="button" data-zoom="in" title="Zoom in (+)">+</button>'
        '<button type="button" data-zoom="out" title="Zoom out (-)">−</button>'
        '<button type="button" data-zoom="all" title="Show everything (0)">Fit</button></div></div>'
        '<div class="map-view"><canvas tabindex="0" role="img" aria-label="What every rank did over time. '
        'Wheel or + and - zoom, drag or the arrow keys move, 0 shows everything."></canvas></div>'
        '<div class="tip" hidden></div>'
        f'<script type="application/json">{text}</script></div>'
    )


def _differences(values: Sequence[float]) -> list[int | float]:
    """Each value as the difference to the one before: shorter, and as exact to a tenth of a microsecond."""
    tenths = [round(value * 10) for value in values]
    return [now - before for before, now in zip([0, *tenths], tenths, strict=False)]
