"""All nodes of a job at once: send the collector, take in what comes back, and put it into one bundle.

What comes back is not trusted: its size is bounded on the way, the archive is opened by the intake that strangers'
archives get, and what a node says of itself is checked value by value.
"""

from __future__ import annotations

import glob
import json
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from whichrank.evidence.bundle import load
from whichrank.fleet.engines import Engine
from whichrank.fleet.fetch import Answer, Bounds, fetch
from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder
from whichrank.model.views import Unseen
from whichrank.run.first_response import travelling
from whichrank.run.nodes import nodes_file
from whichrank.run.nodes.evidence_transfer import unpack

Depth = Literal["full", "stacks"]
Progress = Callable[[str, int, int], None]
State = Literal["here", "no job", "unreachable", "failed"]

MARK = b"\x1ewhichrank-node "
DOCUMENT = "node.json"
_BANNER = 1 << 16
"""What a login may print before the collector speaks."""
_SLACK_S = 6.0
"""Beside the time that the collector takes: to connect, start Python and send."""
_MOST_RANKS = 1 << 20
MOST_WHOLE = 8
"""Nodes whose whole evidence is fetched where summaries leave a doubt."""
_UNREACHABLE = re.compile(
    r"timed out|timeout|no route to host|network is unreachable|no answer within|connection reset|host is down"
    r"|connection closed",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\w.-]")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to take, and what it may cost."""

    depth: Depth = "full"
    limit_s: float = 15.0
    """Per node, for the collector itself."""
    at_once: int = 64
    most: int = 256 << 20
    job: str = ""
    """Which job is meant, where nodes run several."""
    python: str | None = None
    reduce: bool = False
    """Whether nodes that can send a summary instead of their evidence."""
    packets_s: float = 0.0
    """How long packets of the job are captured; 0 for not at all."""


@dataclass(slots=True)
class Node:
    """One node, and what became of it."""

    name: str
    state: State
    why: str = ""
    own: str = ""
    """What it calls itself."""
    ranks: list[int] = field(default_factory=list)
    world: int = 0
    jobs: list[dict[str, Any]] = field(default_factory=list)
    hidden: int = 0
    py_spy: bool | None = None
    clock: tuple[float, float] | None = None
    notes: list[str] = field(default_factory=list)
    bundles: list[Path] = field(default_factory=list)
    """On their way into the common one."""
    host: str = ""
    """By what it is reached."""
    reduced: bool = False
    """It sent a summary of its evidence."""


@dataclass(slots=True)
class Gathered:
    """The bundle, and its nodes."""

    folder: Path
    nodes: list[Node]

    @property
    def world(self) -> int:
        return max((node.world for node in self.nodes), default=0)

    @property
    def missing(self) -> list[int]:
        """Ranks that no node has."""
        seen = {rank for node in self.nodes for rank in node.ranks}
        return sorted(set(range(self.world)) - seen)

    def without_stacks(self) -> list[Unseen]:
        """The ranks whose stacks could not be read, and why."""
        gaps = load(self.folder).get("missing")
        rows = [row for row in gaps if isinstance(row, dict)] if isinstance(gaps, list) else []
        return [
            Unseen(0, row["rank"], str(row.get("why"))[:300])
            for row in rows
            if row.get("what") == "stacks" and isinstance(row.get("rank"), int)
        ]

    def of(self, *states: State) -> list[Node]:
        return [node for node in self.nodes if node.state in states]


def gather(engines: Sequence[Engine], out: Path, wishes: Wishes, progress: Progress | None = None) -> Gathered:
    """Take the evidence from all nodes into `out`. A node that the first engine can't reach is tried by the next."""
    private_folder(out)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=out) as name:
        found: dict[str, Node] = {}
        for number, engine in enumerate(engines):
            left = [
                host for host in engine.hosts if host not in found or found[host].state in ("unreachable", "failed")
            ]
            if left:
                incoming = private_folder(Path(name) / str(number))
                found.update(_ask(engine, left, incoming, wishes, progress))
        nodes = list(found.values())
        _one_job(nodes)
        _settle_names(nodes)
        for node in nodes:
            _place(node, out)
    gathered = Gathered(out, nodes)
    _forget_bystanders(gathered)
    entries = [_entry(node, gathered) for node in nodes]
    seen = sorted({rank for node in nodes for rank in node.ranks})
    job = {"world_size": gathered.world or None, "ranks_seen": seen}
    nodes_file.write(out, socket.gethostname(), entries, job)
    return gathered


