"""Ranks that do not come, seen from outside the recorder: by stacks, by watchdog lines, by who is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.model.evidence import Ref
from whichrank.records.dump import Frame
from whichrank.records.events.base import Event, OfGroup
from whichrank.records.events.communication import GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.processes import Traceback
from whichrank.records.events.watchdog import DumpSignal, WatchdogProgress, WatchdogTimeout
from whichrank.records.stack import ProcessStack, ThreadStack, innermost_user_frame
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import NOT_THERE

if TYPE_CHECKING:
    from whichrank.timeline.job_state.activity import Activity

DEFAULT = "default_pg"
_WATCHDOG: tuple[type[OfGroup], ...] = (WatchdogProgress, DumpSignal, WatchdogTimeout)
# What keeps a rank from its next collective; "waiting" is what its victims do.
HELD_UP = ("data", "checkpoint", "evaluation", "preprocessing", "compile", "storage", "user")
SENT = ("SEND", "RECV", "RECVANYSOURCE", "COALESCED")
"""As the watchdog names messages, one or a batch of them."""
_QUOTED = 4
"""Frames of a stack that are shown as evidence."""
_SEVERAL = 3
"""Processes of which one can be the odd one."""


class Held(Struct, frozen=True):
    """A rank that others wait for, and what it is doing instead."""

    rank: int
    activity: Activity
    waiting: tuple[int, ...]
    by: str
    """How it was singled out: "dumps", "stacks" or "watchdog"."""


def stack_ref(case: Case, rank: int) -> Ref:
    """A rank's stack as evidence: the frames from the deepest line of the training code inwards."""
    return ref_of(case.stacks[rank], rank, case.people.host_of(rank))


def ref_of(stack: ProcessStack, rank: int | None = None, host: str | None = None) -> Ref:
    """A stack as evidence, also where nothing says whose it is."""
    thread = next((t for t in stack.threads if t.main), stack.threads[0] if stack.threads else None)
    quote = " < ".join(_words(frame) for frame in _telling(thread)) if thread and thread.frames else "no frames"
    return Ref(stack.source, f"line {thread.line if thread else stack.line}", quote, rank, host)


def _telling(thread: ThreadStack) -> Sequence[Frame]:
    """The innermost frames; where C frames lie below the training code, two that have a name, and who called them."""
    inner = thread.frames[:_QUOTED]
    user = innermost_user_frame(thread)
    if user is None or user in inner or not any(_is_native(frame) for frame in inner):
        return inner
    at = thread.frames.index(user)
    named = [frame for frame in thread.frames[:at] if not frame.function.startswith("0x")]
    return (*named[:2], *thread.frames[at : at + 2])


def _is_native(frame: Frame) -> bool:
    return not frame.file.endswith(".py") and not frame.file.startswith("<")


def _words(frame: Frame) -> str:
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}{line})"


def only_stack(case: Case) -> tuple[ProcessStack, int | None] | None:
    """The one stack at hand, and its rank where that is told; None where more is known of the job than that."""
    found = [*((stack, rank) for rank, stack in case.stacks.items()), *((stack, None) for stack in case.unplaced)]
    if len(found) != 1 or case.lineup is not None or case.progress:
        return None
    if found[0][0].reason.startswith("Fatal"):
        return None  # the last words of a crash, no look at a job that stands still
    return found[0]


def odd_process(case: Case) -> tuple[ProcessStack, Activity, int] | None:
    """Of several processes that nothing names: the one that is held up while all others wait, and how many wait."""
    if case.stacks or len(case.unplaced) < _SEVERAL:
        return None
    from whichrank.timeline.job_state.activity import of_unplaced  # many patterns: only where there is a stack

    doing = list(zip(case.unplaced, of_unplaced(case.unplaced), strict=True))
    held = [(stack, activity) for stack, activity in doing if activity.doing in HELD_UP]
    waiting = sum(activity.doing == "waiting" for _, activity in doing)
    return (*held[0], waiting) if len(held) == 1 and waiting == len(doing) - 1 else None


