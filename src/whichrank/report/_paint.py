"""The terminal's width and colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

Paint = Callable[[str, str], str]
"""Role and text in, text with or without colour codes out."""

STYLES = {
    "hang": "bold red",
    "crash": "bold red",
    "corruption": "bold red",
    "slow": "bold yellow",
    "config": "bold yellow",
    "unknown": "bold yellow",
    "healthy": "bold green",
    "heading": "bold cyan",
    "quiet": "dim",
    "command": "bold",
}
NARROWEST, WIDEST = 40, 110


class Look(TypedDict):
    width: int
    paint: Paint


def plain(role: str, text: str) -> str:  # noqa: ARG001 - the signature of a Paint
    """No colour: what pipes and files get."""
    return text


def terminal() -> Look:
    """How to write to the terminal that stdout is; NO_COLOR and TERM=dumb are obeyed."""
    from rich.console import Console
    from rich.style import Style

    console = Console()
    styles = {role: Style.parse(style) for role, style in STYLES.items()}

    def paint(role: str, text: str) -> str:
        colours = None if console.no_color else console._color_system  # noqa: SLF001
        return styles[role].render(text, color_system=colours)

    return {"width": max(NARROWEST, min(console.width, WIDEST)), "paint": paint}
