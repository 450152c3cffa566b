"""More nodes than one leader takes: a tree grows, carries words and evidence, and survives the loss of inner nodes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import _torch_shape as torch_shape
from tests.run.simulated_nodes import Job, SimulatedWatcher, follow, lead
from tests.run.watched import free_port
from whichrank.model.last_words import IN_COLLECTIVE, JOINED, Words
from whichrank.run.nodes.condensing import condensed, count_of, ranges, spread
from whichrank.run.nodes.follower import Follower
from whichrank.run.nodes.node_tree import BACK_S, entries_below, hoist, orphans
from whichrank.run.nodes.roster import Node
from whichrank.run.nodes.snapshot import Below, Distant, Snapshot, rows_of, update
from whichrank.run.watch.job_processes import Member, rank_state
from whichrank.run.watch.silence import patience

FAN_IN, NODES = 2, 9


def until(what: Callable[[], object], limit_s: float = 40.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Tree:
    """A root and its nodes; a thread lets each of them look."""

    def __init__(self, folder: Path) -> None:
        dumps = folder / "dumps"
        self.stopped = torch_shape.write(dumps, 16, 40)
        self.job = Job(16, evidence=lambda rank, into: (into / f"rank_{rank}").write_bytes(
            (dumps / f"trace_rank_{rank}").read_bytes() if rank < 16 else b""
        ))  # fmt: skip
        place, token = ("127.0.0.1", free_port()), "secret"
        self.root = lead(place, folder / "root", self.job, token, FAN_IN, NODES, per_node=2)
        self.nodes: dict[str, SimulatedWatcher] = {}
        for number in range(1, 8):
            made = follow(place, folder / f"n{number}", self.job, token, FAN_IN, number, per_node=2)
            self.nodes[f"n{number}"] = made
        self._stop = threading.Event()
        self._gone: set[str] = set()
        self._threads = [threading.Thread(target=self._drive, args=(name,), daemon=True) for name in self.nodes]
        for thread in self._threads:
            thread.start()

    def _drive(self, name: str) -> None:
        while not self._stop.is_set() and name not in self._gone:
            self.nodes[name].look(time.monotonic())
            self._stop.wait(0.2)

    def known(self) -> set[int]:
        people = self.root.nodes.peers.people(time.monotonic(), 0)
        return {rank for m in people for rank in (spread(m.alike) if m.alike else [m.rank])}

    def inner(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.link.below is not None and name not in self._gone]

    def end(self, name: str) -> None:
        self._gone.add(name)
        side = self.nodes[name].link.side
        assert isinstance(side, Follower)
        side.close()

    def close(self) -> None:
        self._stop.set()
        for name in list(self.nodes):
            if name not in self._gone:
                self.end(name)
        for thread in self._threads:
            thread.join(30)
        self.root.link.close()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    made = Tree(tmp_path)
    yield made
    made.close()


def test_a_tree_grows_gives_the_verdict_and_survives_its_inner_nodes(tree: Tree, tmp_path: Path) -> None:
    root = tree.root
    until(lambda: tree.known() == set(range(2, 16)))
    assert len(root.nodes.peers.nodes) == FAN_IN
    assert len(tree.inner()) >= 2

    # A hang: the root judges all, and every node hears the verdict.
    tree.job.hung_at = time.time()
    deadline = time.monotonic() + 60
    while root.record.diagnosis is None and time.monotonic() < deadline:
        root.look(time.monotonic())
        time.sleep(0.1)
    assert root.record.diagnosis is not None
    assert root.record.diagnosis.verdict.culprits.ranks == (tree.stopped,)
    found = {path.parent.name for path in (root.record.case_folder() / "nodes").glob("*/summary.whichrank")}
    assert found == set(tree.nodes), "each node sent a summary, through those between"
    until(lambda: all(node.nodes.told_verdict for node in tree.nodes.values()))
    entries = {e["name"]: e for e in json.loads((root.record.case_folder() / "nodes.json").read_text())["nodes"]}
    assert set(entries) == {"root", *tree.nodes}
    assert not any(e["missing"] for e in entries.values())

    # An inner node is lost: those that reported to it find another.
    victim = next(iter(tree.inner()))
    rest = set(tree.nodes) - {victim}
    tree.end(victim)
    below = tree.nodes[victim].first
    wanted = set(range(2, 16)) - set(range(below, below + 2))
    time.sleep(1)
    until(lambda: tree.known() >= wanted and _here(root) == rest)


def _here(root: SimulatedWatcher) -> set[str]:
    now = time.monotonic()
    nodes = [node for node in root.nodes.peers.nodes if node.standing(now) == "here"]
    return {name for node in nodes for name in (node.name, *(each.name for each in node.below if each.state == "here"))}


def member(rank: int, **words: object) -> Member:
    now = time.time_ns()
    known = {"pid": 100 + rank, "world": 64, "phase": JOINED, "beat_ns": now, "changed_ns": now, "completed": 5}
    return Member(Words(rank=rank, **{**known, **words}), str(rank), state="S")  # type: ignore[arg-type]


def afar(members: list[Member]) -> list[Distant]:
    found = []
    for row in condensed(members):
        each = Distant(Words(), "x")
        update(each, row, time.time_ns())
        found.append(each)
    return found


@pytest.mark.parametrize("kind", ["all wait", "one idle", "one stopped", "one works", "start", "two levels"])
def test_few_rows_say_what_many_said(kind: str) -> None:
    now = time.time_ns()
    old = {"still_ns": now - 20 * 10**9, "fresh_ns": now - 40 * 10**9, "stuck_ns": now - 20 * 10**9}
    members = [member(rank, pending=1, enqueued=6, **old) for rank in range(64)]
    for each in members:
        each.effort, each.traffic, each.turns = 0.0, 0.0, 0.5
    odd = member(17, enqueued=5, **{**old, "stuck_ns": 0})
    odd.effort, odd.traffic, odd.turns = 0.0, 0.0, 0.5
    if kind != "all wait":
        members[17] = odd
    if kind == "one stopped":
        odd.state = "T"
    elif kind == "one works":
        odd.effort = 1.0
    elif kind == "start":
        members[17] = member(17, phase=0, completed=0)
    few = afar(afar(members) if kind == "two levels" else members)
    assert len(few) <= 3
    assert sum(map(count_of, few)) == 64
    whole, short = (patience([rank_state(m, now) for m in group]) for group in (members, few))
    assert (whole.kind, whole.limit_s) == (short.kind, short.limit_s)
    assert [s.rank for s in whole.away] == [s.rank for s in short.away]
    moved = [
        *members[:40],
        member(40, pending=1, enqueued=6, flags=IN_COLLECTIVE, **{**old, "completed": 6}),
        *members[41:],
    ]
    assert {row.mark for row in condensed(moved)} != {row.mark for row in condensed(members)}


def test_ranges_come_back() -> None:
    assert ranges([5, 1, 2, 3, 9]) == [(1, 3), (5, 5), (9, 9)]
    assert list(spread([(1, 3), (9, 9)])) == [1, 2, 3, 9]


def test_a_lost_branch_is_missed_only_when_it_had_time_to_come_back() -> None:
    """A whole rack goes: the node that passed words on, and two of the three that reported to it."""
    now = time.monotonic()
    gone = Node("rack", "i-rack", open=True, heard=now - 20)
    gone.snapshot = Snapshot(rows_of([member(0)]))
    gone.below = [Below(f"i{n}", f"n{n}", "here", [(n * 2, n * 2 + 1)]) for n in (1, 2, 3)]
    other = Node("other", "i-other", heard=now)
    other.below = [Below("i3", "n3", "here", [(6, 7)])]
    assert {m.rank for m in orphans([gone, other], now)} == {2, 3, 4, 5}
    entries = {e.name: e for e in entries_below([gone, other], now, set())}
    assert {name: e.state for name, e in entries.items()} == {"n1": "silent", "n2": "silent", "n3": "here"}
    assert "rack, which is lost" in entries["n1"].missing
    gone.heard = now - BACK_S / 2
    assert orphans([gone, other], now) == []
    assert entries_below([gone, other], now, set())[0].state == "unknown"


def test_what_is_passed_on_stays_inside_the_folder(tmp_path: Path) -> None:
    for name in ("n2", ".hidden", "n1"):
        (tmp_path / "n1" / "nodes" / name).mkdir(parents=True)
    (tmp_path / "n1" / "nodes" / "file").write_text("x")
    assert hoist(tmp_path, "n1") == {"n2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n1", "n2"]
    assert not (tmp_path / "n1" / "nodes").exists()
