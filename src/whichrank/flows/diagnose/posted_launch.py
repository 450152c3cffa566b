"""Where nothing says why: launch files beside the logs, and quoted commands, read as `env lint` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from whichrank.facts.taxonomy import causes
from whichrank.model.contracts import Item
from whichrank.model.findings import Grade
from whichrank.records.second_looks import PostedFault
from whichrank.records.settings import MEETING, SIZE

_LARGEST = 1 << 16
_MOST_READ = 1 << 20
"""Bytes of one file and of all: a launch is short."""
_PROGRAMS = frozenset({".py", ".json", ".ipynb"})
"""Training code and configurations: the launch is elsewhere."""
_PROMPT = r"(?:[\w.@~:/()\[\]-]{1,80}[$#] |[$>#] )?"
_COMMAND = re.compile(
    rf"\s{{0,12}}{_PROMPT}(?P<command>(?:export [A-Z]\w{{1,60}}=|[A-Z][A-Z0-9_]{{2,60}}=\S"
    r"|(?:(?:[A-Z]\w{1,60}=\S{0,200} {1,4}){0,12}(?:nohup |sudo |time )?(?:torchrun|srun|mpirun|mpiexec|deepspeed"
    r"|accelerate launch|colossalai run|python[\d.]{0,5} -m torch\.distributed\.(?:launch|run))[ \t])).{0,2000})"
)
_WAITS = (MEETING, SIZE, "missing-rank-at-init")
"""Causes for which those that came wait, until a time limit ends them."""
_JOBS = re.compile(r"torchrun|srun|mpirun|mpiexec|deepspeed|accelerate|colossalai|torch\.distributed")


def posted_launches(items: Iterable[Item]) -> list[PostedFault]:
    """What doesn't fit together in the launches of all items, where a job fails for it."""
    found: dict[tuple[str, str], PostedFault] = {}
    unread = _MOST_READ
    for item in items:
        if item.size > min(_LARGEST, unread):
            continue
        unread -= item.size
        for fault in _faults(item):
            found.setdefault((fault.cause, fault.message), fault)
    return list(found.values())


def _faults(item: Item) -> Iterator[PostedFault]:
    try:
        data = item.read()
    except OSError:
        return
    if _JOBS.search(data.decode("utf-8", "replace")) is None:
        return
    from whichrank.source import launch

    named = launch.is_named(PurePath(item.label).name)
    if named and PurePath(item.label).suffix.lower() in _PROGRAMS:
        return
    read = launch.read(data, item.label) if named else launch.read(_commands(data), item.label, "shell")
    for clash in read.clashes:
        line = clash.ref.locator.rpartition(" ")[2]
        if clash.cause and clash.severity != "info" and line.isdecimal():
            yield PostedFault(
                "ENV111",
                clash.cause,
                "hang" if clash.cause in _WAITS else causes()[clash.cause].usual_category,
                "error",
                Grade.SUPPORTS,
                f"{clash.name}: {clash.why}.",
                tuple(dict.fromkeys((clash.ref, *clash.also))),
                item.label,
                int(line),
                (clash.fix,),
            )


def _commands(data: bytes) -> bytes:
    """The lines of a text that are commands, with those that continue them, each at its place."""
    kept = []
    continued = False
    for line in data.decode("utf-8", "replace").split("\n"):
        match = None if continued else _COMMAND.fullmatch(line.rstrip())
        text = line if continued else match["command"] if match is not None else ""
        kept.append(text)
        continued = text.rstrip().endswith("\\")
    return "\n".join(kept).encode()
