"""A process that does not run answers nothing, not even by the threads of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Diagnosis

WORLD = 4


def started(rank: int) -> str:
    return f"rank {rank} of {WORLD} on trainer pid {4100 + rank}\n"


def timed_out(rank: int) -> str:
    return (
        f"[rank{rank}]:[E1118 13:21:21.432 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=20000) "
        "ran for 20012 milliseconds before timing out.\n"
        f"[rank{rank}]:[E1118 13:21:21.433 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  "
        "failure detected by watchdog at work sequence id: 12 PG status: last enqueued work: 12, last completed "
        "work: 11\n"
    )


def signalled(rank: int) -> str:
    return (
        f"[rank{rank}]:[E1118 13:21:22.621 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        "Received a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug "
        "info. Last enqueued NCCL work: 12, last completed NCCL work: 11.\n"
    )


def ended(rank: int) -> str:
    return (
        "W1118 13:21:39.476000 4000 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process "
        f"{4100 + rank} closing signal SIGTERM\n"
    )


def judged(tmp_path: Path, lines: list[str]) -> Diagnosis:
    (tmp_path / "job.log").write_text("".join([*map(started, range(WORLD)), *lines]))
    return diagnose([tmp_path], jobs=1)


def test_a_rank_that_does_not_answer_and_is_alive_is_frozen(tmp_path: Path) -> None:
    others = [0, 1, 3]
    found = judged(tmp_path, [*map(timed_out, others), *map(signalled, others), *map(ended, range(WORLD))])
    assert (found.verdict.cause, found.verdict.culprits.ranks) == ("rank-frozen", (2,))
    assert any("Sending process 4102" in ref.quote for f in found.findings for ref in f.evidence)


@pytest.mark.parametrize(
    "last",
    [[*map(signalled, range(WORLD)), *map(ended, range(WORLD))], [*map(signalled, (0, 1, 3)), *map(ended, (0, 1, 3))]],
    ids=["it answers", "it was gone"],
)
def test_others_are_not(tmp_path: Path, last: list[str]) -> None:
    found = judged(tmp_path, [*map(timed_out, (0, 1, 3)), *last])
    assert "HOST110" not in {finding.code for finding in found.findings}
