"""How far the job and each rank came: launched, rendezvous, groups, collectives, training, leaving, ended.

Built once from all sources: logs, launchers, NCCL's log, dumps, stacks, `run`'s last words. A phase that was reached
stays reached: a cause that stops jobs at the launch can't explain one that trained afterwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np

from whichrank.model.evidence import Ref
from whichrank.model.moments import rfc3339_ns
from whichrank.model.verdict import Phase, PhaseSeen
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ProcessLeft
from whichrank.records.events.startup import (
    CommInit,
    GroupInit,
    GroupTeardown,
    InitError,
    MemberBegins,
    MembersMet,
    NotJoined,
    RendezvousError,
    StoreError,
    StorePassed,
)
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.deaths import deaths

_EVENTS: dict[type[Event], Phase] = {
    NotJoined: "launched",
    **dict.fromkeys((InitError, RendezvousError, StoreError, MemberBegins, CommInit), "rendezvous"),
    **dict.fromkeys((StorePassed, MembersMet, GroupInit), "groups"),
    GroupTeardown: "leaving",
    ProcessLeft: "ended",
}
_DOING: dict[str, Phase] = {"starting": "rendezvous", "checkpoint": "checkpoint", "evaluation": "evaluation",
                            "leaving": "leaving"}  # fmt: skip
_TRAINED_STEPS, _TRAINED_COLLECTIVES = 3, 2
_SLACK_NS = 60_000_000_000
"""Log stamps of different hosts and of the kernel agree to within this."""


class _Sign(NamedTuple):
    phase: Phase
    ranks: tuple[int, ...]
    time_ns: int | None
    ref: Ref


def phases(case: Case) -> tuple[PhaseSeen, ...]:
    """The phases that the evidence shows, in their order; of each since when, for which ranks, and by what."""
    signs = list(_signs(case))
    shown = ([s for s in signs if s.phase == phase] for phase in get_args(Phase))
    return tuple(_seen(of_phase) for of_phase in shown if of_phase)


class WrittenIn:
    """In which phase the job was when a line was written: by what its file shows last above that line."""

    def __init__(self, case: Case) -> None:
        shown: dict[str, dict[int, Phase]] = {}
        for progress in case.progress:
            counted = progress.line[progress.step >= 0]
            shown.setdefault(progress.source, {}).update(dict.fromkeys(counted.tolist(), "training"))
        for sign in _signs(case):
            if sign.phase != "training" and (line := _line(sign.ref)):
                shown.setdefault(sign.ref.source, {})[line] = sign.phase
        self._shown = {source: sorted(of_file.items()) for source, of_file in shown.items()}

    def phase(self, refs: Sequence[Ref]) -> Phase | None:
        """The phase of the first of these lines that has one."""
        return next((phase for ref in refs if (phase := self._above(ref)) is not None), None)

    def _above(self, ref: Ref) -> Phase | None:
        of_file, line = self._shown.get(ref.source, []), _line(ref)
        place = bisect_left(of_file, line, key=lambda shown: shown[0])
        return of_file[place - 1][1] if line and place else None


def _line(ref: Ref) -> int:
    """0 where it is something else, as `process 3`."""
    return ref.line if ref.locator.startswith("line ") else 0


def _seen(signs: Sequence[_Sign]) -> PhaseSeen:
    first = min(signs, key=lambda s: (s.time_ns or 1 << 63, s.ref.source, s.ref.locator))
    ranks = tuple(sorted({rank for sign in signs for rank in sign.ranks}))
    return PhaseSeen(first.phase, ranks, rfc3339_ns(first.time_ns or 0), first.ref)


def _signs(case: Case) -> Iterator[_Sign]:
    for kind, phase in _EVENTS.items():
        yield from (_Sign(phase, _rank(event), event.about_ns, event.ref) for event in case.events(kind))
    for process in case.nccl:
        rank = case.people.rank_of(process.pid, process.host)
        for init in process.inits:
            ref = Ref(process.source, f"line {init.line}", f"Init {init.phase.upper()} of {init.nranks} ranks", rank)
            reached: Phase = "groups" if init.phase == "complete" else "rendezvous"
            yield _Sign(reached, () if rank is None else (rank,), None, ref)
    yield from _by_collectives(case)
    for progress in case.progress:
        if len(np.unique(progress.step[progress.step >= 0])) > 1:
            line, ranks = int(progress.line[0]), tuple(np.unique(progress.rank[progress.rank >= 0]).tolist())
            words = f"step {int(progress.step.max())} was the last"
            yield _Sign(
                "training", ranks, int(progress.time_ns[0]) or None, Ref(progress.source, f"line {line}", words)
            )
    for rank, activity in case.activities.items():
        if activity.doing in _DOING:
            yield _Sign(
                _DOING[activity.doing], (rank,), None, Ref(case.stacks[rank].source, "stack", str(activity), rank)
            )
    for death in deaths(case):
        sign = death.sign
        yield _Sign("ended", () if sign.rank is None else (sign.rank,), sign.time_ns, sign.ref)
    if case.finish is not None:
        yield _Sign("ended", (), case.finish.time_ns, case.finish.ref)


def _rank(event: Event) -> tuple[int, ...]:
    return () if event.rank is None else (event.rank,)


def _by_collectives(case: Case) -> Iterator[_Sign]:
    """Operations that finished, in dumps."""
    lineup = case.lineup
    if lineup is None or not case.has_dumps or not lineup.done.any():
        return
    finished = np.flatnonzero(lineup.done)
    row = int(finished[np.argmin(lineup.created[finished])])
    rank = int(lineup.rank[row])
    ref = Ref(lineup.sources[rank][0], f"{lineup.locator} {int(lineup.record[row])}", "the first that finished", rank)
    yield _Sign("collectives", tuple(np.unique(lineup.rank[finished]).tolist()), int(lineup.created[row]), ref)


def trained_after(case: Case, said_ns: int | None) -> tuple[str, tuple[Ref, ...]] | None:
    """What shows that the job trained after this moment, and where."""
    for progress in case.progress if said_ns is not None else ():
        later = (progress.time_ns > 0) & (progress.time_ns > (said_ns or 0) + _SLACK_NS)
        steps = progress.step[later]
        if len(np.unique(steps)) >= _TRAINED_STEPS:
            ref = Ref(progress.source, f"line {int(progress.line[-1])}", f"step {int(steps[-1])}")
            return "training went on after it", (ref,)
    if case.has_dumps and case.lineup is not None and len(case.lineup):
        finished, newest = _world_collectives(case), int(case.lineup.created.max())
        if finished >= _TRAINED_COLLECTIVES and (said_ns is None or newest > said_ns + _SLACK_NS):
            return f"{finished} collectives of all ranks finished, the last known at {rfc3339_ns(newest)}", ()
    return None


def _world_collectives(case: Case) -> int:
    """How many operations of a group of all ranks finished."""
    lineup = case.lineup
    if lineup is None:
        return 0
    whole = [i for i, group in enumerate(lineup.groups) if len(group.members) == case.world and case.world > 1]
    return sum(len(np.unique(lineup.seq[(lineup.group == group) & lineup.done])) for group in whole)
