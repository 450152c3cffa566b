"""What leading costs: one watcher that hears 64 nodes with 64 ranks each, once a second, over real connections.

The nodes are threads of another process, each with a connection of its own; every rank of theirs makes progress, so
that every word is new. CPU of the leader's process is measured: hearing, checking, merging, the alarm, metrics.

python benchmarks/leader.py [NODES] [RANKS] [SECONDS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from whichrank.model.last_words import JOINED, Words
from whichrank.run.monitoring.observers import Audience
from whichrank.run.monitoring.tally import Tally
from whichrank.run.nodes.all_nodes import AllNodes
from whichrank.run.nodes.follower import Follower
from whichrank.run.nodes.joining import Joining, join
from whichrank.run.nodes.leader import Leader
from whichrank.run.nodes.peers import Peers
from whichrank.run.nodes.snapshot import Snapshot, rows_of
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.run_record import RunRecord
from whichrank.run.watch.watcher import Watcher

SHARE = 0.05


def pretend(place: tuple[str, int], nodes: int, ranks: int) -> None:
    """All nodes, until the leader has gone."""
    token = sys.stdin.readline().strip()
    followers = [Follower(place, f"n{number}", token, lambda _: None) for number in range(nodes)]
    for follower in followers:
        follower.start(Path())
    step = 0
    while not all(follower.goodbye for follower in followers):
        step += 10
        for number, follower in enumerate(followers):
            follower.post(Snapshot(rows_of([_member(number, local, ranks, nodes, step) for local in range(ranks)])))
        time.sleep(1.0)


def _member(node: int, local: int, ranks: int, nodes: int, step: int) -> Member:
    now = time.time_ns()
    words = Words(
        beat=step, pid=1000 + local, start_ticks=12345, rank=node * ranks + local, local_rank=local,
        world=nodes * ranks, phase=JOINED, started_ns=now - 10**12, beat_ns=now, changed_ns=now, enqueued=step,
        completed=step - local % 2, pending=local % 2, still_ns=now, fresh_ns=now, operation="all_reduce",
        place="/home/somebody/project/training/loop.py:118 train_one_epoch",
    )  # fmt: skip
    return Member(words, str(local), state="S")


def measure(nodes: int = 64, ranks: int = 64, seconds: float = 20.0) -> tuple[float, int]:
    """The share of a core, and how many ranks were known."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        link = None
        for port in range(29800, 29900):
            link = join(Joining(nodes + 1, f"127.0.0.1:{port}", name="leader"), ["torchrun"], lambda _: None)
            if link is not None and link.leading is not None:
                break
        assert link is not None
        assert isinstance(link.side, Leader)
        tally = Tally("bench")
        record = RunRecord(JobProcesses(folder), folder, lambda _: None, audience=Audience([tally]))
        watcher = Watcher(record, AllNodes(Peers(link, lambda _: None)))
        link.start(folder / "uploads")
        command = [sys.executable, __file__, "--pretend", str(port), str(nodes), str(ranks)]
        others = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        try:
            assert others.stdin is not None
            others.stdin.write(link.side.token + "\n")
            others.stdin.flush()
            thread = threading.Thread(target=watcher.run, daemon=True)
            thread.start()
            deadline = time.monotonic() + 60
            while len(tally.ranks) < nodes * ranks and time.monotonic() < deadline:
                time.sleep(0.2)
            began, used = time.monotonic(), time.process_time()
            time.sleep(seconds)
            share = (time.process_time() - used) / (time.monotonic() - began)
            known = len(tally.ranks)
            watcher.stop()
            thread.join(10)
            link.close()
        finally:
            others.kill()
            others.wait()
        return share, known


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["--pretend"]:
        pretend(("127.0.0.1", int(words[1])), int(words[2]), int(words[3]))
        return 0
    nodes, ranks = (int(words[0]), int(words[1])) if len(words) > 1 else (64, 64)
    share, known = measure(nodes, ranks, float(words[2]) if len(words) > 2 else 20.0)
    print(f"{nodes} nodes, {known:,} ranks: {share:.2%} of a core (bar: {SHARE:.0%})")
    return 0 if share <= SHARE and known == nodes * ranks else 1


if __name__ == "__main__":
    sys.exit(main())
