"""The frame of a page: one file, no network, no framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from whichrank import __version__
from whichrank.report._words import safe

HERE = Path(__file__).parent
NOTHING = "–"
"""What a cell says that has nothing to say."""
# Everything is in the file: nothing may be loaded, sent or framed.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def text(words: str) -> str:
    """Any text as HTML."""
    return escape(safe(words))


def page(
    title: str, parts: Iterable[str], scripts: Sequence[str] = (), styles: Sequence[str] = ("style.css",)
) -> Iterator[str]:
    """The whole document."""
    yield "<!doctype html>\n"
    yield '<html lang="en"><head><meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<link rel="icon" href="data:,">\n'
    yield f"<title>{text(title)}</title>\n<style>\n{''.join(map(asset, styles))}</style></head>\n<body><main>\n"
    yield from parts
    yield f"<footer>whichrank {text(__version__)} · one file, nothing is loaded from anywhere</footer></main>\n"
    for name in scripts:
        yield f"<script>\n{asset(name)}</script>\n"
    yield "</body></html>\n"


def asset(name: str) -> str:
    """A file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def section(title: str, *inner: str, hint: str = "") -> str:
    """A titled part of the page."""
    told = f'<p class="hint">{text(hint)}</p>' if hint else ""
    return f"<section><h2>{text(title)}</h2>{told}{''.join(inner)}</section>\n"


def filled(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The columns that say anything; the first always."""
    keep = [i for i in range(len(headings)) if not i or any(row[i] not in ("", NOTHING) for row in rows)]
    return [headings[i] for i in keep], [[row[i] for i in keep] for row in rows]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    """A table; columns with words are aligned left, numbers right. Cells carry their heading, for narrow screens."""
    labels = [f' data-of="{text(heading)}"' for heading in headings]

    def attributes(i: int, cell: str) -> str:
        css = " ".join(["n"] * (i not in words) + ["none"] * (cell == NOTHING))
        return (f' class="{css}"' if css else "") + labels[i]

    right = ["" if i in words else " class=n" for i in range(len(headings))]
    head = "".join(f"<th scope=col{css}>{text(cell)}</th>" for css, cell in zip(right, headings, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{attributes(i, cell)}>{text(cell)}</td>' for i, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
