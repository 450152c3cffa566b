"""A rank died in native code: a segmentation fault, a bus error, an abort.

## What it finds
A process that ended by SIGSEGV, SIGBUS, SIGILL, SIGFPE or an abort of its own, or that printed its last words on
the way.

## Why it happens
A fault in an extension or a library, mixed library versions, a damaged heap, a full `/dev/shm` (SIGBUS), code for
another CPU (SIGILL).

## How it decides
The signal, by the launcher's exit code or by what faulthandler, glibc, torch or MPI print. An abort counts only
where the rank shows no timeout, no communication error and no CUDA error before: torch's watchdog aborts the
process after these, and that makes the rank a victim. An abort counts too where all other ranks tell of a lost
peer and this one does not. A crash of a rank that had lost a peer follows from the loss, and an abort after the first
watchdog of the job gave up follows from that. Where all ranks abort, none of them is accused.
Where a library that intercepts CUDA calls announces itself and no step was made, that library is likelier.

## Example
`failed (exitcode: -11) local_rank: 1 (pid: 4711)`, with `Fatal Python error: Segmentation fault` in the log of rank
1.

## Fix
The stack says where: `faulthandler` for Python's side, a core file and gdb for the native side.

## Limits
An exit code alone says nothing of the reason.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import FingerprintMismatch
from whichrank.records.events.communication import GlooInitError, GlooMismatch, GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.launchers import ElasticFailure, ElasticSignal, JobEnded, ProcessExit, ProcessLeft
from whichrank.records.events.processes import CudaError, DataloaderWorkerDied, NativeCrash
from whichrank.records.events.startup import StoreError
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTerminated, WatchdogTimeout
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, statements
from whichrank.timeline.job_state.exceptions import lost_a_peer
from whichrank.timeline.job_state.statements import Statement

CODE = "CUDA104"
CAUSE = "rank-native-crash"

_FIX = (
    "Find the place: run with PYTHONFAULTHANDLER=1, or open a core file in gdb (ulimit -c unlimited).",
    "Suspect compiled extensions and mixed library versions first.",
)
_NEXT = (
    NextStep("coredumpctl gdb PID", "the native stack tells which library crashed", ("rank-native-crash",), "none"),
)
_SHM = ("shm-too-small", "a bus error is what a full /dev/shm looks like")
_HOOKED = ("library-interposer", "a library that intercepts CUDA calls is loaded")
_EXPLAINED: tuple[type[Event], ...] = (
    WatchdogTimeout, WatchdogTerminated, WatchdogStuck, NcclError, PeerClosed, GlooTimeout,
    GlooMismatch, CudaError, StoreError, GlooInitError, FingerprintMismatch,
)  # fmt: skip
_NOT_OWN = ("DistBackendError", "DistNetworkError", "DistStoreError", "gloo::", "bad_alloc")
_NEAR = 60
"""Lines between what an exception says on its way out and the shell's word on the end."""
_CRASHES = (*deaths.NATIVE, deaths.ABORT)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    lost = lost_a_peer(case)
    spared, thrown = _without_loss(case, lost), _thrown(case)
    told = [s for s in statements.of_kind(case, NativeCrash) if _is_own(case, s, lost, spared, thrown)]
    died = [d for d in deaths.deaths(case) if d.signal in _CRASHES]
    # An agent tells all to end, also those that have died already.
    dead = [d.sign for d in died if not d.by_launcher or d.sign.rank in spared]
    dead = [s for s in dead if _is_own(case, s, lost, spared, thrown) and not deaths.follows_the_end(case, s)]
    told, dead = _on_their_own(case, told, lost), _on_their_own(case, dead, lost)
    told += statements.beside([*told, *dead], statements.known(case, CAUSE))
    signs = statements.first_to_fail([*told, *dead])
    if not signs or deaths.left_to_crash(case):
        return []
    ranks = statements.ranks_of(signs) or _ended_there(signs, died) or deaths.only_one_failed(case)
    number = next((n for s in signs if (n := _signal(s)) is not None), deaths.ABORT)
    between = _is_hooked(case)
    offered = (_SHM,) if number == 7 else (_HOOKED,) if between else ()
    claim = Claim(CODE, CAUSE, fix=_FIX, alternatives=offered, next=_NEXT)
    name = deaths.SIGNALS.get(number, f"signal {number}")
    if number == deaths.ABORT and statements.are_all(case, ranks):
        message = f"All ranks ended themselves ({name}): something that they all met says why."
        return [building.about(building.found(case, claim, signs, message, Grade.HINTS, ()), Subject())]
    message = f"{building.who(case, ranks, signs)} crashed in native code ({name}){building.others(case, ranks)}."
    return [building.found(case, claim, signs, message, Grade.HINTS if between else _grade(number, bool(told)), ranks)]


