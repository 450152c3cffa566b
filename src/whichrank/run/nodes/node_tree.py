"""A job of more nodes than one can hear: nodes that pass on what others say, and what becomes of them when one is lost.

A leader hears 64 nodes. It refers any other to one of these, which takes it in its place (see `leader`), tells what it
hears from there as a few rows (see `condensing`) and sends the evidence of all of them as one upload. A node whose
leader is lost goes back to the root, and is referred to another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whichrank.evidence.summary.head import NAME as SUMMARY
from whichrank.model.files import private_folder
from whichrank.model.last_words import JOINED, Words
from whichrank.model.manifest import NAME as MANIFEST
from whichrank.run.nodes import nodes_file, protocol
from whichrank.run.nodes.condensing import condensed, ranges, spread
from whichrank.run.nodes.nodes_file import Entry
from whichrank.run.nodes.protocol import Request
from whichrank.run.nodes.roster import Node
from whichrank.run.nodes.snapshot import Below, Distant, Row, lost

if TYPE_CHECKING:
    from whichrank.run.nodes.peers import Peers

BACK_S = 15.0
"""A node whose leader is lost has found another by then; it takes 6 seconds to notice, and one to be referred."""
LEVEL_S = 4.0
"""What each level takes of the time in which evidence must be there, to pack it and pass it on."""
LEAST_S = 4.0


@dataclass(slots=True)
class Passing:
    """What a node does for those that report to it."""

    peers: Peers
    """As their leader sees them."""

    def rows(self, launch: int) -> list[Row]:
        """All their ranks, as few rows."""
        return condensed(self.peers.people(time.monotonic(), launch))

    def nodes(self) -> list[Below]:
        """All that report to this one, and to those."""
        now = time.monotonic()
        nodes = self.peers.nodes
        direct = [_below(node, now) for node in nodes]
        return [*direct, *(each for node in nodes for each in node.below if node.standing(now) == "here")]

    def ask(self, request: Request) -> None:
        """Pass a request on."""
        if (leader := self.peers.link.leading) is not None:
            within = max(LEAST_S, request.within_s - LEVEL_S)
            leader.ask(msgspec.structs.replace(request, within_s=within))

    def collect(self, request: Request, root: Path) -> None:
        """Wait for their evidence, and put it beside that of this node."""
        deadline = time.monotonic() + max(LEAST_S, request.within_s - LEVEL_S)
        while self.peers.owed(request.token) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.peers.keep(root, request.token)


def _below(node: Node, now: float) -> Below:
    standing = node.standing(now)
    heard = node.heard_ns if standing == "silent" else None
    return Below(node.instance, node.name, standing, ranges(node.ranks), heard, node.snapshot.code)


def orphans(nodes: Sequence[Node], now: float) -> list[Distant]:
    """Ranks of nodes whose leader is lost, and which have not come back though they had the time."""
    gone = [node for node in nodes if node.below and node.standing(now) != "here" and now - node.heard > BACK_S]
    if not gone:
        return []
    here = _instances(node for node in nodes if node.standing(now) == "here")
    missing: list[Distant] = []
    for node in gone:
        row = next(iter(node.snapshot.rows), None)
        pattern = Words(phase=JOINED, world=row.world if row else -1, attempt=row.attempt if row else 0)
        missing += [
            lost(Distant(pattern._replace(rank=rank), f"{each.name}.{rank}", node=each.name))
            for each in node.below
            if each.instance not in here and each.state in ("here", "silent")
            for rank in spread(each.ranks)
        ]
    return missing


def entries_below(nodes: Sequence[Node], now: float, passed_on: AbstractSet[str]) -> list[Entry]:
    """The nodes that are not heard directly, for the nodes_file."""
    here = _instances(node for node in nodes if node.standing(now) == "here")
    found: dict[str, Entry] = {}
    for node in sorted(nodes, key=lambda node: node.standing(now) == "here"):
        lives = node.standing(now) == "here"
        for each in node.below:
            if not lives and each.instance in here:
                continue
            found[each.instance] = _entry(node, each, passed_on, lost_s=0.0 if lives else now - node.heard)
    return list(found.values())


def _entry(node: Node, each: Below, passed_on: AbstractSet[str], *, lost_s: float) -> Entry:
    state, heard, why = str(each.state), each.heard_ns, "it did not answer in time"
    if lost_s and each.state in ("here", "silent"):
        state, heard = ("silent" if lost_s > BACK_S else "unknown"), node.heard_ns
        why = f"it reported to {node.name}, which is lost, and has not come back"
    elif each.state == "silent":
        why = "nothing is heard of it"
    elif each.state == "left":
        why = "its watcher has gone"
    missing = "" if each.name in passed_on or (each.state == "ended" and not each.code) else why
    return Entry(
        each.name, state, list(spread(each.ranks)), heard, "no answer" if state == "silent" else "", code=each.code,
        missing=missing,
    )  # fmt: skip


def _instances(nodes: Iterable[Node]) -> set[str]:
    return {name for node in nodes for name in (node.instance, *(e.instance for e in node.below if e.state == "here"))}


def hoist(folder: Path, name: str) -> set[str]:
    """What came inside the upload of one node goes beside it; returns the nodes that it is of."""
    inner = folder / name / nodes_file.FOLDER
    moved = set()
    for each in sorted(inner.iterdir()) if inner.is_dir() else []:
        if not each.is_dir() or not protocol.plain(each.name) or each.name == name:
            continue
        target = folder / each.name
        if each.name not in moved and not (target / MANIFEST).exists():
            shutil.rmtree(target, ignore_errors=True)
        else:  # another node of this name, heard elsewhere
            target = folder / f"{each.name}-{name}"[:99]
        each.rename(target)
        moved.add(each.name)
    shutil.rmtree(inner, ignore_errors=True)
    return moved


def assemble(nodes: Path, own: Path, drafts: Path, *, reduced: bool) -> Path:
    """A folder to send: this node's own evidence, and in it that of the nodes that report to it."""
    draft = drafts / own.name
    if reduced:
        _reduce(own, private_folder(draft))
    else:
        shutil.copytree(own, draft, copy_function=_linked)
    for each in sorted(nodes.iterdir()):
        if each.is_dir() and each != own and not each.name.startswith("."):
            shutil.copytree(each, draft / nodes_file.FOLDER / each.name, copy_function=_linked)
    return draft


def _reduce(own: Path, draft: Path) -> None:
    from whichrank.flows.reduce import reduce

    (draft / SUMMARY).write_bytes(reduce([own], node=own.name, jobs=1).data)
    if (own / MANIFEST).exists():
        _linked(str(own / MANIFEST), str(draft / MANIFEST))


def _linked(source: str, target: str) -> str:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
    return target
