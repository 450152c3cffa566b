"""The watcher of one node among several: it looks at its own ranks; whoever leads judges all of them together."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import Bundle
from whichrank.model.last_words import JOINED, Words
from whichrank.run.nodes import protocol, record
from whichrank.run.nodes.condensing import count_of
from whichrank.run.nodes.joining import Link
from whichrank.run.nodes.judgement import Judgement, restored, shortened
from whichrank.run.nodes.peers import Peers
from whichrank.run.nodes.protocol import Request
from whichrank.run.nodes.snapshot import Distant, Snapshot, lost, rows_of
from whichrank.run.nodes.tree import Passing, assemble
from whichrank.run.watch.capture import ANSWER_S
from whichrank.run.watch.processes import JobProcesses, Member
from whichrank.run.watch.watcher import FIRST_LOOK_S, Watcher

MANY, MANY_S = 512, 1.9
"""Ranks; more are weighed every two seconds, so that a leader stays small."""
RECEIPT_S = 15.0
VERDICT_S = 15.0
LAST_S = 12.0
"""For the evidence of nodes that report to this one, when the job has ended."""
ENDING_S = 5.0
"""The other nodes end with this one, or soon after."""


@dataclass
class NodeWatcher(Watcher):
    """Leads, follows, or works alone while nobody leads."""

    peers: Peers = field(kw_only=True)
    told_verdict: bool = False
    """The leader has given its verdict on this attempt."""
    _ended: int | None = None
    _next: float = 0.0
    _alone: bool = True
    _passing: Passing | None = None

    def __post_init__(self) -> None:
        Watcher.__post_init__(self)
        self.peers.begin_attempt()

    @property
    def link(self) -> Link:
        return self.peers.link

    @property
    def passing(self) -> Passing | None:
        """Where this node passes on what others say."""
        if self._passing is None and self.link.below is not None:
            self._passing = Passing(Peers(Link(self.link.name, 0, self.link.below), lambda _: None))
        return self._passing

    def look(self, now_s: float) -> None:
        """One look at the ranks of this node, and at what is known of the others."""
        ranks = self.refresh()
        self.journal.history(now_s, ranks)
        if ranks:
            self.measure(now_s, ranks)
        self.peers.own_ranks = [m.rank for m in ranks]
        self.share(ranks)
        self.obey()
        self.notice(now_s)
        if now_s < self._next:
            return
        everyone = [*ranks, *self.others(now_s, ranks)]
        if not everyone:
            return
        self._next = now_s + (MANY_S if len(everyone) > MANY else 0.0)
        self.alarm.blind = sum(map(count_of, everyone)) < max(m.words.world for m in everyone)
        if self.link.judges:
            self.weigh(now_s, everyone)
        else:
            now_ns = time.time_ns()
            self.alarm.observe(now_s, [rank_state(m, now_ns) for m in everyone])

    def share(self, ranks: list[Member], *, urgent: bool = False) -> None:
        """What the leader hears of this node."""
        if self.link.following is not None:
            rows, below = rows_of(ranks), None
            if self.passing is not None:
                rows, below = [*rows, *self.passing.rows(self.base)], self.passing.nodes()
            ended, results = self._ended is not None, str(self.out)[-400:]
            self.link.following.post(Snapshot(rows, self.base, ended, self._ended, results, below), urgent=urgent)

    def slow(self, now_s: float, ranks: Sequence[Member]) -> None:
        """Who holds the others up shows only where each rank is told of."""
        if not any(isinstance(m, Distant) and m.alike for m in ranks):
            Watcher.slow(self, now_s, ranks)

    def lost(self, members: list[Member]) -> None:
        if members:
            self.share(self.job_processes.ranks(), urgent=True)
        Watcher.lost(self, members)

    def notice(self, now_s: float) -> None:
        """Nodes that came, went or fell silent; the leader too."""
        failed = self.peers.look()
        for node in failed:
            self.failed = True
            ranks = ", ".join(str(row.rank) for row in node.snapshot.rows if not row.alive)
            self.note_alarm("crash", f"rank {ranks} on {node.name} ended" if ranks else f"the job on {node.name} ended")
        alone = self.link.judges
        if alone and not self._alone:
            # What was silent while the leader judged is judged anew.
            self.alarm.excuse(now_s)
        self._alone = alone

    def others(self, now_s: float, ranks: list[Member]) -> list[Distant]:
        """The ranks of other nodes, of the attempt that this one is at."""
        if self.link.leading is not None:
            attempt = max((m.words.attempt for m in ranks), default=None)
            people = self.peers.people(now_s, self.base)
            newest = attempt if attempt is not None else max((m.words.attempt for m in people), default=0)
            return [m for m in people if m.words.attempt == newest]
        if self.link.judges and ranks:
            words = ranks[0].words
            pattern = Words(phase=JOINED, world=words.world, attempt=words.attempt)
            return [lost(Distant(pattern._replace(rank=r), str(r))) for r in self.peers.ranks_of_lost_leader]
        return []

    # -- what the leader asks for

    def obey(self) -> None:
        """Do what the leader has asked for since the last look."""
        for request in self.link.following.asked() if self.link.following is not None else ():
            if self.passing is not None:
                self.passing.ask(request)
            try:
                self._do(request)
            except Exception as error:  # noqa: BLE001 - what could be had is sent, and the watch goes on
                self.journal.complain(f"can't do all that the leader asks for ({type(error).__name__}: {error})")
            if request.what in protocol.SENDS:
                if self.passing is not None:
                    self.passing.collect(request, self.root)
                self._deliver(request)

    def _do(self, request: Request) -> None:
        if request.what == "look":
            Watcher.take(self, FIRST_LOOK_S)
        elif request.what == "full":
            Watcher.take(self, ANSWER_S, pauses=True, gdb=self.gdb)
        elif request.what == "gather" and (request.attempt is None or request.attempt >= self.attempt):
            Watcher.gather(self, self.job_processes)
        elif request.verdict is not None:
            self.told_verdict = True
            leader = self.link.following.leader if self.link.following is not None else "the leader"
            self.tell(f"the verdict on all nodes, by {leader}: {request.verdict.summary}")
            self.audience.on_verdict(restored(request.verdict))
        elif request.what == "end" and self.policy == "end":
            self.tell("ending the job, as the leader asks by --policy end")
            self.end_job()

    def _deliver(self, request: Request, *, final: bool = False) -> None:
        folder, attempt = self.open_bundle().folder, request.attempt
        if attempt is not None and attempt < self.attempt:
            folder = self.root.parent / "attempts" / str(attempt + self.base) / "bundle" / record.FOLDER / folder.name
        if self.link.following is not None:
            try:
                with tempfile.TemporaryDirectory(prefix=".upload.", dir=self.root.parent) as drafts:
                    if request.reduced or self.passing is not None:
                        folder = assemble(folder.parent, folder, Path(drafts), reduced=request.reduced)
                    self.link.following.deliver(folder, request.token, final=final)
            except OSError as error:
                self.journal.complain(f"can't send the evidence to the leader: {error.strerror}")

    # -- evidence and verdict

    @property
    def root(self) -> Path:
        """The folder of all bundles; it stays where the first of them went."""
        return self.bundle.folder.parent.parent if self.bundle is not None else self.journal.evidence() / "bundle"

    def open_bundle(self) -> Bundle:
        if self.bundle is None:
            self.bundle = Bundle(self.root / record.FOLDER / self.link.name, self.link.name)
        if self.link.following is not None:
            ahead, error = self.link.following.offset.best or (None, None)
            self.bundle.manifest.hosts[0].update(clock_offset_s=ahead, offset_error_s=error)
        return self.bundle

    def case_folder(self) -> Path:
        return self.root

    def take(self, patience_s: float, *, pauses: bool = False, gdb: bool = False) -> None:
        token = self._ask("full" if pauses else "look")
        Watcher.take(self, patience_s, pauses=pauses, gdb=gdb)
        if pauses:
            self._collect(token)

    def gather(self, job_processes: JobProcesses, **more: Any) -> None:
        attempts = {m.words.attempt for m in job_processes.members.values()}
        token = self._ask("gather", max(attempts, default=None))
        Watcher.gather(self, job_processes, **more)
        self._collect(token)

    def _ask(self, what: protocol.What, attempt: int | None = None, verdict: Judgement | None = None) -> str:
        token = protocol.new_token(what)
        if self.link.leading is not None:
            reduced = any(node.below for node in self.peers.nodes)
            self.link.leading.ask(Request(what, token, attempt, verdict, reduced))
        return token

    def _collect(self, token: str) -> None:
        """Wait for the bundles of the others, and put them beside the own one."""
        if self.link.leading is None:
            return
        deadline = time.monotonic() + protocol.UPLOAD_S
        while self.peers.owed(token) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.peers.keep(self.root, token)

    def judge(self) -> None:
        """One verdict on all that is there; where another leads, it is the leader's to give."""
        if not self.link.judges:
            return
        own = record.Entry(
            self.link.name, "here", [m.rank for m in self.job_processes.ranks()], clock=self.peers.own_clock
        )
        self.open_bundle()
        try:
            record.write(self.root, self.link.name, [own, *self.peers.entries()], self.job())
        except OSError as error:
            self.journal.complain(f"can't write down which nodes were there: {error.strerror}")
        Watcher.judge(self)
        if self.diagnosis is not None:
            self._ask("verdict", verdict=shortened(self.diagnosis))

    def enforce(self) -> None:
        self._ask("end")
        Watcher.enforce(self)

    def begin_attempt(self, number: int) -> None:
        Watcher.begin_attempt(self, number)
        self.peers.begin_attempt()
        if self.passing is not None:
            self.passing.peers.begin_attempt()
        self.told_verdict = False

    def resume(self, *, ended: bool = False) -> None:
        Watcher.resume(self, ended=ended)
        self.peers.forget_uploads()
        self.told_verdict = False

    def finish(self, code: int) -> None:
        """The job has ended here: what it left, and a verdict if it ended badly anywhere."""
        self.job_processes.look()
        self._ended = code
        self.share(self.job_processes.ranks(), urgent=True)
        self.obey()
        if not self.link.judges:
            self._hand_over(code)
        else:
            self._await_others(code)
            if not self.peers.failed:
                self.clear(code)
                if code == 0:
                    self.report_slowness()
            if (code != 0 or self.peers.failed) and self.diagnosis is None and not self.told_verdict:
                self.gather(self.job_processes, exit_code=code)
                self.judge()
        self.job_processes.close()

    def _await_others(self, code: int) -> None:
        """After a good end: whether it is one everywhere."""
        deadline = time.monotonic() + ENDING_S
        while code == 0 and self.peers.running and not self.peers.failed and time.monotonic() < deadline:
            time.sleep(0.1)

    def _hand_over(self, code: int) -> None:
        """The evidence goes to the leader, which gives the verdict; where it goes away meanwhile, this node does."""
        following = self.link.following
        if code == 0 or self.told_verdict or following is None:
            return
        Watcher.gather(self, self.job_processes, exit_code=code)
        token = protocol.new_token("end")
        last = Request("gather", token, within_s=LAST_S)
        if self.passing is not None:
            self.passing.collect(last, self.root)
        self._deliver(last, final=True)
        began = time.monotonic()
        while token not in following.receipts and following.joined and time.monotonic() - began < RECEIPT_S:
            time.sleep(0.1)
        why = following.receipts.get(token, "it was not heard of")
        if why:
            self.tell(f"the evidence of this node did not reach the leader: {why}")
        while following.joined and not self.told_verdict and time.monotonic() - began < VERDICT_S:
            time.sleep(0.1)
            self.obey()
        if not self.told_verdict and not following.joined:
            self.judge()

    def save(self, state: str, **more: Any) -> None:
        role = "leader" if self.link.leading is not None else "alone" if self.link.judges else "follower"
        nodes = [entry.document() for entry in self.peers.entries()]
        Watcher.save(self, state, node=self.link.name, role=role, nodes=nodes, **more)
