"""One host says of itself what all its peers say otherwise.

## What it finds
Where the verdict so far only says how the job ended: a line of a prolog, a preflight or an entrypoint that is the same
on every host but one, and that speaks of a mount, a limit, a clock, a setting or a link.

## Why it happens
One host was set up, reimaged or mounted differently. Its ranks read another file system, have fewer CPUs, another
setting or a wrong clock, and the loud errors come from their peers.

## How it decides
Lines that are alike but for a name give the hosts, and so does what else names them; the name may stand further
behind, where one host says something of each of the others. Of every kind of line that all of them print, exactly one
host must differ, in words and not only in measured numbers, unless its number is a hundred times off. In a table with a
heading the same holds of every column, and a row may be that of one GPU. In files of one
host each, a hint of a known cause or a variable that one file alone has so counts too. Where the cause is known and its
host is not, such a line tells the host. It is surer where what differs is named in an error of the job.

## Example
`ma03 prolog: /scratch xfs /dev/nvme1n1p1`, where `ma01`, `ma02` and `ma04` say `/scratch lustre 10.9.0.5@o2ib:/scr`.

## Fix
That of the cause, as `whichrank explain CAUSE` tells it: make the host like its peers.

## Limits
A difference may be harmless. Of fewer than three hosts nobody is the odd one.
"""

from __future__ import annotations

import re
from typing import cast

from whichrank.facts.fixes import fix
from whichrank.facts.host_topics import STOPS_TOO
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Category, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.launchers import JobEnded
from whichrank.records.hardware import address
from whichrank.records.second_looks import OddHost
from whichrank.timeline.case import Case

CODE = "CONF112"
CAUSE = "wrong-environment"

_PCI = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.odd_hosts:
        return NotEvaluated("lines that all hosts but one print alike, and no other reason for the failure")
    return [_finding(case, odd) for odd in case.odd_hosts]


def _finding(case: Case, odd: OddHost) -> Finding:
    slow = causes()[odd.cause].usual_category == "slow" and odd.cause != STOPS_TOO
    said = f"“{odd.ref.quote[:140]}”"
    message = f"{odd.host} alone prints {said}, and none of the other {odd.peers - 1} hosts does."
    if odd.usual is not None and odd.what:
        where = odd.host if odd.gpu is None else f"GPU {odd.gpu} of {odd.host}"
        message = f"{where} alone has {odd.what} in the table of {odd.peers} hosts."
    elif odd.usual is not None:
        message = (
            f"{odd.host} differs from its {odd.peers - 1} peers: {said}, where they say “{odd.usual.quote[:140]}”."
        )
    return Finding(
        code=CODE,
        cause=odd.cause,
        category=cast("Category", "slow" if slow else odd.category),
        severity="warning" if slow and odd.category != "slow" and not _out_of_time(case) else "error",
        grade=Grade.PROVES if odd.in_error else Grade.SUPPORTS,
        kind="host",
        subject=Subject(ranks=_ranks(case, odd), hosts=(odd.host,)),
        message=message,
        evidence=(odd.ref, odd.usual) if odd.usual is not None else (odd.ref,),
        fix=(f"Set up {odd.host} like its peers.", *fix(odd.cause)),
    )


def _ranks(case: Case, odd: OddHost) -> tuple[int, ...]:
    ranks = sorted(case.people.ranks_on(odd.host))
    if odd.gpu is not None:
        return (ranks[odd.gpu],) if odd.gpu < len(ranks) else ()
    if device := _PCI.search(odd.ref.quote):  # the first one: what the line is about
        of_it = [rank for rank in ranks if address(case.people.by_rank[rank].bus_id) == address(device[0])]
        ranks = of_it or ranks
    return _not_come(case, odd.host) or tuple(ranks) or _speaking(case, odd)


def _not_come(case: Case, host: str) -> tuple[int, ...]:
    """Where all others timed out, those of this host too: the few that did not, unless another host has them."""
    missing = case.ranks_not_timed_out
    only_here = all(case.people.host_of(rank) in (None, host) for rank in missing)
    also_here = case.ranks_timed_out & set(case.people.ranks_on(host))
    return tuple(missing) if only_here and also_here and len(missing) * 2 < case.world else ()


def _out_of_time(case: Case) -> bool:
    """Whether the scheduler ended the job because it had taken too long."""
    return any("TIME LIMIT" in event.reason.upper() for event in case.events(JobEnded))


def _speaking(case: Case, odd: OddHost) -> tuple[int, ...]:
    """The ranks that write into the file of that host, and into no other."""
    if odd.usual is not None:
        return ()
    speakers: dict[str, set[int]] = {}
    for progress in case.progress:
        speakers.setdefault(progress.source, set()).update(progress.rank[progress.rank >= 0].tolist())
    for event in case.log_events:
        if event.rank is not None:
            speakers.setdefault(event.ref.source, set()).add(event.rank)
    elsewhere = (ranks for source, ranks in speakers.items() if source != odd.ref.source)
    return tuple(sorted(speakers.get(odd.ref.source, set()).difference(*elsewhere)))
