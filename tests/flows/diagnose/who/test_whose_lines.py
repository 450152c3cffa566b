"""Whose line is this: the many ways in which people put the evidence of several hosts together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import Subject

OOM = texts.traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
STEP = "step 1 loss 2.31\n"
QUIET = "[Tue Mar  3 09:00:05 2026] perf: interrupt took too long (2520 > 2500), lowering the rate\n"
XID = "[Tue Mar  3 10:00:05 2026] NVRM: Xid (PCI:0000:41:00): 79, pid=4111, name=python, GPU has fallen off the bus.\n"
NFS = "[Tue Mar  3 10:00:05 2026] nfs: server nas not responding, still trying\n"
WAITS = "    all_reduce (torch/distributed/distributed_c10d.py:1322)\n    sync (train.py:20)\n    main (train.py:99)\n"
LOADS = (
    "    _try_get_data (torch/utils/data/dataloader.py:1011)\n    _next_data (torch/utils/data/dataloader.py:1170)\n"
    "    __next__ (torch/utils/data/dataloader.py:530)\n    main (train.py:90)\n"
)
PLACES = ((0, "ca-1", 11), (1, "ca-1", 12), (2, "ca-2", 11), (3, "ca-2", 12))


def timed_out(*ranks: int) -> str:
    return "".join(
        f"[rank{rank}]:[E303 10:10:10.013183664 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=66, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for "
        "600011 milliseconds before timing out.\n"
        for rank in ranks
    )


def stack(pid: int, frames: str, added: str = "") -> str:
    return f'Process {pid}: python train.py{added}\nThread {pid} (active): "MainThread"\n{frames}\n'


def culprits(folder: Path, files: dict[str, str]) -> Subject:
    return diagnose([texts.write(folder, files)]).verdict.culprits


@pytest.mark.parametrize(
    ("first", "second", "host"),
    [
        ("=== ca-1 ===\n", "=== ca-2 ===\n", "ca-2"),
        ("==> logs/ca-1.log <==\n", "\n==> logs/ca-2.log <==\n", "ca-2"),
        ("$ kubectl logs trainer-0\n", "$ kubectl -n ml logs trainer-1\n", "trainer-1"),
        ("---------------\nca-1\n---------------\n", "---------------\nca-2\n---------------\n", "ca-2"),
        ("Host: ca-1\n", "\nHost: ca-2\n", "ca-2"),
        ("[ca-1]\n", "\n[ca-2]\n", "ca-2"),
        ("ops@login:~$ ssh ca-1 tail job.log\n", "ops@login:~$ ssh ca-2 tail job.log\n", "ca-2"),
    ],
)
def test_output_below_a_heading(tmp_path: Path, first: str, second: str, host: str) -> None:
    assert culprits(tmp_path, {"logs.txt": first + STEP + second + OOM}).hosts == (host,)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("=== rank 0 ===\n", "=== rank 1 ===\n"),
        ("==> rank0.log <==\n", "\n==> rank1.log <==\n"),
        ("rank 0:\n", "\nrank 1:\n"),
        ("$ tail -n 5 logs/rank_0.log\n", "$ tail -n 5 logs/rank_1.log\n"),
        ("## ca-1\n### rank 0\n", "## ca-2\n### rank 1\n"),
    ],
)
def test_output_below_a_heading_of_a_rank(tmp_path: Path, first: str, second: str) -> None:
    assert culprits(tmp_path, {"logs.txt": first + STEP + second + OOM}).ranks == (1,)


def test_a_heading_of_one_rank_alone_is_no_section(tmp_path: Path) -> None:
    assert culprits(tmp_path, {"logs.txt": f"=== rank 0 ===\n{STEP}{OOM}"}).ranks == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("##### ca-1\n", "##### ca-2\n"),
        ("ca-1 | CHANGED | rc=0 >>\n", "ca-2 | CHANGED | rc=0 >>\n"),
        ("root@ca-1:~# dmesg -T | tail -1\n", "root@ca-2:~# dmesg -T | tail -1\n"),
        ("$ ssh ca-1 dmesg -T\n", "$ ssh ca-2 dmesg -T\n"),
        ("", "$ hostname\nca-2\n$ dmesg -T | tail -1\n"),
    ],
)
def test_a_kernel_log_below_a_heading(tmp_path: Path, first: str, second: str) -> None:
    files = {"dmesg.txt": first + QUIET + second + XID, "train.log": timed_out(0, 1, 2)}
    assert culprits(tmp_path, files).hosts == ("ca-2",)


def test_another_heading_ends_the_section(tmp_path: Path) -> None:
    kernel = f"=== ca-1 ===\n{QUIET}=== ca-2 ===\n{QUIET}=== all others ===\n{NFS}"
    assert culprits(tmp_path, {"dmesg.txt": kernel, "train.log": timed_out(0, 1)}).hosts == ()


def test_a_heading_that_is_alone_and_unknown_names_nobody(tmp_path: Path) -> None:
    assert culprits(tmp_path, {"dmesg.txt": f"--- part-2 ---\n{NFS}", "train.log": timed_out(0, 1)}).hosts == ()


@pytest.mark.parametrize("name", ["run", "exp", "config", "attempt", "phase", "part", "rank", "gpu", "lr-sweep-run"])
def test_other_things_that_people_number(tmp_path: Path, name: str) -> None:
    assert culprits(tmp_path, {"logs.txt": f"=== {name}-1 ===\n{STEP}=== {name}-2 ===\n{OOM}"}).hosts == ()


def test_what_every_host_says_is_no_hosts(tmp_path: Path) -> None:
    failed = OOM * 6
    assert culprits(tmp_path, {"logs.txt": f"=== ca-1 ===\n{failed}=== ca-2 ===\n{failed}"}).hosts == ()


def test_a_host_out_of_order_is_not_the_one_that_is_left(tmp_path: Path) -> None:
    places = "".join(f"rank={rank} host=gx-{1 + rank // 2} pid={rank}\n" for rank in range(6))
    kernel = "Mar 03 10:00:05 {} kernel: NVRM: Xid (PCI:0000:41:00): 94, pid=20817, name=python, Contained: SM (0x1).\n"
    for host, ranks in (("gx-4", (6, 7)), ("gx-0", ())):
        files = {"map.txt": places, "train.log": timed_out(0, 1, 2, 3, 4, 5, 7), "journal.txt": kernel.format(host)}
        case = texts.case_of(texts.write(tmp_path / host, files))
        assert case.people.ranks_on(host) == ranks


def test_a_clock_that_all_hosts_refuse(tmp_path: Path) -> None:
    refused = "srun: error: Task launch for StepId=71.0 failed on node {}: Job credential expired\n"
    others = "srun: error: n2: task 1: Terminated\nsrun: error: n3: task 2: Terminated\n"
    assert culprits(tmp_path / "one", {"job.err": refused.format("n1") + others}).hosts == ("n1",)
    assert culprits(tmp_path / "all", {"job.err": refused.format("n1") + refused.format("n2")}).hosts == ()


def test_a_heading_and_a_table_of_pids(tmp_path: Path) -> None:
    table = "RANK PID HOST\n0 4111 ca-1\n1 4101 ca-1\n2 4110 ca-2\n3 4111 ca-2\n"
    kernel = f"=== ca-1 ===\n{QUIET}\n=== ca-2 ===\n{XID}"
    found = culprits(tmp_path, {"ranks.txt": table, "kern.txt": kernel, "train.log": timed_out(0, 1, 2)})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))


@pytest.mark.parametrize("added", [" ({host}, rank {rank})", " (node {host}, rank {rank})", " [rank {rank} @ {host}]"])
def test_what_people_add_to_the_heading_of_a_process(tmp_path: Path, added: str) -> None:
    told = "".join(
        stack(pid, LOADS if rank == 3 else WAITS, added.format(host=host, rank=rank)) for rank, host, pid in PLACES
    )
    found = culprits(tmp_path, {"stacks.txt": told})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))


def test_hosts_with_their_local_ranks_and_a_list(tmp_path: Path) -> None:
    told = "".join(
        f"== {host} local_rank {rank % 2} ==\n{stack(pid, LOADS if rank == 3 else WAITS)}" for rank, host, pid in PLACES
    )
    where = "2 nodes ca-1 ca-2 in this order, 2 GPUs each\n"
    found = culprits(tmp_path / "stacks", {"stacks.txt": told, "hosts.txt": where})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))
    teed = {"ca-1.log": f"[default0]:{STEP}", "ca-2.log": "".join(f"[default1]:{line}\n" for line in OOM.splitlines())}
    found = culprits(tmp_path / "output", {**teed, "hosts.txt": "ca-1: ranks 0-1, ca-2: ranks 2-3\n"})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))


def test_stacks_of_hosts_that_reuse_pids(tmp_path: Path) -> None:
    told = "".join(
        f"$ ssh {host} py-spy dump --pid {pid}\n{stack(pid, LOADS if rank == 3 else WAITS)}"
        for rank, host, pid in PLACES
    )
    listed = "".join(f"rank {rank} pid {pid} on {host}\n" for rank, host, pid in PLACES)
    found = culprits(tmp_path, {"stacks.txt": told, "ps.txt": listed})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))


def test_a_host_that_lost_its_server_and_whose_ranks_all_others_wait_for(tmp_path: Path) -> None:
    files = {"ca-1/dmesg.txt": QUIET, "ca-2/dmesg.txt": QUIET + NFS}
    where = "ranks 0-1 on ca-1, ranks 2-3 on ca-2\n"
    found = culprits(tmp_path, {**files, "train.log": where + timed_out(0, 1)})
    assert (found.ranks, found.hosts) == ((2, 3), ("ca-2",))


@pytest.mark.parametrize(("heard", "ranks"), [((0, 3), (4, 5)), ((0, 1), ())])
def test_where_ranks_of_every_other_host_wait_all_of_its_ranks_are_meant(
    tmp_path: Path, heard: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    files = {"ca-1/dmesg.txt": QUIET, "ca-2/dmesg.txt": QUIET, "ca-3/dmesg.txt": QUIET + NFS}
    where = "ranks 0-1 on ca-1, ranks 2-3 on ca-2, ranks 4-5 on ca-3\n"
    found = culprits(tmp_path, {**files, "train.log": where + timed_out(*heard)})
    assert (found.ranks, found.hosts) == (ranks, ("ca-3",))


def test_where_one_of_its_ranks_waits_too_the_other_is_meant(tmp_path: Path) -> None:
    files = {"ca-1/dmesg.txt": QUIET, "ca-2/dmesg.txt": QUIET + NFS}
    where = "ranks 0-1 on ca-1, ranks 2-3 on ca-2\n"
    found = culprits(tmp_path, {**files, "train.log": where + timed_out(0, 1, 2)})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))


def test_the_host_of_which_nothing_is_left_but_its_kernel_log(tmp_path: Path) -> None:
    def output(node: int) -> str:
        ranks = range(2 * node, 2 * node + 2)
        return "".join(
            f"gx-{node}:{4000 + rank}:{4100 + rank} [{rank % 2}] NCCL INFO ncclCommInitRank comm 0x5611e0a{rank}c8f0 "
            f"rank {rank} nranks 8 cudaDev {rank % 2} nvmlDev {rank % 2} busId {'41000' if rank % 2 else '1000'} "
            "commId 0x4a0f7d1e66c1b2d3 - Init COMPLETE\n"
            for rank in ranks
        ) + timed_out(*ranks)

    kernel = (
        "Mar 03 10:00:05 gx-2 kernel: NVRM: Xid (PCI:0000:41:00): 94, pid=20817, name=python, Contained: SM (0x1).\n"
    )
    ended = "Mar 03 10:40:12 gx-2 systemd[1]: systemd-tmpfiles-clean.service: Deactivated successfully.\n"
    logs = {f"gx-{node}.out": output(node) for node in (0, 1, 3)}
    verdict = diagnose([texts.write(tmp_path, {**logs, "journal.txt": kernel + ended})]).verdict
    assert verdict.cause == "ecc-error"
    assert (verdict.culprits.ranks, verdict.culprits.hosts) == ((5,), ("gx-2",))


def test_files_by_the_ends_of_names_and_by_numbers(tmp_path: Path) -> None:
    asked = "$ kubectl exec {0}-0 -- hostname\n$ kubectl exec {0}-1 -- hostname\n"
    logs = {"worker-0.log": STEP, "worker-1.log": OOM}
    found = culprits(tmp_path / "ends", {**logs, "asked.txt": asked.format("clip-worker")})
    assert found.hosts == ("clip-worker-1",)
    logs = {"pod-0.log": STEP, "pod-1.log": OOM}
    found = culprits(tmp_path / "numbers", {**logs, "asked.txt": asked.format("megatron")})
    assert found.hosts == ("megatron-1",)


def test_a_prompt_with_an_address_names_the_host_of_ray(tmp_path: Path) -> None:
    said = "".join(f"(Worker pid=90{rank}, ip=10.0.0.{1 + rank // 2}) rank={rank} ready\n" for rank in range(4))
    failed = "".join(f"(Worker pid=903, ip=10.0.0.2) {line}\n" for line in OOM.splitlines())
    hosts = "root@ca-1(10.0.0.1):/# uptime\n up 3 days\nroot@ca-2(10.0.0.2):/# uptime\n up 3 days\n"
    found = culprits(tmp_path, {"driver.log": said + failed, "hosts.txt": hosts})
    assert (found.ranks, found.hosts) == ((3,), ("ca-2",))


@pytest.mark.parametrize(
    "told",
    [
        "8 ranks on fx01..fx02 (4 each)\n",
        "2 nodes fx01 fx02 in this order, 4 GPUs each\n",
        "nodes fx[01-02], node rank 0..1, 4 ranks per node\n",
    ],
)
def test_hosts_in_order_with_as_many_ranks_each(tmp_path: Path, told: str) -> None:
    case = texts.case_of(texts.write(tmp_path, {"note.txt": told}))
    assert [(p.rank, p.host, p.local_rank) for p in case.people.by_rank.values()] == [
        (rank, f"fx0{rank // 4 + 1}", rank % 4) for rank in range(8)
    ]


def test_hosts_whose_order_nobody_states(tmp_path: Path) -> None:
    case = texts.case_of(texts.write(tmp_path, {"note.txt": "we use rank files on fx01 fx02, 4 GPUs each\n"}))
    assert not case.people.by_rank


def test_two_servers_in_different_collectives(tmp_path: Path) -> None:
    gathers = "    all_gather (sglang/srt/distributed/parallel_state.py:692)\n    loop (sglang/srt/scheduler.py:1043)\n"
    receives = (
        "    wait (torch/distributed/distributed_c10d.py:2895)\n"
        "    broadcast (torch/distributed/distributed_c10d.py:2891)\n"
        "    recv (sglang/srt/scheduler.py:1240)\n    loop (sglang/srt/scheduler.py:1038)\n"
    )
    files = {
        f"pyspy_{host}.txt": f'Process {pid}: sglang::scheduler_TP{rank}\nThread {pid} (idle): "MainThread"\n{frames}'
        for rank, (host, pid, frames) in enumerate((("spark-a", 214, gathers), ("spark-b", 198, receives)))
    }
    verdict = diagnose([texts.write(tmp_path, files)]).verdict
    assert verdict.cause == "conditional-collective"
    assert (verdict.culprits.ranks, verdict.culprits.candidates) == ((), (0, 1))


def test_the_odd_rank_of_a_stall_report(tmp_path: Path) -> None:
    report = (
        "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are "
        "waiting for remainder of ranks for more than 60 seconds. Stalled ops: loss_0 [ready ranks: {}], conv_1 [ready "
        "ranks: {}], bias_2 [ready ranks: {}]\n"
    )
    found = culprits(tmp_path / "odd", {"mpirun.out": report.format("3", "2, 0, 1", "2, 0, 1")})
    assert found.ranks == (3,)
    assert culprits(tmp_path / "even", {"mpirun.out": report.format("2, 3", "0, 1", "0, 1")}).ranks == ()


def test_counts_of_ras_and_a_chat_that_says_that_nothing_moves(tmp_path: Path) -> None:
    ras = (
        "NCCL version 2.26.2 compiled with CUDA 12.6\n\nJob summary\n===========\n\nCommunicators... (0.00s)\n=====\n\n"
        "    0         1         4         8        32        32   RUNNING  MISMATCH\n\nErrors\n======\n\nWarnings\n"
        "========\n\n#0-0 (fa93daea854b060b) MISMATCH\n"
        "  Communicator ranks have different AllGather operation counts\n"
        "  30 ranks have launched up to operation 640\n  2 ranks have launched up to operation 641\n"
        "  Rank 12 -- GPU 4 managed by process 323032 on node 10.88.190.61\n"
        "  Rank 13 -- GPU 5 managed by process 323033 on node 10.88.190.61\n"
    )
    chat = "[09:14] anya: the job hangs since 08:52, all GPUs are busy\n[09:21] marek: is it the network?\n"
    assert culprits(tmp_path / "hangs", {"ras.txt": ras, "chat.txt": chat}).ranks == (12, 13)
    assert culprits(tmp_path / "alone", {"ras.txt": ras}).ranks == ()


@pytest.mark.parametrize(("file", "host"), [("dmesg_ka-gpu12.txt", "ka-gpu12"), ("dmesg_gpu12.txt", "gpu12")])
def test_the_host_after_which_a_file_is_named_has_its_whole_name(tmp_path: Path, file: str, host: str) -> None:
    launch = "# ka-gpu11 ranks 0-1, ka-gpu12 ranks 2-3\n[rank0] step 1 loss 2.31\n"
    assert culprits(tmp_path, {"job.log": launch + timed_out(0, 1, 3), file: XID}).hosts == (host,)


LOCKED = (
    "2 GPUs each (ranks 0-1 ca-1, 2-3 ca-2). It stands still.\n\n"
    '    ca-2$ py-spy dump --pid 711    # rank 2\n    Thread 711 (idle): "MainThread"\n'
    "        wait (torch/utils/file_baton.py:43)\n        load (torch/utils/cpp_extension.py:1308)\n"
    '    ca-1$ py-spy dump --pid 512    # rank 0\n    Thread 512 (active): "MainThread"\n'
    "        broadcast (torch/distributed/distributed_c10d.py:2213)\n"
)


@pytest.mark.parametrize(("through", "ranks"), [((0, 1), (2, 3)), ((0, 1, 3), (2,)), ((), (2,))])
def test_a_rank_that_waits_for_a_lock_of_its_host(
    tmp_path: Path, through: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    began = "".join(f"ca-{1 + n // 2}: Using /tmp/ext/py311 as PyTorch extensions root...\n" for n in range(4))
    done = "".join(f"ca-{1 + n // 2}: Loading extension module fused_adam...\n" for n in through)
    found = culprits(tmp_path, {"ds.log": began + done, "ticket.md": LOCKED})
    assert (found.ranks, found.hosts) == (ranks, ("ca-2",))
