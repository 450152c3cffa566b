"""Lists of ranks with their pids, hosts and GPUs: what people save beside the logs of a job.

Read are tables with a header (`RANK PID HOST`; `scontrol listpids`), lines such as `13 -> node2/5`, lines with names
and values (`rank=13 host=node2 pid=4410 local_rank=5`), which many programs print when they start, the list of
processes of `ps` with `RANK=13` in the command, words and values one after the other (`rank 13 pid 4410 on node2`),
hosts with all of their ranks (`node1 (ranks 0-7), node2 (ranks 8-15)`), hosts in the order of their ranks with as many
each (`32 ranks on node1..node4, 8 each`), what DeepSpeed's launcher prints (`WORLD INFO DICT: {'node1': [0, 1]}`,
`global_rank_mapping={'node1': [0, 1]}`, `process 4410 spawned with command: […, '--local_rank=5']`), and lines whose
prefix says both the rank and the host. The agent of a host says which ranks it starts (`global_ranks=[8, 9]`,
`node_rank 1, global ranks 8,9`).
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.evidence.readers.rank_map.beside import begins_beside, beside
from whichrank.evidence.readers.rank_map.introductions import INTRODUCED, INTRODUCES, RANK_WITHIN, introductions
from whichrank.evidence.readers.rank_map.launchers import AGENT, DEEPSPEED, by_agent, by_deepspeed
from whichrank.evidence.readers.rank_map.numbered import MARKS, numbered
from whichrank.evidence.readers.rank_map.one_rank import HEAD, begins_tagged, introduction
from whichrank.evidence.readers.rank_map.own_lines import PREFIXED, by_prefix, own_pids
from whichrank.evidence.readers.rank_map.processes import processes
from whichrank.evidence.readers.rank_map.ranks_of_hosts import RANGE_WITHIN, Row, each, ranges, shares, slots
from whichrank.evidence.readers.rank_map.tables import TITLES, arrows, table
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.prefixes.clock import Clock, clock_of, prefix_of
from whichrank.evidence.text.text_file import is_text, lowered
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.placement import Placement

NAME = "rank_map"
BESIDE = True

_HEAD = 4096
"""What `sniff` sees of a file."""
_LARGEST = 1 << 18
"""Four thousand ranks; of a longer text the beginning is read."""
_AS_SPACES = str.maketrans("|,;", "   ")
_VISIBLE = re.compile(r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=(\d{1,3}(?:,\d{1,3}){0,63})\b")
_NEEDED = (b"rank", b"pid", b"globalid", b" each", b" per node", b" per host", b"mpirun", b"mpiexec")
"""One of these stands in every list."""
_NO_MAP = (".py", ".rst", ".html", ".json", ".yaml", ".yml")


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning lists ranks with where they run."""
    low = lowered(head)
    if not is_text(head) or name.lower().endswith(_NO_MAP):
        return False
    if not any(map(low.__contains__, _NEEDED)) and not begins_tagged(head) and not MARKS.search(head):
        return False
    if len(head) < _HEAD:
        return True  # all of a small file: `read` looks at the same lines
    text = head.decode("utf-8", "replace")
    return _is_map(rows(text), head, prefix_of(head)) or begins_beside(text)


def read(item: Item) -> Reading:
    """Every rank with what the list says of it; of a rank that is listed twice the first row counts."""
    with item.open() as stream:
        text = stream.read(_LARGEST).decode("utf-8", "replace")
    told = rows(text)
    near = beside(text)
    alone = introduction(item.head(HEAD), clock_of(item))
    if item.size < _HEAD and not near and not _is_map(told, item.head(), clock_of(item)):
        return Reading([], "ignored", "no list of ranks")
    host, visible = host_of_path(item.label), _visible(text)
    found: dict[int, Placement] = {}
    for number, line, values in told:
        rank = int(values["rank"])
        ref = Ref(item.label, f"line {number}", line.strip()[:200], rank)
        found.setdefault(rank, _placement(rank, _physical(values, visible), host, ref))
    spoken = by_prefix(item.head(PREFIXED), clock_of(item))
    for rank, (number, named, pid) in {**{r: (*place, None) for r, place in near.items()}, **spoken}.items():
        ref = Ref(item.label, f"line {number}", f"rank {rank} on {named}", rank, named)
        if rank not in found or found[rank].host is None:
            found[rank] = replace(found[rank], host=named) if rank in found else Placement(rank, ref, pid, named)
    for rank, (number, pid) in own_pids(item.head(PREFIXED), clock_of(item)).items():
        known = found.get(rank) or Placement(rank, Ref(item.label, f"line {number}", f"rank {rank} is pid {pid}", rank))
        found[rank] = known if known.pid is not None else replace(known, pid=pid)
    for rank, (number, pid) in (numbered(text) if not found and MARKS.search(text.encode()) else {}).items():
        found[rank] = Placement(rank, Ref(item.label, f"line {number}", _quoted(text, number), rank), pid)
    if alone is not None:
        rank, number, mine, pid = alone
        ref = Ref(item.label, f"line {number}", _quoted(text, number), rank, mine)
        found.setdefault(rank, Placement(rank, ref, pid, mine or host))
    return Reading(list(found.values()), "complete") if found else Reading([], "ignored", "no list of ranks")


