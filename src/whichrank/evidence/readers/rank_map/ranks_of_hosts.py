"""Hosts with all of their ranks: `node1 (ranks 0-7), node2 (ranks 8-15)`, `32 ranks on node1..node4, 8 each`, `rank =
node*8 + local, nodes node1 node2`, `mpirun -H node1:8,node2:8`, `ranks by pod: pod-0: 0,1 pod-1: 2,3`, `node1
slots=8` of a hostfile."""

from __future__ import annotations

import re

HOST = r"[A-Za-z][\w.-]{0,252}"
_WHERE = r"(?: (?:are|is|runs?|lives?|sits?))?(?: on| at| in)| are(?= \S{0,60}(?:\d|-[a-z]\b))| ->|:| ?=>?"
"""What stands between ranks and their host; without a preposition the name must be a numbered one."""
_TO = r"(?:-|\.\.|–|to|through)"
_LINE = 400
"""Bytes of a line that are looked at."""
_RANGE = re.compile(
    rf"(?<![\w.-])({HOST}) ?(?:\(|[:=] ?|-> ?|(?:has|holds|hosts|runs|got|with) )?[Rr]anks? ?[:=]? ?\[?"
    rf"(\d{{1,7}}) ?{_TO} ?(\d{{1,7}})\b"
    rf"|\b[Rr]anks? (\d{{1,7}}) ?{_TO} ?(\d{{1,7}})(?:{_WHERE}) ({HOST})"
)
"""`node1 (ranks 0-7)`, `node1: ranks 0..7`, `ranks 0-7 on node1`, `ranks 0-7 are node1`."""
_SPEAKER = re.compile(
    rf"(?:[\d:.,TZ/ -]{{8,40}} )?\[?(?=\S{{0,60}}[\d-])({HOST}?)\]?:? (?:(?!\bfor\b).){{0,80}}?\b(?:up|start\w{{0,4}}"
    r"|launch\w{0,4}|spawn\w{0,4}|runs?|running)\b(?:(?!\b(?:for|local)\b).){0,60}?"
    r"\b[Rr]anks? (\d{1,7}) ?(?:-|\.\.) ?(\d{1,7})\b"
)
"""`09:00:00 node1: agent up, ranks 0-7 on gpus 0-7`: whose line it is."""
_ENTRY = re.compile(
    rf"(?:[Pp]od|[Nn]ode|[Hh]ost)[ /](?=\S{{0,60}}[\d-])({HOST})[:,]? [^\n]{{0,80}}?"
    rf"\b[Rr]anks? (\d{{1,7}}) ?{_TO} ?(\d{{1,7}})\b"
)
"""`pod fit-1: replica 1, ranks 8..15`: one host in each line."""
_OF_EACH = re.compile(
    r"(?<![\w.-])(?=\S{0,60}[\d-])([A-Za-z][\w.-]{0,62}) ?(?:->|=>|=|is) ?(?:global )?rank (\d{1,7})\b"
)
"""`fit-0 -> rank 0, fit-1 -> rank 1`."""
_LIST = re.compile(
    rf"\s{{0,12}}-?\s?[\"']?(?=\S{{0,60}}[\d-])({HOST})[\"']?\s?: ?"
    r"\[(\d{1,7}(?:, ?\d{1,7}){0,63})\],?\s{0,4}$"
)
"""`  node1: [0, 1, 2, 3]`."""
_HEADER = re.compile(r"(?i)\W{0,4}(?:pod|node|host|hostname|machine)s?\b[\w |,;\t]{0,60}?\b(?:global )?ranks\b")
_CELL = re.compile(
    rf"\W{{0,4}}(?=\S{{0,60}}[\d-])({HOST})[ |,;\t]{{1,40}}(?:[\w.]{{1,40}}[ |,;\t]{{1,40}}){{0,4}}?"
    rf"(\d{{1,7}}) ?{_TO} ?(\d{{1,7}})(?![\w.-])"
)
"""A host and its ranks below `| host | ranks |`."""
_NAMED = rf"(?=\S{{0,60}}[\d-])({HOST})"
_SPAN_OF_HOST = re.compile(
    rf"(?<![\w.-]){_NAMED}(?: ?[:=(] ?| )(\d{{1,7}}) ?(?:-|\.\.|–) ?(\d{{1,7}})(?=[\s,;.)]|$)"
    rf"|(?<![\w.-])(\d{{1,7}}) ?(?:-|\.\.|–) ?(\d{{1,7}})(?:{_WHERE})? {_NAMED}(?=[\s,;.)]|$)"
)
"""The same where a line says once what the numbers are: `8 ranks each: a1 0-7, a2 8-15`, `ranks 0-3 a1, 4-7 a2`."""
_LISTED = re.compile(r"(?<![\w.-])\d{1,7}(?:, ?\d{1,7}){1,63}(?![\w.-])")
"""`4,5,6`: ranks where the line speaks of hosts."""
_OF_HOSTS = re.compile(r"(?i:\b(?:pod|node|host|machine|server|instance)s?\b)")
NO_HOST = re.compile(
    r"(?i:stages?|[tpdec]p|groups?|pg|numa|cpus?|cores?|layers?|experts?|shards?|replicas?|mesh|steps?|epochs?"
    r"|parts?|iter\w{0,8}|gpus?|jobs?|ranks?)[_-]?\d{0,7}"
)
"""What else has ranks, or numbers from one to another."""
RANGE_WITHIN = re.compile(r"\b[Rr]anks\b|[Rr]ank ?[:=]? ?\[?\d{1,7} ?(?:-|\.\.|–|to) ?\d")
"""What stands in all of them, found sooner."""
_EACH = re.compile(
    r"\b(\d{1,2}) (?:GPUs?|ranks?|proc(?:esse)?s|workers)? ?(?:each|per (?:node|host|machine))\b", re.IGNORECASE
)
_FORMULA = re.compile(r"\brank ?= ?(?:(\d{1,2}) ?[*x] ?node\w{0,9}|node\w{0,9} ?[*x] ?(\d{1,2})) ?\+", re.IGNORECASE)
"""`rank = 8*node + local`, `rank = node_rank * 8 + gpu`."""
_BY_MPI = re.compile(
    r"\bmpi(?:run|exec)\b[^\n]{0,300}? (?:-H|--?host)[ =]([\w.-]{1,63}:\d{1,2}(?:,[\w.-]{1,63}:\d{1,2}){1,255})(?=\s|$)"
)
_OF_HOSTFILE = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,62}) slots ?= ?(\d{1,2})\b")
_SPREAD = re.compile(r"by-?node|ppr:|-map-by node|-N \d|-npernode|-rank-by")
"""What lets MPI count its ranks in another order than host by host."""
_SOME_SLOTS = re.compile(r"--(?:include|exclude|num_gpus|num_nodes)\b|\bmpi(?:run|exec)\b[^\n]{0,300}? --?np? \d")
_IN_ORDER = re.compile(r"\bin (?:this |that )?order\b|\bnode[ _]ranks? 0 ?(?:\.\.|-|to|,)|\brank ?= ?\d", re.IGNORECASE)
_IN_ALL = re.compile(r"\b(\d{1,6}) (?:ranks|GPUs|processes)\b", re.IGNORECASE)
_SPAN = re.compile(
    r"\b([A-Za-z][\w-]{0,40}?)(\d{1,5})(?: ?\.\.\.? ?| to | ?– ?)\1(\d{1,5})\b"
    r"|\b([A-Za-z][\w-]{0,40})\[(\d{1,5})-(\d{1,5})\]"
)
"""`node1..node4`, `node[1-4]`."""
_NAME_OF_MANY = re.compile(r"(?<![\w.-])(?=\S{0,40}\d)[A-Za-z][\w-]{1,62}(?![\w.-])")
_DIGITS = re.compile(r"\d+")
_MOST_OF_HOST = 64
_MOST_HOSTS = 4096

