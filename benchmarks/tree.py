"""A job of many nodes watched through a tree of leaders, over real connections: from the hang to its verdict.

The nodes are spread over a few processes of this machine; their ranks are made up, everything else is what `whichrank
run --leader` does: they join, are referred, pass words on, notice the hang, send summaries of simulated dumps, and hear
the verdict. Then an inner node is ended without a word, and it is measured when its nodes have found another.

With --branches 64 the nodes below the first level are not started: each of the 64 says what it would pass on, so that
the root of a job of 100,000 ranks can be measured on two cores. Without it, two cores carry some 4,000 ranks: beyond
that the pretended nodes are too busy to answer in time, which real ones, each with cores of its own, are not.

python benchmarks/tree.py [--ranks 16384] [--per-node 8] [--branches 64] [--processes 4] [--summaries DIR] [--look 1]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

import msgspec  # noqa: E402

from tests.evidence.summary import many_ranks  # noqa: E402
from tests.run.simulated_nodes import Job, SimulatedWatcher, follow, lead  # noqa: E402
from tests.run.watched import free_port  # noqa: E402
from whichrank.run.nodes import node_tree, wire  # noqa: E402
from whichrank.run.nodes.all_nodes import AllNodes  # noqa: E402
from whichrank.run.nodes.condensing import condensed, count_of  # noqa: E402
from whichrank.run.nodes.leader import FAN_IN  # noqa: E402
from whichrank.run.nodes.snapshot import Below, Snapshot, rows_of  # noqa: E402
from whichrank.run.watch.job_processes import Member  # noqa: E402

WAIT_S = 600.0
TELL_S = 15.0
OWN = 8
"""Ranks of a node that speaks for others."""


def prepared(folder: Path, per_node: int) -> None:
    """Nodes send summaries that were made before: on a real job each node makes its own, at the same time."""

    def reduce(own: Path, draft: Path) -> None:
        number = int(own.name.removeprefix("n")) if own.name != "root" else 0
        each = many_ranks.PER_NODE
        for at in range(number * per_node // each, ((number + 1) * per_node + each - 1) // each):
            source = folder / f"node{at}.whichrank"
            if source.exists():
                shutil.copy(source, draft / source.name)

    node_tree._reduce = reduce  # noqa: SLF001


def summary_of(summaries: Path) -> Callable[[int, Path], None]:
    """What a rank leaves: the summary of its node, which was made before. A small job's nodes send it as it is."""

    def leave(rank: int, folder: Path) -> None:
        name = f"node{rank // many_ranks.PER_NODE}.whichrank"
        if not (folder / name).exists():
            shutil.copy(summaries / name, folder / name)

    return leave


def pretend(given: argparse.Namespace) -> int:
    """Some of the nodes, until they are told to stop."""
    words = json.loads(sys.stdin.readline())
    prepared(Path(words["summaries"]), given.per_node)
    job = Job(given.ranks, evidence=summary_of(Path(words["summaries"])))
    place = ("127.0.0.1", words["port"])
    made: dict[int, SimulatedWatcher] = {}
    stop = threading.Event()

    def hear() -> None:
        for line in sys.stdin:
            what, _, value = line.strip().partition(" ")
            if what == "hang":
                job.hung_at = float(value)
            elif what == "kill" and int(value) in made:
                made.pop(int(value)).link.close()
        stop.set()

    threading.Thread(target=hear, daemon=True).start()
    folder = Path(words["folder"])
    scope = Branch if given.branches else AllNodes
    for number in words["nodes"]:
        made[number] = follow(
            place, folder / f"n{number}", job, words["token"], FAN_IN, number, per_node=given.per_node, scope=scope
        )
    inner: set[int] = set()

    def drive(number: int) -> None:
        while not stop.is_set() and number in made:
            made[number].look(time.monotonic())
            stop.wait(given.look)

    while not stop.is_set():
        began = time.monotonic()
        for number, watcher in list(made.items()):
            if number in inner:
                continue
            if watcher.link.below is not None:  # it waits for others, which this thread must not
                inner.add(number)
                threading.Thread(target=drive, args=(number,), daemon=True).start()
            else:
                watcher.look(time.monotonic())
        stop.wait(max(0.0, given.look - (time.monotonic() - began)))
    os._exit(0)


