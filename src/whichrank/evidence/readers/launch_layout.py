"""How a launch spreads its ranks over hosts: the command of the launcher, the scheduler's list of hosts, and what hosts
say of their number, in whichever text they stand.

Rank = number of the node x processes on each + local rank: with the command (`--nproc_per_node 8 --node_rank
$SLURM_NODEID`) and the list of hosts (`SLURM_JOB_NODELIST=n[01-04]`) every rank has its host. Where a text says two
different things of the same, neither counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.model.host_lists import by_numbers, expand
from whichrank.records.placement import Layout

T = TypeVar("T")

NAME = "launch_layout"
BESIDE = True

_SEARCHED, _LONGEST = 1 << 17, 2000
"""Bytes at the beginning of a text, and of a line: launches come first."""
_MOST_HOSTS, _MOST_OF_HOST = 4096, 64
_MARKS = (
    b"nproc", b"num_processes", b"odelist", b"ODELIST", b"odeList", b"per-node", b"tasks/node", b"node_rank",
    b"node-rank", b"machine_rank", b"master", b"MASTER_ADDR", b"rdzv", b"main_process_ip", b"NODEID", b"nodes: ",
    b"num_gpus", b"--nodes", b"srun ", b"nodes x ", b"CUDA_VISIBLE_DEVICES", b" listening on ",
)  # fmt: skip
_NO_LAUNCH = (".py", ".html", ".rst", ".json", ".c", ".cc", ".cpp")
_VALUE = r"(?:[= ]|: ?)[\"']?"
_PER_HOST = re.compile(rf"\bnproc[_-]per[_-]node{_VALUE}(\d{{1,3}})\b")
_PROCESSES = re.compile(rf"--num_processes{_VALUE}(\d{{1,6}})\b|\bdeepspeed .{{0,80}}--num_gpus{_VALUE}(\d{{1,3}})\b")
_TASKS = re.compile(r"--n?tasks-per-node[= ](\d{1,3})\b|\b(\d{1,3}) tasks ?(?:/| per ) ?node\b")
_NODES = re.compile(
    rf"--(?:nnodes|num_machines|nodes){_VALUE}(\d{{1,5}}(?::\d{{1,5}})?)(?![\w:])|\bsrun\b.{{0,80}} -N ?(\d{{1,5}})\b"
)
_TIMES = re.compile(r"\b(\d{1,5}) nodes x (\d{1,2})\b(?! (?:nodes|hours|days|runs))")
"""`2 nodes x 4`: how people say it."""
_ITS_NUMBER = re.compile(rf"(?:node|machine)[_-]rank{_VALUE}\\?\$\{{?SLURM_(?:NODEID|PROCID)\b")
_LAUNCHER = re.compile(r"\btorchrun\b|torch\.distributed\.(?:run|launch)\b|\baccelerate launch\b|\bdeepspeed \S")
_STARTED = re.compile(r"\bsrun\b|\bSLURM_|\btasks ?(?:/| per ) ?node\b|^#SBATCH\b")
_SHUFFLED = re.compile(
    r"(?:--distribution|-m)[= ]\"?(?:cyclic|plane|arbitrary)|SLURM_DISTRIBUTION=(?:cyclic|plane|arb)"
)
_NAME = r"[A-Za-z][\w.-]{0,62}(?:\[[\d,-]{1,400}\][\w.-]{0,40})?"
_LISTED = re.compile(
    r"(?:\bSLURM_(?:JOB_)?NODELIST|(?<![A-Za-z])NodeList|\bnodelist|^nodes)[=:] ?[\"']?"
    rf"({_NAME}(?:,{_NAME}){{0,511}})(?=[\s\"';]|$)"
)
_SAYS = re.compile(
    r"(?:\bhost(?:name)?[=:] ?|^(?=[\w.-]{0,62}\d[\w.-]{0,62}: ))([A-Za-z][\w.-]{0,62})(?=[:, ]).{0,200}?"
    r"(?<![\w-])node_rank[=:] ?(\d{1,5})\b"
)
"""`host=node7 node_rank=2`, `node7: [INFO] nnodes=4, node_rank=2`."""
_NUMBERED = re.compile(
    r"(?<![\w.=-])(?=\S{0,60}[\d-])([A-Za-z][\w.-]{0,62})(?: is| ?[=:(,])? ?node[_ ]rank ?[=:]? ?(\d{1,5})\b"
)
"""`node7 node_rank 0, node8 node_rank 1`: what somebody wrote beside the command."""
_HOST = r"(?!localhost\b|127\.)([A-Za-z][\w.-]{0,252}|\d{1,3}(?:\.\d{1,3}){3})"
_STORE = re.compile(
    rf"(?:--rdzv[_-]endpoint{_VALUE}|\b(?:master[_-]addr|MASTER_ADDR|main_process_ip){_VALUE}){_HOST}(?=[:\s\"']|$)"
)
_SERVES = re.compile(rf"\bon {_HOST} listening on (?:port )?\d{{2,5}}\b")
"""`coordinator on node7 listening on 29400`."""
_VISIBLE = re.compile(rf"\bCUDA_VISIBLE_DEVICES{_VALUE}(\d{{1,2}}(?:, ?\d{{1,2}}){{0,63}})(?![\d,.])")


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning speaks of how a job is launched."""
    return not name.lower().endswith(_NO_LAUNCH) and is_text(head) and any(mark in head for mark in _MARKS)