Row = tuple[int, str, dict[str, str]]
"""Number of the line, the line, and the values of a rank."""


def ranges(lines: list[tuple[int, str]]) -> list[Row]:
    """Hosts with their ranks: only where they are all the ranks that there are, each on one host."""
    spoken = [(number, line) for number, line in lines if RANGE_WITHIN.search(line[:_LINE])]
    told = [(number, line, match) for number, line in spoken for match in _RANGE.finditer(line[:_LINE])]
    rows = _all_ranks(told) or next((rows for line in spoken if (rows := _in_one_line(*line))), [])
    if rows:
        return rows
    for shape in (_SPEAKER, _ENTRY):
        starts = [(number, line, match) for number, line in spoken if (match := shape.match(line[:_LINE]))]
        if rows := _all_ranks([start for start in starts if not NO_HOST.fullmatch(start[2][1])]):
            return rows
    return _below_a_header(lines)


def _below_a_header(lines: list[tuple[int, str]]) -> list[Row]:
    """The rows of a table of hosts with their ranks."""
    first = next((at for at, (_, line) in enumerate(lines) if _HEADER.match(line[:_LINE])), len(lines))
    told = [(n, line, match) for n, line in lines[first + 1 :][:_MOST_HOSTS] if (match := _CELL.match(line[:_LINE]))]
    return _all_ranks(told)


def each(lines: list[tuple[int, str]]) -> list[Row]:
    """Hosts with their one rank in one line, or with a list of ranks in a line of each."""
    for number, line in lines:
        if "rank" in line and len(told := dict(_OF_EACH.findall(line[:_LINE]))) > 1:
            ranks = {int(rank): host for host, rank in told.items() if not NO_HOST.fullmatch(host)}
            if sorted(ranks) == list(range(len(told))):
                return [(number, line, {"rank": str(rank), "host": ranks[rank]}) for rank in sorted(ranks)]
    listed = [(number, line, match) for number, line in lines if (match := _LIST.match(line[:_LINE]))]
    lists = {match[1]: [int(rank) for rank in match[2].split(",")] for _, _, match in listed}
    in_turn = [rank for ranks in lists.values() for rank in ranks] == list(range(sum(map(len, lists.values()))))
    if len(lists) < 2 or len(lists) != len(listed) or not in_turn or any(map(NO_HOST.fullmatch, lists)):
        return []
    return _in_order(*listed[0][:2], [(host, len(ranks)) for host, ranks in lists.items()])