class Branch(AllNodes):
    """A node of the first level that speaks for all nodes that would report to it: 8 ranks each."""

    def share(self, ranks: list[Member], *, urgent: bool = False) -> None:
        node = self.watcher
        assert isinstance(node, SimulatedWatcher)
        ranks = ranks[:OWN]
        rest = node.first + OWN, min(node.first + node.per_node, node.job_of.world) - 1
        [row] = condensed(ranks[-1:])
        row = msgspec.structs.replace(row, rank=rest[0], alike=[rest])
        below = [Below(f"i{at}", f"n{at}", "here", [(at, at + OWN - 1)]) for at in range(*rest, OWN)]
        self.link.following.post(Snapshot([*rows_of(ranks), row], below=below), urgent=urgent)


class Timed(AllNodes):
    """The root's side, which notes when evidence was asked for and when it was there."""

    moments: ClassVar[dict[str, float]] = {}

    def ask(self, what: str, *args: Any, **more: Any) -> str:  # type: ignore[override]
        self.moments.setdefault(what, time.time())
        return super().ask(what, *args, **more)  # type: ignore[arg-type]

    def before_verdict(self) -> None:
        self.moments["there"] = time.time()
        super().before_verdict()


class Heard:
    """Bytes that the root has heard."""

    def __init__(self) -> None:
        self.count = 0
        feed = wire.Stream.feed

        def counted(stream: wire.Stream, data: bytes):  # type: ignore[no-untyped-def]
            self.count += len(data)
            return feed(stream, data)

        wire.Stream.feed = counted  # type: ignore[method-assign]


def tell(text: str) -> None:
    print(text, flush=True)