def suspects_by_record(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks that the line-up singles out for not coming (or may mean), and those that wait for them."""
    for trouble in case.troubles:
        if trouble.shape in NOT_THERE:
            return trouble.ranks or trouble.candidates, trouble.victims
    return (), ()


def held_up(case: Case) -> list[Held]:
    """Ranks that are held up in host code while others wait, with what holds them."""
    suspects, victims = suspects_by_record(case)
    doing = {rank: activity for rank, activity in case.activities.items() if activity.doing in HELD_UP}
    doing = {rank: activity for rank, activity in doing.items() if not _as_others_wait(case, rank, victims)}
    found = [Held(rank, doing[rank], victims, "dumps") for rank in suspects if rank in doing]
    if found or any(t.hangs for t in case.troubles if t.shape not in NOT_THERE):
        return found
    waiting = tuple(rank for rank, activity in case.activities.items() if activity.doing == "waiting")
    standing = standings(case)
    if standing is not None:  # whose own operation timed out waits for its GPU, whatever line its host is at
        own = {*standing.waiting, *standing.earlier, *standing.ahead, *standing.in_messages}
        doing = {rank: activity for rank, activity in doing.items() if rank not in own}
    behind = set(standing.behind) if standing else set()
    # A rank that issued an operation that others have not joined waits for them on the device, whatever its host does.
    ahead = {rank for meeting in case.meetings.pending if meeting.absent for rank in meeting.pending}
    ahead |= _ahead_by_ras(case)
    if waiting and doing and len(doing) <= len(waiting) and not ahead & set(doing):
        named = [rank for rank in doing if rank in behind] or list(doing)
        if case.goes_on or (standing is None and _all_may_work(case, named, waiting)):
            return []  # nobody has waited for longer than usual: it comes, only late perhaps
        return [Held(rank, doing[rank], waiting, "stacks") for rank in named]
    if standing is not None and not waiting:
        timed_out = tuple(standing.waiting)
        late = [rank for rank in doing if rank not in ahead]
        return [Held(rank, doing[rank], timed_out, "watchdog") for rank in late if len(late) <= len(timed_out)]
    return []


def _ahead_by_ras(case: Case) -> set[int]:
    """Ranks that have launched more of a communicator's operations than others of it: they wait for them there."""
    found: set[int] = set()
    for mismatch in (mismatch for report in case.ras for mismatch in report.mismatches if mismatch.counts is not None):
        values = [value for value in mismatch.values if value.value.isdigit()]
        most = max((int(value.value) for value in values), default=0)
        if len(values) > 1:
            found |= {case.people.of_ras(one) for value in values if int(value.value) == most for one in value.listed}
    return found


def _as_others_wait(case: Case, rank: int, victims: Sequence[int]) -> bool:
    """Whether it stands at the line of its own code where ranks stand that are known to wait: it may wait there too."""
    if case.activities[rank].doing != "user":
        return False
    from whichrank.timeline.job_state.activity import way  # many patterns: only where there is a stack

    mine = way(case.stacks[rank])
    return any(other in case.activities and way(case.stacks[other]) == mine for other in victims if other != rank)


def _all_may_work(case: Case, named: Sequence[int], waiting: Sequence[int]) -> bool:
    """Whether this may be one moment of a job that runs: some compute forward, the others backward."""
    from whichrank.timeline.job_state.activity import may_compute, runs  # many patterns: only where there is a stack

    forward = all(case.activities[rank].doing == "user" and runs(case.stacks[rank]) for rank in named)
    return forward and all(may_compute(case.activities[rank], case.stacks[rank]) for rank in waiting)


class Standings(Struct, frozen=True):
    """Who stands where in a group of all ranks, by the watchdogs' own words."""

    group: str
    target: int
    """The work that most ranks wait in."""
    waiting: dict[int, Event]
    """Ranks that wait in it."""
    behind: dict[int, Event]
    """Ranks that never enqueued it."""
    ahead: dict[int, Event]
    """Ranks that wait in a later one: they must have finished it, which the others have not."""
    earlier: dict[int, Event]
    """Ranks that wait in an earlier one, which the others have finished."""
    in_messages: dict[int, Event]
    """Ranks that wait in a send or a receive, while the others are in collectives: its number is another count."""


def standings(case: Case) -> Standings | None:
    """Compare the watchdogs' counters; None without their lines."""
    # A rank whose watchdog reports an error has lost a peer; it did not time out.
    failed = {event.rank for event in case.events(NcclError, PeerClosed)} - case.ranks_timed_out
    told = [e for e in case.events(*_WATCHDOG) if e.rank is not None and e.rank not in failed]
    groups = of_all_ranks(told)
    found = [standing for group, events in groups.items() if (standing := _standing(group, events)) is not None]
    return max(found, key=lambda standing: (len(standing.waiting), standing.group == DEFAULT), default=None)


def of_all_ranks(told: Sequence[OfGroup]) -> dict[str, list[OfGroup]]:
    """The watchdogs' lines by the group that they speak of, without groups of some ranks: their numbers differ."""
    # The line of a timeout may name no group; the next line of that rank about the same work does.
    named = {(e.rank, e.work): name for e in told if (name := _group(e)) and isinstance(e, WatchdogProgress)}
    only = next(iter(names)) if len(names := set(named.values())) == 1 else DEFAULT
    groups: dict[str, list[OfGroup]] = {}
    for event in told:
        seq = event.seq if isinstance(event, WatchdogTimeout) else None
        name = _group(event) or named.get((event.rank, seq), "")
        if name or event.group_rank in (None, event.rank):  # else it is a group of some ranks, which nothing names
            groups.setdefault(name or only, []).append(event)
    return {
        name: events
        for name, events in groups.items()
        if name == DEFAULT or (any(e.rank for e in events) and all(e.group_rank in (None, e.rank) for e in events))
    }


def _standing(group: str, told: Sequence[OfGroup]) -> Standings | None:
    messages = _of_messages(told)
    enqueued: dict[int, tuple[int, Event]] = {}
    waited: dict[int, tuple[int, Event]] = {}
    for event in told:
        if event.rank is None:
            continue
        seq = work_of(event)
        if seq is not None and (event.rank, seq) not in messages:
            waited.setdefault(event.rank, (seq, event))
        last = event.enqueued if isinstance(event, WatchdogProgress | DumpSignal) else None
        if last is not None and last >= enqueued.get(event.rank, (-1, event))[0]:
            enqueued[event.rank] = (last, event)
    if not waited:
        return None
    counts = Counter(seq for seq, _ in waited.values())
    target = max(counts, key=lambda seq: (counts[seq], -seq))
    return Standings(
        group,
        target,
        {rank: event for rank, (seq, event) in waited.items() if seq == target},
        {rank: event for rank, (last, event) in enqueued.items() if last < target and rank not in waited},
        {rank: event for rank, (seq, event) in waited.items() if seq > target},
        {rank: event for rank, (seq, event) in waited.items() if seq < target},
        {rank: event for (rank, _), event in messages.items() if rank not in waited},
    )


def work_of(event: OfGroup) -> int | None:
    """The number of the operation that a watchdog gave up."""
    if isinstance(event, WatchdogTimeout):
        return event.seq
    return event.work if isinstance(event, WatchdogProgress) else None


def _of_messages(told: Sequence[OfGroup]) -> dict[tuple[int, int], WatchdogTimeout]:
    """By rank and number the sends and receives that timed out, where others timed out in collectives."""
    timed_out = [e for e in told if isinstance(e, WatchdogTimeout) and e.rank is not None and e.seq is not None]
    found = {(e.rank or 0, e.seq or 0): e for e in timed_out if e.op.upper() in SENT}
    return found if len(found) < len({(e.rank, e.seq) for e in timed_out}) else {}


def silent_in_timeouts(case: Case) -> tuple[tuple[int, ...], tuple[Event, ...], tuple[int, ...]]:
    """Ranks that printed no timeout where most others did: they were not waiting in that collective.

    On Gloo the rank that took another path only sees its peers leave when they time out. Of two ranks it is the other.
    """
    waited: dict[int, Event] = {}
    for event in case.events(GlooTimeout):
        if event.rank is not None:
            waited.setdefault(event.rank, event)
    heard = {
        event.rank: event for event in case.events(PeerClosed) if event.rank is not None and event.rank not in waited
    }
    silent = tuple(sorted(rank for rank in range(case.world) if rank not in waited))
    other_of_two = case.world == 2 and len(waited) == 1 and heard.keys() == set(silent)
    if not other_of_two and (len(waited) < 2 or not silent or len(silent) >= len(waited)):
        return (), (), ()
    shown = [heard[rank] for rank in silent if rank in heard] + list(waited.values())[:3]
    return silent, tuple(shown), tuple(sorted(waited))


def _group(event: OfGroup) -> str:
    """What a line calls its group; "" where it names none."""
    number = event.pg_id
    name = event.pg_desc or event.pg_name or (str(number) if number is not None else "")
    return DEFAULT if name in ("0", "default_pg") or number == 0 else name


def last_words(case: Case) -> dict[int, tuple[Activity, Event]]:
    """Where each rank was when its communication failed: the stack of the exception that says so."""
    from whichrank.timeline.job_state.activity import of_frames  # many patterns: only where there is a stack

    found: dict[int, tuple[Activity, Event]] = {}
    for event in case.events(Traceback):
        if event.rank is None or not event.frames or not _is_communication(event):
            continue
        found.setdefault(event.rank, (of_frames(tuple(reversed(event.frames))), event))
    return found


_COMMUNICATION = ("DistBackendError", "DistNetworkError", "DistStoreError", "RuntimeError", "ChildFailedError")


def _is_communication(event: Traceback) -> bool:
    """An exception that only reports a lost peer or a timeout."""
    name, message = event.type.rsplit(".", 1)[-1], event.message.lower()
    words = (
        "gloo",
        "nccl",
        "timed out",
        "timeout",
        "connection closed by peer",
        "connection reset",
        "watchdog",
        "socket",
    )
    return name in _COMMUNICATION and any(word in message for word in words)
