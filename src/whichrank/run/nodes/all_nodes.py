"""One node among several: its watcher looks at its own ranks; whoever leads judges all of them together."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.model.last_words import JOINED, Words
from whichrank.model.verdict import Diagnosis
from whichrank.run.nodes import guard_mirror, nodes_file, protocol
from whichrank.run.nodes.condensing import count_of
from whichrank.run.nodes.follower import Follower
from whichrank.run.nodes.joining import Link
from whichrank.run.nodes.judgement import Judgement, restored, shortened
from whichrank.run.nodes.node_tree import Passing, assemble
from whichrank.run.nodes.peers import Peers
from whichrank.run.nodes.protocol import Request
from whichrank.run.nodes.shared import Shared
from whichrank.run.nodes.snapshot import Distant, Snapshot, lost, rows_of
from whichrank.run.watch.capture import ANSWER_S
from whichrank.run.watch.job_processes import Member, rank_state
from whichrank.run.watch.run_record import RunRecord
from whichrank.run.watch.watcher import FIRST_LOOK_S, Watcher

MANY, MANY_S = 512, 1.9
"""Ranks; more are weighed every two seconds, so that a leader stays small."""
RECEIPT_S = 15.0
VERDICT_S = 15.0
LAST_S = 12.0
"""For the evidence of nodes that report to this one, when the job has ended."""
ENDING_S = 5.0
"""The other nodes end with this one, or soon after."""


@dataclass(slots=True)
class AllNodes:
    """Leads, follows, or works alone while nobody leads."""

    peers: Peers
    told_verdict: bool = False
    """The leader has given its verdict on this attempt."""
    watcher: Watcher = field(init=False)
    _ended: int | None = None
    _next: float = 0.0
    _alone: bool = True
    _passing: Passing | None = None

    def join(self, watcher: Watcher) -> None:
        """Once, before the first look."""
        self.watcher = watcher
        self.record.node = self.link.name
        self.peers.begin_attempt()

    @property
    def judges(self) -> bool:
        return self.link.judges

    @property
    def record(self) -> RunRecord:
        return self.watcher.record

    @property
    def link(self) -> Link:
        return self.peers.link

    @property
    def passing(self) -> Passing | None:
        """Where this node passes on what others say."""
        if self._passing is None and self.link.below is not None:
            self._passing = Passing(Peers(Link(self.link.name, 0, self.link.below), lambda _: None))
        return self._passing

    def look(self, now_s: float, ranks: list[Member]) -> Sequence[Member]:
        """Tell of the ranks of this node, do what is asked, and add what is known of the others."""
        self.peers.own_ranks = [m.rank for m in ranks]
        self.share(ranks)
        self.obey()
        self.notice(now_s)
        if now_s < self._next:
            return ()
        everyone = [*ranks, *self.others(now_s, ranks)]
        if not everyone:
            return ()
        self._next = now_s + (MANY_S if len(everyone) > MANY else 0.0)
        alarm = self.record.alarm
        alarm.blind = sum(map(count_of, everyone)) < max(m.words.world for m in everyone)
        if self.link.judges:
            return everyone
        now_ns = time.time_ns()
        alarm.observe(now_s, [rank_state(m, now_ns) for m in everyone])
        return ()

    def share(self, ranks: list[Member], *, urgent: bool = False) -> None:
        """What the leader hears of this node."""
        if self.link.following is not None:
            rows, below = rows_of(ranks), None
            if self.passing is not None:
                rows, below = [*rows, *self.passing.rows(self.record.base)], self.passing.nodes()
            ended, results = self._ended is not None, str(self.record.out)[-400:]
            self.link.following.post(
                Snapshot(rows, self.record.base, ended, self._ended, results, below), urgent=urgent
            )

    def shows_each(self, ranks: Sequence[Member]) -> bool:
        return not any(isinstance(m, Distant) and m.alike for m in ranks)

    def ranks_ended(self) -> None:
        self.share(self.record.job_processes.ranks(), urgent=True)

    def notice(self, now_s: float) -> None:
        """Nodes that came, went or fell silent; the leader too."""
        failed = self.peers.look()
        for node in failed:
            self.watcher.failed = True
            ranks = ", ".join(str(row.rank) for row in node.snapshot.rows if not row.alive)
            self.record.note_alarm(
                "crash", f"rank {ranks} on {node.name} ended" if ranks else f"the job on {node.name} ended"
            )
        alone = self.link.judges
        if alone and not self._alone:
            # What was silent while the leader judged is judged anew.
            self.record.alarm.excuse(now_s)
        self._alone = alone

    def others(self, now_s: float, ranks: list[Member]) -> list[Distant]:
        """The ranks of other nodes, of the attempt that this one is at."""
        if self.link.leading is not None:
            attempt = max((m.words.attempt for m in ranks), default=None)
            people = self.peers.people(now_s, self.record.base)
            newest = attempt if attempt is not None else max((m.words.attempt for m in people), default=0)
            return [m for m in people if m.words.attempt == newest]
        if self.link.judges and ranks:
            words = ranks[0].words
            pattern = Words(phase=JOINED, world=words.world, attempt=words.attempt)
            return [lost(Distant(pattern._replace(rank=r), str(r))) for r in self.peers.ranks_of_lost_leader]
        return []

    def guard(self, folder: Path) -> Callable[[], list[Path]]:
        """The records of this node's guards go to whoever leads; gives those of other nodes where this one does."""
        launch = self.record.base
        if isinstance(self.link.side, (Follower, Shared)):
            self.link.side.guards.places = [(f"{guard_mirror.prefix_of(launch)}{self.link.own}", folder)]

        def elsewhere() -> list[Path]:
            leading = self.link.leading
            return guard_mirror.copies(leading.guard_folders(), launch) if leading is not None else []

        return elsewhere

    # -- what the leader asks for

    def obey(self) -> None:
        """Do what the leader has asked for since the last look."""
        for request in self.link.following.asked() if self.link.following is not None else ():
            if self.passing is not None:
                self.passing.ask(request)
            try:
                self._do(request)
            except Exception as error:  # noqa: BLE001 - what could be had is sent, and the watch goes on
                self.record.journal.complain(f"can't do all that the leader asks for ({type(error).__name__}: {error})")
            if request.what in protocol.SENDS:
                if self.passing is not None:
                    self.passing.collect(request, self.record.case_folder())
                self._deliver(request)

    def _do(self, request: Request) -> None:
        if request.what == "look":
            self.watcher.take_here(FIRST_LOOK_S)
        elif request.what == "full":
            self.watcher.take_here(ANSWER_S, pauses=True, gdb=self.watcher.gdb)
        elif request.what == "gather" and (request.attempt is None or request.attempt >= self.record.attempt):
            self.watcher.gather_here(self.record.job_processes)
        elif request.verdict is not None:
            self.told_verdict = True
            leader = self.link.following.leader if self.link.following is not None else "the leader"
            self.watcher.tell(f"the verdict on all nodes, by {leader}: {request.verdict.summary}")
            self.record.audience.on_verdict(restored(request.verdict))
        elif request.what == "end" and (self.watcher.policy == "end" or self.watcher.guard_stops):
            option = "--policy end" if self.watcher.policy == "end" else "--guard-stop"
            self.watcher.tell(f"ending the job, as the leader asks by {option}")
            self.watcher.end_job()

    def _deliver(self, request: Request, *, final: bool = False) -> None:
        folder, attempt = self.record.open_bundle().folder, request.attempt
        if attempt is not None and attempt < self.record.attempt:
            earlier = self.record.case_folder().parent / "attempts" / str(attempt + self.record.base)
            folder = earlier / "bundle" / nodes_file.FOLDER / folder.name
        if self.link.following is not None:
            try:
                with tempfile.TemporaryDirectory(prefix=".upload.", dir=self.record.case_folder().parent) as drafts:
                    if request.reduced or self.passing is not None:
                        folder = assemble(folder.parent, folder, Path(drafts), reduced=request.reduced)
                    self.link.following.deliver(folder, request.token, final=final)
            except OSError as error:
                self.record.journal.complain(f"can't send the evidence to the leader: {error.strerror}")

    # -- evidence and verdict

    def before_capture(self) -> None:
        if self.link.following is not None:
            ahead, error = self.link.following.offset.best or (None, None)
            bundle = self.record.open_bundle()
            bundle.manifest.hosts[0].update(clock_offset_s=ahead, offset_error_s=error)

    def ask(self, what: protocol.What, attempt: int | None = None, verdict: Judgement | None = None) -> str:
        token = protocol.new_token(what)
        if self.link.leading is not None:
            reduced = any(node.below for node in self.peers.nodes)
            self.link.leading.ask(Request(what, token, attempt, verdict, reduced))
        return token

    def collect(self, token: str) -> None:
        """Wait for the bundles of the others, and put them beside the own one."""
        if self.link.leading is None:
            return
        deadline = time.monotonic() + protocol.UPLOAD_S
        while self.peers.owed(token) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.peers.keep(self.record.case_folder(), token)

    def before_verdict(self) -> None:
        """Write down which nodes were there."""
        kept = self.record
        ranks = [m.rank for m in kept.job_processes.ranks()]
        own = nodes_file.Entry(self.link.name, "here", ranks, clock=self.peers.own_clock)
        kept.open_bundle()
        try:
            nodes_file.write(kept.case_folder(), self.link.name, [own, *self.peers.entries()], kept.job())
        except OSError as error:
            kept.journal.complain(f"can't write down which nodes were there: {error.strerror}")

    def after_verdict(self, diagnosis: Diagnosis) -> None:
        self.ask("verdict", verdict=shortened(diagnosis))

    def begin_attempt(self) -> None:
        self.peers.begin_attempt()
        if self.passing is not None:
            self.passing.peers.begin_attempt()
        self.told_verdict = False

    def resumed(self) -> None:
        self.peers.forget_uploads()
        self.told_verdict = False

    def ended(self, code: int) -> None:
        self._ended = code
        self.share(self.record.job_processes.ranks(), urgent=True)
        self.obey()

    def others_failed(self, code: int) -> bool:
        """After a good end here: whether it is one everywhere."""
        deadline = time.monotonic() + ENDING_S
        while code == 0 and self.peers.running and not self.peers.failed and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.peers.failed

    def hand_over(self, code: int) -> None:
        """The evidence goes to the leader, which gives the verdict; where it goes away meanwhile, this node does."""
        following = self.link.following
        if code == 0 or self.told_verdict or following is None:
            return
        self.watcher.gather_here(self.record.job_processes, exit_code=code)
        token = protocol.new_token("end")
        last = Request("gather", token, within_s=LAST_S)
        if self.passing is not None:
            self.passing.collect(last, self.record.case_folder())
        self._deliver(last, final=True)
        began = time.monotonic()
        while token not in following.receipts and following.joined and time.monotonic() - began < RECEIPT_S:
            time.sleep(0.1)
        why = following.receipts.get(token, "it was not heard of")
        if why:
            self.watcher.tell(f"the evidence of this node did not reach the leader: {why}")
        while following.joined and not self.told_verdict and time.monotonic() - began < VERDICT_S:
            time.sleep(0.1)
            self.obey()
        if not self.told_verdict and not following.joined:
            self.watcher.judge()

    def about(self) -> dict[str, Any]:
        role = "leader" if self.link.leading is not None else "alone" if self.link.judges else "follower"
        return {"node": self.link.name, "role": role, "nodes": [entry.document() for entry in self.peers.entries()]}
