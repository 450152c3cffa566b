"""A process group that comes up with the right timeouts, names who is missing, and goes down in order."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from whichrank.facts.variables.environment import catalogue
from whichrank.model.errors import WhichrankError

Timeout = timedelta | float
POLL_S = 0.2
FAREWELL_S = 30.0
"""How long the rank that hosts the store waits for the others to leave."""
NEWS_S = 5.0
_NAMED = 16
_made = count()


class GroupError(WhichrankError):
    """The process group can't be made as asked."""


class AbsentRanksError(GroupError):
    """Some ranks did not join."""

    def __init__(self, message: str, hint: str, ranks: tuple[int, ...]) -> None:
        super().__init__(message, hint)
        self.ranks = ranks


class DisagreementError(GroupError):
    """Ranks differ in something that all must share."""


@dataclass(slots=True)
class ProcessGroups:
    """What the context gives: the rank, the world, and the groups by name."""

    rank: int
    world_size: int
    groups: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.groups[name]


@contextmanager
def process_group(
    backend: str | None = None,
    *,
    timeout: Timeout,
    groups: Mapping[str, tuple[Sequence[int], Timeout]] | None = None,
    **init_kwargs: Any,
) -> Iterator[ProcessGroups]:
    """Make the process group and its sub-groups, each with its own timeout; sub-groups don't inherit one.

    Before that all ranks meet in the store: ranks that don't come within the timeout are named, and so are
    settings that must match and don't. Further arguments go to init_process_group.
    """
    # Imported when called: what is in this folder must be importable where torch is not.
    dist: Any = import_module("torch.distributed")

    limit = _delta(timeout)
    wanted = {name: (tuple(ranks), _delta(each)) for name, (ranks, each) in (groups or {}).items()}
    store, rank, world_size = _rendezvous(dist, limit, init_kwargs)
    # Every attempt of the launcher, and every group of a process, meets at a place of its own.
    place = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_made)}"
    meeting = _Meeting(dist.PrefixStore(f"whichrank/{place}", store), rank, world_size, limit.total_seconds())
    meeting.assemble(_agreed(backend, wanted))
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(f"whichrank_pg/{place}", store),
        rank=rank,
        world_size=world_size,
        timeout=limit,
        **init_kwargs,
    )
    made = ProcessGroups(rank, world_size)
    try:
        for name, (ranks, each) in wanted.items():
            made.groups[name] = dist.new_group(list(ranks), timeout=each, group_desc=name)
        yield made
    except BaseException:
        meeting.left()
        _abandon(dist)
        raise
    _leave(dist, made, wanted, meeting)


def _delta(value: Timeout) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def _rendezvous(dist: Any, limit: timedelta, init_kwargs: dict[str, Any]) -> tuple[Any, int, int]:
    """The store that all ranks share, where init_process_group itself would have it."""
    rank, world_size = init_kwargs.pop("rank", -1), init_kwargs.pop("world_size", -1)
    store, method = init_kwargs.pop("store", None), init_kwargs.pop("init_method", None) or "env://"
    if store is not None:
        return store, int(rank), int(world_size)
    if rank < 0:
        rank = int(os.environ.get("RANK", "-1"))
    if world_size < 0:
        world_size = int(os.environ.get("WORLD_SIZE", "-1"))
    where = urlsplit(method)
    agents = where.scheme == "env" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    started = time.monotonic()
    try:
        if where.scheme in {"env", "tcp"} and not agents:
            host = where.hostname or os.environ.get("MASTER_ADDR", "localhost")
            port = where.port or int(os.environ.get("MASTER_PORT", "29500"))
            # Not to wait for the others here is the point: the store then tells who did not come.
            found = dist.TCPStore(
                host, port, world_size, rank == 0, timeout=limit, wait_for_workers=False, multi_tenant=True
            )
        else:
            found, rank, world_size = next(iter(dist.rendezvous(method, rank, world_size, timeout=limit)))
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise _no_store(error, rank, time.monotonic() - started) from error
    found.set_timeout(limit)
    return found, int(rank), int(world_size)


def _no_store(error: Exception, rank: int, waited_s: float) -> GroupError:
    address = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if rank == 0:
        return GroupError(
            f"rank 0 can't open its store at {address}: {said}",
            "Is the port taken by another job, and is the address one of this host?",
        )
    return AbsentRanksError(
        f"rank 0 did not join: its store at {address} was not there within {waited_s:.0f} s ({said})",
        "Look at rank 0's host: did it start, is the port open, is the address the right one?",
        (0,),
    )


def _agreed(backend: str | None, wanted: dict[str, tuple[tuple[int, ...], timedelta]]) -> dict[str, str]:
    """What every rank must say the same of."""
    said = {
        name: value
        for name, value in os.environ.items()
        if (variable := catalogue().get(name)) is not None and variable.must_match
    }
    said["backend"] = str(backend)
    said["groups"] = json.dumps([[name, list(ranks), each.total_seconds()] for name, (ranks, each) in wanted.items()])
    return said


