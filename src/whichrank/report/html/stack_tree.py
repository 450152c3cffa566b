"""The merged stacks of all ranks as nested lists that fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whichrank.model.views import StackNode
from whichrank.report._stacks import chain, whose
from whichrank.report._words import ranges, shortened
from whichrank.report.html.page import text

MOST_NODES = 2000
LONG_CHAIN = 8


def stack_tree(nodes: Sequence[StackNode]) -> str:
    """Chains of frames that the same ranks share are one block; it forks where ranks part."""
    budget = [MOST_NODES]
    inner = "".join(_branches(nodes, budget))
    cut = '<p class="hint">The tree is cut here; whichrank stacks --format json has all of it.</p>'
    return f'<ul class="tree">{inner}</ul>' + (cut if budget[0] <= 0 else "")


def _branches(nodes: Sequence[StackNode], budget: list[int]) -> Iterator[str]:
    for node in nodes:
        frames = chain(node)
        budget[0] -= len(frames)
        if budget[0] <= 0:
            return
        numbers = f'<span class="soft">{text(ranges(node.ranks))}</span>' if len(node.ranks) > 1 else ""
        last = frames[-1]
        inner = "".join(_branches(last.children, budget))
        yield (
            f"<li><details open><summary><b>{text(whose(node))}</b> {numbers}</summary>"
            f"{_frames(frames)}{f'<ul>{inner}</ul>' if inner else ''}</details></li>"
        )


def _frames(frames: Sequence[StackNode]) -> str:
    """Own code and the innermost frames in view; the inside of libraries folded where there is much of it."""
    if len(frames) <= LONG_CHAIN:
        return f'<ol class="frames">{"".join(map(_frame, frames))}</ol>'
    pieces: list[str] = []
    hidden: list[StackNode] = []

    def fold() -> None:
        if len(hidden) > 2:
            inner = "".join(map(_frame, hidden))
            pieces.append(
                f"<li><details><summary>{len(hidden)} frames of libraries</summary><ol>{inner}</ol></details></li>"
            )
        else:
            pieces.extend(map(_frame, hidden))
        hidden.clear()

    for index, frame in enumerate(frames):
        if frame.own or index >= len(frames) - 2:
            fold()
            pieces.append(_frame(frame))
        else:
            hidden.append(frame)
    fold()
    return f'<ol class="frames">{"".join(pieces)}</ol>'


def _frame(node: StackNode) -> str:
    short = node.file if len(node.file) <= 60 else "…" + node.file[-59:]
    place = f"{short}:{node.line}" if node.line else short
    title = f' title="{text(shortened(node.file, 400))}"' if short != node.file else ""
    own = ' class="own"' if node.own else ""
    return (
        f"<li{own}><code>{text(shortened(node.function, 160))}</code> <span class=soft{title}>{text(place)}</span></li>"
    )
