"""A scoreboard for people: text, Markdown and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from whichrank.lab.scoreboard import US, Board, Count

BAR, ROW, LEFT = 260, 18, 230
FONT = 'font-family="sans-serif" font-size="12"'


def text(board: Board) -> Iterator[str]:
    """One line per case, then the sums and our misses."""
    for kind in board.kinds:
        yield f"{kind:34} {'runs':>4} {'cause':>6} {'exact':>6} {'innocents':>9} {'alarm':>7} {'verdict':>8}\n"
        for case in board.cases(kind):
            yield _line(_named(board, case), board.count(US, kind, case))
        for tool in board.tools:
            yield _line(f"all: {tool}", board.count(tool, kind))
        yield "\n"
    for run in board.misses():
        guilty = "nobody in particular" if run.truth.culprit_ranks is None else list(run.truth.culprit_ranks)
        yield f"missed: {run.case} ({run.detail or run.kind}): said {run.answer.cause} {list(run.answer.ranks)}, "
        yield f"truth {run.truth.cause} {guilty}\n"
    for name, why in board.skipped:
        yield f"skipped: {name} ({why})\n"


def markdown(board: Board) -> Iterator[str]:
    """Per case and tool: right cause, exact culprits, innocents accused."""
    yield "# Scoreboard\n"
    for kind in board.kinds:
        title = f"Drills, {board.backend}" if kind == "drill" else f"Recorded: {kind}"
        yield f"\n## {title}\n\n| case | truth | {' | '.join(board.tools)} | alarm s | verdict s |\n"
        yield "|---|---|" + "---|" * (len(board.tools) + 2) + "\n"
        for case in board.cases(kind):
            cause = next(run.truth.cause for run in board.runs if run.kind == kind and run.case == case)
            ours = board.count(US, kind, case).as_json()
            cells = " | ".join(_cell(board.count(tool, kind, case)) for tool in board.tools)
            times = f"{_known(ours['alarm_s'])} | {_known(ours['verdict_s'])}"
            yield f"| {_named(board, case)} | {cause} | {cells} | {times} |\n"
        cells = " | ".join(_cell(board.count(tool, kind)) for tool in board.tools)
        yield f"| **all** | | {cells} | | |\n"
    yield "\nEach cell: right cause / exact culprits of the runs whose truth names any / runs, and how often somebody "
    yield "innocent was accused.\n"
    yield "A star marks hardware faults that are injected as recorded evidence.\n"
    if board.misses():
        yield "\n## Our misses\n\n"
    for run in board.misses():
        yield f"- {run.case} ({run.detail or run.kind}): said {run.answer.cause} {list(run.answer.ranks)}, truth "
        yield f"{run.truth.cause} {list(run.truth.culprit_ranks or [])}. {run.answer.summary}\n"
    if board.skipped:
        yield "\n## Left out\n\n"
    for name, why in board.skipped:
        yield f"- {name}: {why}\n"


def picture(board: Board) -> str:
    """One bar per tool and kind of case: exact culprits where there are any, in red the innocents accused."""
    rows = []
    for kind in board.kinds:
        for tool in board.tools:
            count = board.count(tool, kind)
            if count.runs:
                rows.append((f"{kind}: {tool}", count))
    width, height = LEFT + BAR + 190, ROW * (len(rows) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {FONT}>',
        f'<text x="4" y="{ROW - 4}" font-weight="bold">exact culprits (blue), innocents accused (red)</text>',
    ]
    for index, (label, count) in enumerate(rows, 1):
        top = index * ROW + 4
        exact, accused = count.exact / max(1, count.named), count.accused / count.runs
        parts += [
            f'<text x="4" y="{top + 11}">{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{BAR}" height="12" fill="#e8e8e8"/>',
            f'<rect x="{LEFT}" y="{top}" width="{BAR * exact:.1f}" height="12" fill="#3a6ea5"/>',
            f'<rect x="{LEFT}" y="{top + 9}" width="{BAR * accused:.1f}" height="3" fill="#c0392b"/>',
            f'<text x="{LEFT + BAR + 8}" y="{top + 11}">{exact:.0%} exact, {accused:.0%} accused</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _named(board: Board, case: str) -> str:
    return f"{case} *" if case in board.injected else case


def _line(label: str, count: Count) -> str:
    seen = count.as_json()
    return (
        f"{label:34} {count.runs:>4} {count.right:>6} {f'{count.exact}/{count.named}':>6} {count.accused:>9} "
        f"{_known(seen['alarm_s']):>7} {_known(seen['verdict_s']):>8}\n"
    )


def _cell(count: Count) -> str:
    if not count.runs:
        return "–"
    accused = f", {count.accused} accused" if count.accused else ""
    return f"{count.right}/{count.exact} of {count.named}/{count.runs}{accused}"


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
