"""Lists of processes that tell the rank of each, by its environment or its command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.rank_map.ranks_of_hosts import Row

_RANK_SET, _LOCAL_SET = re.compile(r"\bRANK=(\d{1,7})\b"), re.compile(r"\bLOCAL_RANK=(\d{1,4})\b")
_RANK_GIVEN = re.compile(r"(?<!\w)(?:RANK|rank)=(\d{1,7})\b")


def processes(lines: list[tuple[int, str]]) -> Iterator[Row]:
    """`ps` with the environment or with `env RANK=…` in the command; without its heading the pid comes first. Below a
    heading, as of Ray's list of who uses most memory, `rank=…` counts too."""
    at, shape = 0, _RANK_SET
    for number, line in lines:
        cells = line.split(None, 16)
        if "PID" in cells and ("CMD" in cells or "COMMAND" in cells):
            at, shape = cells.index("PID"), _RANK_GIVEN
        elif 0 <= at < len(cells) and cells[at].isdigit() and (told := shape.search(line)):
            local = _LOCAL_SET.search(line)
            yield number, line, {"rank": told[1], "pid": cells[at], **({"local_rank": local[1]} if local else {})}
