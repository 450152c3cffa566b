"""The verdict on a job that ended well but was slow, by what was counted while it ran."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, Subject
from whichrank.model.verdict import Diagnosis, JobInfo, RankInfo, Verdict
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.slow.stragglers import Straggler
from whichrank.run.watch.slow.waits_for_data import WaitsForData

STRAGGLER, DATA = ("RUN101", "straggler"), ("RUN102", "input-bound")
_FIX = (
    "Look at what this rank does between two collectives and the others do not: its data, its extra work, its GPU.",
    "whichrank stacks, or py-spy record on its process, shows where its time goes.",
)


def held_up(found: Straggler, ranks: Sequence[Member]) -> Diagnosis:
    """One rank holds the others up."""
    others = tuple(member.rank for member in ranks if member.rank != found.rank)
    code = _code(found.place, found.rank)
    culprits = Subject(ranks=(found.rank,), code=(code,) if code is not None else ())
    ref = Ref("run.json", f"stragglers, rank {found.rank}", str(found), found.rank, None)
    return _diagnosis(STRAGGLER, Grade.PROVES, culprits, others, ref, _FIX, ranks)


def short_of_data(found: WaitsForData, ranks: Sequence[Member]) -> Diagnosis:
    """All ranks wait for data, and did not before."""
    code = _code(found.place, None)
    culprits = Subject(code=(code,) if code is not None else ())
    ref = Ref("run.json", "waits_for_data", str(found), None, None)
    slower = (Alternative("storage-stall", "the storage behind the data may have become slow"),)
    return _diagnosis(DATA, Grade.PROVES, culprits, (), ref, fix(DATA[1]), ranks, slower)


def _diagnosis(
    kind: tuple[str, str], grade: Grade, culprits: Subject, others: tuple[int, ...], ref: Ref, fixes: tuple[str, ...],
    ranks: Sequence[Member], alternatives: tuple[Alternative, ...] = (),
) -> Diagnosis:  # fmt: skip
    """There is no evidence in files, only what the ranks counted."""
    code, cause = kind
    message = f"{ref.quote[0].upper()}{ref.quote[1:]}."
    finding = Finding(
        code, cause, "slow", "warning", grade, culprits, message, (ref,), fixes, others, kind="timing",
        alternatives=alternatives,
    )  # fmt: skip
    verdict = Verdict("slow", cause, culprits, others, finding.confidence, message, fixes, alternatives=alternatives)
    world = max((member.words.world for member in ranks), default=0)
    infos = tuple(RankInfo(member.rank, pid=member.words.pid) for member in ranks)
    return Diagnosis(verdict, (finding,), job=JobInfo(world_size=world or None), ranks=infos)


def _code(place: str, rank: int | None) -> CodePlace | None:
    """`train.py:64 power_iteration`."""
    where, _, function = place.rpartition(" ")
    file, _, line = where.rpartition(":")
    return CodePlace(file, int(line), function, rank) if file and line.isdigit() else None
