"""How far the collectives of this process are, group by group, as torch's own recorders count them.

Copied into the job beside `startup.py`: standard library only, torch is looked at and never changed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

RECORDERS = (("_dump_fr_trace", "fr"), ("_dump_nccl_trace", "nccl"))
SETTLE_NS = 2_000_000_000
BINDING = "torch._C._distributed_c10d"
PAUSE_S, STALE_S = 1e-5, 4.0
"""Between two questions to a recorder, for each byte of its answer, and at most. It lists the ranks of every group each
time, which takes some 10 ns a byte: 1.2 ms in a job of 16,384 ranks, a thousandth of the time with this pause."""
DEAR = 20_000
"""Bytes of an answer that is not asked for between beats."""
# The fast way to read it: keys are in order of the alphabet, numbers may be strings.
_COUNTS = re.compile(rb'"([^"]{1,64})":{"last_completed_collective":"?(-?\d+)"?,"last_enqueued_collective":"?(-?\d+)')


class _Group:
    """The counters of one group, and since when they stand."""

    __slots__ = ("done", "issued", "settled", "since_ns", "unfinished")

    def __init__(self) -> None:
        self.issued = self.done = -1
        self.since_ns = 0
        self.settled = False
        """Nothing is pending, whatever the counters say."""
        self.unfinished: bool | None = None
        """Whether the newest entry is, where the counters can't tell; None before that was looked up."""

    @property
    def mixed(self) -> bool:
        """NCCL's group counts sends and receives among the completed only, with numbers of their own."""
        return self.done > self.issued

    @property
    def pending(self) -> bool:
        return bool(self.unfinished) if self.mixed else self.issued > self.done and not self.settled

    def count(self, issued: int, done: int, now_ns: int) -> None:
        if (issued, done) != (self.issued, self.done):
            self.issued, self.done, self.since_ns, self.settled = issued, done, now_ns, False
            self.unfinished = None


class Status:
    """What one recorder says of its groups; asked as often as it can be afforded."""

    def __init__(self, ask: Callable[..., bytes]) -> None:
        self.ask = ask
        self.size, self._due = 0, 0.0
        self._counts: dict[str, tuple[int, int]] = {}

    def counts(self) -> dict[str, tuple[int, int]]:
        """By group, the numbers of the last call issued and of the last one completed."""
        now = time.monotonic()
        if now >= self._due:
            said = self.ask(includeCollectives=False)
            self.size = len(said)
            self._due = now + min(self.size * PAUSE_S, STALE_S)
            at = max(said.rfind(b'"pg_status":'), 0)  # the lists of ranks stand before it
            found = [(name.decode(), issued, done) for name, done, issued in _COUNTS.findall(said, at)]
            self._counts = {name: (int(issued), int(done)) for name, issued, done in found or _parsed(said)}
        return self._counts


def _parsed(said: bytes) -> list[tuple[str, Any, Any]]:
    """The same from an answer that is written in another way."""
    status = json.loads(said).get("pg_status", {})
    return [(name, v["last_enqueued_collective"], v["last_completed_collective"]) for name, v in status.items()]


class Standing:
    """Asked at every beat; remembers what each group had counted before."""

    def __init__(self) -> None:
        self.groups: dict[str, _Group] = {}
        self._recorders: dict[str, Status] = {}
        """By function, those that count something; a GPU process has two."""

    @property
    def dear(self) -> bool:
        """Whether to ask takes so long that it is done at beats only."""
        return sum(status.size for status in self._recorders.values()) > DEAR

    def pending(self) -> bool:
        """Whether something was issued and is not complete; cheaper than a look, and nothing is remembered."""
        for function, status in self._recorders.items():
            for name, (issued, done) in status.counts().items():
                known = self.groups.get(f"{function} {name}")
                if issued > done and not (known is not None and known.settled and known.issued == issued):
                    return True
        return False

    def look(self, c10d: object, now_ns: int, *, in_collective: bool) -> dict[str, Any]:
        """Rank and counters, once there is a group: before, to ask the recorder would fix its settings."""
        default = getattr(getattr(c10d, "_world", None), "default_pg", None)
        if default is None:
            return {}
        found: dict[str, Any] = {"rank": default.rank(), "world": default.size()}
        seen = []
        for function, _ in RECORDERS:
            ask = getattr(sys.modules.get(BINDING), f"{function}_json", None)
            if ask is None:
                continue
            status = self._recorders.get(function) or Status(ask)
            for name, (issued, done) in status.counts().items():
                self._recorders[function] = status
                group = self.groups.setdefault(f"{function} {name}", _Group())
                group.count(issued, done, now_ns)
                stands_still = now_ns - group.since_ns > SETTLE_NS
                if group.pending and not in_collective and stands_still and not group.mixed:
                    group.settled = _all_retired(ask, name)
                if group.mixed and group.unfinished is None and stands_still:
                    group.unfinished = _newest_unfinished(ask, name)
                seen.append(group)
        enqueued = sum(max(group.issued, 0) for group in seen)
        if not enqueued:  # the recorder is off: the groups still count what they issue
            enqueued = int(default._get_sequence_number_for_group())  # noqa: SLF001
        waiting = [group.since_ns for group in seen if group.pending]
        completed = sum(max(group.issued if group.settled else group.done, 0) for group in seen)
        found.update(enqueued=enqueued, completed=completed, pending=len(waiting), stuck_ns=min(waiting, default=0))
        return found


def _entries(ask: Any, name: str) -> list[dict[str, Any]]:
    """A group's entries don't err, but to ask for them costs milliseconds: once for a group that stands still."""
    entries = json.loads(ask(includeCollectives=True)).get("entries", [])
    # The status goes by the number that the group has in this process; its name is another where ranks differ.
    return [entry for entry in entries if str(entry.get("pg_id")) == name]


def _all_retired(ask: Any, name: str) -> bool:
    """Gloo's threads race to write the last number completed, and now and then an older one stays."""
    own = _entries(ask, name)
    return bool(own) and all(entry.get("retired") for entry in own)


def _newest_unfinished(ask: Any, name: str) -> bool:
    """Of a batch of messages only the entry of the whole batch, which comes last, is ever retired."""
    own = _entries(ask, name)
    return bool(own) and not own[-1].get("retired") and own[-1].get("state") != "completed"
