"""What a summary keeps of texts: second looks (posted code, own lines, near words) need the words themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from whichrank.flows.diagnose.posted_code import holds_code
from whichrank.flows.diagnose.reading import Outcome, is_prose
from whichrank.flows.diagnose.unexplained import new_lines, texts_of
from whichrank.model.contracts import Item

_SMALL = 1 << 16
"""Of all texts together: so much may be kept whole."""

Kept = dict[tuple[str, str], bytes]
"""By label and job: the lines that are kept, at their places; the others are empty."""


def whole_texts(outcomes: Sequence[Outcome]) -> Kept | None:
    """All texts, where they are small."""
    items = [item for item, outcome in outcomes if is_prose(outcome) or item.label.endswith(".py")]
    if sum(item.size for item in items) > _SMALL:
        return None
    return {(item.label, item.job): data for item in items if (data := _read(item))}


def telling_lines(outcomes: Sequence[Outcome]) -> Kept:
    """The lines by whose words causes are compared, and texts with code."""
    kept = {(item.label, item.job): _read(item) for item, _ in outcomes if item.size <= _SMALL and holds_code(item)}
    for job in {item.job for item, _ in outcomes}:
        mine = [item for item, outcome in outcomes if item.job in ("", job) and is_prose(outcome)]
        own = {item.label: item.job for item in mine}
        lines: dict[str, dict[int, str]] = defaultdict(dict)
        for label, number, text in new_lines(texts_of(mine)):
            lines[label][number] = text
        for label, numbered in lines.items():
            text = "\n".join(numbered.get(number, "") for number in range(1, max(numbered) + 1))
            kept.setdefault((label, own[label]), text.encode())
    return kept


def _read(item: Item) -> bytes:
    try:
        return item.read()
    except OSError:
        return b""
