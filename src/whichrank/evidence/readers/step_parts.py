"""Lines of training loops with the time of a step and the part of it that was spent on data.

`Time 0.783 (2.771)  Data 0.006 (1.204)` of the ImageNet example and all that descend from it, `time: 0.35, data_time:
0.20` of detection toolboxes, `Data (t): 0.032 Batch (t): 1.350` of open_clip. A mean in parentheses stands for all
steps so far: the last line has the best one.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text, lowered
from whichrank.model.contracts import Item, Reading
from whichrank.records.profiles.step_parts import StepParts

NAME = "step_parts"
BESIDE = True

_LARGEST = 1 << 20
"""Of a longer text the end is read."""
_LONGEST = 600
_RANKS = 4096
_VALUE = r"[ :=\t]{1,8}(\d{1,6}\.\d{1,9})(?:\s?s\b)?(?:\s{0,4}\((\d{1,6}\.\d{1,9})\))?"
_SECONDS = r"(?=[ :=]{1,3}\d{1,6}\.\d{1,9} ?s\b)"
_STEP = re.compile(
    rf"(?:^|[\s,\]|])(?:(?:(?:batch|step|iter)[_ ]?)?time|(?:batch|step|iter) ?\(t\)|step{_SECONDS}){_VALUE}",
    re.IGNORECASE,
)
_DATA = re.compile(rf"(?:^|[\s,\]|])data(?:[_ ]?(?:load(?:ing)?[_ ]?)?time| ?\(t\))?{_VALUE}", re.IGNORECASE)
_HEAD = re.compile(rb"data(?<!\wdata)(?:[_ ]?(?:load(?:ing)?[_ ]?)?time| ?\(t\))?[ :=\t]{1,8}\d{1,6}\.\d")
"""In lower case."""
_RANK = re.compile(r"\b(?:rank|gpu)[ _:=#]{0,3}(\d{1,7})\b", re.IGNORECASE)


def sniff(head: bytes, name: str) -> bool:
    """A text in whose beginning a line tells its data time."""
    return (
        not name.lower().endswith((".py", ".json", ".csv", ".html"))
        and is_text(head)
        and bool(_HEAD.search(lowered(head)))
    )


def read(item: Item) -> Reading:
    """One record for each rank."""
    first, data = tail(item, _LARGEST)
    found: dict[int | None, StepParts] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), first):
        parts = _of_line(item.label, number, line)
        if parts is None or (parts.rank not in found and len(found) >= _RANKS):
            continue
        before = found.get(parts.rank)
        found[parts.rank] = parts if before is None or parts.is_mean else _sum(before, parts)
    return Reading(list(found.values()), "complete" if found else "ignored", "" if found else "no data times in it")


def _of_line(label: str, number: int, line: str) -> StepParts | None:
    if len(line) > _LONGEST or ("ata" not in line and "DATA" not in line):
        return None
    step, data = _STEP.search(line), _DATA.search(line)
    if step is None or data is None or bool(step[2]) != bool(data[2]):
        return None
    whole, part = float(step[2] or step[1]), float(data[2] or data[1])
    if not 0 < whole < 1e5 or part > 1e5:
        return None
    if part > whole:  # told side by side: the step begins when its data is there
        whole += part
    voice = listen(line.encode(), Clock(0))
    said = _RANK.search(line)
    rank = voice.rank if voice.rank is not None else int(said[1]) if said else None
    return StepParts(label, rank, whole, part, 1, number, line.strip(), is_mean=data[2] is not None)


def _sum(one: StepParts, other: StepParts) -> StepParts:
    return replace(other, step_s=one.step_s + other.step_s, data_s=one.data_s + other.data_s, count=one.count + 1)
