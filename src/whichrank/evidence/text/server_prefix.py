"""How inference servers begin their lines: the process by its place in the parallel groups, level, time, file."""

from __future__ import annotations

import re

_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
LEVELED = re.compile(
    rf"{_LEVEL} (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{{1,9}}))? \[?[\w./-]{{1,120}}\.py:\d{{1,6}}\] ?"
)
"""vLLM's, also before every further line of a message: `ERROR 08-10 23:02:37 [core.py:711] `."""
PLACED = re.compile(r"((?:(?:DP|PP|TP|EP|CP)\d{1,5} ?){1,4})\] ?")
"""What is left of SGLang's `[2026-01-05 10:00:00 PP0 TP3] ` behind its time."""
_PLACE = re.compile(r"(?<![A-Z])(DP|PP|TP)(\d{1,5})(?![A-Za-z0-9])")


def place_in(name: str) -> str:
    """The place that a name says: `TP9` of `Worker_TP9_EP9`, `PP0_TP1` of `PP0 TP1`; "" where it says none."""
    if "P" not in name:
        return ""
    return "_".join(group + number for group, number in _PLACE.findall(name))