def _ended_there(signs: list[Statement], died: list[deaths.Death]) -> tuple[int, ...]:
    """The one rank that a launcher saw die by the same signal on the host that speaks of it."""
    told = {(_signal(sign), sign.host) for sign in signs}
    there = {d.sign.rank for d in died if d.sign.host and (d.signal, d.sign.host) in told}
    return tuple(rank for rank in there if rank is not None) if len(told) == len(there) == 1 else ()


def _on_their_own(case: Case, signs: list[Statement], lost: set[int]) -> list[Statement]:
    """Without those of ranks that had lost their peers and were on their way out.

    Python's own words on a crash don't say whose they are: they are left out where all that crashed were such ranks.
    """
    ends = deaths.deaths(case)
    crashed = {d.sign.rank for d in ends if d.signal in deaths.NATIVE}
    by_themselves = [d for d in ends if d.sign.rank in crashed or not (d.by_launcher or d.signal == deaths.TERMINATE)]
    if len(by_themselves) == 1 and not case.events(ProcessLeft):
        return signs  # nobody else has gone whom it could have lost
    followed = bool(crashed) and crashed <= lost
    return [s for s in signs if s.rank not in lost and not (s.rank is None and followed)]


def _without_loss(case: Case, lost: set[int]) -> set[int]:
    """The one rank that did not lose a peer, where all others did: of it that would be known as well."""
    rest = set(range(case.world)) - lost
    told = {event.rank for event in case.events(*_EXPLAINED)}
    return rest - told if len(rest) == 1 and case.world > 1 else set()


def _is_hooked(case: Case) -> bool:
    """Whether a library that intercepts CUDA calls has announced itself, and no step was made with it."""
    announced = any(s.signature == "interposer-vgpu" and s.captures.get("library") for s in case.sightings)
    return announced and not any(len(progress) > 1 for progress in case.progress)


def _grade(number: int, words: bool) -> Grade:
    return Grade.PROVES if words and number != deaths.ABORT else Grade.SUPPORTS


def _signal(sign: Statement) -> int | None:
    event = sign.event
    if isinstance(event, NativeCrash):
        return event.signal
    if not isinstance(event, ProcessExit | ElasticFailure | DataloaderWorkerDied):
        return None
    number, code = event.signal, event.exitcode
    return code - 128 if number is None and code is not None and code > 128 else number


def _is_own(case: Case, sign: Statement, lost: set[int], spared: set[int], thrown: dict[str, list[int]]) -> bool:
    """Not a SIGKILL or SIGTERM, and no abort that something else explains."""
    number = _signal(sign)
    if number not in (None, *_CRASHES) or any(words in sign.ref.quote for words in _NOT_OWN):
        return False
    if number in deaths.NATIVE or sign.rank in spared:
        return True
    if sign.rank in lost:
        return False
    line = sign.event.line if sign.event is not None else 0
    if any(0 <= line - above <= _NEAR for above in thrown.get(sign.ref.source, ())):
        return False
    by_code_alone = sign.event is not None and not isinstance(sign.event, NativeCrash)
    if by_code_alone and (deaths.after_a_timeout(case, sign) or not _output_at_hand(case, sign.rank)):
        return False
    return not any(e.rank in (None, sign.rank) or sign.rank is None for e in case.events(*_EXPLAINED))


def _thrown(case: Case) -> dict[str, list[int]]:
    """By file, the lines that tell of an exception over a loss that nobody caught; the shell then says how it ended."""
    found: dict[str, list[int]] = {}
    for event in case.events(NativeCrash):
        if any(words in event.ref.quote for words in _NOT_OWN):
            found.setdefault(event.ref.source, []).append(event.line)
    return found


def _output_at_hand(case: Case, rank: int | None) -> bool:
    """Whether the rank's own words are there: without them an abort may well be the watchdog's."""
    agents = (ElasticFailure, ElasticSignal, ProcessExit, JobEnded)
    return rank is not None and any(event.rank == rank and not isinstance(event, agents) for event in case.log_events)