def _is_map(told: list[Row], head: bytes, clock: Clock) -> bool:
    """Whether two ranks are listed with where they run, or the one that wrote the file introduces itself."""
    introduced = any("host" in values and INTRODUCES.search(line) for _, line, values in told[:2])
    started = any("rank" in line and AGENT.search(line) for _, line, _ in told[:1])
    spoken = len(by_prefix(head, clock)) >= 2 or bool(own_pids(head, clock)) or introduction(head, clock) is not None
    if len(told) >= 2 or introduced or started or spoken:
        return True
    return MARKS.search(head) is not None and bool(numbered(head.decode("utf-8", "replace")))


def _quoted(text: str, number: int) -> str:
    return text.split("\n", number)[number - 1].strip()[:200]


def _placement(rank: int, values: dict[str, str], host: str | None, ref: Ref) -> Placement:
    pid, local, gpu = (int(values[name]) if name in values else None for name in ("pid", "local_rank", "gpu"))
    return Placement(rank, ref, pid, values.get("host", host), local, gpu, values.get("bus_id"))


def _visible(text: str) -> list[tuple[str, list[str]]]:
    """Lines that say which GPUs `cuda:0`, `cuda:1`, … are, each with the numbers that they have on their host."""
    lines = [line for line in text.splitlines() if "_VISIBLE_DEVICES=" in line]
    return [(line, match[1].split(",")) for line in lines if (match := _VISIBLE.search(line))]


def _physical(values: dict[str, str], visible: list[tuple[str, list[str]]]) -> dict[str, str]:
    """The row with the number that the GPU has on its host; without one where that can't be known."""
    if "gpu" not in values or not visible:
        return values
    host = re.compile(rf"(?<![\w-]){re.escape(values.get('host', ''))}(?![\w-])")
    shown = next((devices for line, devices in visible if "host" in values and host.search(line)), [])
    number = int(values["gpu"])
    rest = {name: value for name, value in values.items() if name != "gpu"}
    return {**rest, "gpu": shown[number]} if number < len(shown) else rest


def rows(text: str) -> list[Row]:
    """Line number, line and values of every row, by whichever shape has most of them."""
    lines, low = list(enumerate(text.splitlines(), 1)), "\n" + text.lower()
    # Most texts have none of the words that a shape needs.
    shapes = (
        list(table(lines)) if not TITLES.isdisjoint(_cells_in(low)) else [],
        arrows(lines),
        list(introductions(lines)) if RANK_WITHIN.search(low) or INTRODUCED.search(low) else [],
        list(processes(lines)) if "RANK=" in text or ("PID" in text and "rank=" in text) else [],
        by_deepspeed(lines) if any(map(text.__contains__, DEEPSPEED)) else [],
        ranges(lines) if RANGE_WITHIN.search(text) else [],
        shares(lines) if " each" in low or " per " in low or "rank = " in low or "rank=" in low else [],
        slots(lines) if "mpirun" in low or "mpiexec" in low or " slots" in low else [],
        each(lines) if " rank " in low or ": [" in low else [],
        by_agent(lines) if "group_rank=" in low or "global_ranks=" in low or "global ranks" in low else [],
    )
    return max(shapes, key=len)


def _cells_in(text: str) -> set[str]:
    return {cell.strip("#_") for cell in set(text.translate(_AS_SPACES).split())}
