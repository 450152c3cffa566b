"""Environments of ranks, as a bundle keeps them, that must agree."""

import pytest

from tests.rules import crash_texts as texts
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
