"""How the run ended: well, or not. A run that finished neither hung nor crashed, whatever it printed on the way.

A run finished if its output says so at its end (the script's own words, a launcher's exit code 0, the last of the
planned steps) and nothing behind that says that a process failed. Noise of the teardown is not a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from whichrank.model.evidence import Ref
from whichrank.model.findings import Category
from whichrank.model.late_pattern import late
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import MonitoredBarrierFailed
from whichrank.records.events.communication import GlooTimeout, NcclError
from whichrank.records.events.launchers import (
    ActorDied,
    ElasticFailure,
    HostOutOfMemory,
    JobEnded,
    NodeSilent,
    ProcessExit,
)
from whichrank.records.events.processes import CudaError, DataloaderWorkerDied, NativeCrash, Traceback
from whichrank.records.events.run_state import AtWork, RunFinished
from whichrank.records.events.startup import StoreError
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTerminated, WatchdogTimeout
from whichrank.records.log import Progress
from whichrank.timeline.job_state.interrupted import waits
from whichrank.timeline.job_state.trials import said_category

if TYPE_CHECKING:
    from whichrank.records.nccl import CommEnd
    from whichrank.records.ras import RasReport
    from whichrank.timeline.case import Case

_FATAL: tuple[type[Event], ...] = (
    Traceback, WatchdogTimeout, WatchdogTerminated, WatchdogStuck, NativeCrash, ElasticFailure, ProcessExit,
    MonitoredBarrierFailed, GlooTimeout, JobEnded, CudaError, NcclError, HostOutOfMemory,
    DataloaderWorkerDied, NodeSilent, ActorDied,
)  # fmt: skip
_ENDINGS = (WatchdogTimeout, WatchdogTerminated, ElasticFailure, ProcessExit, JobEnded, NodeSilent, ActorDied)
"""Behind these no rank says that it is done."""
_NOT_DESTROYED = "torch-not-destroyed"
_TERMINATED = (15, 143)
COUNTED_ON = 3
_MOMENT_NS = 1_000_000_000
_OF_A_PART = late(r"(?i)\b(?:steps?|epochs?|batch(?:es)?|iter\w*|round|phase|stage|eval\w*|upload\w*|checkpoint\w*)\b")
# Peers that leave one after the other: what the last ones print about the first ones.
_TEARDOWN_TYPES = ("DistNetworkError", "DistStoreError", "ConnectionResetError", "BrokenPipeError", "EOFError")


class Finish(Struct, frozen=True):
    """The statement that the run ended well."""

    ref: Ref
    source: str
    line: int
    time_ns: int | None
    by_all: bool = False
    """Whether every rank says so: who says it in another output than its errors has got over them."""


def finish(case: Case) -> Finish | None:
    """Where the newest attempt says that it ended well, if nothing contradicts it."""
    if not case.progress and not case.log_events:
        return None
    if watched := next((event for event in case.events(RunFinished) if event.how == "watched"), None):
        return _of_event(watched)  # whatever stood still on the way has gone on
    # A person who complains may also mention a run that went well, or say “before it finished”.
    told = {complaint.ref.source for complaint in case.complaints}
    fatal = failures(case)
    # A server takes the same leave when one of its processes died.
    leaves = () if fatal or case.index.roots else ("shutdown",)
    spoken = [event for event in case.events(RunFinished) if event.ref.source not in told]
    spoken = [event for event in spoken if event.how in ("words", "exit", "accounted", "tasks", *leaves)]
    by_all = {event.rank for event in spoken if event.how == "words"} >= set(range(max(case.world, 1)))
    said = [_of_event(event, by_all=by_all) for event in spoken]
    said += [done for progress in case.progress if (done := _last_step(progress)) is not None]
    said += [left for left in (_all_left(case) if leaves else None, _all_destroyed(case)) if left is not None]
    recorded = {event.how for event in case.events(RunFinished)}
    if "tasks" in recorded:
        fatal = []  # what failed on the way did not end its process
    elif "accounted" in recorded:
        # Slurm says that the job completed: a step that was cancelled or a task that was killed was not the training.
        fatal = [event for event in fatal if not isinstance(event, JobEnded | ProcessExit)]
    if lost := {event.ref.source for event in losses_of_all(case)}:
        said = [mark for mark in said if mark.source in lost]  # another program may have ended well
    speaking = _speaking(case)
    fitting = [mark for mark in said if not any(_contradicts(event, mark, speaking) for event in fatal)]
    if not fitting or case.experiments:
        return None
    last = max(fitting, key=lambda mark: (mark.time_ns or 0, mark.source, mark.line))
    if (
        case.stands_still_now
        and not _counted_since_looked_at(case)
        and not (_timers_only(case) and _OF_A_PART.search(last.ref.quote) is None)
    ):
        return next((mark for mark in fitting if mark.by_all and _seen_before(case, mark)), None)
    return last


def _counted_since_looked_at(case: Case) -> bool:
    """Whether steps were counted after the newest record of all dumps: they were taken from a job at work."""
    if not case.has_dumps or case.lineup is None or not len(case.lineup):
        return False
    newest = int(case.lineup.created.max()) + _MOMENT_NS
    later = (progress.step[(progress.step >= 0) & (progress.time_ns > newest)] for progress in case.progress)
    return any(len(np.unique(steps)) >= COUNTED_ON for steps in later)


def _timers_only(case: Case) -> bool:
    """Whether all stacks were printed by timers of the program's own: it may have gone on and ended well since."""
    stacks = case.stacks.values()
    return bool(stacks) and all(s.tool == "faulthandler" and s.reason.startswith("Timeout") for s in stacks)


