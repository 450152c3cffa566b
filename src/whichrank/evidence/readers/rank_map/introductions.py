"""What ranks say of themselves when they start: `rank=13 pid=4410 host=node2`, `rank 13 pid 4410 on node2`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.rank_map.ranks_of_hosts import HOST, Row

LINE = 400
"""Letters of a line."""
_WHERE = ("pid", "host", "node", "ip=", "ip:", "ip ", "ip'", 'ip"')
_IS = r"[\"']?\s?[=:]\s?[\"']?"
_VALUES = {
    "rank": re.compile(rf"(?:(?<![\w-])(?:global_?|world_)?rank{_IS}|\bglobal rank )(\d{{1,7}})\b", re.IGNORECASE),
    "pid": re.compile(rf"\bpid{_IS}(\d{{1,10}})\b", re.IGNORECASE),
    "host": re.compile(
        rf"\b(?:(?:host|hostname|node|nodename){_IS}({HOST})|ip{_IS}(\d{{1,3}}(?:\.\d{{1,3}}){{3}}))"
        rf"|^\[(?:pod/)?({HOST})(?:/[\w.-]{{1,253}})?\] ",
        re.IGNORECASE,
    ),
    "local_rank": re.compile(rf"\blocal[_ ]?rank(?:{_IS}| )(\d{{1,4}})\b", re.IGNORECASE),
    "gpu": re.compile(rf"\b(?:(?:gpu|device|cuda){_IS}|device )(?:cuda:)?(\d{{1,3}})\b", re.IGNORECASE),
    "bus_id": re.compile(r"\bbus_?id\s?[=:]\s?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f.]{2,4})", re.IGNORECASE),
}
RANK_WITHIN = re.compile(rf"rank{_IS}\d|rank (?<=global rank )\d")
INTRODUCED = re.compile(
    r"rank {1,4}\d{1,7}(?:(?: of |/)\d{1,7})?[,;(]{0,2} \(?"
    r"(?:local|world|gpu|pid|host|node|on |device cuda|cudadev|busid)"
)
"""In lower case: what stands in every line that says a rank and where it runs, found sooner than that itself."""
INTRODUCES = re.compile(
    r"(?<![\w-])rank {1,4}(?P<rank>\d{1,7})(?:(?: of |/)\d{1,7})?"
    r"(?P<items>(?:[,;()]{0,3} \(?(?:local(?:[_ ]rank)?|world[_ ]size|gpu|device|cudadev|nvmldev|pci|bus|busid"
    r"|pid|host|hostname|node|on) [\w.:-]{1,80}){1,6})",
    re.IGNORECASE,
)
"""`rank 5 local_rank 1 pid 4410 host node7`, `rank 2 of 4 on node3`, `rank 5 (node n7)`, `[n7 rank 5 pid 4410]`,
`[n7] rank 5 pid 4410`, `rank  9 (local 1) pid 4410 on n7`, `[n7] NCCL: rank 5 cudaDev 1 busId 26000 pid 4410`."""
_HOST_BEFORE = re.compile(rf"\[(?=\S{{0,80}}[\d-])({HOST})(?: |\]:? (?:NCCL:? )?)rank \d")
_ITEM = re.compile(
    r"\b(local(?:[_ ]rank)?|gpu|device|cudadev|pci|bus|busid|pid|host|hostname|node|on) "
    r"(?:cuda:(?=\d))?([\w.:-]{1,80})",
    re.IGNORECASE,
)
_ITEM_OF = {"local rank": "local_rank", "local": "local_rank", "hostname": "host", "node": "host", "on": "host",
            "device": "gpu", "cudadev": "gpu", "pci": "bus_id", "bus": "bus_id", "busid": "bus_id"}  # fmt: skip
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?|(?:0x)?[0-9A-Fa-f]{4,10}")
"""In full, or as NCCL prints it: `76000` is `0000:76:00.0`."""


def introductions(lines: list[tuple[int, str]]) -> Iterator[Row]:
    """What ranks say of themselves when they start: `rank=13 pid=4410 host=node2`, `rank 13 pid 4410 on node2`."""
    for number, line in lines:
        found = _names_and_values(line) or _words_and_values(line[:LINE])
        if "host" in found or "pid" in found:
            yield number, line, found


def _names_and_values(line: str) -> dict[str, str]:
    low = line.lower() if len(line) < 1000 else ""
    if "rank" not in low or not (line.startswith("[") or any(map(low.__contains__, _WHERE))):
        return {}
    if not RANK_WITHIN.search(low) or not (told := _VALUES["rank"].search(line)):
        return {}
    found = {"rank": told[1]}
    for name, pattern in _VALUES.items():
        # Ray's driver has a pid and an address of its own in every line: the nearest is the rank's. What stands in
        # brackets before the line may be any speaker.
        near = min(
            pattern.finditer(line), key=lambda m: (m[0].startswith("["), abs(m.start() - told.start())), default=None
        )
        if name != "rank" and near is not None:
            found[name] = next(value for value in near.groups() if value)
    return found if "host" in found or "pid" in found else {}


def _words_and_values(line: str) -> dict[str, str]:
    match = INTRODUCES.search(line) if INTRODUCED.search(line.lower()) else None
    found = {"rank": match["rank"]} if match else {}
    if match and (named := _HOST_BEFORE.match(line)):
        found["host"] = named[1]
    for word, value in _ITEM.findall(match["items"]) if match else ():
        name = _ITEM_OF.get(word.lower(), word.lower())
        is_host = value[:1].isalpha() and re.search(r"[\d-]", value) is not None
        if is_host if name == "host" else _BUS.fullmatch(value) if name == "bus_id" else value.isdecimal():
            found.setdefault(name, value.rstrip(".:"))
    return found
