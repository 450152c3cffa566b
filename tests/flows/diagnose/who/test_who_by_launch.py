"""Who is meant, by how the job was launched and by what schedulers, drivers and hosts say of themselves."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import Subject
from whichrank.model.verdict import Verdict

ECC = "[rank{0}]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank {0}] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n"
LOST = (
    "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2027, remote process exited or there was a network error, NCCL version 2.21.5\n"
    "[rank{0}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
)
TORCHRUN = "srun --ntasks-per-node=1 torchrun --nnodes {} --nproc_per_node 4 --node_rank $SLURM_NODEID --master_addr {} --master_port 29500 t.py\n"
TRUNCATED = "{0}:30110:30552 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 1024 bytes instead of 256\n"


def verdict(folder: Path, files: dict[str, str]) -> Verdict:
    return diagnose([texts.write(folder / "case", files)], jobs=1).verdict


def lost(*ranks: int) -> str:
    return "".join(LOST.format(rank) for rank in ranks)


# -- ranks and hosts by the launch


@pytest.mark.parametrize(
    ("launch", "hosts"),
    [
        ("nodes: ka-[1-2]\n" + TORCHRUN.format(2, "ka-1"), ("ka-2",)),
        (
            "SLURM_JOB_NODELIST=ka-1,ka-2\nsrun -N2 --ntasks-per-node=4 python -u train.py\n",
            ("ka-2",),
        ),
        (
            "#SBATCH --nodelist=ka-[1-2]\naccelerate launch --num_machines 2 --num_processes 8 --machine_rank $SLURM_PROCID sft.py\n",
            ("ka-2",),
        ),
        # Agents that meet at an endpoint get their numbers in an order that nobody can foresee.
        (
            "SLURM_JOB_NODELIST=ka-[1-2]\nsrun torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=ka-1:29400 train.py\n",
            (),
        ),
        ("SLURM_JOB_NODELIST=ka-[1-2]\nsrun --ntasks-per-node=4 --distribution=cyclic python train.py\n", ()),
        # Two launches of which one was tried before.
        (
            "nodes: ka-[1-2]\n" + TORCHRUN.format(2, "ka-1") + TORCHRUN.format(2, "ka-1").replace("_node 4", "_node 2"),
            (),
        ),
    ],
)
def test_the_host_of_a_rank(tmp_path: Path, launch: str, hosts: tuple[str, ...]) -> None:
    found = verdict(tmp_path, {"launch.txt": launch, "out.log": ECC.format(5) + lost(0, 7)}).culprits
    assert (found.ranks, found.hosts) == ((5,), hosts)


@pytest.mark.parametrize(
    ("launch", "second", "hosts"),
    [
        ("srun -N2 --ntasks-per-node=4 --label python train.py", 4, ("ka-2",)),
        ("srun -N2 --ntasks-per-node=4 --label python train.py", 1, ()),  # two hosts in one block of ranks
        ("srun -N2 --ntasks-per-node=4 --distribution=cyclic --label python train.py", 4, ()),
    ],
)
def test_a_rank_is_on_the_host_of_its_block(tmp_path: Path, launch: str, second: int, hosts: tuple[str, ...]) -> None:
    using = "".join(
        f"{task}: {host}:71{task}:718{task} [0] NCCL INFO Bootstrap : Using eth0:10.9.1.{task}<0>\n"
        for task, host in ((0, "ka-1"), (second, "ka-2"))
    )
    found = verdict(tmp_path, {"out.log": f"{launch}\n{using}{ECC.format(6)}{lost(0, 7)}"}).culprits
    assert (found.ranks, found.hosts) == ((6,), hosts)


def test_the_list_and_the_command_may_stand_in_two_files(tmp_path: Path) -> None:
    files = {
        "scontrol.txt": "JobId=881 JobName=pre\n   NodeList=ra[1-4]\n   BatchHost=ra1\n",
        "cmd.txt": TORCHRUN.format(4, "ra1"),
        "out.log": ECC.format(9) + lost(0, 3, 12),
    }
    assert verdict(tmp_path, files).culprits.hosts == ("ra3",)


def test_a_launch_that_another_list_contradicts_does_not_count(tmp_path: Path) -> None:
    files = {
        "launch.txt": "nodes: ka-[1-2]\n" + TORCHRUN.format(2, "ka-1"),
        "ranks.txt": "rank=0 host=ka-2\nrank=4 host=ka-1\n",
        "out.log": ECC.format(5) + lost(0, 7),
    }
    assert verdict(tmp_path, files).culprits.hosts == ()


def test_the_gpu_at_an_address_of_one_host(tmp_path: Path) -> None:
    rows = "".join(
        f"GPU: {i}\n    BDF: 0000:{bus}:00.0\n    KFD_ID: 1{i}\n" for i, bus in enumerate(("05", "26", "46", "65"))
    )
    files = {
        "launch.txt": "nodes: mi-[1-3]\n" + TORCHRUN.format(3, "mi-1"),
        "mi-2.amd-smi.txt": rows,
        "mi-2.dmesg.txt": "[500975.162652] amdgpu 0000:46:00.0: amdgpu: GPU reset begin!\n",
        "out.log": "".join(texts.TIMED_OUT.format(rank) for rank in (0, 1, 9)),
    }
    found = verdict(tmp_path, files).culprits
    assert (found.ranks, found.hosts) == ((6,), ("mi-2",))


# -- lost hosts, the host of the store, evictions


def test_the_node_that_slurm_lost_is_not_the_one_that_tells_it(tmp_path: Path) -> None:
    files = {
        "slurmctld.log": "[2025-05-05T03:17:10.001] error: Nodes cn-14 not responding, setting DOWN\n",
        "job.out": "SLURM_JOB_NODELIST=cn-[11-14]\n"
        + TORCHRUN.format(4, "cn-11")
        + lost(0, 3, 5, 9, 11)
        + "slurmstepd: error: *** STEP 771.0 ON cn-11 CANCELLED AT 2025-05-05T03:17:11 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("host-lost", (12, 13, 14, 15), ("cn-14",))
    del files["slurmctld.log"]
    assert verdict(tmp_path / "2", files).culprits == Subject()


def test_a_time_limit_accuses_no_host(tmp_path: Path) -> None:
    files = {
        "job.out": "SLURM_JOB_NODELIST=cn-[11-14]\n"
        + TORCHRUN.format(4, "cn-11")
        + "slurmstepd: error: *** STEP 771.0 ON cn-11 CANCELLED AT 2025-05-05T03:17:11 DUE TO TIME LIMIT ***\n"
        "srun: error: cn-12: task 1: Terminated\n" + lost(7)
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits) == ("job-ended-from-outside", Subject())


def test_the_node_that_kubernetes_lost(tmp_path: Path) -> None:
    files = {
        "events.txt": "4m   Normal    NodeNotReady   node/gke-a3-7       Node gke-a3-7 status is now: NodeNotReady\n3m   Warning   NodeNotReady   pod/llm-worker-2    Node is not ready\n",
        "llm-worker-0.log": lost(0),
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.hosts) == ("host-lost", ("gke-a3-7",))


def test_the_ranks_of_the_pods_of_a_lost_node(tmp_path: Path) -> None:
    files = {
        "events.txt": "4m   Normal   NodeNotReady   node/gke-a3-7   Node gke-a3-7 status is now: NodeNotReady\n",
        "pods.txt": "NAME           READY   STATUS    RESTARTS   AGE   IP          NODE       NOMINATED NODE\n"
        "llm-worker-0   1/1     Running   0          40m   10.42.1.6   gke-a3-5   <none>\n"
        "llm-worker-1   1/1     Running   0          40m   10.42.2.5   gke-a3-7   <none>\n",
        "layout.txt": "llm-worker-0 (ranks 0-3), llm-worker-1 (ranks 4-7)\n",
        "llm-worker-0.log": lost(0, 2),
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("host-lost", (4, 5, 6, 7), ("gke-a3-7",))


@pytest.mark.parametrize(("first", "hosts"), [("lx3", ("lx1",)), ("lx1", ())])
def test_the_host_of_the_store_unless_it_lost_it_too(tmp_path: Path, first: str, hosts: tuple[str, ...]) -> None:
    gone = "".join(f"[rank{{0}}]: {line}\n" for line in texts.STORE_GONE.splitlines())
    files = {
        "env.txt": "MASTER_ADDR=lx1\nMASTER_PORT=29500\n",
        f"{first}.log": "".join(gone.format(rank) for rank in (1, 2, 3)),
        "lx2.log": "".join(gone.format(rank) for rank in (4, 5, 6, 7)),
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("store-lost", (), hosts)


def test_the_node_that_evicted_a_pod(tmp_path: Path) -> None:
    files = {
        "describe.txt": "Name:         llm-master-0\nNode:         ip-10-0-4-21/10.0.4.21\nStatus:       Failed\nReason:       Evicted\nMessage:      Pod was evicted: The node had condition: [DiskPressure].\n",
        "llm-worker-0.log": lost(1),
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.hosts) == ("job-ended-from-outside", ("ip-10-0-4-21",))


# -- hosts that differ


def test_the_host_with_another_version(tmp_path: Path) -> None:
    versions = {"oak1": "2.20.5", "oak2": "2.20.5", "oak3": "2.19.3", "oak4": "2.20.5"}
    files = {f"{host}.env.txt": f"python: 3.10.14\ntorch: 2.4.0\nnccl: {nccl}\n" for host, nccl in versions.items()}
    files["errors.log"] = TRUNCATED.format("oak1") + TRUNCATED.format("oak2") + TRUNCATED.format("oak4")
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.hosts) == ("nccl-version-mismatch", ("oak3",))


def test_of_two_hosts_neither_is_the_odd_one(tmp_path: Path) -> None:
    files = {
        "start.log": "[env] host=uu-1 node_rank=0 torch=2.3.0 nccl=2.20.5\n[env] host=uu-2 node_rank=1 torch=2.1.2 nccl=2.18.1\n",
        "errors.log": TRUNCATED.format("uu-1") + "[rank0]: ncclInternalError: Internal check failed.\n",
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits) == ("nccl-version-mismatch", Subject())


def test_a_line_of_the_journal_is_of_its_host(tmp_path: Path) -> None:
    files = {
        "journal.txt": "Nov 19 21:04:19 gp-2 kernel: NVRM: API mismatch: the client has the version 550.127.08, but\nNov 19 21:10:01 gp-1 CRON[88102]: (root) CMD (/usr/local/bin/clean)\n",
        "ticket.txt": "gp-1: ranks 0-7, gp-2: ranks 8-15, gp-3: ranks 16-23\n",
        "r0.log": "[rank0]: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 16/24 clients joined.\n",
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.ranks) == ("driver-mismatch", tuple(range(8, 16)))
    assert found.culprits.hosts == ("gp-2",)


MEGATRON = "    will not load any checkpoints and will start from random\n"
STEPS = "".join(
    f" iteration     {i}/  50 | elapsed time per iteration (ms): 6198.4 | lm loss: 6.412270E+00 |\n"
    for i in range(1, 6)
)


@pytest.mark.parametrize(
    ("first", "hosts"),
    [(" successfully loaded checkpoint from /local/ckpt at iteration 5000\n", ("bl-2",)), (MEGATRON, ())],
)
def test_a_checkpoint_that_some_hosts_do_not_find(tmp_path: Path, first: str, hosts: tuple[str, ...]) -> None:
    files = {
        "bl-1.log": f"bl-1: {first}{STEPS}",
        "bl-2.log": f"bl-2: {MEGATRON}",
        "layout.txt": "bl-1 (ranks 0-3), bl-2 (ranks 4-7)\nloss is much higher after the resume\n",
    }
    found = verdict(tmp_path, files)
    assert (found.cause == "cache-not-shared", found.culprits.hosts) == (bool(hosts), hosts)
    assert found.culprits.ranks == ((4, 5, 6, 7) if hosts else ())


def test_a_table_below_a_heading_and_the_rank_that_could_not_write(tmp_path: Path) -> None:
    table = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/nvme1n1    3.5T  {}  {}% /scratch\n\n"
    files = {
        "df.txt": "=== s-201 ===\n"
        + table.format("1.0T  2.5T", 29)
        + "=== s-202 ===\n"
        + table.format("3.5T     0", 100),
        "rank5.log": texts.traceback("OSError: [Errno 28] No space left on device: '/scratch/ckpt/5.pt'"),
        "rank1.log": lost(1),
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("disk-full", (5,), ("s-202",))


def test_what_people_call_a_host_for_short(tmp_path: Path) -> None:
    raised = "".join(f"[rank5]: {line}\n" for line in texts.traceback("ValueError: bad shard").splitlines())
    files = {
        "note.txt": "forge-h01 = node0 (ranks 0-3), forge-h02 = node1 (ranks 4-7)\n",
        "node0.log": lost(0, 1),
        "node1.log": raised,
    }
    assert verdict(tmp_path, files).culprits.hosts == ("forge-h02",)


# -- who is named by others


def test_an_exception_that_names_the_ranks_that_failed(tmp_path: Path) -> None:
    told = texts.traceback(
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3, 6])"
    )
    found = verdict(tmp_path, {"rank0.log": told, "rank1.log": told})
    assert (found.cause, found.culprits.ranks) == ("rank-exception", (3, 6))


FIRST = "21: ERROR:megatron.core.rerun_state_machine:Rank 21, node vw-117, device 5, iteration #18344: First rerun: unexpected result is reproducible within the tolerance (188.25 = 188.25). Need to rerun on a different GPU to verify correctness.!\n"
SECOND = (
    "21: WARNING:megatron.core.rerun_state_machine:Second rerun: unexpected result is not reproducible on a different GPU, therefore was likely incorrect (2.109375 != 188.25)\n"
    "21: ERROR:megatron.core.rerun_state_machine:Rank 21, node vw-131, device 3, iteration #18344: Possible persistent error!!\n"
    "srun: error: vw-131: task 21: Exited with exit code 17\n"
)


def test_the_gpu_that_another_one_proves_wrong(tmp_path: Path) -> None:
    found = verdict(tmp_path, {"1.log": FIRST, "2.log": SECOND})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("gpu-computes-wrong", (21,), ("vw-117",))
    assert [(gpu.host, gpu.index) for gpu in found.culprits.gpus] == [("vw-117", 5)]
    alone = verdict(tmp_path / "2", {"2.log": SECOND}).culprits
    assert (alone.ranks, alone.hosts, alone.candidates) == ((), (), (21,))


REPORT = " 0: INFO:megatron.core.utils:[2024-05-02 09:0{0}:11] | MnRtt/Rnk: 3451.20ms/{1} | MxRtt/Rnk: {2}ms/{3} | MnEtpt/Rnk: {4}TF/{3} | MxEtpt/Rnk: 297.32TF/{1}\n"
LISTS = (
    " 0: INFO:megatron.core.utils:^^^^ Bottom 4 Ranks with lowest  Etpt(TF): {4}/{3}, 296.17/2, 296.23/1, 296.23/4,\n"
    " 0: INFO:megatron.core.utils:^^^^ Top    4 Ranks with highest Etpt(TF): 297.28/15, 297.28/11, 297.32/12, 297.32/{1},\n"
)


@pytest.mark.parametrize(("slow", "ranks"), [(("5177.93", 19, "197.60"), (19,)), (("3477.93", 19, "295.60"), ())])
def test_the_straggler_of_megatrons_report(tmp_path: Path, slow: tuple[str, int, str], ranks: tuple[int, ...]) -> None:
    output = "".join((REPORT + LISTS).format(at, 8 + at % 2, *slow) for at in range(4))
    assert verdict(tmp_path, {"rank0.log": output}).culprits.ranks == ranks


# -- lines that `srun --label` numbers

MISSING = texts.traceback(
    "ValueError: Memory Map for /local/a.jsonl is not found, missing one or more of files: /local/a.jsonl.idx.npy"
)


def labelled(task: int, text: str) -> str:
    return "".join(f"{task}: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("ended", "ranks"),
    [
        ("srun: error: b14: tasks 2-3: Exited with exit code 1\nsrun: error: b13: tasks 0-1: Terminated\n", (2, 3)),
        # One task on each host, of which each may run many ranks.
        ("srun: error: b14: task 2: Exited with exit code 1\nsrun: error: b13: task 3: Terminated\n", ()),
        ("", ()),
    ],
)
def test_a_task_is_a_rank_where_a_host_ran_several(tmp_path: Path, ended: str, ranks: tuple[int, ...]) -> None:
    output = labelled(0, "step 1 loss 2.2\n") + labelled(2, MISSING) + labelled(3, MISSING) + ended
    assert verdict(tmp_path, {"out.log": output}).culprits.ranks == ranks


def test_a_task_is_a_host_below_torchrun(tmp_path: Path) -> None:
    raised = texts.traceback("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    files = {
        "out.log": "nodes: ka-[1-3]\n" + TORCHRUN.format(3, "ka-1") + labelled(1, raised) + labelled(2, LOST.format(9))
    }
    found = verdict(tmp_path, files).culprits
    assert (found.ranks, found.hosts) == ((), ("ka-2",))


EVENTS = (
    "LAST SEEN   TYPE      REASON      OBJECT           MESSAGE\n"
    "50m         Normal    Scheduled   pod/sd-pool-1    Successfully assigned ml/sd-pool-1 to aks-np-77\n"
    "9m          Warning   Evicted     pod/sd-pool-1    The node was low on resource: memory. Threshold quantity: 1Gi\n"
)
TOLD_TO_END = "W0702 09:45:{0}.310000 1 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers\n"
GAVE_UP = "[rank1]:[E702 09:56:01.512007118 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)={0}000) ran for {0}019 milliseconds before timing out.\n"


@pytest.mark.parametrize(
    ("reason", "waited_s", "hosts"),
    [
        ("low on resource: memory", 600, ("aks-np-77", "sd-pool-1")),
        ("drained", 600, ("sd-pool-1",)),
        ("drained", 1200, ()),  # they waited before: somebody may have ended it for that
    ],
)
def test_a_pod_that_was_ended_before_the_others_waited(
    tmp_path: Path, reason: str, waited_s: int, hosts: tuple[str, ...]
) -> None:
    of_pod = "launcher] nproc_per_node 2 node_rank 1, global ranks 2,3\n" + TOLD_TO_END.format(58)
    events = EVENTS.replace("low on resource: memory", reason)
    files = {"pool-0.log": GAVE_UP.format(waited_s), "pool-1.log": of_pod, "events.txt": events}
    found = verdict(tmp_path, files)
    assert (found.culprits.ranks, found.culprits.hosts) == ((2, 3) if hosts else (), hosts)
    assert (found.cause == "job-ended-from-outside") is bool(hosts)


def test_the_pod_that_is_told_to_end_first_is_not_to_blame_where_all_are(tmp_path: Path) -> None:
    waited = GAVE_UP.format(600)
    files = {f"pool-{n}.log": TOLD_TO_END.format(57 + n) + waited for n in range(2)}
    assert verdict(tmp_path, {**files, "events.txt": EVENTS}).culprits.ranks == ()
