"""The verdict on a job that was held up by one rank, by what was counted while it ran."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.evidence import Ref
from whichrank.model.findings import CodePlace, Finding, Grade, Subject
from whichrank.model.verdict import Diagnosis, JobInfo, RankInfo, Verdict
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.stragglers import Straggler

CODE, CAUSE = "RUN101", "straggler"
_FIX = (
    "Look at what this rank does between two collectives and the others do not: its data, its extra work, its GPU.",
    "whichrank stacks, or py-spy record on its process, shows where its time goes.",
)


def verdict_on(found: Straggler, ranks: Sequence[Member]) -> Diagnosis:
    """A diagnosis of its own: there is no evidence in files, only what the ranks counted."""
    others = tuple(member.rank for member in ranks if member.rank != found.rank)
    code = _code(found)
    culprits = Subject(ranks=(found.rank,), code=(code,) if code is not None else ())
    said = f"{found}."
    message = said[0].upper() + said[1:]
    ref = Ref("run.json", f"stragglers, rank {found.rank}", str(found), found.rank, None)
    finding = Finding(
        CODE, CAUSE, "slow", "warning", Grade.PROVES, culprits, message, (ref,), _FIX, others, kind="timing"
    )
    verdict = Verdict("slow", CAUSE, culprits, others, finding.confidence, message, _FIX)
    world = max((member.words.world for member in ranks), default=0)
    infos = tuple(RankInfo(member.rank, pid=member.words.pid) for member in ranks)
    return Diagnosis(verdict, (finding,), job=JobInfo(world_size=world or None), ranks=infos)


def _code(found: Straggler) -> CodePlace | None:
    """`train.py:64 power_iteration`."""
    where, _, function = found.place.rpartition(" ")
    file, _, line = where.rpartition(":")
    return CodePlace(file, int(line), function, found.rank) if file and line.isdigit() else None
