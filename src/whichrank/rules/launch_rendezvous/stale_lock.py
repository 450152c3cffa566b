"""A lock or a store of an earlier run blocks this one.

## What it finds
Stacks and messages of processes that wait for a lock file: of an extension build, of a cache, of a package tool.

## Why it happens
A run that was killed leaves its lock file behind; the next one waits for an owner that does not exist. On network
file systems locks outlive their owners.

## How it decides
The text of the message, in the form of each version. A lock that was there when an extension was to be built
does not count where the extension was loaded later. Where the last that several processes tell is that extensions are
looked for, and nobody builds or loads one afterwards, all wait for a lock that nobody holds; nobody is named, unless
other hosts looked for the same and went on. A file
store is blamed where the ranks meet in a file (`init_method="file://…"`) and Gloo is refused at an address that it
found there. Lines after which training went on for many steps are not counted. Of several messages the earliest names
who is meant; a rank that only lost its peer is never named.

## Example
`File ".../torch/utils/file_baton.py", line 42, in wait`

## Fix
See whether any process holds it (lsof FILE); if none does, remove the lock: for torch extensions
~/.cache/torch_extensions/*/*/lock. Keep such caches on local disks, or one per host.

## Limits
While another process really builds, the wait is right and ends by itself.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from whichrank.facts.messages import signatures
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.processes import Traceback
from whichrank.records.events.startup import CommInit, GroupInit
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen

CODE = "LNCH201"
CAUSE = "stale-lock-or-store"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "See whether any process holds it (lsof FILE); if none does, remove the lock: for torch extensions "
            "~/.cache/torch_extensions/*/*/lock."
        ),
        "Keep such caches on local disks, or one per host.",
    ),
    category="hang",
    next=(
        NextStep(
            "lsof LOCKFILE",
            "tells whether any process holds the lock",
            (
                "stale-lock-or-store",
                "rank-stuck-in-compile",
            ),
            "none",
        ),
    ),
)


_UNREACHED = ("gloo-mesh", "gloo-loopback")
_STORE = Claim(
    CODE,
    CAUSE,
    fix=(
        "Remove the file before every start, or give it a name of its own for each run.",
        "Let torchrun do the rendezvous: it needs no file.",
    ),
    alternatives=(("wrong-interface", "a rank may announce an address that the others can't reach"),),
)


_WAITING = replace(
    _CLAIM,
    alternatives=(("rank-stuck-in-compile", "a process whose output is not at hand may build it"),),
)
_SOUGHT, _GONE_ON = "doing-extension", ("doing-compile", "done-extension")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    """A lock by its message; a store by addresses in it at which nobody listens."""
    if not statements.heard(case):
        return building.SILENT
    refused = [s for s in known_messages.seen(case, *_UNREACHED) if "refused" in s.sign.text]
    if refused and known_messages.seen(case, "torch-filestore") and not known_messages.has_run(case):
        message = "The ranks met in a file, and nobody listens at an address in it: an earlier run left it. {what}."
        return [building.tell_of(case, _STORE, message, refused, Grade.SUPPORTS)]
    speaking = [s for s in known_messages.of_cause(case, CAUSE) if s.id != "lock-exists" or not _went_on(case, s)]
    told = any(s.signature.role == "root" for s in speaking)
    if not told and (sought := _never_loaded(case)):
        message = "The ranks wait for extensions that nobody builds or loads: a lock may be left behind. {what}."
        finding = building.tell_of(case, _WAITING, message, sought, Grade.HINTS)
        return [_of_some(case, replace(finding, subject=Subject(), victims=()), sought)]
    tell = "{who} waits for a lock that an earlier run may have left behind: {what}."
    return building.judged(case, _CLAIM, tell, found=speaking if told else ())


def _went_on(case: Case, seen: Seen) -> bool:
    """Whether an extension was built or loaded later in the same output, by this host where the line names it."""
    return any(_behind(later, seen) for later in known_messages.seen(case, *_GONE_ON))


def _behind(later: Seen, seen: Seen) -> bool:
    if later.sign.host and seen.sign.host and later.sign.host != seen.sign.host:
        return False
    return later.sign.ref.source == seen.sign.ref.source and later.event.line > seen.event.line


def _of_some(case: Case, finding: Finding, sought: list[Seen]) -> Finding:
    """The finding about the hosts that wait, where the others looked for the same and have gone on."""
    others = {_output(s) for s in known_messages.seen(case, _SOUGHT)} - {_output(s) for s in sought}
    hosts = {s.sign.host for s in sought}
    if not others or None in hosts:
        return finding
    there = tuple(sorted(host for host in hosts if host))
    ranks = tuple(sorted({rank for host in there for rank in case.people.ranks_on(host)}))
    where = f"On {', '.join(there)} alone extensions are looked for that nobody builds or loads there"
    message = f"{where}: a lock may be left behind. {building.words(sought[0])}."
    return replace(finding, grade=Grade.SUPPORTS, message=message, subject=Subject(ranks=ranks, hosts=there))


def _never_loaded(case: Case) -> list[Seen]:
    """The last words of the outputs that speak of extensions and end there; in one file of several hosts, of each."""
    sought = known_messages.seen(case, _SOUGHT)
    last = {_output(s): s.event.line for s in sought}
    told = [(s.ref.source, s.host, s.line) for s in case.sightings if _is_an_end(s)]
    told += [(e.ref.source, e.host, e.line) for e in case.events(Traceback, GroupInit, CommInit)]
    told += [(p.source, None, int(p.line[-1])) for p in case.progress if len(p)]
    files = Counter(source for source, _ in last)
    over = {
        output
        for output in last
        for source, host, line in told
        if line > last[output] and source == output[0] and (files[source] == 1 or host == output[1])
    }
    waiting = [s for s in sought if _output(s) not in over and not _went_on(case, s)]
    if len(last) > 1 and not all(_went_on(case, s) for s in sought if s not in waiting):
        return []  # some of the others ended for another reason
    return waiting if len(waiting) > 1 or known_messages.stands_still(case) else []


def _is_an_end(message: KnownMessage) -> bool:
    return signatures()[message.signature].role in ("root", "activity")


def _output(seen: Seen) -> tuple[str, str | None]:
    """The file, and the host where lines name it: several may print into one file."""
    return seen.sign.ref.source, seen.sign.host
