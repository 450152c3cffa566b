"""All ranks of a host where the fault is the host's, and the host of a rank where the job has others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict


def verdict(folder: Path, files: dict[str, str]) -> Verdict:
    return diagnose([texts.write(folder, files)]).verdict


def started(size: int, ranks: int = 4) -> str:
    """As DeepSpeed's runner shows it, `size` ranks on each host."""
    said = "[2026-07-12 04:10:11] [INFO] [comm.py:669:init_distributed] cdb=None"
    return "".join(f"ox-{1 + r // size}: {said} rank={r} local_rank={r % size}\n" for r in range(ranks))


def extension(host: str, through: bool) -> str:
    lines = f"{host}: Using /root/.cache/torch_extensions/py311_cu124 as PyTorch extensions root...\n" * 2
    done = f"{host}: Loading extension module fused_adam...\n{host}: Time to load fused_adam op: 1.75 seconds\n"
    return lines + (done * 2 if through else "")


LOCKED = (
    "u@ox-2:~$ py-spy dump --pid 911\nProcess 911: python -u sft.py\nPython v3.11.4\n"
    'Thread 911 (idle): "MainThread"\n    wait (torch/utils/file_baton.py:43)\n'
    "    _jit_compile (torch/utils/cpp_extension.py:1710)\n"
)


@pytest.mark.parametrize(("through", "ranks"), [(True, (2, 3)), (False, ())])
def test_all_ranks_behind_the_lock_of_a_host(tmp_path: Path, through: bool, ranks: tuple[int, ...]) -> None:
    late = "".join(f"ox-1: {line}\n" for r in (0, 1) for line in texts.TIMED_OUT.format(r).splitlines())
    log = started(2) + extension("ox-1", through) + extension("ox-2", through=False) + late
    found = verdict(tmp_path, {"run.log": log, "stack_ox-2.txt": LOCKED})
    assert (found.cause, found.culprits.ranks) == ("stale-lock-or-store", ranks)
    assert found.culprits.hosts == ("ox-2",)


@pytest.mark.parametrize(("named", "ranks"), [((4, 5), (4, 5)), ((4, 4), (4,))])
def test_ranks_by_the_names_of_their_proxies(tmp_path: Path, named: tuple[int, int], ranks: tuple[int, ...]) -> None:
    log = "".join(
        f"\nox-3:{70 + at}:{170 + at} [{at}] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_reg_mr_iova2 failed with error "
        f"Cannot allocate memory\n\nox-3:{70 + at}:{170 + at} [{at}] proxy.cc:1567 NCCL WARN [Proxy Service {rank}] "
        f"Failed to execute operation Connect from rank {rank}, retcode 2\n"
        for at, rank in enumerate(named)
    )
    lost = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a"
    log += f"[rank0]: {lost} network error, NCCL version 2.25.1\n"
    log += (
        "[rank4]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error, NCCL "
        "version 2.25.1\n[rank4]: Last error:\n"
        "[rank4]: Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n"
    )
    assert verdict(tmp_path, {"nccl.log": log}).culprits.ranks == ranks


def lost_the_store(rank: int) -> str:
    return (
        f"[elm-worker-{rank // 2}] [rank{rank}]:[W827 03:51:1{rank}.712220184 TCPStore.cpp:106] [c10d] sendBytes "
        f"failed on SocketImpl(fd=4, addr=[elm-worker-{rank // 2}]:3911, remote=[elm-worker-0]:23456): Broken pipe\n"
    )


@pytest.mark.parametrize(("heard", "ranks"), [(range(2, 8), (0, 1)), (range(1, 8), ())])
def test_the_ranks_that_went_with_the_store(tmp_path: Path, heard: range, ranks: tuple[int, ...]) -> None:
    command = "torchrun --nnodes 4 --nproc-per-node 2 --rdzv-backend=c10d --rdzv-endpoint=elm-worker-0:23456 fit.py\n"
    found = verdict(tmp_path, {"pods.log": "".join(map(lost_the_store, heard)), "launch.txt": command})
    assert (found.cause, found.culprits.ranks) == ("store-lost", ranks)


@pytest.mark.parametrize(
    ("said", "hosts"), [("2 nodes x 2, hangs when it saves", ("yew-1",)), ("hangs when it saves", ())]
)
def test_the_host_of_a_rank_where_the_job_has_others(tmp_path: Path, said: str, hosts: tuple[str, ...]) -> None:
    code = "if rank == 0:\n    dist.all_gather(parts, part)\n"
    log = "INFO - fit - node yew-1 rank 0 saves at step 20\n" + "".join(texts.TIMED_OUT.format(r) for r in (1, 2, 3))
    found = verdict(tmp_path, {"issue.md": f"# {said}\n\n```python\n{code}```\n", "run.log": log})
    assert (found.culprits.ranks, found.culprits.hosts) == ((0,), hosts)


EVENTS = (
    "$ kubectl get events\nLAST SEEN   TYPE      REASON    OBJECT              MESSAGE\n"
    "14m         Warning   Evicted   pod/tts-worker-2    {why}\n"
    "12m         Normal    ExitedWithCode   pytorchjob/tts   Pod: ml.tts-master-0 exited with code 1\n"
)
READY = "[tts-master-0] ready: master-0 -> rank 0, worker-0 -> rank 1, worker-1 -> rank 2, worker-2 -> rank 3\n"


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("The node was low on resource: memory. Container t was using 92Gi.", "job-ended-from-outside"),
        ("Pod was evicted", "collective-desync"),  # somebody may have done so because it stood still
    ],
)
def test_a_pod_whose_node_ran_short(tmp_path: Path, why: str, cause: str) -> None:
    log = READY + texts.TIMED_OUT.format(1)
    found = verdict(tmp_path, {"events.txt": EVENTS.format(why=why), "tts-master-0.log": log})
    assert found.cause == cause
    if cause == "job-ended-from-outside":
        assert (found.culprits.ranks, found.culprits.hosts) == ((3,), ("tts-worker-2",))


@pytest.mark.parametrize(
    ("lost", "hosts"),
    [
        (("oak-1 oak-3", "oak-2 oak-3", "oak-3 oak-4"), ("oak-3",)),
        (("oak-1 oak-3", "oak-2 oak-4"), ()),  # what is between them
    ],
)
def test_the_host_at_one_end_of_all_lost_packets(tmp_path: Path, lost: tuple[str, ...], hosts: tuple[str, ...]) -> None:
    asked = [(a, b) for a in range(1, 5) for b in range(a + 1, 5)]
    log = "".join(
        f"10:00:0{a} oak-{a} check: ping -M do -s 8972 oak-{b}: {0 if f'oak-{a} oak-{b}' in lost else 3}/3 received\n"
        for a, b in asked
    )
    found = verdict(tmp_path, {"job.log": log + "".join(map(texts.TIMED_OUT.format, range(4)))})
    assert (found.cause, found.culprits.hosts) == ("mtu-mismatch", hosts)
