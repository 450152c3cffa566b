"""Ranks and sizes that no job has, and dumps that are cut: they displace no good evidence, and the answer says so."""

from __future__ import annotations

import json
import pickle
import shutil
import tracemalloc

import pytest

from tests import cost
from whichrank.flows.diagnose.pipeline import diagnose

HUGE = 3_999_999_999
FILES = {
    "fr_trace_rank_9999999": pickle.dumps({"version": "2.10", "entries": []}, 2),
    "fr_trace_rank_4": pickle.dumps({"version": "2.10", "entries": None}, 2),
    "nccl.log": f"n1:1:1 [0] NCCL INFO comm 0x1 rank 3 nranks {HUGE} cudaDev 0 busId 1000 - Init COMPLETE\n".encode(),
    "ras.json": json.dumps(
        {"nccl_version": "2.28.9", "communicators": [{"hash": "0x1", "size": HUGE, "ranks": [{"rank": HUGE - 1}]}]}
    ).encode(),
    "rank_88888888.error.json": b'{"message": {"message": "x", "extraInfo": {"timestamp": "1700000000"}}}',
    "stack_rank_77777777.txt": (
        b'Process 12: python train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\nThread 12 (idle): "MainThread"\n'
        b"    main (train.py:3)\n"
    ),
    "out.log": (
        f"[rank12345678]: ValueError: x\nWORLD_SIZE={HUGE}\nInitializing distributed: world_size={HUGE}\n"
        f"[rank0]:[E1115 10:00:00.000000 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank {HUGE}] x\n"
    ).encode(),
    "table.log": b"rank | step_ms | host\n" + b"".join(b"%d-65535 | 5.1 | n1\n" % first for first in range(3000)),
}


@pytest.mark.parametrize("name", FILES)
def test_impossible_numbers_cost_nothing_and_displace_nothing(name, tmp_path, example):
    shutil.copytree(example, tmp_path / "job")
    (tmp_path / "job" / name).write_bytes(FILES[name])
    tracemalloc.start()
    try:
        with cost.at_most(30):
            verdict = diagnose([tmp_path / "job"], jobs=1).verdict
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (verdict.cause, tuple(verdict.culprits.ranks)) == ("conditional-collective", (2,))
    assert used < 200 << 20


@pytest.mark.parametrize("size", [40, 1200])
def test_a_damaged_dump_is_in_the_answer(size, tmp_path, example):
    shutil.copytree(example, tmp_path / "job")
    dump = tmp_path / "job" / "fr_trace_rank_2"
    dump.write_bytes(dump.read_bytes()[:size])
    assert "its dump is cut or damaged" in diagnose([tmp_path / "job"], jobs=1).verdict.summary
    dump.unlink()
    assert "left no dump" in diagnose([tmp_path / "job"], jobs=1).verdict.summary
