"""As a page."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.model.difference import Difference
from whichrank.report._words import counted, shortened
from whichrank.report.comparison import ending, level
from whichrank.report.html.page import page, section, text

LONGEST = 2000


def render(differences: list[Difference], looked: list[str]) -> Iterator[str]:
    title = f"{counted(len(differences), 'difference')} between two runs" if differences else "No difference"
    yield from page(title, _parts(title, differences, looked), styles=["style.css", "diagnosis.css"])


def _parts(title: str, differences: list[Difference], looked: list[str]) -> Iterator[str]:
    yield f'<header><h1>{text(title)}</h1><p class="label">{text(ending(len(differences), looked))}</p></header>\n'
    items = "".join(map(_item, differences))
    if items:
        yield section("Most suspicious first", items, hint="A is the run that worked, or came first; B is the other.")


def _item(d: Difference) -> str:
    what, mine, theirs, why = (text(shortened(words, LONGEST)) for words in (d.what, d.a, d.b, d.why))
    width = 100 * max(0.0, min(1.0, d.suspicion))
    return (
        f'<div class="item"><div class="gain">{level(d.suspicion)}<div class="meter">'
        f'<i style="width:{width:.0f}%;background:var(--warn)"></i></div></div><div><p><b>{what}</b></p>'
        f'<p>A <code>{mine}</code></p><p>B <code>{theirs}</code></p><p class="why">{why}</p></div></div>'
    )
