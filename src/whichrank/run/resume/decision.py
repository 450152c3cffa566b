"""When to start a job again, from which checkpoint, and when to stop: pure decisions about attempts."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from whichrank.facts.taxonomy import causes
from whichrank.model.grades import SUPPORTED
from whichrank.model.verdict import Diagnosis
from whichrank.run.resume import escalation
from whichrank.run.resume.checkpoints import Found

OUTSIDE = "job-ended-from-outside"
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
JITTER = 0.25
PROOF = 0.8
"""Confidence from which a cause in the hardware is proven enough to leave a host out."""
STEP_SHARE = 0.005
"""Counts of collectives that differ by less are the same step: ranks are cut off in the midst of one."""
UNSHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
STALE = "torch's launcher keeps the addresses of dead ranks over a restart, where the new ones may find them"


class Trap(NamedTuple):
    """What must be set for the job, what to tell of it, and whether restarted ranks need another store."""

    variables: dict[str, str] = {}  # noqa: RUF012 - never changed
    told: str = ""
    own_store: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for."""

    restarts: int = 0
    checkpoints: Path | None = None
    argument: str = ""
    """How a script takes a checkpoint: arguments, with {path} where it belongs."""
    variable: str = ""
    gpu_hours: float | None = None
    exclude_hosts: bool = False
    requeue: bool = False
    """Whether the scheduler is asked to start the job again."""
    escalate: bool = False
    """Whether a failure that nobody can explain is started again with more evidence."""

    def arguments(self, path: Path | None) -> list[str]:
        """What is added to the command for this checkpoint."""
        return [part.replace("{path}", str(path)) for part in shlex.split(self.argument)] if path is not None else []

    def variables(self, path: Path | None) -> dict[str, str]:
        return {self.variable: str(path)} if self.variable and path is not None else {}


@dataclass(slots=True)
class Attempt:
    """One start of the ranks, by us or by their launcher, and what became of it."""

    number: int
    started: str
    by_agent: bool = field(default=False, kw_only=True)
    """Started anew by the launcher itself."""
    earlier: bool = field(default=False, kw_only=True)
    """Of an earlier start of the job by its scheduler."""
    given: Found = field(default_factory=Found)
    """The checkpoint that it began with, and those that were skipped."""
    left: Found | None = None
    """What was there when it had ended."""
    ended: str | None = None
    seconds: float = 0.0
    world: int = 1
    code: int | None = None
    cause: str = ""
    """"" where nobody judged it, as after a good end."""
    confidence: float = 0.0
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    place: str = ""
    """The line of the training code that is to blame."""
    position: int | None = None
    """Collectives that the furthest rank had reached."""
    level: int = 0
    """How much more evidence than usual it was run with."""

    @property
    def explained_by(self) -> str:
        """The cause, unless it is a guess, or lacks the line that explains it: then more evidence is worth its cost."""
        known = self.confidence >= SUPPORTED and (self.place or self.cause not in escalation.NEED_A_LINE)
        return self.cause if known else "unknown"

    def judged(self, diagnosis: Diagnosis) -> None:
        """What the evidence says of it."""
        verdict = diagnosis.verdict
        # What fails is not healthy: the evidence shows nothing then.
        self.cause = "unknown" if verdict.category == "healthy" else verdict.cause
        self.confidence, self.ranks = verdict.confidence, verdict.culprits.ranks
        self.hosts = verdict.culprits.hosts or tuple(gpu.host for gpu in verdict.culprits.gpus if gpu.host)
        self.place = next((f"{code.file}:{code.line}" for code in verdict.culprits.code), "")
        reached = [rank.reached.seq for rank in diagnosis.ranks if rank.reached is not None]
        self.position = max(reached, default=None)

    @property
    def start(self) -> Path | None:
        return self.given.newest.path if self.given.newest is not None else None

    @property
    def newest(self) -> Path | None:
        """The newest whole checkpoint after its end."""
        found = self.left if self.left is not None else self.given
        return found.newest.path if found.newest is not None else None

    def brief(self) -> dict[str, Any]:
        """In a line of run.json, beside those that the watcher itself has seen."""
        results = f"attempts/{self.number}"
        return {"attempt": self.number, "results": results, "cause": self.cause, "culprit_ranks": list(self.ranks)}

    def told(self) -> dict[str, Any]:
        """As run.json has it."""
        return {
            "attempt": self.number,
            "started": self.started,
            "started_by": "launcher" if self.by_agent else "whichrank",
            "ended": self.ended,
            "exit_code": self.code,
            "cause": self.cause or None,
            "culprit_ranks": list(self.ranks),
            "place": self.place or None,
            "position": self.position,
            "world_size": self.world,
            "checkpoint": str(self.start) if self.start is not None else None,
            "evidence": escalation.LEVELS[self.level].name,
            "skipped_checkpoints": [{"path": str(each.path), "why": each.why} for each in self.given.skipped],
        }