def fetch_whole(
    engines: Sequence[Engine], gathered: Gathered, ranks: Iterable[int], wishes: Wishes, progress: Progress | None
) -> list[Node]:
    """The whole evidence of the nodes of these ranks, in place of their summaries; returns the nodes that sent it."""
    wanted, asked = set(ranks), replace(wishes, reduce=False, packets_s=0.0)
    nodes = [node for node in gathered.nodes if node.reduced and wanted & set(node.ranks)][:MOST_WHOLE]
    fresh: list[Node] = []
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=gathered.folder) as name:
        for number, engine in enumerate(engines):
            left = [n.host for n in nodes if n.host in engine.hosts and not any(f.host == n.host for f in fresh)]
            incoming = private_folder(Path(name) / str(number))
            found = _ask(engine, left, incoming, asked, progress) if left else {}
            fresh += [node for node in found.values() if node.state == "here" and node.bundles]
        for node in fresh:
            old = next(each for each in nodes if each.host == node.host)
            node.name, old.reduced = old.name, False
            for place in (gathered.folder / nodes_file.FOLDER).glob(f"{glob.escape(old.name)}*"):
                if place.name == old.name or place.name.startswith(f"{old.name}."):
                    shutil.rmtree(place, ignore_errors=True)
            _place(node, gathered.folder)
    return fresh


def _ask(
    engine: Engine, hosts: Sequence[str], incoming: Path, wishes: Wishes, progress: Progress | None
) -> dict[str, Node]:
    token, archive = secrets.token_hex(8), travelling.archive(reduces=wishes.reduce)
    given = {
        "token": token, "limit_s": wishes.limit_s, "most": wishes.most, "job": wishes.job, "depth": wishes.depth,
        "reduce": wishes.reduce, "packets": wishes.packets_s,
    }  # fmt: skip
    part = Engine(engine.name, tuple(hosts), engine.wrap, engine.addresses)
    answers = fetch(
        part,
        travelling.command(wishes.python, len(archive)),
        archive + json.dumps(given).encode(),
        incoming,
        Bounds(wishes.limit_s + _SLACK_S, wishes.most, wishes.at_once),
        progress=(lambda done, total: progress("collecting", done, total)) if progress is not None else None,
    )
    found = {host: _taken_in(host, answer, token) for host, answer in answers.items()}
    for host, node in found.items():
        node.host = host
    return found


def folder_name(host: str) -> str:
    """A host as the name of a folder."""
    return _NAME.sub("_", host.rpartition("@")[2])[:120].lstrip(".") or "node"


def _taken_in(host: str, answer: Answer, token: str) -> Node:
    """Unpack what a node has sent."""
    name = folder_name(host)
    hello, start = _hello(answer.path, token)
    if hello is None:
        why = answer.why or "it answered, but not as the collector does"
        return Node(name, "unreachable" if _UNREACHABLE.search(why) else "failed", why)
    node = Node(name, "no job", own=folder_name(str(hello.get("host") or "")), clock=_clock(hello, answer))
    archive = answer.path.with_suffix(".tar.gz")
    with answer.path.open("rb") as source, archive.open("xb") as target:
        source.seek(start)
        shutil.copyfileobj(source, target)
    answer.path.unlink()
    target_folder = answer.path.with_suffix(".d")
    node.notes += unpack(archive, target_folder)
    archive.unlink()
    _understand(node, _document(target_folder / DOCUMENT))
    node.bundles = sorted(path for path in target_folder.glob("bundle*") if path.is_dir())
    if answer.why:
        node.why = f"in part: {answer.why}"
    return node


def _settle_names(nodes: Sequence[Node]) -> None:
    """A node is called as it calls itself, which is how logs and stacks speak of it; unless another is called so."""
    for node in nodes:
        others = {name for other in nodes if other is not node for name in (other.name, other.own)}
        if node.own and node.own not in others:
            node.name = node.own


def _place(node: Node, out: Path) -> None:
    """Its bundles into the common one."""
    for number, bundle in enumerate(node.bundles):
        place = out / nodes_file.FOLDER / (node.name if not number else f"{node.name}.{number + 1}")
        private_folder(place.parent)
        bundle.rename(place)