def _in_one_line(number: int, line: str) -> list[Row]:
    """Hosts with a span of numbers each, which are ranks where they are as many for each and follow each other."""
    if "numa" in line[:_LINE].lower():  # `NUMA node0` is a part of a host
        return []
    text = _LISTED.sub(_as_span, line[:_LINE]) if _OF_HOSTS.search(line[:_LINE]) else line[:_LINE]
    told = [match for match in _SPAN_OF_HOST.finditer(text) if not NO_HOST.fullmatch(match[1] or match[6])]
    spans = [(int(match[2] or match[4]), int(match[3] or match[5])) for match in told]
    size = spans[0][1] + 1 if spans else 0
    if spans != [(size * at, size * (at + 1) - 1) for at in range(len(spans))]:
        return []
    return _all_ranks([(number, line, match) for match in told])


def _as_span(listed: re.Match[str]) -> str:
    """`4,5,6` as `4-6`."""
    numbers = [int(number) for number in listed[0].split(",")]
    in_turn = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{numbers[0]}-{numbers[-1]}" if in_turn else listed[0]


def _all_ranks(told: list[tuple[int, str, re.Match[str]]]) -> list[Row]:
    """The rows of ranks; none where a rank has two hosts, or some of them have none."""
    found: dict[int, Row] = {}
    for number, line, match in told:
        name, low, high, *others = match.groups()
        host = (name or others[-1]).rstrip(".")  # the end of a sentence
        first, last = int(low or others[0]), int(high or others[1])
        if not re.search(r"[\d-]", host) or not 0 <= last - first < _MOST_OF_HOST:
            continue
        for rank in range(first, last + 1):
            known = found.setdefault(rank, (number, line, {"rank": str(rank), "host": host}))
            if known[2]["host"] != host:
                return []
    by_host: dict[str, list[int]] = {}
    for rank in sorted(found):
        by_host.setdefault(found[rank][2]["host"], []).append(rank)
    if len(by_host) < 2 or found.keys() != set(range(len(found))):
        return []
    for ranks in by_host.values():  # launchers count the ranks of a host in the order of their local ranks
        for local, rank in enumerate(ranks):
            found[rank][2]["local_rank"] = str(local)
    return list(found.values())


def shares(lines: list[tuple[int, str]]) -> list[Row]:
    """Hosts in the order of their ranks, with as many each: only where one line says all of it."""
    for number, whole in lines:
        line = whole[:_LINE]
        formula, each = _FORMULA.search(line), _EACH.search(line)
        hosts = _hosts_in(line) if formula or each else []
        count = int(formula[1] or formula[2]) if formula else int(each[1]) if each else 0
        if not 0 < count <= _MOST_OF_HOST or len(hosts) < 2:
            continue
        in_all = {int(number) for number in _IN_ALL.findall(line)}
        if formula or _IN_ORDER.search(line) or count * len(hosts) in in_all:
            return _in_order(number, line, [(host, count) for host in hosts])
    return []


def slots(lines: list[tuple[int, str]]) -> list[Row]:
    """Hosts with the slots that MPI and DeepSpeed fill one after the other: of a command, else of a hostfile."""
    listed = [(number, line, match) for number, line in lines for match in _OF_HOSTFILE.finditer(line[:_LINE])]
    hosts = [(match[1], int(match[2])) for _, _, match in listed]
    started = [(number, line, match) for number, line in lines if (match := _BY_MPI.search(line))]
    if not started and 1 < len(hosts) == len({host for host, _ in hosts}) and not any(map(_chosen, lines)):
        return _in_order(*listed[0][:2], hosts)
    if len(started) != 1 or _SPREAD.search(started[0][1]):
        return []
    number, line, match = started[0]
    given = [(host, int(count)) for host, _, count in (place.rpartition(":") for place in match[1].split(","))]
    return _in_order(number, line[:_LINE], given)


def _chosen(line: tuple[int, str]) -> bool:
    """Whether a launcher is told to use only some of the slots, or in another order."""
    return _SPREAD.search(line[1]) is not None or _SOME_SLOTS.search(line[1]) is not None


def _in_order(number: int, line: str, hosts: list[tuple[str, int]]) -> list[Row]:
    places = ((host, local) for host, count in hosts for local in range(min(count, _MOST_OF_HOST)))
    return [
        (number, line, {"rank": str(rank), "host": host, "local_rank": str(local)})
        for rank, (host, local) in enumerate(places)
    ]


def _hosts_in(line: str) -> list[str]:
    """The hosts that a line lists: the first and the last, or all of them."""
    if span := _SPAN.search(line):
        stem, first, last = (span[1], span[2], span[3]) if span[1] else (span[4], span[5], span[6])
        numbers = range(int(first), min(int(last), int(first) + _MOST_HOSTS) + 1)
        return [f"{stem}{number:0{len(first)}d}" for number in numbers]
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(_NAME_OF_MANY.findall(line)):
        families.setdefault(_DIGITS.sub("#", name), []).append(name)
    return max(families.values(), key=len, default=[])
