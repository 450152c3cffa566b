"""The other nodes of a job, from this node: who is there, what they owe, and what is said when one comes or goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.run.nodes import nodes_file
from whichrank.run.nodes.evidence_transfer import unpack
from whichrank.run.nodes.joining import Link
from whichrank.run.nodes.node_tree import entries_below, hoist, orphans
from whichrank.run.nodes.nodes_file import Entry
from whichrank.run.nodes.protocol import Listed
from whichrank.run.nodes.roster import Node, Standing
from whichrank.run.nodes.shared import Shared
from whichrank.run.nodes.snapshot import Distant

MISSING_S = 30.0
"""After which it is told that nodes have not come, or that the leader has not."""


@dataclass(slots=True)
class Peers:
    """Asks the link; tells the user what has changed, once."""

    link: Link
    tell: Callable[[str], None]
    own_ranks: list[int] = field(default_factory=list)
    """Of this node."""
    _began: float = field(default_factory=time.monotonic)
    _standing: dict[str, Standing] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _kept: dict[str, str] = field(default_factory=dict)
    """Node -> its upload that has been opened."""
    _passed_on: set[str] = field(default_factory=set)
    """Nodes whose evidence came with that of another."""
    _listed: list[Listed] = field(default_factory=list)
    _joined: bool = False
    _told: set[str] = field(default_factory=set)

    def place(self, out: Path) -> Path:
        """Where the results of this node go: all nodes are given the same folder, and may share it."""
        return out / nodes_file.FOLDER / self.link.name if self.link.following is not None else out

    @property
    def nodes(self) -> list[Node]:
        return self.link.leading.roster.everybody() if self.link.leading is not None else []

    @property
    def failed(self) -> bool:
        return any(node.failed for node in self.nodes)

    @property
    def running(self) -> bool:
        """Whether the job goes on somewhere else."""
        now = time.monotonic()
        return any(
            node.standing(now) == "here" or any(each.state == "here" for each in node.below) for node in self.nodes
        )

    @property
    def own_clock(self) -> tuple[float, float] | None:
        """Of this node against the leader's; its own is the measure where it leads."""
        following = self.link.following
        return following.offset.best if following is not None else (0.0, 0.0)

    @property
    def ranks_of_lost_leader(self) -> list[int]:
        """Those of a leader that has fallen silent; one that said goodbye, or closed the line, lives."""
        following = self.link.following
        if following is None or following.joined or following.goodbye or following.closed or not self._led:
            return []
        return [rank for listed in following.listed if listed.name == following.leader for rank in listed.ranks]

    @property
    def _led(self) -> bool:
        """Whether there ever was a leader."""
        return self.link.following is not None and self.link.following.heard_ns > 0

    def people(self, now_s: float, launch: int) -> list[Distant]:
        """All their ranks, of the same launch."""
        if self.link.leading is None:
            return []
        with self.link.leading.roster.lock:
            nodes = [node for node in self.nodes if node.snapshot.launch == launch]
            return [*(m for node in nodes for m in node.people(now_s)), *orphans(nodes, now_s)]

    def look(self) -> list[Node]:
        """Tell what has changed; returns nodes whose ranks have newly failed."""
        self._look_at_leader()
        return self._look_at_nodes() if self.link.leading is not None else []

    def _look_at_nodes(self) -> list[Node]:
        now = time.monotonic()
        failed = []
        for node in self.nodes:
            standing, before = node.standing(now), self._standing.get(node.name)
            if standing != before:
                self._standing[node.name] = standing
                self._say(node, before, standing)
            if node.failed and node.name not in self._failed:
                self._failed.add(node.name)
                failed.append(node)
        self._announce()
        here = 1 + len(self._standing) + sum(len(node.below) for node in self.nodes)
        if here < self.link.nodes and now - self._began > MISSING_S:
            self._once(f"only {here} of {self.link.nodes} nodes have joined so far")
        return failed

    def _say(self, node: Node, before: Standing | None, standing: Standing) -> None:
        ranks = f" (ranks {', '.join(map(str, node.ranks[:8]))}{', …' if len(node.ranks) > 8 else ''})"
        who = f"{node.name}{ranks if node.ranks else ''}"
        if standing == "silent":
            self.tell(f"nothing is heard of {who} any more")
        elif standing == "left":
            self.tell(f"the watcher on {who} has gone: its ranks are no longer watched")
        elif standing == "here" and before is not None:
            self.tell(f"{node.name} is back")
        elif standing == "here":
            self.tell(f"{node.name} has joined")

    def _announce(self) -> None:
        """Everybody hears who is where, so that a lost leader can be named."""
        lead = self.link.leading
        if lead is None:
            return
        listed = [Listed(node.name, node.ranks) for node in self.nodes]
        listed.append(Listed(self.link.name, self.own_ranks))
        if listed != self._listed:
            self._listed = listed
            lead.announce(listed)

    def _look_at_leader(self) -> None:
        following = self.link.following
        if following is None:
            return
        if following.joined != self._joined:
            self._joined = following.joined
            if following.joined:
                self.tell(f"joined {following.leader}, which leads")
            elif not following.goodbye:
                gone = "has ended" if following.closed else "no longer answers"
                self.tell(f"the leader {following.leader} {gone}: this node goes on alone")
        if not self._led and time.monotonic() - self._began > MISSING_S:
            self._once(f"no leader yet ({following.why}): this node watches its own ranks alone until there is one")

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.tell(text)

    # -- evidence

    def owed(self, token: str) -> bool:
        """Whether a node that can answer has not done so yet."""
        now = time.monotonic()
        return any(_owes(node, token, now) for node in self.nodes)

    def begin_attempt(self) -> None:
        """What was sent, and who failed, belongs to the one before."""
        self.forget_uploads()
        self._failed.clear()

    def forget_uploads(self) -> None:
        for node in self.nodes:
            node.upload = None
        self._kept.clear()
        self._passed_on.clear()

    def keep(self, root: Path, token: str) -> None:
        """Open the uploads that have come, and note what is known of nodes that sent none."""
        for node in self.nodes:
            upload = node.upload
            fresh = upload is not None and upload.done and (upload.token == token or upload.final)
            if fresh and upload is not None and not upload.why and upload.path is not None:
                if self._kept.get(node.name) != upload.token:
                    self._open(root, node, upload.path, upload.token)
            elif node.name not in self._kept:
                nodes_file.keep_last_seen(root, node.name, node.last_seen())

    def _open(self, root: Path, node: Node, path: Path, token: str) -> None:
        try:
            refused = unpack(path, root / nodes_file.FOLDER / node.name)
        except OSError as error:
            if node.upload is not None:
                node.upload.why = f"the leader can't write it: {error.strerror}"
            self._once(f"can't keep the evidence of {node.name}: {error.strerror}")
            return
        self._kept[node.name] = token
        self._passed_on |= hoist(root / nodes_file.FOLDER, node.name)
        for line in refused[:4]:
            self._once(f"refused of {node.name}: {line}")
        if not isinstance(self.link.side, Shared):
            with contextlib.suppress(OSError):
                path.unlink()

    def entries(self) -> list[Entry]:
        """All others, for the nodes_file."""
        now = time.monotonic()
        own = self._entries_of_follower() if self.link.following is not None else []
        direct = [self._entry(node, node.standing(now)) for node in self.nodes]
        return [*own, *direct, *entries_below(self.nodes, now, self._passed_on)]

    def _entry(self, node: Node, standing: Standing) -> Entry:
        missing = ""
        if node.name not in self._kept:
            upload = node.upload
            why = {"silent": "nothing is heard of it", "left": "its watcher has gone", "ended": "it ended well"}
            missing = (upload.why if upload is not None else "") or why.get(standing, "it did not answer in time")
        return Entry(
            node.name, standing, node.ranks, node.heard_ns, self._how if standing == "silent" else "", node.address,
            node.clock, node.snapshot.code, missing if not node.snapshot.ended or node.snapshot.code else "",
            node.snapshot.results,
        )  # fmt: skip

    @property
    def _how(self) -> str:
        return "not renewed" if isinstance(self.link.side, Shared) else "no answer"

    def _entries_of_follower(self) -> list[Entry]:
        """What a node knows that works alone: the nodes that the leader named, and what became of the leader."""
        following = self.link.following
        if following is None:
            return []
        found = []
        for listed in following.listed:
            if listed.name == self.link.name:
                continue
            state, how = "unknown", ""
            if listed.name == following.leader:
                lost = bool(self.ranks_of_lost_leader)
                state, how = ("silent", self._how) if lost else ("here" if following.joined else "left", "")
            heard = following.heard_ns if listed.name == following.leader else None
            missing = "" if following.joined else "this node works alone"
            found.append(Entry(listed.name, state, list(listed.ranks), heard, how, missing=missing))
        return found


def _owes(node: Node, token: str, now: float) -> bool:
    standing = node.standing(now)
    if standing in ("silent", "left") or (standing == "ended" and not node.snapshot.code):
        return False
    upload = node.upload
    return upload is None or not upload.done or (upload.token != token and not upload.final)