def _hello(path: Path, token: str) -> tuple[dict[str, Any] | None, int]:
    """The line that the collector begins with, and where the archive begins."""
    with path.open("rb") as stream:
        head = stream.read(_BANNER)
    at = head.find(MARK)
    line, end, _ = head[at + len(MARK) :].partition(b"\n") if at >= 0 else (b"", b"", b"")
    try:
        hello = json.loads(line) if end else None
    except ValueError:
        hello = None
    if not isinstance(hello, dict) or hello.get("token") != token:
        return None, 0
    return hello, at + len(MARK) + len(line) + 1


def _clock(hello: Mapping[str, Any], answer: Answer) -> tuple[float, float] | None:
    """How far its clock is ahead of ours, and how exactly that is known: it spoke between our two looks."""
    now = hello.get("now_ns")
    if not isinstance(now, int) or not answer.first_ns or not 0 < now < 1 << 62:
        return None
    earliest, latest = (now - answer.first_ns) / 1e9, (now - answer.started_ns) / 1e9
    return round((earliest + latest) / 2, 4), round((latest - earliest) / 2, 4)


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _understand(node: Node, document: Mapping[str, Any]) -> None:
    rows = document.get("jobs")
    node.jobs = [row for row in rows if isinstance(row, dict)][:64] if isinstance(rows, list) else []
    hidden, spy, whole = document.get("hidden"), document.get("py_spy"), document.get("not_reduced")
    node.reduced = whole == ""
    if isinstance(whole, str) and whole:
        node.notes.append(f"the evidence was sent whole, not reduced there: {whole[:200]}")
    node.hidden = hidden if isinstance(hidden, int) and 0 <= hidden < 1 << 20 else 0
    node.py_spy = spy if isinstance(spy, bool) else None
    for row in node.jobs:
        ranks, world = row.get("ranks"), str(row.get("world_size", ""))
        if isinstance(ranks, list):
            node.ranks += [r for r in ranks if isinstance(r, int) and 0 <= r < _MOST_RANKS]
        if world.isdigit() and 0 < int(world[:9]) <= _MOST_RANKS:
            node.world = max(node.world, int(world[:9]))
    node.ranks = sorted(set(node.ranks))
    if node.jobs:
        node.state = "here"
    elif node.hidden:
        node.notes.append(f"{node.hidden} Python processes of other users can't be looked at")
    if node.state == "here" and node.py_spy is False:
        node.notes.append("py-spy is not installed there: no Python stacks")


def _one_job(nodes: Iterable[Node]) -> None:
    """Several jobs on the same nodes are not one: ask which is meant."""
    found: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    for node in nodes:
        for row in node.jobs:
            key = (str(row.get("rendezvous")), str(row.get("torchelastic_run_id", "")))
            found.setdefault(key, []).append((node.name, row))
    if len(found) < 2:
        return
    lines = []
    for (rendezvous, _), rows in list(found.items())[:8]:
        names = sorted({name for name, _ in rows})
        count = sum(len(row.get("ranks") or ()) for _, row in rows)
        command = str(rows[0][1].get("command", ""))[:70]
        lines.append(f"    --job {rendezvous}  {count} ranks on {', '.join(names[:4])}  {command}")
    raise UsageError(f"{len(found)} jobs run on these nodes", "Say which one is meant:\n" + "\n".join(lines))


def _forget_bystanders(gathered: Gathered) -> None:
    """Where every rank is known, what a node without ranks says about itself is not about this job."""
    if gathered.missing or not gathered.world:
        return
    for node in gathered.of("no job"):
        shutil.rmtree(gathered.folder / nodes_file.FOLDER / node.name, ignore_errors=True)


def _entry(node: Node, gathered: Gathered) -> nodes_file.Entry:
    """As `nodes.json` has it. Only where ranks are missing, and as many as fit, does a silent node mean anything."""
    states = {"here": "here", "no job": "here", "unreachable": "unreachable", "failed": "unread"}
    entry = nodes_file.Entry(node.name, states[node.state], node.ranks, clock=node.clock)
    silent = gathered.of("unreachable")
    per_node = max((len(other.ranks) for other in gathered.of("here")), default=0)
    missing = gathered.missing
    if node.state == "unreachable" and missing and len(missing) == per_node * len(silent):
        entry.state, entry.how = "silent", "unreachable"
        entry.ranks = missing if len(silent) == 1 else []
    if node.why:
        entry.missing = {"unreachable": "no answer", "failed": "not collected"}.get(node.state, "collected in part")
        entry.reason = node.why
    return entry
