"""Words with braces, and variables with a part taken off: `gpu-{01..08}`, `${LIST%,}`."""

from __future__ import annotations

import re

_RANGE = re.compile(r"([^{}$`'\"\\]{0,200})\{(\d{1,6})\.\.(\d{1,6})\}([^{}$`'\"\\]{0,200})")
_LIST = re.compile(r"([^{}$`'\"\\]{0,200})\{([^{}$`'\"\\\s]{1,400},[^{}$`'\"\\\s]{0,400})\}([^{}$`'\"\\]{0,200})")
_MOST = 4096


def expanded(raw: str) -> list[str]:
    """The words that one word with a range or a list in braces becomes; the word itself where it has none."""
    if found := _RANGE.fullmatch(raw):
        before, first, last, after = found.groups()
        low, high = int(first), int(last)
        wide = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
        numbers = range(low, high + 1) if low <= high else range(low, high - 1, -1)
        return [f"{before}{number:0{wide}d}{after}" for number in numbers] if len(numbers) <= _MOST else [raw]
    if found := _LIST.fullmatch(raw):
        return [f"{found[1]}{item}{found[3]}" for item in found[2].split(",")]
    return [raw]


def shortened(text: str, operator: str, pattern: str) -> str | None:
    """`${X%.}` and `${X#a}` with a pattern that stands for itself; None where only a shell would tell."""
    pattern = pattern.strip("\"'") if len(pattern) > 1 else pattern
    if operator not in {"%", "%%", "#", "##"} or re.search(r"[*?\[\]$`\\(){}]", pattern):
        return None
    return text.removesuffix(pattern) if operator.startswith("%") else text.removeprefix(pattern)
