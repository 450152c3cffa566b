"""Which AMD GPU has which number, and whose it is when a message names it by the number of its node."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers import rocm_smi
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item

CONCISE = "================= Concise Info =================\nDevice  Node  IDs              Temp\n" + "".join(
    f"{gpu}       {gpu + 2}     0x74a1,   28{gpu}51  44.0C\n" for gpu in range(4)
)
AGENTS = "".join(
    f"*******\nAgent {n + 1}\n*******\n  Name:                    x\n  Node:                    {n}\n"
    f"  Device Type:             {'GPU' if n > 1 else 'CPU'}\n"
    for n in range(6)
)
BUSES = "".join(f"GPU[{n}]\t\t: PCI Bus: 0000:{n + 0x20:02x}:00.0\n" for n in range(4))


def states(tmp_path, text):
    path = tmp_path / "listing.txt"
    path.write_text(text)
    assert rocm_smi.sniff(text.encode()[:4096], path.name)
    return rocm_smi.read(Item(path, path.name, len(text), 0)).records


@pytest.mark.parametrize("text", [CONCISE, AGENTS], ids=["rocm-smi", "rocminfo"])
def test_numbers_in_messages_count_the_cpus_too(tmp_path, text):
    assert [(state.index, state.node) for state in states(tmp_path, text)] == [(0, 2), (1, 3), (2, 4), (3, 5)]


def test_addresses(tmp_path):
    assert [(state.index, state.bus_id) for state in states(tmp_path, BUSES)][3] == (3, "0000:23:00.0")


@pytest.mark.parametrize("text", [CONCISE, AGENTS], ids=["rocm-smi", "rocminfo"])
def test_the_rank_on_the_gpu_that_a_message_names(tmp_path, text):
    (tmp_path / "listing.txt").write_text(text)
    waiting = "".join(
        f"[rank{rank}]:[E1107 22:03:59.159782340 ProcessGroupNCCL.cpp:692] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=47, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for "
        "600021 milliseconds before timing out.\n"
        for rank in (0, 1, 3)
    )
    fault = "Memory access fault by GPU node-4 (Agent handle: 0x56387095fa40) on address (nil). Reason: Unknown.\n"
    (tmp_path / "train.log").write_text(fault + waiting)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("cuda-illegal-access", (2,))
