"""Environments of ranks, as a bundle keeps them, that must agree."""

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import NotEvaluated
from whichrank.rules.config import environments_differ as rule

FAILED = texts.traceback("RuntimeError: Timed out waiting 300000ms for recv operation to complete")


def judged(tmp_path, *settings, **more):
    files = {f"environment/rank_{rank}.env": f"RANK={rank}\n{text}" for rank, text in enumerate(settings)}
    return rule.judge(texts.case_of(texts.write(tmp_path, {**files, **more})))


def test_the_odd_rank_is_named(tmp_path):
    debug = "TORCH_DISTRIBUTED_DEBUG=DETAIL\n"
    (found,) = judged(tmp_path, "", "", debug, "", **{"rank0/stderr.log": FAILED})
    assert (found.cause, found.subject.ranks, found.severity) == ("wrong-environment", (2,), "error")
    assert found.evidence[0].quote == "TORCH_DISTRIBUTED_DEBUG=DETAIL"
    assert found.evidence[1].quote == "TORCH_DISTRIBUTED_DEBUG is not set"


def test_without_a_majority_nobody_is_named(tmp_path):
    (found,) = judged(tmp_path, "NCCL_ALGO=Ring\n", "NCCL_ALGO=Tree\n")
    assert (found.subject.ranks, found.severity) == ((), "warning")


@pytest.mark.parametrize(
    "settings",
    [
        ("NCCL_ALGO=Ring\n", "NCCL_ALGO=Ring\n"),
        ("NCCL_SOCKET_IFNAME=eth0\n", "NCCL_SOCKET_IFNAME=ens3\n"),  # hosts differ, and may
        ("NCCL_DEBUG=INFO\n", ""),
    ],
)
def test_what_may_differ_is_not_told(tmp_path, settings):
    assert judged(tmp_path, *settings) == []


def test_one_environment_tells_nothing(tmp_path):
    assert isinstance(judged(tmp_path, "NCCL_ALGO=Ring\n"), NotEvaluated)


def started(host, rank, setting=""):
    prefix = f"{host}:{100 + rank}:{200 + rank} [0] NCCL INFO"
    return (
        f"{prefix} Bootstrap : Using eth0:10.0.0.{rank}<0>\n"
        + (f"{prefix} {setting}.\n" if setting else "")
        + f"{prefix} comm 0x1 rank {rank} nranks 3 cudaDev 0 busId 1000 - Init COMPLETE\n"
    )


def test_what_nccl_says_of_its_variables_is_compared(tmp_path):
    log = started("a", 0) + started("b", 1, "NCCL_IB_DISABLE set by environment to 1") + started("c", 2)
    (found,) = judged(tmp_path, **{"nccl.log": log})
    assert (found.cause, found.subject.ranks) == ("wrong-environment", (1,))
    assert found.evidence[0].quote == "NCCL_IB_DISABLE=1"


def hosts_log(*lines: str) -> str:
    late = "\n".join(
        f"[n{rank // 2:02}] [rank{rank}]:[E1002 11:16:27.18 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, "
        "Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
        for rank in range(8)
    )
    return "\n".join((*lines, late, ""))


def test_settings_that_the_launchers_of_hosts_print(tmp_path):
    told = [f"[n{n:02}] entrypoint: NCCL_ALGO=Ring NCCL_PROTO={'LL' if n == 2 else 'Simple'}" for n in range(4)]
    (tmp_path / "pods.log").write_text(hosts_log(*told))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("wrong-environment", (4, 5))
    assert "NCCL_PROTO" in verdict.summary


def test_another_nccl_is_installed_on_one_host(tmp_path):
    told = [f"[n{n:02}] pip: nvidia-nccl-cu12=={'2.25.1' if n == 1 else '2.27.5'} installed" for n in range(4)]
    (tmp_path / "pods.log").write_text(hosts_log(*told) + "[n00] [rank0]: RuntimeError: NCCL error: internal error\n")
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.hosts or verdict.culprits.ranks) in (
        ("nccl-version-mismatch", ("n01",)),
        ("nccl-version-mismatch", (2, 3)),
    )
