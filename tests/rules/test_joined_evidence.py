"""Verdicts for which two pieces of evidence must be put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

PORT = "hca_id:\tmlx5_2\n\ttransport:\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n"
COMPLETION = (
    "{host}:300:310 [0] transport/net_ib.cc:1698 NCCL WARN NET/IB : Got completion from peer 10.1.0.{peer}<4125> "
    "with status=1 opcode=129 len=0 vendor err 105 (Recv)\n"
)
RING = "[1,{rank}]<stdout>:{host}:{pid}:{pid} [{gpu}] NCCL INFO "
FAILED = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
    "internal error - please report this issue to the NCCL developers, NCCL version {version}\n"
    "ncclInternalError: Internal check failed.\n"
)


def judged(folder: Path, **files: str) -> Verdict:
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return diagnose([folder], jobs=1).verdict


@pytest.mark.parametrize(("other", "cause"), [(4096, "mtu-mismatch"), (1024, None)])
def test_ports_with_different_mtus_beside_failed_transfers(other, cause, tmp_path):
    log = COMPLETION.format(host="h1", peer=2) + COMPLETION.format(host="h2", peer=1)
    ports = {name: f"{PORT}\t\t\tactive_mtu:\t{mtu} (3)\n" for name, mtu in (("h1", 1024), ("h2", other))}
    found = judged(tmp_path, log=log, **ports)
    assert (found.cause == "mtu-mismatch") == (cause == "mtu-mismatch")


def test_versions_of_failed_calls_that_differ(tmp_path):
    text = "".join(f"[rank{r}]: {FAILED.format(version=v)}" for r, v in enumerate(("2.20.5", "2.19.3")))
    assert judged(tmp_path, log=text).cause == "nccl-version-mismatch"


def test_the_same_version_in_all_failed_calls_is_no_mismatch(tmp_path):
    text = "".join(FAILED.format(version=v) for v in ("2.20.5", "2.20.5"))
    assert judged(tmp_path, log=text).cause != "nccl-version-mismatch"


def test_the_launchers_prefix_places_the_ranks_of_a_host(tmp_path):
    text = ""
    for rank in range(6):
        head = RING.format(rank=rank, host=f"dgx-{rank // 2}", pid=500 + rank, gpu=rank % 2)
        version = "2.18.5" if rank // 2 == 1 else "2.21.5"
        text += f"{head}NCCL version {version}+cuda12.2\n{head}Bootstrap : Using ib0:10.0.0.{rank // 2}<0>\n"
    text += RING.format(rank=4, host="dgx-2", pid=504, gpu=0).replace("NCCL INFO", "bootstrap.cc:70 NCCL WARN")
    found = judged(tmp_path, log=f"{text}Message truncated : received 256 bytes instead of 128\n")
    assert found.cause == "nccl-version-mismatch"
    assert found.culprits.ranks == (2, 3)
    assert found.culprits.hosts == ("dgx-1",)


def test_tasks_with_several_processes_are_not_ranks(tmp_path):
    text = ""
    for rank in range(4):
        head = RING.format(rank=rank // 2, host=f"dgx-{rank // 2}", pid=500 + rank, gpu=rank % 2)
        text += f"{head}NCCL version {'2.18.5' if rank == 3 else '2.21.5'}+cuda12.2\n"
    assert judged(tmp_path, log=text).culprits.ranks == ()


@pytest.mark.parametrize("op", ["SEND", "COALESCED"])
def test_a_timeout_of_messages_is_not_one_of_a_collective(op, tmp_path):
    text = (
        "[rank1]:[E1102 10:22:14.114 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=9, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds "
        "before timing out.\n"
    )
    assert judged(tmp_path, log=text).cause.startswith("p2p-")


def test_what_holds_anyway_may_be_set_on_one_rank_alone(tmp_path):
    text = ""
    for rank in range(2):
        head = f"h{rank}:{700 + rank}:{710 + rank} [0] NCCL INFO "
        init = f"comm 0x7f10 rank {rank} nranks 2 cudaDev 0 busId 1a000 commId 0x7 - "
        text += f"{head}Bootstrap : Using eth0:10.0.0.{rank}<0>\n"
        text += f"{head}NCCL_IB_DISABLE set by environment to 0.\n" if rank else ""
        text += f"{head}{init}Init START\n{head}{init}Init COMPLETE\n"
    text += COMPLETION.format(host="h0", peer=1)
    assert judged(tmp_path, log=text).cause != "wrong-environment"