@dataclass(slots=True)
class _Meeting:
    """All ranks say in the store that they are there; rank 0 counts and compares, the others read its answer."""

    store: Any
    rank: int
    world_size: int
    limit_s: float

    def assemble(self, said: dict[str, str]) -> None:
        self.store.set(f"rank/{self.rank}", json.dumps({"host": socket.gethostname(), "said": said}))
        deadline = time.monotonic() + self.limit_s
        if self.rank == 0:
            self.store.set("answer", json.dumps(self.tally(deadline)))
        elif not self.appears("answer", deadline + 10):
            # Rank 0 did not even count: it is absent, or the store is all that is left of it.
            self.store.set("answer", json.dumps({"absent": self.absent() or [0], "differ": []}))
        answer = json.loads(self.store.get("answer"))
        if answer["absent"] or answer["differ"]:
            self.all_heard(self.world_size - len(answer["absent"]))
        if answer["absent"]:
            raise self.missing(answer["absent"])
        if answer["differ"]:
            raise DisagreementError(
                "ranks differ in what all must share: " + "; ".join(answer["differ"]),
                "Set it from one place for all ranks.",
            )

    def all_heard(self, present: int) -> None:
        """The store goes with rank 0: it stays until those who came have read the bad news."""
        heard, deadline = self.store.add("heard", 1), time.monotonic() + NEWS_S
        while self.rank == 0 and heard < present and time.monotonic() < deadline:
            time.sleep(0.02)
            heard = self.store.add("heard", 0)

    def tally(self, deadline: float) -> dict[str, list[Any]]:
        while (absent := self.absent()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return {"absent": absent, "differ": [] if absent else self.differences()}

    def absent(self) -> list[int]:
        return [rank for rank in range(self.world_size) if not self.store.check([f"rank/{rank}"])]

    def appears(self, key: str, deadline: float) -> bool:
        while not self.store.check([key]):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def differences(self) -> list[str]:
        """One sentence for each thing that ranks say differently, with the ranks that are alone with it."""
        said = [json.loads(self.store.get(f"rank/{rank}"))["said"] for rank in range(self.world_size)]
        sentences = []
        for name in sorted({name for each in said for name in each}):
            by_value: dict[str | None, list[int]] = {}
            for rank, each in enumerate(said):
                by_value.setdefault(each.get(name), []).append(rank)
            if len(by_value) > 1:
                parts = sorted(by_value.items(), key=lambda item: -len(item[1]))
                sentences.append(f"{name} is " + ", ".join(f"{_shown(v)} on ranks {_few(r)}" for v, r in parts[:4]))
        return sentences

    def missing(self, absent: list[int]) -> AbsentRanksError:
        there = sorted(set(range(self.world_size)) - set(absent))
        hosts = sorted({json.loads(self.store.get(f"rank/{rank}"))["host"] for rank in there[:64]})
        return AbsentRanksError(
            f"{len(absent)} of {self.world_size} ranks did not join within {self.limit_s:.0f} s: {_few(absent)}",
            f"Ranks that came are on {', '.join(hosts[:8])}. Look at where the absent ones should have started.",
            tuple(absent),
        )

    def left(self) -> int:
        """Say that this rank is leaving; how many have said so. The store may have gone before."""
        with suppress(RuntimeError):
            return int(self.store.add("left", 1))
        return self.world_size

    def farewell(self) -> None:
        """The store lives in rank 0 (unless the launcher has it): let the others go first."""
        left, deadline = self.left(), time.monotonic() + FAREWELL_S
        while self.rank == 0 and left < self.world_size and time.monotonic() < deadline:
            time.sleep(0.02)
            left = int(self.store.add("left", 0))


def _leave(dist: Any, made: ProcessGroups, wanted: dict[str, Any], meeting: _Meeting) -> None:
    """Sub-groups before the group that they hang on, last made first; the store's host last of all."""
    for name in reversed(list(made.groups)):
        if made.rank in wanted[name][0]:
            dist.destroy_process_group(made.groups[name])
    dist.destroy_process_group()
    with suppress(RuntimeError):  # the store may have gone with a launcher that is faster
        meeting.farewell()


def _abandon(dist: Any) -> None:
    """After an error nobody waits for anybody: pending collectives are aborted where the backend can."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    with suppress(RuntimeError, ValueError, AssertionError):
        if dist.is_initialized():
            if abort is not None and "nccl" in str(dist.get_backend()):
                abort()
            else:
                dist.destroy_process_group()


def _shown(value: str | None) -> str:
    return "not set" if value is None else f"'{value}'"


def _few(ranks: Sequence[int]) -> str:
    more = len(ranks) - _NAMED
    return ", ".join(map(str, ranks[:_NAMED])) + (f" and {more} more" if more > 0 else "")
