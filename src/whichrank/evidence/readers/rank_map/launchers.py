"""What DeepSpeed's launcher and torchrun's agents say of the ranks that they start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.rank_map.introductions import LINE
from whichrank.evidence.readers.rank_map.ranks_of_hosts import HOST, Row

_WORLD = re.compile(r"WORLD INFO DICT: \{([^{}]{1,400000})\}|global_rank_mapping=[^{}]{0,40}\{([^{}]{1,400000})\}")
DEEPSPEED = ("WORLD INFO DICT", "global_rank_mapping=", "spawned with command")
_SLOTS = re.compile(r"['\"]([\w.-]{1,253})['\"]: \[([\d, ]{1,2000})\]")
"""`'node2': [0, 1, 2, 3]`: a host and its GPUs, in the order of the ranks."""
_SPAWNED = re.compile(r"\bprocess (\d{1,10}) spawned with command: \[.{1,4000}?--local_rank=(\d{1,4})\b")
_COLLECTED = re.compile(rf"({HOST}): \[")
"""How DeepSpeed's runner begins the lines of each host."""
_OF_AGENT = re.compile(rf"\[?(?=\S{{0,60}}[\d-])({HOST}?)(?:\]:?|:) ")
_WORLD_SIZE = re.compile(r"\bdist_world_size=(\d{1,7})\b")
_NODE_RANK = re.compile(r"\bnode_rank=(\d{1,6})\b")
AGENT = re.compile(
    r"(?:\bglobal_ranks=\[|\b(?:node_rank|nproc_per_node|start(?:s|ed|ing)?|spawn\w{0,4})\b.{1,80}\bglobal ranks:? \[?)"
    r"(\d{1,7}(?:, ?\d{1,7}){0,63})(?=[\]\s;.)]|$)"
    r"|\bgroup_rank=(\d{1,6})\b.{1,80}\blocal_world_size[ =](\d{1,2})\b"
)


def by_deepspeed(lines: list[tuple[int, str]]) -> list[Row]:
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


def by_agent(lines: list[tuple[int, str]]) -> list[Row]:
    """The ranks that the agent of this host starts, or those of several whose lines begin with their hosts; nothing
    where one says several, as of restarts."""
    told = [(n, line, match) for n, line in lines if "rank" in line and (match := AGENT.search(line[:LINE]))]
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
