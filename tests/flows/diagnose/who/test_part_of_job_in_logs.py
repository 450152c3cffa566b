"""Communicators of a part of the job that NCCL's log shows begun and never made."""

from __future__ import annotations

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose


def line(rank: int, comm: str, number: int, of: int, what: str) -> str:
    return (
        f"h{rank}:{600 + rank}:{700 + rank} [0] NCCL INFO ncclCommInitRankConfig comm {comm} rank {number} nranks {of} "
        f"cudaDev 0 nvmlDev 0 busId 60 commId 0x{'3672a42b91157bf5' if of == 6 else 10**15 + rank % 2} - Init {what}\n"
    )


def log(rank: int, *, made: bool, begun: bool = True) -> str:
    """Of one of six ranks: the odd ones and the even ones make a communicator each."""
    text = line(rank, "0x29258770", rank, 6, "START") + line(rank, "0x29258770", rank, 6, "COMPLETE")
    text += line(rank, "0x31b8e2e0", rank // 2, 3, "START") if begun else ""
    return text + (line(rank, "0x31b8e2e0", rank // 2, 3, "COMPLETE") if made else "")


def judged(folder, logs):
    return diagnose([texts.write(folder, {f"nccl.h{rank}.{600 + rank}.log": t for rank, t in logs.items()})], jobs=1)


def test_the_member_that_never_began(tmp_path):
    logs = {rank: log(rank, made=rank % 2 == 1, begun=rank != 2) for rank in range(6)}
    found = judged(tmp_path, logs).verdict
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "collective-desync", (2,))
    assert found.confidence < 0.7


def test_who_made_no_more_than_they_may_be_the_one(tmp_path):
    logs = {rank: log(rank, made=False, begun=rank in (0, 4)) for rank in range(6)}
    found = judged(tmp_path, logs).verdict.culprits
    assert (found.ranks, found.candidates) == ((), (1, 2, 3, 5))


def test_nobody_is_missing_where_all_are_made_or_a_log_is_not_at_hand(tmp_path):
    whole = {rank: log(rank, made=True) for rank in range(6)}
    cut = {rank: log(rank, made=rank % 2 == 1, begun=rank != 2) for rank in range(6) if rank != 2}
    for name, logs in (("whole", whole), ("cut", cut)):
        assert "COLL150" not in {finding.code for finding in judged(tmp_path / name, logs).findings}
