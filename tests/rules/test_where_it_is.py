"""Which rank and which host a verdict names, where its own evidence alone does not say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

TIMEOUT = (
    "[2026-02-03 04:40:{second:02}][default{local}]:[rank{rank}]:[E203 04:40:{second:02}.114 ProcessGroupNCCL.cpp:632] "
    "[Rank {inside}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType={op}, NumelIn={size}, "
    "NumelOut={size}, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
)
XID = "[2026-02-03 04:30:01][watcher n07] kernel: NVRM: Xid (PCI:0000:9b:00): 48, pid=77, name=python, DBE detected\n"
BROKEN = (
    "[2026-02-03 04:40:09][default5]:[rank13]:[E203 04:40:09.114 ProcessGroupNCCL.cpp:1595] [PG ID 0 PG GUID 0"
    "(default_pg) Rank 13] Process group watchdog thread terminated with exception: CUDA error: unspecified launch "
    "failure\n"
)
OLD = (
    "[E ProcessGroupNCCL.cpp:587] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType={op}, "
    "Timeout(ms)=1800000) ran for 1802717 milliseconds before timing out.\n"
)
GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.0.1]:2001: Connection refused\n"
)
FELL_BACK = (
    "[W203 04:00:03.118 ProcessGroupGloo.cpp:715] Warning: Unable to resolve hostname to a (local) address. Using the "
    "loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME.\n"
)
FAILED = (
    "10.0.0.{host}: [rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:9, internal "
    "error - please report this issue to the NCCL developers, NCCL version {version}\n"
    "10.0.0.{host}: [rank{rank}]: ncclInternalError: Internal check failed.\n"
)


def judged(folder: Path, **files: str) -> Verdict:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return diagnose([folder], jobs=1).verdict


def test_a_line_of_the_kernel_deep_in_the_log_of_the_job(tmp_path):
    steps = "".join(f"[2026-02-03 04:20:00][default0]: iteration {n}/90000 | lm loss: 2.0 |\n" for n in range(400))
    waits = "".join(
        TIMEOUT.format(second=10, local=r % 8, rank=r, inside=r // 8, op="ALLREDUCE", size=9)
        for r in range(16)
        if r != 13
    )
    found = judged(tmp_path, job__log=steps + XID + BROKEN + waits)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("ecc-error", (13,), ("n07",))


def test_a_kernel_log_that_is_named_by_an_address_is_of_that_host(tmp_path):
    kernel = (
        "[Thu Sep 18 03:24:53 2025] Memory cgroup out of memory: Killed process 391 (python) total-vm:26kB, UID:0\n"
    )
    log = "(Worker pid=1650, ip=10.7.3.41) [rank0]: step 5 loss 2.0\n" * 4
    judged(tmp_path, dmesg_10__7__3__42__txt=kernel, worker__log=log)
    found = [finding for finding in diagnose([tmp_path], jobs=1).findings if finding.code == "HOST150"]
    assert [finding.subject.hosts for finding in found] == [("10.7.3.42",)]


def test_the_rank_whose_kernels_fail_has_the_gpu_that_is_gone(tmp_path):
    kernel = (
        "[  101.000316] NVRM: Xid (PCI:0000:03:00): 79, pid=31118, name=python3.11, GPU has fallen off the bus.\n"
        "[  101.000318] NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.\n"
    )
    log = (
        "RuntimeError: CUDA error: unspecified launch failure\n"
        "[E ProcessGroupNCCL.cpp:915] [Rank 2] NCCL watchdog thread terminated with exception: CUDA error: unspecified "
        "launch failure\n"
    )
    found = judged(tmp_path, dmesg__txt=kernel, job__log=log)
    assert (found.cause, found.culprits.ranks) == ("gpu-fell-off-bus", (2,))


@pytest.mark.parametrize("ranks", [2, 4])
def test_rank_0_is_in_the_collective_that_the_code_gives_it_alone(ranks, tmp_path):
    code = (
        "class Detector(pl.LightningModule):\n    def on_validation_epoch_end(self):\n"
        "        if self.trainer.is_global_zero:\n            self.log('ap', self.score(), sync_dist=True)\n\n"
    )
    waits = [OLD.format(rank=r, op="BROADCAST" if r else "ALLREDUCE") for r in range(ranks)]
    found = judged(tmp_path, post__txt=f"Validation never ends.\n\n{code}The output:\n\n{''.join(waits)}")
    assert (found.cause, found.culprits.ranks) == ("rank0-only-collective", (0,))


def test_programs_of_two_processes_of_which_one_has_no_collective(tmp_path):
    start = "jax.distributed.initialize(coordinator_address='a:1', num_processes=2, process_id={0})\nprint({0})\n"
    first = f"```python\n{start.format(0)}print(jax.pmap(total, axis_name='i')(xs))\n```\n"
    second = f"\nand on the other host\n\n\n```python\n{start.format(1)}```\n"
    stuck = (
        "```\nE external/xla/service/rendezvous.cc:38] This thread has been waiting for `initialize clique for rank 6; "
        "clique=devices=[0,1]; stream=0; run_id=7` for 10 seconds and may be stuck. Expected 2 threads to join the "
        "rendezvous, but not all of them arrived on time.\n```\n"
    )
    assert judged(tmp_path, post__md=first + second + stuck).cause == "rank0-only-collective"


def test_xla_ends_a_process_that_waits_too_long(tmp_path):
    text = (
        "F external/xla/xla/service/rendezvous.cc:47] Termination timeout for `all reduce RendezvousKey{run_id=7}` of "
        "30 seconds exceeded. Exiting to ensure a consistent program state. Expected 8 threads to join the "
        "rendezvous, but not all of them arrived on time.\nAborted (core dumped)\n"
    )
    assert judged(tmp_path, host0__log=text).category == "hang"


def test_who_has_no_data_left_goes_on_to_another_operation(tmp_path):
    waits = [
        TIMEOUT.format(second=r, local=r, rank=r, inside=r, op="ALLREDUCE" if r == 2 else "_ALLGATHER_BASE", size=1 + r)
        for r in range(4)
    ]
    said = "[rank2]: reader exhausted after 51 batches\n[rank0]: batch 51\n[rank1]: batch 51\n[rank3]: batch 51\n"
    found = judged(tmp_path, job__log=said + "".join(waits))
    assert (found.cause, found.culprits.ranks) == ("uneven-inputs", (2,))


def test_the_host_that_fell_back_to_loopback(tmp_path):
    files = {
        f"cpu{n}__log": f"loading day_{n}\n{FELL_BACK if n == 3 else ''}{GLOO if n != 3 else ''}" for n in range(1, 5)
    }
    found = judged(tmp_path, **files)
    assert (found.cause, found.culprits.hosts) == ("wrong-interface", ("cpu3",))


def test_the_ranks_whose_errors_name_another_version(tmp_path):
    text = "".join(FAILED.format(host=r // 2, rank=r, version="2.18.5" if r // 2 == 2 else "2.20.5") for r in range(8))
    found = judged(tmp_path, job__log=text)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("nccl-version-mismatch", (4, 5), ("10.0.0.2",))


def test_a_stall_that_passed(tmp_path):
    stall = (
        "[2026-02-03 12:01:33.119: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be "
        "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 "
        "seconds.\n"
        "Missing ranks:\n4: [grad_0]\n"
    )
    ended = "".join(f"Epoch {n}/3 - 31s - loss: 0.{n}\n" for n in range(1, 4)) + "Process 0 exit with status code 0.\n"
    assert judged(tmp_path, job__log=stall + ended).category == "healthy"


def test_a_probe_that_is_not_answered(tmp_path):
    text = (
        "RuntimeError: The client socket has timed out after 60s while trying to connect to (10.0.0.5, 29500).\n"
        "$ nc -vz -w 5 10.0.0.5 29500\nnc: connect to 10.0.0.5 port 29500 (tcp) timed out: Operation now in progress\n"
    )
    assert judged(tmp_path, job__log=text).cause == "firewall"


SMI = "index, pci.bus_id, name, pcie.link.width.current, pcie.link.width.max, utilization.gpu [%]\n"


@pytest.mark.parametrize(("named", "ranks", "hosts"), [(True, (5,), ("n-b",)), (False, (), ())])
def test_every_host_has_a_gpu_of_that_number(named, ranks, hosts, tmp_path):
    log = "".join(
        f"n-{'ab'[r // 4]}:{70 + r}:{90 + r} [{r % 4}] NCCL INFO comm 0x55 rank {r} nranks 8 cudaDev {r % 4} "
        f"nvmlDev {r % 4} busId {5 + r % 4}000 commId 0x9 - Init COMPLETE\n"
        for r in range(8)
    )
    tables = ""
    for host in "ab":
        rows = [
            f"{n}, 00000000:0{5 + n}:00.0, NVIDIA L40S, {4 if (host, n) == ('b', 1) else 16}, 16, 100 %"
            for n in range(4)
        ]
        tables += (f"==== n-{host}: nvidia-smi (under load)\n" if named else "") + SMI + "\n".join(rows) + "\n\n"
    found = judged(
        tmp_path, job__log=log + "all steps are slow since Monday, 3 times slower than before\n", gpus__txt=tables
    )
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("pcie-degraded", ranks, hosts)


def test_both_ends_of_a_link_report_its_fault(tmp_path):
    error = "[rank{0}]: torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution\n"
    found = judged(
        tmp_path, job__log="".join(error.format(rank) for rank in (2, 3, 5)) + "[rank0]: step 5 loss 2.0\n" * 3
    )
    assert (found.cause, found.culprits.ranks, found.culprits.candidates) == ("nvlink-fault", (), (2, 3, 5))


SPY = (
    "Process {pid}: python train.py\nPython v3.10.4 (/usr/bin/python3.10)\nRANK={rank}\n\n"
    'Thread 0x7F{pid} (idle): "MainThread"\n{frames}    main (train.py:90)\n'
)
IN_DATA = "    get (queue.py:171)\n    __next__ (loader/iterators.py:64)\n"
IN_REDUCE = "    all_reduce (torch/distributed/distributed_c10d.py:2219)\n    sync (train.py:40)\n"
OUT_OF_MEMORY = (
    "n-{host}: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU {gpu}; 31.75 GiB total "
    "capacity; 29.02 GiB already allocated; 1.00 GiB free; 30.00 GiB reserved in total by PyTorch)\n"
)


def test_stacks_whose_ranks_stand_below_the_heading_of_the_process(tmp_path):
    files = {
        f"pyspy_blade{rank // 2}x_{4000 + rank}__txt": SPY.format(
            pid=4000 + rank, rank=rank, frames=IN_DATA if rank == 3 else IN_REDUCE
        )
        for rank in range(6)
    }
    found = judged(tmp_path, **files)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == (
        "rank-stuck-in-data-loading",
        (3,),
        ("blade1x",),
    )


def test_stacks_below_titles_of_local_ranks(tmp_path):
    code = (
        "class Net(pl.LightningModule):\n    def on_validation_epoch_end(self):\n"
        "        if self.trainer.is_global_zero:\n            self.log('val', self.total, sync_dist=True)\n"
    )
    waits = (
        "    _sync_buffers (torch/nn/parallel/distributed.py:1554)\n    forward (torch/nn/parallel/distributed.py:15)\n"
    )
    alone = "    all_reduce (torch/distributed/distributed_c10d.py:2219)\n    on_validation_epoch_end (net.py:4)\n"
    stacks = "".join(f"== pid {70 + r} (LOCAL_RANK={r})\n{waits if r else alone}" for r in range(4))
    found = judged(tmp_path, net__py=code, stacks__txt=stacks, out__log="Epoch 0: 100%|###| 612/612\n")
    assert (found.cause, found.culprits.ranks) == ("rank0-only-collective", (0,))


@pytest.mark.parametrize(("gpu", "ranks"), [(1, (3,)), (0, ())])
def test_the_gpu_that_ran_out_of_memory_in_deepspeeds_table(gpu, ranks, tmp_path):
    table = "n-0: [INFO] [launch.py:145:main] WORLD INFO DICT: {'n-0': [0, 1], 'n-1': [0, 1], 'n-2': [0, 1]}\n"
    table += "n-1: [INFO] [launch.py:151:main] nnodes=3, num_local_procs=2, node_rank=1\n"
    trace = "n-1: Traceback (most recent call last):\nn-1:   File 'train.py', line 4, in <module>\n"
    found = judged(tmp_path, job__log=table + trace + OUT_OF_MEMORY.format(host=1, gpu=gpu))
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("gpu-out-of-memory", ranks, ("n-1",))


def test_ranks_on_one_gpu_where_no_communicator_is_known(tmp_path):
    line = (
        "h1:{pid}:9 [0] init.cc:795 NCCL WARN Duplicate GPU detected : rank {a} and rank {b} both on CUDA device 31\n"
    )
    found = judged(tmp_path, job__log=line.format(pid=5, a=6, b=4) + line.format(pid=6, a=4, b=6))
    assert (found.cause, found.culprits.ranks) == ("duplicate-gpu", (4, 6))


def test_the_host_that_the_kernel_names_behind_its_uptime(tmp_path):
    line = "[   14.{n}31004] rack-{n} kernel: nvidia 0000:1b:00.0: enabling device (0140 -> 0142)\n"
    slow = (
        "[   14.231004] rack-5 kernel: pci 0000:9c:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s "
        "PCIe x4 link at 0000:9a:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
    )
    found = judged(tmp_path, boot__log="".join(line.format(n=n) for n in range(4, 8)) + slow)
    assert (found.cause, found.culprits.hosts) == ("pcie-degraded", ("rack-5",))


def test_ports_of_many_hosts_in_one_file(tmp_path):
    port = (
        "r-{n}: hca_id: mlx5_0   port: 1   state: PORT_ACTIVE (4)   max_mtu: 4096 (5)   active_mtu: {mtu}   "
        "link_layer: Ethernet\n"
    )
    failed = (
        "r-2:799:866 [0] transport/net_ib.cc:1320 NCCL WARN NET/IB : Got completion from peer 10.2.1.4<4011> with "
        "status=1 opcode=129 len=65536 vendor err 104 (Recv)\n"
    )
    ports = "".join(port.format(n=n, mtu="1024 (3)" if n == 2 else "4096 (5)") for n in range(1, 5))
    found = judged(tmp_path, devinfo__txt=ports, run__log=failed)
    assert (found.cause, found.culprits.hosts) == ("mtu-mismatch", ("r-2",))


def test_the_host_that_all_others_name(tmp_path):
    start = "n{n}:58:58 [0] NCCL INFO Bootstrap : Using hsn0:10.2.3.6{n}<0>\n"
    warned = (
        "n{n}:58:60 [0] transport/net_socket.cc:561 NCCL WARN NET/Socket : peer 10.2.3.63<4318> message truncated : "
        "receiving 1048576 bytes instead of 524288. If you believe your socket network is in a healthy state, there "
        "may be a mismatch in collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks\n"
    )
    log = "".join(start.format(n=n) for n in range(1, 5)) + "".join(warned.format(n=n) for n in (1, 2, 4))
    found = judged(tmp_path, job__log=log)
    assert (found.cause, found.culprits.hosts) == ("size-mismatch", ("n3",))


def test_what_failed_after_the_store_was_lost_does_not_explain_it(tmp_path):
    lost = (
        "[rank{r}]:[W203 04:11:1{r}.523844602 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=45, "
        "addr=[h]:39712, remote=[h]:29825): Failed to recv, got 0 bytes. Connection was likely closed.\n"
    )
    raised = (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/srv/job/train.py", line 35, in round\n'
        "[rank0]:     dist.all_reduce(flat)\n[rank0]: torch.distributed.DistNetworkError: Broken pipe\n"
    )
    later = (
        "[rank2]:[E203 04:11:18.596463114 ProcessGroupNCCL.cpp:612] [Rank 2] Collective WorkNCCL(SeqNum=7, "
        "OpType=BROADCAST, NumelIn=8, NumelOut=8, Timeout(ms)=20000) raised the following async exception: NCCL error: "
        "remote process exited or there was a network error, NCCL version 2.28.9\n"
    )
    found = judged(tmp_path, job__log="".join(lost.format(r=r) for r in range(3)) + raised + later)
    assert (found.category, found.cause) == ("crash", "store-lost")


@pytest.mark.parametrize(("threads", "cause"), [("idle", "rank-stuck-in-user-code"), ("active", "unknown")])
def test_one_look_at_ranks_that_may_all_compute_accuses_nobody(threads, cause, tmp_path):
    waits = "    _engine_run_backward (torch/autograd/graph.py:869)\n    backward (torch/_tensor.py:631)\n"
    files = {
        f"stacks_rank{rank}__txt": (
            f"Process {50 + rank}: python train.py\nPython v3.12.3 (python)\n\n"
            f'Thread {50 + rank} ({"idle" if rank else threads}): "MainThread"\n'
            f"{waits if rank else ''}    main (train.py:{85 if not rank else 78})\nThread {90 + rank} ({threads})\n"
        )
        for rank in range(4)
    }
    assert judged(tmp_path, **files).cause == cause


def test_who_waits_least_in_a_list_below_its_heading(tmp_path):
    rows = "".join(f"rank {rank:2}: {6 if rank == 5 else 1040 + rank}\n" for rank in range(8))
    text = f"allreduce wait per rank, mean of the last 200 steps [ms]:\n{rows}"
    found = judged(
        tmp_path, report__txt=text, note__txt="The job is slow since this morning: 2.6 s a step, not 1.5 s.\n"
    )
    assert (found.category, found.cause, found.culprits.ranks) == ("slow", "straggler", (5,))


def test_a_narrow_link_of_the_gpu_whose_rank_is_late(tmp_path):
    nccl = "".join(
        f"tr-0{1 + rank // 4}:{5500 + rank}:9 [{rank % 4}] NCCL INFO ncclCommInitRank comm 0x5610f{rank} rank {rank} "
        f"nranks 8 cudaDev {rank % 4} nvmlDev {rank % 4} busId {bus} commId 0x71c0 - Init COMPLETE\n"
        for rank, bus in enumerate(["17000", "31000", "98000", "b1000", "17000", "47000", "98000", "b1000"])
    )
    timers = "".join(
        f"[rank{rank}] timers it {step}: data 0.004 fwd 0.21 bwd {1.2 if rank == 5 else 0.41} "
        f"comm_wait {0.08 if rank == 5 else 1.7}\n"
        for step in range(100, 500, 100)
        for rank in range(8)
    )
    kernel = (
        "[    3.402990] pci 0000:47:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x2 link at "
        "0000:46:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
    )
    files = {"run__log": nccl + timers, "tr-02__dmesg": kernel}
    found = judged(tmp_path, **files)
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("pcie-degraded", (5,), ("tr-02",))


EVICTED = (
    "LAST SEEN   TYPE      REASON    OBJECT             MESSAGE\n9m          Warning   Evicted   pod/bert-worker-5  "
    "The node was low on resource: ephemeral-storage. Threshold quantity: 53687091200, available: 41120404Ki.\n"
)
LOST = (
    "[1,0]<stdout>:step 41250 loss 1.9188\nPRTE has lost communication with a remote daemon.\n\n"
    "  HNP daemon   : [[43015,0],0] on node bert-launcher\n  Remote daemon: [[43015,0],6] on node bert-worker-5\n"
)


@pytest.mark.parametrize(("events", "cause"), [(EVICTED, "job-ended-from-outside"), ("", "host-lost")])
def test_a_host_that_was_lost_because_its_pod_was_evicted(events, cause, tmp_path):
    found = judged(tmp_path, launcher__log=LOST, events__txt=events)
    assert (found.cause, found.culprits.hosts) == (cause, ("bert-worker-5",))


SETTINGS = "".join(
    f"I0124 17:40:02.118000 2210 torch/distributed/launcher/api.py:194]   {name:16} : {value}\n"
    for name, value in (("min_nodes", "{nodes}"), ("max_nodes", "{nodes}"), ("rdzv_endpoint", "{endpoint}"))
)
ENDED = "slurmstepd: error: *** JOB 101 ON worker-0 CANCELLED AT 2025-01-24T17:48:40 ***\n"


@pytest.mark.parametrize(
    ("nodes", "endpoint", "cause"),
    [
        (2, "127.0.1.1:29500", "rendezvous-endpoint"),
        (2, "10.3.0.17:29500", "job-ended-from-outside"),
        (1, "127.0.0.1:29500", "job-ended-from-outside"),
    ],
)
def test_nodes_that_are_to_meet_at_an_address_of_their_own(nodes, endpoint, cause, tmp_path):
    found = judged(tmp_path, slurm__out=SETTINGS.format(nodes=nodes, endpoint=endpoint) + ENDED)
    assert found.cause == cause


def test_a_mismatch_at_one_number_is_not_the_fault_of_who_is_past_it(tmp_path):
    lines = "".join(
        f"[rank{rank}]:[E918 19:29:24.4 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=3000000) ran for "
        f"3000097 milliseconds before timing out.\n[rank{rank}]:[E918 19:29:24.4 ProcessGroupNCCL.cpp:2303] [PG ID 0 "
        f"PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last "
        f"enqueued work: {seq + 1}, last completed work: {seq - 1}\n"
        for rank, seq, op, size in (
            (3, 7219, "BROADCAST", 64), (2, 7219, "BROADCAST", 24084544), (1, 7219, "BROADCAST", 64),
            (0, 7221, "ALLREDUCE", 593920),
        )
    )  # fmt: skip
    assert judged(tmp_path, job__log=lines).culprits.ranks == (2,)


def test_the_loss_that_a_rank_calls_its_own_turned_first(tmp_path):
    lines = "".join(f"2026-06-11 13:22:{n:02},101 rank=0 step={400 + n} loss=2.39 gnorm=0.6\n" for n in range(12))
    lines += "".join(
        f"2026-06-11 13:23:00,882 rank={rank} I trainer.py:230 local_loss={loss} step=413 tokens=26611\n"
        for rank, loss in ((5, "nan"), (1, 2.39), (7, 2.40), (2, 2.37))
    )
    lines += "".join(f"2026-06-11 13:23:{n:02},337 rank=0 step={413 + n} loss=nan gnorm=nan\n" for n in range(1, 5))
    lines = lines.replace("step=414 loss=nan", "step=413 loss=nan", 1)
    found = judged(tmp_path, job__log=lines)
    assert (found.cause, found.culprits.ranks) == ("nan-origin", (5,))


def test_the_rank_that_looks_at_another_endpoint(tmp_path):
    lines = "".join(
        f"[rank {rank}] joining tcp://10.0.0.4:{30478 if rank == 2 else 39931} as {rank}/4\n" for rank in range(4)
    )
    lines += (
        "[E1118 06:34:33.020039636 socket.cpp:1028] [c10d] The client socket has timed out after 20000ms while trying "
        "to connect to (10.0.0.4, 30478).\n"
    )
    found = judged(tmp_path, job__log=lines)
    assert (found.cause, found.culprits.ranks) == ("rendezvous-endpoint", (2,))
