"""Colours and other codes of a terminal."""

from __future__ import annotations

import re

ANSI = r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])"
"""Colours and other codes of a terminal."""
_ANSI = re.compile(ANSI)


def strip_ansi(text: str) -> str:
    return _ANSI.sub("", text) if "\x1b" in text else text