def _seen_before(case: Case, said: Finish) -> bool:
    """Whether somebody looked while a rank still did its work, for which others waited: that was before all of them
    said that the run is done. What was collected at one moment has no later words, and a step may be done before."""
    doing = {activity.doing for activity in case.activities.values()}
    of_one_moment = any(event.ref.source.endswith("last_words.json") for event in case.log_events)
    at_work = len(doing) > 1 and not doing & {"leaving", "checkpoint"} and not case.all_stand
    return at_work and not of_one_moment and _OF_A_PART.search(said.ref.quote) is None


def at_work(case: Case) -> Event | None:
    """Where the output ends with a job at work, and nobody and nothing says that it stands still."""
    # Who only asks is answered by a report that all communicators run.
    complained = case.complaints and not any(_all_run(report) for report in case.ras)
    others = case.stands_still or _may_hang(case) or case.unplaced or case.has_dumps or complained or case.slowed
    return None if others else next(iter(case.events(AtWork)), None) or _recovered(case)


def _may_hang(case: Case) -> bool:
    """Whether the stacks can be those of a job in which some hold up the others: half of the ranks wait, or are in C
    code below one line, where nothing tells a wait for the GPU from work."""
    if not case.stacks:
        return False
    from whichrank.timeline.job_state.activity import in_native_code, way  # a diagnosis without stacks needs none

    native = Counter(way(case.stacks[rank]) for rank in case.activities if in_native_code(case.stacks[rank]))
    at_one_line = max(native.values(), default=0)
    waiting = sum(activity.doing not in ("user", "data") for activity in case.activities.values())
    half = 2 * max(waiting, at_one_line) >= len(case.activities)
    return half or len(case.activities) < case.world


def _recovered(case: Case) -> Event | None:
    """The last count of an output that goes on behind all that failed in it, as after a restart."""
    counts = [counts_on(case, event) for event in failures(case)]
    if not counts or None in counts:
        return None
    progress = max((p for p in counts if p is not None), key=lambda p: (int(p.time_ns[-1]), p.source))
    line = int(progress.line[-1])
    counted = f"step {progress.step[-1]}" if progress.step[-1] >= 0 else f"epoch {progress.epoch[-1]:g}"
    at = int(progress.time_ns[-1]) or None
    return AtWork(ref=Ref(progress.source, f"line {line}", counted), line=line, time_ns=at)


def failures(case: Case) -> list[Event]:
    """All that says that a process of the job failed."""
    return [event for kind in _FATAL for event in case.events(kind) if _fails(event)] + losses_of_all(case)


def _all_run(report: RasReport) -> bool:
    return bool(report.comms or report.groups) and not report.problems and not report.mismatches


def observed(case: Case) -> Category | None:
    """What the job was seen to do: by its output, or else by what people say; None where it finished or nobody says."""
    if case.finish is not None:
        return None
    if case.stands_still and not case.goes_on:
        return "hang"
    working, by_hand = at_work(case), waits(case)
    failed = [event for event in failures(case) if event not in by_hand and counts_on(case, event) is None]
    if any(working is None or e.ref.source != working.ref.source or e.line >= working.line for e in failed):
        return "crash"
    return "hang" if by_hand else said_category(case) or ("slow" if case.slowed else None)


def counts_on(case: Case, event: Event) -> Progress | None:
    """Who counts on behind it, in the same output or later by the clock: ranks that synchronise make no three steps
    without one that died, and that one makes none."""
    for progress in case.progress:
        here, about = progress.source == event.ref.source, event.about_ns
        if here and _counts_on_itself(case, progress, event):
            return progress
        if not here and about is None:
            continue
        behind = progress.line > event.line if here else progress.time_ns > (about or 0)
        counted = np.where(progress.step >= 0, progress.step, np.nan_to_num(progress.epoch, nan=-1.0))[behind]
        counted = counted[counted >= 0]
        change = np.diff(counted)
        # Exports may begin with the newest line: there it counts down.
        if len(np.unique(counted)) >= COUNTED_ON and (change > 0).sum() > 2 * (change < 0).sum():
            return progress
    return None


