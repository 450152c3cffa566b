"""The lines around what a finding quotes, for reports that show a quote in its context."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.verdict import Diagnosis
from whichrank.model.views import Context

AROUND, MOST, LONGEST = 2, 60, 400
LARGEST = 64 << 20
"""Of a file that is read again for a few lines."""
_LINE = re.compile(r"line (\d{1,9})\b")


def with_contexts(answer: Diagnosis, items: Sequence[Item]) -> Diagnosis:
    """The answer with the lines before and after its quotes; files that are no text, or too large, are left out."""
    known = {item.label: item for item in items}
    wanted: dict[str, dict[int, str]] = {}
    for ref in list(_places(answer))[:MOST]:
        match = _LINE.match(ref.locator)
        if match and ref.source in known:
            wanted.setdefault(ref.source, {})[int(match.group(1))] = ref.locator
    found = [
        Context(source, locators[number], number, lines)
        for source, locators in wanted.items()
        for number, lines in _around(known[source], sorted(locators))
    ]
    return replace(answer, contexts=tuple(found))


def _places(answer: Diagnosis) -> Iterator[Ref]:
    """What the cause itself quotes first."""
    own = [finding for finding in answer.findings if finding.cause == answer.verdict.cause]
    others = [finding for finding in answer.findings if finding.cause != answer.verdict.cause]
    for finding in (*own, *others):
        yield from finding.evidence[:4]


def _around(item: Item, numbers: Sequence[int]) -> Iterator[tuple[int, tuple[tuple[int, str], ...]]]:
    wanted = {near for number in numbers for near in range(max(1, number - AROUND), number + AROUND + 1)}
    last, kept = max(wanted), dict[int, str]()
    try:
        if item.size > LARGEST or not is_text(item.head()):
            return
        with item.path.open("rb") as stream:
            for at, line in enumerate(stream, 1):
                if at in wanted:
                    kept[at] = line[: 4 * LONGEST].decode("utf-8", "replace").rstrip("\r\n")[:LONGEST]
                if at >= last:
                    break
    except OSError:
        return
    for number in numbers:
        near = range(number - AROUND, number + AROUND + 1)
        yield number, tuple((at, kept[at]) for at in near if at in kept)
