"""Dumps of the hook-based recorder (nccl2). Constructed after the layout in pytorch's FlightRecorderHook.cpp and
FlightRecorderDetail.hpp, not recorded: the hook numbers operations of all kinds together, so pg_status counts more
than collectives; with completion hooks a finished entry is completed and retired, one that hangs is neither; without
them every entry is retired as soon as it was issued."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.evidence.readers.torchlike import START_NS, STEP_NS, frames, torch_pickle
from whichrank.flows.diagnose.pipeline import diagnose

WORLD = 4
LINES = {"all_reduce": 31, "_all_gather_base": 35}


def entry(number, op, seq, p2p_seq, *, state, retired, backend="nccl2"):
    """One entry as getCollectiveTrace writes it."""
    done = START_NS + number * STEP_NS + STEP_NS // 2 if state == "completed" else None
    return {
        "frames": [{"name": "step", "filename": "/srv/job/train.py", "line": LINES.get(op, 40)}, *frames(0)],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "thread_name": "python",
        "thread_id": "139", "collective_seq_id": seq, "p2p_seq_id": p2p_seq, "op_id": number + 1,
        "profiling_name": f"{backend}:{op}", "time_created_ns": START_NS + number * STEP_NS,
        "input_sizes": [[64]], "input_dtypes": ["Float"], "output_sizes": [[64]], "output_dtypes": ["Float"],
        "state": state, "time_discovered_started_ns": done, "time_discovered_completed_ns": done,
        "retired": retired, "timeout_ms": 600000, "is_p2p": p2p_seq > 0 and op.startswith(("send", "recv")),
    }  # fmt: skip


def write(folder: Path, rank: int, count: int, *, pending: int = 0, completions: bool = True) -> None:
    """The dump of a rank that issued so many collectives; the last `pending` of them have not ended."""
    entries = []
    for n in range(count):
        over = n < count - pending
        state = "completed" if completions and over else "scheduled"
        op = ("all_reduce", "_all_gather_base")[n % 2]
        entries.append(entry(n, op, n + 1, 0, state=state, retired=over or not completions))
    status = {"last_enqueued_collective": count + 7, "last_started_collective": -1,
              "last_completed_collective": count + 7 - pending}  # fmt: skip
    ranks = "[" + ", ".join(str(r) for r in range(WORLD)) + "]"
    content = {
        "version": "2.10", "comm_lib_version": "", "nccl_version": "",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": status}, "entries": entries,
    }  # fmt: skip
    path = folder / f"comm_lib_trace_rank_{rank}"
    path.write_bytes(torch_pickle(content))
    taken = START_NS + 600 * 1_000_000_000
    os.utime(path, ns=(taken, taken))


def test_with_completions_the_rank_that_did_not_come_is_named(tmp_path):
    for rank in range(WORLD):
        write(tmp_path, rank, 20 if rank == 2 else 21, pending=0 if rank == 2 else 1)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.category == "hang"
    assert verdict.culprits.ranks == (2,)
    assert set(verdict.victims) == {0, 1, 3}


def test_without_completions_it_is_named_too(tmp_path):
    for rank in range(WORLD):
        write(tmp_path, rank, 20 if rank == 1 else 21, completions=False)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.category == "hang"
    assert verdict.culprits.ranks == (1,)


@pytest.mark.parametrize("completions", [True, False])
def test_a_missing_completed_alone_accuses_nobody(tmp_path, completions):
    for rank in range(WORLD):
        write(tmp_path, rank, 24, completions=completions)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.category in ("healthy", "unknown"), verdict.summary
    assert not verdict.culprits.ranks


def test_the_first_operation_that_nobody_ends(tmp_path):
    for rank in range(WORLD):
        write(tmp_path, rank, 9, pending=1)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.category, verdict.culprits.ranks) == ("hang", ())