def _counts_on_itself(case: Case, progress: Progress, event: Event) -> bool:
    """Whether the rank that failed has a later step in its own output: a process that died has none. By the clock, or
    where nothing was raised: what waits in a buffer is printed behind the exception that ended the process."""
    if event.rank is None or isinstance(event, Traceback):
        return False
    own = (progress.rank == event.rank) & (progress.step >= 0)
    later = own & (progress.line > event.line)
    if event.time_ns:
        later &= progress.time_ns > event.time_ns
    elif any(raised.ref.source == event.ref.source for raised in case.events(Traceback)):
        return False
    before = progress.step[own & (progress.line <= event.line)]
    return bool(later.any()) and len(before) > 0 and int(progress.step[later].max()) > int(before.max())


def _all_left(case: Case) -> Finish | None:
    """The last word of a job whose ranks all came to the end of the script: torch misses the end of the groups there.

    It does so behind an exception too, which the output shows. Where all had lost the store, it ended before them."""
    left = {s.rank: s for s in case.sightings if s.signature == _NOT_DESTROYED and s.rank is not None}
    last = max(left.values(), key=lambda seen: seen.line, default=None)
    if last is None or left.keys() != set(range(case.world)):
        return None
    closed = {event.rank for event in case.events(StoreError) if event.what == "closed"}
    return None if closed >= left.keys() else _of_event(last)


def _all_destroyed(case: Case) -> Finish | None:
    """The last word of a job in which each process destroyed all its communicators: who fails or waits does not."""
    processes = [process for process in case.nccl if process.inits]
    kept = any({i.comm for i in p.inits} - {e.comm for e in p.ends if _destroyed(e)} for p in processes)
    if kept or len(processes) < max((i.nranks for p in processes for i in p.inits), default=1):
        return None
    ends = ((process, end) for process in processes for end in process.ends if _destroyed(end))
    last, end = max(ends, key=lambda at: (at[0].source, at[1].line))
    words = f"comm {end.comm} rank {end.rank} nranks {end.nranks} - Destroy COMPLETE"
    ref = Ref(last.source, f"line {end.line}", words, case.people.rank_of(last.pid, last.host))
    return Finish(ref, last.source, end.line, None, by_all=True)


def _destroyed(end: CommEnd) -> bool:
    return end.kind == "destroy" and end.phase == "complete"


def _of_event(event: Event, *, by_all: bool = False) -> Finish:
    return Finish(event.ref, event.ref.source, event.line, event.time_ns or event.after_ns, by_all)


def _last_step(progress: Progress) -> Finish | None:
    """The last of the planned steps: `step 1000/1000`, of several that were counted up to it."""
    planned = progress.total > 0
    last = int(np.flatnonzero(planned)[-1]) if planned.sum() > 1 else -1
    # Lines behind it may name the same step without the plan: `saved checkpoint of step 1000`.
    if last < 0 or progress.step[last] < progress.total[last] or (progress.step[last:] != progress.step[last]).any():
        return None
    # Bars of an epoch or of an evaluation end too; a run's own counter ends once, over all epochs.
    ended = np.unique(progress.line[planned & (progress.step >= progress.total)])
    epochs = progress.epoch[~np.isnan(progress.epoch)]
    if len(ended) > 1 or (len(epochs) and len(np.unique(epochs.astype(np.int64))) > 1):
        return None
    step, total, line = int(progress.step[last]), int(progress.total[last]), int(progress.line[last])
    time_ns = int(progress.time_ns[last]) or None
    return Finish(Ref(progress.source, f"line {line}", f"step {step}/{total}"), progress.source, line, time_ns)


def losses_of_all(case: Case) -> list[Event]:
    """What every rank raised because it lost the store or its peers: none of them had died or left before."""
    lost = [event for event in case.events(Traceback) if not event.ignored and event.short_type in _TEARDOWN_TYPES]
    return list(lost) if case.world > 1 and {event.rank for event in lost} >= set(range(case.world)) else []


def _fails(event: Event) -> bool:
    """Whether this says that a process of the job failed, and not only that it left."""
    if isinstance(event, Traceback):
        return not event.ignored and not event.thread and event.short_type not in _TEARDOWN_TYPES
    if isinstance(event, ProcessExit | ElasticFailure):
        code, signal = event.exitcode, event.signal
        return not (code in (None, 0) and signal is None) and not {code, signal} & set(_TERMINATED)
    return True


def _speaking(case: Case) -> set[str]:
    """The texts in which the job itself speaks: its steps, its ranks, its launcher, the code with which it ended."""
    told = {progress.source for progress in case.progress}
    return told | {e.ref.source for e in case.log_events if not isinstance(e, RunFinished) or e.how != "words"}


def _contradicts(event: Event, mark: Finish, speaking: Collection[str]) -> bool:
    """Whether a failure came behind the words; of another file only where no time says that it came before, or where
    nothing says that the words are the job's."""
    if mark.by_all and event.ref.source != mark.source and None in (event.about_ns, mark.time_ns):
        return isinstance(event, _ENDINGS)
    if event.ref.source != mark.source and mark.source not in speaking:
        return True
    if event.ref.source == mark.source and not (event.time_ns and mark.time_ns and event.time_ns != mark.time_ns):
        return event.line > mark.line
    about = event.about_ns
    return about is None or mark.time_ns is None or about > mark.time_ns
