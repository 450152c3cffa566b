"""A finding joined with what the state of the job knows: whose it is, and what was observed.

A kernel log names a GPU, a launcher a host, a message nobody. If the structure of the failure (who raised, who ended
first, who did not come) points at one rank of that host, that is the rank the finding is about. And a job whose ranks
timed out in a collective while nobody had died hung, whatever the message would do elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding
from whichrank.timeline.job_state import deaths

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_OF_ONE_RANK = ("gpu-hardware", "cuda-fault", "host-resources", "slow-rank", "rdma-fabric")
_ENDS_A_PROCESS = ("gpu-hardware", "cuda-fault", "rdma-fabric", "net-interface", "launch-rendezvous")
_TIMED_OUT = ("watchdog_timeout", "gloo_timeout", "monitored_barrier_failed")


def joined(case: Case, finding: Finding) -> Finding:
    """The finding with the ranks and the category that the rest of the evidence gives it."""
    return _observed(case, _of_whom(case, finding))


def _of_whom(case: Case, finding: Finding) -> Finding:
    subject = finding.subject
    cause = causes().get(finding.cause)
    if subject.ranks or subject.candidates or cause is None or cause.family not in _OF_ONE_RANK:
        return finding
    if finding.category not in ("hang", "crash") or cause.role in ("generic", "ending") or len(case.first_to_fail) != 1:
        return finding
    (rank,) = case.first_to_fail
    host = case.people.host_of(rank)
    hosts = set(subject.hosts) | {gpu.host for gpu in subject.gpus} | {ref.host for ref in finding.evidence if ref.host}
    if hosts and host is not None and host not in hosts and "localhost" not in (host, *hosts):
        return finding
    others = tuple(r for r in range(case.world) if r != rank)
    return replace(finding, subject=replace(subject, ranks=(rank,)), victims=finding.victims or others)


def _observed(case: Case, finding: Finding) -> Finding:
    """A rank that is alive and does not come makes the others hang, also where its message is that of a crash."""
    timed_out = [e for e in case.of_kind(*_TIMED_OUT) if e.rank is not None and e.rank not in finding.subject.ranks]
    cause = causes().get(finding.cause)
    if finding.category != "crash" or not finding.subject.ranks or len(timed_out) < 2:
        return finding
    if cause is None or cause.family in _ENDS_A_PROCESS:
        return finding
    first = min((e.time_ns for e in timed_out if e.time_ns is not None), default=None)
    ended = [d for d in deaths.deaths(case) if d.sign.rank in finding.subject.ranks]
    ended_before = any(first is None or d.sign.time_ns is None or d.sign.time_ns < first for d in ended)
    raised = any(
        e.rank in finding.subject.ranks and not e.text("thread") for e in case.of_kind("traceback", "native_crash")
    )
    return finding if ended_before or raised else replace(finding, category="hang")
