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
from collections.abc import Iterator

from msgspec.structs import replace

from whichrank.evidence.readers.rank_map.beside import begins_beside, beside
from whichrank.evidence.readers.rank_map.introduction import HEAD, begins_tagged, introduction
from whichrank.evidence.readers.rank_map.own_lines import PREFIXED, by_prefix, own_pids
from whichrank.evidence.readers.rank_map.ranks_of_hosts import HOST, RANGE_WITHIN, Row, each, ranges, shares, slots
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
_LINE = 400
"""Letters of a line."""
_LARGEST = 1 << 18
"""Four thousand ranks; of a longer text the beginning is read."""
_COLUMNS = {
    "rank": ("rank", "global_rank", "globalrank", "procid", "slurm_procid", "task", "world_rank", "globalid"),
    "pid": ("pid", "process_id", "processid"),
    "host": ("host", "hostname", "node", "nodename", "node_name", "machine", "pod"),
    "local_rank": ("local_rank", "localrank", "localid", "slurm_localid"),
    "gpu": ("gpu", "gpu_id", "gpu_index", "cuda_device", "device", "cuda"),
    "bus_id": ("bus_id", "busid", "pci.bus_id", "pci_bus_id"),
}
_RANKED = ("rank", "procid", "task", "globalid")
"""One of these stands in every header."""
_TITLES = frozenset(word for column, words in _COLUMNS.items() if column != "rank" for word in words)
"""In the header of a table one of these stands beside the rank."""
_AS_SPACES = str.maketrans("|,;", "   ")
_WHERE = ("pid", "host", "node", "ip=", "ip:", "ip ", "ip'", 'ip"')
_NAMED = {word: column for column, words in _COLUMNS.items() for word in words}
_CELLS = re.compile(r"\s*[|,;\t]\s*|\s+")
_NUMBER = re.compile(r"(?:rank|gpu|cuda:?|task)?[\s:#=]{0,2}(\d{1,7})", re.IGNORECASE)
_ARROW = re.compile(
    rf"\s{{0,8}}(?:rank\s?)?(?P<rank>\d{{1,7}})\s{{0,4}}(?:->|=>|→|:|=)\s{{0,4}}(?P<host>{HOST})"
    r"(?:\s{0,2}[/:, ]\s{0,2}(?:gpu|cuda|device)?[\s:=]{0,2}(?P<gpu>\d{1,3}))?\s{0,8}$",
    re.IGNORECASE,
)
_ARROWED = frozenset("0123456789rR")
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
_RANK_WITHIN = re.compile(rf"rank{_IS}\d|rank (?<=global rank )\d")
_INTRODUCED = re.compile(
    r"rank {1,4}\d{1,7}(?:(?: of |/)\d{1,7})?[,;(]{0,2} \(?"
    r"(?:local|world|gpu|pid|host|node|on |device cuda|cudadev|busid)"
)
"""In lower case: what stands in every line that says a rank and where it runs, found sooner than that itself."""
_INTRODUCES = re.compile(
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
_WORLD = re.compile(r"WORLD INFO DICT: \{([^{}]{1,400000})\}|global_rank_mapping=[^{}]{0,40}\{([^{}]{1,400000})\}")
_DEEPSPEED = ("WORLD INFO DICT", "global_rank_mapping=", "spawned with command")
_SLOTS = re.compile(r"['\"]([\w.-]{1,253})['\"]: \[([\d, ]{1,2000})\]")
"""`'node2': [0, 1, 2, 3]`: a host and its GPUs, in the order of the ranks."""
_SPAWNED = re.compile(r"\bprocess (\d{1,10}) spawned with command: \[.{1,4000}?--local_rank=(\d{1,4})\b")
_COLLECTED = re.compile(rf"({HOST}): \[")
"""How DeepSpeed's runner begins the lines of each host."""
_OF_AGENT = re.compile(rf"\[?(?=\S{{0,60}}[\d-])({HOST}?)(?:\]:?|:) ")
_WORLD_SIZE = re.compile(r"\bdist_world_size=(\d{1,7})\b")
_NODE_RANK = re.compile(r"\bnode_rank=(\d{1,6})\b")
_AGENT = re.compile(
    r"(?:\bglobal_ranks=\[|\b(?:node_rank|nproc_per_node|start(?:s|ed|ing)?|spawn\w{0,4})\b.{1,80}\bglobal ranks:? \[?)"
    r"(\d{1,7}(?:, ?\d{1,7}){0,63})(?=[\]\s;.)]|$)"
    r"|\bgroup_rank=(\d{1,6})\b.{1,80}\blocal_world_size[ =](\d{1,2})\b"
)
_VISIBLE = re.compile(r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=(\d{1,3}(?:,\d{1,3}){0,63})\b")
_RANK_SET, _LOCAL_SET = re.compile(r"\bRANK=(\d{1,7})\b"), re.compile(r"\bLOCAL_RANK=(\d{1,4})\b")
_RANK_GIVEN = re.compile(r"(?<!\w)(?:RANK|rank)=(\d{1,7})\b")
_NEEDED = (b"rank", b"pid", b"globalid", b" each", b" per node", b" per host", b"mpirun", b"mpiexec")
"""One of these stands in every list."""
_NO_MAP = (".py", ".rst", ".html", ".json", ".yaml", ".yml")


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning lists ranks with where they run."""
    low = lowered(head)
    if not is_text(head) or name.lower().endswith(_NO_MAP):
        return False
    if not any(map(low.__contains__, _NEEDED)) and not begins_tagged(head):
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
    if alone is not None:
        rank, number, mine, pid = alone
        ref = Ref(item.label, f"line {number}", _quoted(text, number), rank, mine)
        found.setdefault(rank, Placement(rank, ref, pid, mine or host))
    return Reading(list(found.values()), "complete") if found else Reading([], "ignored", "no list of ranks")


def _is_map(told: list[Row], head: bytes, clock: Clock) -> bool:
    """Whether two ranks are listed with where they run, or the one that wrote the file introduces itself."""
    introduced = any("host" in values and _INTRODUCES.search(line) for _, line, values in told[:2])
    started = any("rank" in line and _AGENT.search(line) for _, line, _ in told[:1])
    spoken = len(by_prefix(head, clock)) >= 2 or bool(own_pids(head, clock)) or introduction(head, clock) is not None
    return len(told) >= 2 or introduced or started or spoken


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
        list(_table(lines)) if not _TITLES.isdisjoint(_cells_in(low)) else [],
        _arrows(lines),
        list(_introductions(lines)) if _RANK_WITHIN.search(low) or _INTRODUCED.search(low) else [],
        list(_processes(lines)) if "RANK=" in text or ("PID" in text and "rank=" in text) else [],
        _by_deepspeed(lines) if any(map(text.__contains__, _DEEPSPEED)) else [],
        ranges(lines) if RANGE_WITHIN.search(text) else [],
        shares(lines) if " each" in low or " per " in low or "rank = " in low or "rank=" in low else [],
        slots(lines) if "mpirun" in low or "mpiexec" in low or " slots" in low else [],
        each(lines) if " rank " in low or ": [" in low else [],
        _by_agent(lines) if "group_rank=" in low or "global_ranks=" in low or "global ranks" in low else [],
    )
    return max(shapes, key=len)


def _cells_in(text: str) -> set[str]:
    return {cell.strip("#_") for cell in set(text.translate(_AS_SPACES).split())}


def _table(lines: list[tuple[int, str]]) -> Iterator[Row]:
    columns: list[str | None] = []
    for number, line in lines:
        if not columns and not any(map(line.lower().__contains__, _RANKED)):
            continue
        cells = _CELLS.split(line.strip().strip("|").strip()) if len(line) < 1000 else []
        named = [_NAMED.get(cell.lower().strip("#_")) for cell in cells]
        if "rank" in named and sum(name is not None for name in named) >= 2 and len(cells) <= 12:
            columns = _behind_a_comment(named, cells)
        elif columns and len(cells) >= len(columns):
            values = dict(_row(columns, cells))
            if "rank" in values and len(values) > 1:
                yield number, line, values
        elif columns and line.strip(" -+|=:\t"):
            columns = []  # the table has ended


def _behind_a_comment(named: list[str | None], cells: list[str]) -> list[str | None]:
    """The columns alone where words stand before them: `$ cat pids  # written at launch: pid rank gpu`."""
    first = next(at for at, name in enumerate(named) if name is not None)
    return named[first:] if first and cells[first - 1].endswith(("#", ":")) else named


def _row(columns: list[str | None], cells: list[str]) -> Iterator[tuple[str, str]]:
    for name, cell in zip(columns, cells, strict=False):
        if name in ("host", "bus_id"):
            if re.fullmatch(r"[\w.:-]{1,253}", cell) and not cell.isdigit():
                yield name, cell
        elif name is not None and (match := _NUMBER.fullmatch(cell)):
            yield name, match[1]


def _arrow(line: str) -> re.Match[str] | None:
    return _ARROW.match(line) if line.lstrip()[:1] in _ARROWED else None


def _arrows(lines: list[tuple[int, str]]) -> list[Row]:
    """Only of a text that is such a list: an odd line of a log looks alike."""
    found = [(number, line, match) for number, line in lines if len(line) < 300 and (match := _arrow(line))]
    if not found:
        return []
    written = sum(bool(line.strip()) for _, line in lines)
    ranks = [int(match["rank"]) for _, _, match in found]
    if 10 * len(found) < 6 * written or len(set(ranks)) != len(ranks):
        return []
    return [(number, line, {k: v for k, v in match.groupdict().items() if v}) for number, line, match in found]


def _introductions(lines: list[tuple[int, str]]) -> Iterator[Row]:
    """What ranks say of themselves when they start: `rank=13 pid=4410 host=node2`, `rank 13 pid 4410 on node2`."""
    for number, line in lines:
        found = _names_and_values(line) or _words_and_values(line[:_LINE])
        if "host" in found or "pid" in found:
            yield number, line, found


def _names_and_values(line: str) -> dict[str, str]:
    low = line.lower() if len(line) < 1000 else ""
    if "rank" not in low or not (line.startswith("[") or any(map(low.__contains__, _WHERE))):
        return {}
    if not _RANK_WITHIN.search(low) or not (told := _VALUES["rank"].search(line)):
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
    match = _INTRODUCES.search(line) if _INTRODUCED.search(line.lower()) else None
    found = {"rank": match["rank"]} if match else {}
    if match and (named := _HOST_BEFORE.match(line)):
        found["host"] = named[1]
    for word, value in _ITEM.findall(match["items"]) if match else ():
        name = _ITEM_OF.get(word.lower(), word.lower())
        is_host = value[:1].isalpha() and re.search(r"[\d-]", value) is not None
        if is_host if name == "host" else _BUS.fullmatch(value) if name == "bus_id" else value.isdecimal():
            found.setdefault(name, value.rstrip(".:"))
    return found


def _slots(lines: list[tuple[int, str]]) -> Iterator[Row]:
    """DeepSpeed's hosts with their GPUs, through which ranks are counted, or with their ranks."""
    number, line, world = next(((n, line, match) for n, line in lines if (match := _WORLD.search(line))), (0, "", None))
    if world is None:
        return
    count = 0
    for host, given in _SLOTS.findall(world[1] or world[2]):
        for local, slot in enumerate(given.replace(",", " ").split()):
            told = {"rank": str(count), "gpu": slot} if world[1] else {"rank": slot}
            yield number, line, {**told, "host": host, "local_rank": str(local)}
            count += 1


def _by_deepspeed(lines: list[tuple[int, str]]) -> list[Row]:
    """What its runner says of the hosts, with the pids that the launcher of each host says."""
    by_place: dict[tuple[str, str], Row] = {(v["host"], v["local_rank"]): (n, line, v) for n, line, v in _slots(lines)}
    hosts = list(dict.fromkeys(host for host, _ in by_place))
    found: list[Row] = []
    for of, started in _spawned(lines).items():
        host = of or (hosts[0] if len(hosts) == 1 else "")
        first = None if by_place else _first_rank(lines, of, len(started))
        for number, line, pid, local in started:
            if known := by_place.pop((host, local), None):
                found.append((number, line, {**known[2], "pid": pid}))
            elif first is not None:
                named = {"host": of} if of else {}
                found.append(
                    (number, line, {"rank": str(first + int(local)), "pid": pid, "local_rank": local, **named})
                )
    return [*found, *by_place.values()]


def _spawned(lines: list[tuple[int, str]]) -> dict[str, list[tuple[int, str, str, str]]]:
    """By the host that stands before the lines, or "": line, words, pid and local rank of each process started last."""
    found: dict[str, dict[str, tuple[int, str, str, str]]] = {}
    for number, line in lines:
        if "spawned with command" in line and (match := _SPAWNED.search(line)):
            found.setdefault(_collected(line), {})[match[2]] = (number, line, match[1], match[2])
    return {host: list(started.values()) for host, started in found.items()}


def _collected(line: str) -> str:
    match = _COLLECTED.match(line)
    return match[1] if match else ""


def _first_rank(lines: list[tuple[int, str]], host: str, count: int) -> int | None:
    """The rank of a host's first process: every host starts as many; None where nothing says which host this is."""
    mine = [line for _, line in lines if _collected(line) == host]
    world = next((int(match[1]) for line in mine if (match := _WORLD_SIZE.search(line))), None)
    node = next((int(match[1]) for line in mine if (match := _NODE_RANK.search(line))), None)
    if world is None or world % count:
        return None
    return 0 if world == count else node * count if node is not None and (node + 1) * count <= world else None


def _by_agent(lines: list[tuple[int, str]]) -> list[Row]:
    """The ranks that the agent of this host starts, or those of several whose lines begin with their hosts; nothing
    where one says several, as of restarts."""
    told = [(n, line, match) for n, line in lines if "rank" in line and (match := _AGENT.search(line[:_LINE]))]
    ranks = {_started(match): (n, line, _speaker(line)) for n, line, match in reversed(told)}
    hosts = {host for _, _, host in ranks.values()}
    if len(ranks) != 1 and (
        "" in hosts or len(hosts) != len(ranks) or len(set().union(*ranks)) != sum(map(len, ranks))
    ):
        return []
    return [
        (n, line, {"rank": str(rank), "local_rank": str(at), **({"host": host} if len(ranks) > 1 else {})})
        for started, (n, line, host) in ranks.items()
        for at, rank in enumerate(started)
    ]


def _speaker(line: str) -> str:
    """The host that stands before a line of an agent."""
    match = _OF_AGENT.match(line)
    return match[1] if match else ""


def _started(match: re.Match[str]) -> tuple[int, ...]:
    if match[1]:
        return tuple(map(int, match[1].split(",")))
    return tuple(range(int(match[2]) * int(match[3]), (int(match[2]) + 1) * int(match[3])))


def _processes(lines: list[tuple[int, str]]) -> Iterator[Row]:
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