def measure(given: argparse.Namespace, work: Path) -> dict[str, float]:  # noqa: PLR0915 - one story
    nodes = (given.ranks + given.per_node - 1) // given.per_node
    summaries = given.summaries or work / "summaries"
    if not summaries.exists():
        summaries.mkdir()
        began = time.monotonic()
        many_ranks.write(summaries, given.ranks, given.ranks // 3)
        tell(f"summaries of {given.ranks:,} ranks made in {time.monotonic() - began:.1f} s")
    prepared(summaries, given.per_node)
    heard, port, token = Heard(), free_port(), "secret"

    job = Job(given.ranks, evidence=summary_of(summaries))
    place = "127.0.0.1", port
    root = lead(place, work / "root", job, token, FAN_IN, nodes, per_node=given.per_node, scope=Timed)
    others = []
    for part in range(given.processes):
        shape = ["branches", "ranks", "per_node", "look"]
        options = [f"--{name.replace('_', '-')}={getattr(given, name)}" for name in shape]
        command = [sys.executable, __file__, "--pretend", *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        mine = list(range(1 + part, nodes, given.processes))
        words = {"port": port, "token": token, "folder": str(work), "nodes": mine, "summaries": str(summaries)}
        print(json.dumps(words), file=process.stdin, flush=True)
        others.append(process)

    def everybody(what: str) -> None:
        for process in others:
            print(what, file=process.stdin, flush=True)

    found: dict[str, float] = {"nodes": nodes, "ranks": given.ranks}
    try:
        began = time.monotonic()
        _until(lambda: _known(root) >= given.ranks - given.per_node, root)
        found["all_joined_s"] = time.monotonic() - began
        found["levels"] = _depth(root)
        tell(f"{nodes} nodes, {given.ranks:,} ranks, {_depth(root)} levels: heard after {found['all_joined_s']:.1f} s")
        count, used, began = heard.count, time.process_time(), time.monotonic()
        _until(lambda: time.monotonic() - began > given.seconds, root)
        span = time.monotonic() - began
        found["root_bytes_per_s"] = (heard.count - count) / span
        found["root_cpu_share"] = (time.process_time() - used) / span
        tell(f"root: {found['root_bytes_per_s'] / 1e3:.0f} KB/s heard, {found['root_cpu_share']:.1%} of a core")
        hung = time.time()
        root.job_of.hung_at = hung
        everybody(f"hang {hung}")
        count = heard.count
        _until(lambda: root.record.alarm.level == "confirmed" or root.record.diagnosis is not None, root)
        found["verdict_s"] = time.time() - hung
        found["evidence_mb"] = (heard.count - count) / 1e6
        found |= {f"{what}_s": at - hung for what, at in Timed.moments.items() if what != "verdict"}
        verdict = root.record.diagnosis.verdict
        sent = len(list((root.record.case_folder() / "nodes").glob("*/*.whichrank")))
        tell(
            f"hang to verdict {found['verdict_s']:.1f} s ({found['evidence_mb']:.1f} MB from {sent} summaries): "
            f"{verdict.cause}, rank {verdict.culprits.ranks[:8]}"
        )
        tell(
            "of it: "
            + ", ".join(f"{name} {found[name]:.1f}" for name in ("look_s", "full_s", "there_s") if name in found)
        )
        if verdict.culprits.ranks != (given.ranks // 3,) and not given.summaries:
            raise SystemExit(f"wrong answer: {verdict.culprits.ranks[:8]}, not {given.ranks // 3}")
        inner = next((node for node in root.nodes.peers.nodes if len(node.below) > 1), None)
        if inner is None:
            tell("all nodes report to the root: there is no inner node to lose")
            return found
        count = len(inner.below)
        began = time.monotonic()
        everybody(f"kill {inner.name.removeprefix('n')}")
        time.sleep(1.0)
        if given.branches:
            _until(lambda: node_tree.orphans(root.nodes.peers.nodes, time.monotonic()), root)
            what = "are reported as lost"
        else:
            _until(lambda: _known(root, inner.name) >= given.ranks - 2 * given.per_node, root)
            what = "are heard again"
        found["found_again_s"] = time.monotonic() - began
        tell(f"inner node {inner.name} lost: its {count} nodes {what} after {found['found_again_s']:.1f} s")
        found["root_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    finally:
        for process in others:
            process.kill()
            process.wait()
    return found


def _until(what, root: SimulatedWatcher) -> None:  # type: ignore[no-untyped-def]
    deadline, told = time.monotonic() + WAIT_S, time.monotonic()
    while not what():
        if time.monotonic() - told > TELL_S:
            told = time.monotonic()
            tell(f"… {_known(root):,} ranks are heard")
        if time.monotonic() > deadline:
            raise SystemExit(f"given up: {_known(root):,} ranks are heard")
        began = time.monotonic()
        root.look(began)
        time.sleep(max(0.05, 0.5 - (time.monotonic() - began)))


def _known(root: SimulatedWatcher, without: str = "") -> int:
    now = time.monotonic()
    nodes = [n for n in root.nodes.peers.nodes if n.name != without and n.standing(now) == "here"]
    return sum(count_of(m) for n in nodes for m in n.people(now))


def _depth(root: SimulatedWatcher) -> int:
    inner = sum(1 for node in root.nodes.peers.nodes if node.below)
    most = max((len(node.below) for node in root.nodes.peers.nodes), default=0)
    return 2 if not inner else 3 if most <= FAN_IN else 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--per-node", type=int, default=8)
    parser.add_argument("--branches", type=int, default=0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--look", type=float, default=1.0, help="seconds between two looks of a node; real ones: 0.5")
    parser.add_argument("--summaries", type=Path, help="made before, for as many ranks; else they are made now")
    parser.add_argument("--pretend", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.branches and not given.pretend:
        given.per_node = -(-given.ranks // (given.branches + 1))
    if given.pretend:
        return pretend(given)
    with tempfile.TemporaryDirectory() as work:
        print(json.dumps(measure(given, Path(work))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