def read(item: Item) -> Reading:
    """One `Layout`, with what the text says once and for all."""
    text = item.head(_SEARCHED).decode("utf-8", "replace")
    lines = [(number, line[:_LONGEST].strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, line) for number, line in lines if any(mark.decode() in line for mark in _MARKS)]
    told = [line for _, line in lines]
    layout = _layout(Ref(item.label, f"line {lines[0][0]}", lines[0][1][:200]), told, text) if lines else None
    return Reading([layout], "complete") if layout is not None else Reading([], "ignored", "no launch in it")


def _layout(ref: Ref, lines: list[str], text: str) -> Layout | None:
    launched = any(map(_LAUNCHER.search, lines))
    by_tasks = not launched and any(map(_STARTED.search, lines)) and not _SHUFFLED.search(text)
    nodes = _one(match[1] or match[2] for line in lines for match in _NODES.finditer(line))
    per_host = _one(match[1] for line in lines for match in _PER_HOST.finditer(line))
    tasks = _one(match[1] or match[2] for line in lines for match in _TASKS.finditer(line))
    total = _one(match[1] or match[2] for line in lines for match in _PROCESSES.finditer(line))
    spread = _only({match.groups() for line in lines for match in _TIMES.finditer(line)})
    if spread and not nodes and not per_host:
        nodes, per_host = int(spread[0]), int(spread[1])
    if by_tasks and not per_host:
        per_host = tasks
    if total and not per_host:
        per_host = total // max(nodes, 1) if total % max(nodes, 1) == 0 else 0
    alone = (
        launched and nodes in (0, 1) and not any(":" in m[1] for line in lines for m in _NODES.finditer(line) if m[1])
    )
    stores = {match[1] for line in lines for match in (*_STORE.finditer(line), *_SERVES.finditer(line))}
    found = Layout(
        ref=ref,
        hosts=_only({hosts for line in lines if (hosts := _hosts(line))}) or (),
        numbered=_numbered(lines),
        per_host=per_host if per_host <= _MOST_OF_HOST else 0,
        nodes=nodes,
        world=total or (per_host * nodes if nodes else per_host if alone else 0),
        by_scheduler=by_tasks or any(map(_ITS_NUMBER.search, lines)),
        one_task=launched and (tasks == 1 or any(map(_ITS_NUMBER.search, lines))),
        store=_only(stores) or "",
        visible=_count({match[1] for line in lines for match in _VISIBLE.finditer(line)}) if launched else 0,
    )
    return found if found != Layout(ref) else None


def _one(numbers: Iterable[str]) -> int:
    """The number that all of them are; 0 where they differ, or are a range."""
    told = set(numbers)
    number = told.pop() if len(told) == 1 else ""
    return int(number) if number.isdecimal() else 0


def _count(lists: set[str]) -> int:
    """How many different numbers the only list has."""
    return len(set(re.findall(r"\d+", _only(lists) or "")))


def _only(found: set[T]) -> T | None:
    return next(iter(found)) if len(found) == 1 else None


def _numbered(lines: list[str]) -> dict[str, int]:
    """Hosts by what they say; nothing where two say the same, or one says two numbers."""
    told = {(match[1], int(match[2])) for line in lines if (match := _SAYS.search(line))}
    if not told:
        told = {(match[1], int(match[2])) for line in lines for match in _NUMBERED.finditer(line)}
    hosts, numbers = {host for host, _ in told}, {number for _, number in told}
    return dict(sorted(told)) if len(hosts) == len(numbers) == len(told) <= _MOST_HOSTS else {}


def _hosts(line: str) -> tuple[str, ...]:
    """The hosts that a line lists, in its order."""
    match = _LISTED.search(line)
    found = expand(match[1]) if match else []
    if found != sorted(found, key=by_numbers):
        return ()  # the scheduler counts them in the order of its own list
    return tuple(found) if 1 < len(found) == len(set(found)) <= _MOST_HOSTS else ()