def trap(command: Sequence[str], environ: Mapping[str, str]) -> Trap:
    """How ranks that their own launcher restarts are kept from those that died.

    Torch's launcher keeps one store over all attempts (torch 2.13: `StaticTCPRendezvous` and
    `DynamicRendezvousHandler._shared_tcp_store_server`), and `_create_c10d_store` puts no attempt into its keys: new
    ranks meet the addresses of dead ones, and fail or hang at the start (pytorch/pytorch#135712, #167288).
    """
    words = [word.replace("_", "-") for word in command]
    if not any(word.startswith("--max-restarts") and not word.endswith("=0") for word in words):
        return Trap()
    if any(word.startswith(("--rdzv-backend", "--standalone")) for word in words):
        return Trap() if UNSHARED in environ else Trap({UNSHARED: "1"}, f"{UNSHARED}=1 is set: {STALE}")
    if _nodes(words) == "1":
        return Trap(told=f"ranks that are restarted get a store of their own: {STALE}", own_store=True)
    return Trap(told=f"{STALE}: add --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT")


def _nodes(words: list[str]) -> str:
    """The number of nodes, as the launcher is told."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--nnodes" or word.startswith("--nnodes="):
            told = following if word == "--nnodes" else word.partition("=")[2]
            return "1" if told in ("1", "1:1") else told
    return "1"


def used_gpu_hours(attempts: list[Attempt]) -> float:
    """Time of all attempts, times their ranks."""
    return sum(attempt.seconds * attempt.world for attempt in attempts) / 3600


def reason_to_stop(plan: Plan, attempts: list[Attempt]) -> str:
    """Why the job that has just failed is not to be started again; "" where it is."""
    last = attempts[-1]
    if last.cause == OUTSIDE:
        return "it was ended from outside"
    if why := spent(plan, attempts):
        return why
    if plan.escalate and last.explained_by in escalation.UNEXPLAINED:
        # The same failure again is no reason to stop while there is more evidence to be had.
        if escalation.exhausted(last.level, last.explained_by):
            return "it can't be explained with all the evidence that can be had"
    elif why := _explained(attempts) or no_way_on(attempts):
        return why
    launches = sum(not attempt.by_agent and not attempt.earlier for attempt in attempts)
    if launches > plan.restarts:
        return f"it was launched {launches} times, and may be launched again {plan.restarts} times"
    return ""


def _explained(attempts: list[Attempt]) -> str:
    """The failure that nobody could explain came again at the same place, with more evidence, and now has a cause."""
    if len(attempts) < 2 or not attempts[-1].level or attempts[-1].explained_by in escalation.UNEXPLAINED:
        return ""
    before, last = attempts[-2:]
    if before.newest != last.newest or before.code != last.code or not _same_step(before, last):
        return ""
    who = f" of rank {', '.join(map(str, last.ranks[:8]))}" if last.ranks else ""
    where = f" at {last.place}" if last.place else ""
    return f"the cause is known now ({last.cause}{who}{where}), and it fails at the same place every time"


def spent(plan: Plan, attempts: list[Attempt]) -> str:
    """Whether the budget is used up."""
    used = used_gpu_hours(attempts)
    if plan.gpu_hours is None or used < plan.gpu_hours:
        return ""
    return f"{used:.3g} GPU-hours are used of the {plan.gpu_hours:g} that it may take"


def no_way_on(attempts: list[Attempt]) -> str:
    """The last two attempts failed alike and left no newer checkpoint: the third would fail there too."""
    if len(attempts) < 2:
        return ""
    before, last = attempts[-2:]
    if before.newest != last.newest or not alike(before, last):
        return ""
    where = f" at {last.place}" if last.place else ""
    who = f" of rank {', '.join(map(str, last.ranks[:8]))}" if last.ranks else ""
    since = f"no checkpoint newer than {last.newest.name}" if last.newest is not None else "no checkpoint"
    return f"it failed twice in the same way ({last.cause}{who}{where}) with {since} in between"


def alike(one: Attempt, other: Attempt) -> bool:
    """Same cause, same culprits, same place; and the same step, where the counts began at the same checkpoint."""
    if (one.cause, one.ranks, one.hosts) != (other.cause, other.ranks, other.hosts):
        return False
    if one.place and other.place:
        if one.place != other.place:
            return False
        known = True
    else:
        known = bool(one.ranks or one.hosts)
    if one.start == other.start:
        if one.position is None and other.position is None:
            # Neither came to its first collective: what ends a job there does so every time.
            return one.code == other.code or known
        return _same_step(one, other)
    return known


def _same_step(one: Attempt, other: Attempt) -> bool:
    if one.position is None or other.position is None:
        return one.position is other.position
    return abs(one.position - other.position) <= max(4, STEP_SHARE * max(one.position, other.position))


def pause_s(attempts: list[Attempt]) -> float:
    """How long to wait before the next start: longer each time, from the beginning after some progress."""
    failures = 1
    for before, last in zip(attempts[-2::-1], attempts[:0:-1], strict=False):
        if before.newest != last.newest:
            break
        failures += 1
    base = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))
    return base * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads starts, guards nothing


def convicted(attempt: Attempt) -> str:
    """The one host that the evidence convicts of a fault in its hardware; "" where there is none, or more."""
    cause = causes().get(attempt.cause)
    if cause is None or cause.family != "gpu-hardware" or attempt.confidence < PROOF:
        return ""
    hosts = sorted(set(attempt.hosts))
    return hosts[0] if len(hosts) == 1 else ""
