"""What hosts say of themselves joined with what failed: clocks, interfaces, names, years, pids and precisions."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import os

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose


def verdict(tmp_path, files, mtime=None):
    folder = texts.write(tmp_path / "case", files)
    for file in folder.rglob("*") if mtime else ():
        os.utime(file, (mtime, mtime))
    return diagnose([folder], jobs=1).verdict


# -- clocks

DROPPED = (
    "DEBUG:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n1_3311_0' added itself to the participants of round 0 of the rendezvous 'j'. Pending sync.\n"
    "DEBUG:torch.distributed.elastic.rendezvous.dynamic_rendezvous:As part of the sync operation the node(s) 'n3_2870_0' have been removed from the rendezvous 'j' since they had no heartbeat.\n"
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
)
TRACKING = "Reference ID    : 0A010002 (ntp)\nSystem time     : {} seconds slow of NTP time\nLeap status     : Normal\n"


@pytest.mark.parametrize(
    "clocks",
    [
        {
            "journal.txt": "== n1\nchronyd[7]: Selected source 10.0.0.2 (ntp)\n== n3\nchronyd[8]: System clock wrong by 412.118843 seconds\n"
        },
        {"journal.txt": "Nov 04 05:58:02 n3 ntpd[433]: time reset -97.310442 s\nNov 04 05:58:09 n1 sshd[1]: started\n"},
        {"tracking_n1.txt": TRACKING.format("0.000012"), "tracking_n3.txt": TRACKING.format("95.2")},
        {
            "look.txt": "[root@n1 ~]# timedatectl\nSystem clock synchronized: yes\n[root@n3 ~]# timedatectl\nSystem clock synchronized: no\n"
        },
    ],
)
def test_a_host_whose_clock_is_wrong_looks_dead_to_the_rendezvous(tmp_path, clocks):
    found = verdict(tmp_path, {"n1.log": DROPPED, **clocks})
    assert (found.cause, found.culprits.hosts) == ("clock-skew", ("n3",))


@pytest.mark.parametrize(
    "clocks",
    [
        {"tracking_n1.txt": TRACKING.format("0.000012"), "tracking_n3.txt": TRACKING.format("0.000011")},
        {"journal.txt": "Nov 04 05:58:02 n2 ntpd[433]: time reset -97.310442 s\nNov 04 05:58:09 n1 sshd[1]: started\n"},
        {"look.txt": "[root@n3 ~]# timedatectl\nSystem clock synchronized: yes\n"},
    ],
)
def test_a_host_whose_clock_is_right_is_lost(tmp_path, clocks):
    found = verdict(tmp_path, {"n1.log": DROPPED, **clocks})
    assert (found.cause, found.culprits.hosts) == ("host-lost", ("n3",))


# -- interfaces

REFUSES = (
    "node1:4410:4477 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
    "node1:4410:4477 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: Connect to {}<40123> returned 113(No route to host) errno 115(Operation now in progress)\n"
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.21.5\n"
)
BRIEF = (
    "== node1\n$ ip -br addr\nlo               UNKNOWN        127.0.0.1/8\neth0             UP             10.0.0.1/24\n"
    "== node2\n$ ip -br addr\neth0             UP             10.0.0.2/24\nwg0              UNKNOWN        10.8.0.3/24\n"
)
SHORT = (
    "node1: 2: eth0 inet 10.0.0.1/24\nnode2: 2: eth0 inet 10.0.0.2/24   9: wg0@NONE inet 10.8.0.3/32 scope global wg0\n"
)


@pytest.mark.parametrize("listed", [BRIEF, SHORT])
def test_an_address_of_a_tunnel_that_nobody_reaches(tmp_path, listed):
    found = verdict(tmp_path, {"train.log": REFUSES.format("10.8.0.3"), "addr.txt": listed})
    assert (found.cause, found.culprits.hosts) == ("wrong-interface", ("node2",))


@pytest.mark.parametrize("listed", [BRIEF, SHORT])
def test_an_ordinary_address_that_nobody_reaches_is_blocked(tmp_path, listed):
    assert verdict(tmp_path, {"train.log": REFUSES.format("10.0.0.2"), "addr.txt": listed}).cause == "firewall"


# -- years and pids

WAITED = "[rank{0}]:[E1104 06:31:10.550120110 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88210, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800044 milliseconds before timing out.\n"
STARTED = "[k{0} rank {1} pid {2}] resume from step 12000\n"
BLOCKED = (
    "[Tue Nov  {0} 06:01:05 {1}] nfs: server corpus-b not responding, still trying\n"
    "[Tue Nov  {0} 06:05:31 {1}] INFO: task python:22109 blocked for more than 245 seconds.\n"
)
JOB = {
    "k1.out": STARTED.format(1, 0, 31880) + STARTED.format(1, 1, 31881) + WAITED.format(0) + WAITED.format(1),
    "k2.out": STARTED.format(2, 2, 22108) + STARTED.format(2, 3, 22109) + WAITED.format(2),
}


@pytest.mark.parametrize("year", [2023, 2025])
def test_a_kernel_log_says_the_year_that_the_job_does_not(tmp_path, year):
    found = verdict(tmp_path, {**JOB, "dmesg_k2.txt": BLOCKED.format(4, year)}, mtime=1_794_900_000)  # November 2026
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("storage-stall", (3,), ("k2",))


def test_another_day_of_an_earlier_year_is_another_day(tmp_path):
    found = verdict(tmp_path, {**JOB, "dmesg_k2.txt": BLOCKED.format(8, 2025)}, mtime=1_794_900_000)
    assert found.cause != "storage-stall"


KILLED = (
    "[881204.641] Memory cgroup out of memory: Killed process {} (python) total-vm:213340112kB, anon-rss:118204416kB\n"
)
SPAWNS = "{0}[2024-01-03 02:11:40,130] [INFO] [launch.py:253:main] process {1} spawned with command: ['/opt/conda/bin/python', '-u', 'sft.py', '--local_rank={2}', '--deepspeed', 'ds.json']\n"
WORLD = "{0}[2024-01-03 02:11:40,114] [INFO] [launch.py:163:main] dist_world_size={1}\n"
ENDS = "{0}[2024-01-03 03:02:24,107] [ERROR] [launch.py:322:sigkill_handler] ['python', '-u', 'sft.py', '--local_rank=3'] exits with return code = -9\n"


def test_deepspeed_says_which_local_rank_a_process_is(tmp_path):
    log = WORLD.format("", 4) + "".join(SPAWNS.format("", 30211 + 2 * n, n) for n in range(4)) + ENDS.format("")
    found = verdict(tmp_path, {"launch.log": log, "dmesg.txt": KILLED.format(30215)})
    assert (found.cause, found.culprits.ranks) == ("host-out-of-memory", (2,))


def test_of_several_hosts_it_needs_the_number_of_the_host(tmp_path):
    def log(first):
        lines = (
            WORLD.format(f"{host}: ", 4)
            + (f"{host}: [INFO] [launch.py:152:main] nnodes=2, num_local_procs=2, node_rank={node}\n" if first else "")
            + "".join(SPAWNS.format(f"{host}: ", 700 + 10 * node + n, n) for n in range(2))
            for node, host in enumerate(("worker-0", "worker-1"))
        )
        return "".join(lines) + ENDS.format("worker-1: ")

    named = verdict(tmp_path / "a", {"launch.log": log(True), "dmesg_worker-1.txt": KILLED.format(711)})
    assert (named.cause, named.culprits.ranks, named.culprits.hosts) == ("host-out-of-memory", (3,), ("worker-1",))
    assert (
        verdict(tmp_path / "b", {"launch.log": log(False), "dmesg_worker-1.txt": KILLED.format(711)}).culprits.ranks
        == ()
    )


# -- GPUs

XIDS = (
    "May 18 11:04:09 gbx-31 kernel: NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x02500186 0x0 0x0 0x0 0x0 0x0)\n"
    "May 18 11:04:09 gbx-31 kernel: NVRM: Xid (PCI:0000:ed:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 07 (0x00000004 0x80000000 0x0 0x0 0x0 0x0)\n"
    "May 18 11:04:10 gbx-31 kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=740113, name=python3, Ch 00000001 caused by previous Xid 149\n"
    "May 18 11:04:10 gbx-31 kernel: NVRM: Xid (PCI:0000:ed:00): 45, pid=740114, name=python3, Ch 0000000c caused by previous Xid 145\n"
)
FAILED = (
    "[rank2]: torch.AcceleratorError: CUDA error: unspecified launch failure\n"
    "[rank1]: torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error\n"
    "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
)


def test_the_fatal_fault_of_a_link_is_that_of_the_process_on_its_gpu(tmp_path):
    listed = "".join(f"{740112 + n} python3 train.py RANK={n}\n" for n in range(3))
    found = verdict(tmp_path, {"kern.log": XIDS, "job.log": FAILED, "procs.txt": listed})
    assert (found.cause, found.culprits.ranks) == ("nvlink-fault", (1,))


def test_whoever_fails_beside_it_is_not_accused_where_nothing_says_whose_gpu_it_is(tmp_path):
    found = verdict(tmp_path, {"kern.log": XIDS, "job.log": FAILED})
    assert (found.cause, found.culprits.hosts) == ("nvlink-fault", ("gbx-31",))
    assert 2 not in found.culprits.ranks


def test_the_hot_gpu_of_the_slow_rank(tmp_path):
    rows = "".join(
        f"{n}, {88 if n == 5 else 61}, {371 if n == 5 else 668}, {'Active' if n == 5 else 'Not Active'}\n"
        for n in range(8)
    )
    smi = f"index, temperature.gpu, power.draw [W], clocks_event_reasons.hw_thermal_slowdown\n{rows}"
    log = "[sniff] outlier GEMM: rank {0} (node dgx-h-118): 394.8 TFLOP/s (-42.1%)\n[sniff] outlier ffn: rank {0} (node dgx-h-118): 388.0 TFLOP/s (-43.0%)\n"
    found = verdict(tmp_path / "a", {"nvidia-smi_dgx-h-118.csv": smi, "train.log": log.format(21)})
    assert (found.cause, found.culprits.ranks) == ("gpu-thermal-or-power", (21,))
    found = verdict(tmp_path / "b", {"nvidia-smi_dgx-h-118.csv": smi, "train.log": log.format(22)})
    assert (found.cause, found.culprits.ranks) == ("gpu-thermal-or-power", ())


# -- precisions

SAYS = "[rank{0}] host {1} gpu {2} precision={3}\n[rank{0}] step 0 loss 10.87\n"
NAN = "[rank{0}] step 1 loss nan\n"


def precisions(odd, nan=NAN):
    hosts = ("alder", "alder", "birch", "birch", "cedar", "cedar")
    files = {}
    for rank, host in enumerate(hosts):
        gpu, kind = ("V100", "fp16") if rank in odd else ("A40", "bf16")
        files[f"{host}.log"] = files.get(f"{host}.log", "") + SAYS.format(rank, host, gpu, kind) + nan.format(rank)
    return files


def test_the_ranks_that_compute_in_another_precision(tmp_path):
    found = verdict(tmp_path, precisions((2, 3)))
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("dtype-mismatch", (2, 3), ("birch",))


def test_all_alike_is_nobody(tmp_path):
    assert verdict(tmp_path, precisions(())).culprits.ranks == ()


def test_where_nothing_is_wrong_it_is_only_noted(tmp_path):
    folder = texts.write(
        tmp_path, precisions((2, 3), "[rank{0}] step 1 loss 9.1\n") | {"end.log": "training finished\n"}
    )
    found = diagnose([folder], jobs=1)
    assert (found.verdict.cause, found.verdict.culprits.ranks) == ("healthy", ())
    assert [(finding.cause, finding.severity) for finding in found.findings] == [("dtype-mismatch", "info")]


def test_without_a_majority_nobody_is_named(tmp_path):
    assert verdict(tmp_path, precisions((0, 1, 2))).culprits.ranks == ()


# -- who was ended

AGENT = "I0611 13:20:03.221000 817 torch/distributed/elastic/agent/server/api.py:525] [default] Rendezvous complete for workers. Result:\n  restart_count=0\n  group_rank={0}\n  group_world_size=2\n  local_ranks=[0, 1]\n  role_ranks=[{1}, {2}]\n  global_ranks=[{1}, {2}]\n"
ENDED = "W0611 13:28:49.118000 884 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers\n"
LOST = "[rank{0}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.20.5.77]:41022\nE0611 13:28:52.310000 817 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 823) of binary: python\n"


def test_the_host_that_alone_was_told_to_end(tmp_path):
    found = verdict(
        tmp_path, {"pool-0.log": AGENT.format(0, 0, 1) + LOST.format(0), "pool-1.log": AGENT.format(1, 2, 3) + ENDED}
    )
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("job-ended-from-outside", (2, 3), ("pool-1",))


def test_nobody_is_named_where_all_were(tmp_path):
    found = verdict(
        tmp_path, {"pool-0.log": AGENT.format(0, 0, 1) + ENDED, "pool-1.log": AGENT.format(1, 2, 3) + ENDED}
    )
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("job-ended-from-outside", (), ())


# -- watchdogs, stacks, code

AT = "[rank{0}]:[E0307 19:41:08.203117450 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"


def test_the_one_rank_that_waits_in_an_earlier_operation(tmp_path):
    found = verdict(tmp_path, {"train.log": AT.format(0, 15) + AT.format(1, 15) + AT.format(2, 14) + AT.format(3, 15)})
    assert (found.cause, found.culprits.ranks) == ("collective-desync", (2,))


def test_two_against_two_are_nobody(tmp_path):
    found = verdict(tmp_path, {"train.log": AT.format(0, 15) + AT.format(1, 15) + AT.format(2, 14) + AT.format(3, 14)})
    assert found.culprits.ranks == ()


WAITS = '== task {0} local 0 (pid {1})\nThread {1} (active): "MainThread"\n    sync_global_devices (jax/experimental/multihost_utils.py:88)\n    restore_state (trainer.py:127)\n'
READS = WAITS.replace(
    "sync_global_devices (jax/experimental/multihost_utils.py:88)", "read_shard (restore/checkpoint_io.py:21)"
)


def test_the_process_that_alone_does_not_wait_tells_the_cause(tmp_path):
    found = verdict(tmp_path, {"pyspy.txt": WAITS.format(1, 701) + READS.format(2, 702) + WAITS.format(3, 703)})
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "rank-stuck-in-checkpoint", ())


def test_of_several_that_do_not_nobody_is_the_odd_one(tmp_path):
    found = verdict(tmp_path, {"pyspy.txt": WAITS.format(1, 701) + READS.format(2, 702) + READS.format(3, 703)})
    assert found.cause != "rank-stuck-in-checkpoint"


BATON = "pid {0} RANK={1}\n    wait (torch/utils/file_baton.py:43)\n    _jit_compile (torch/utils/cpp_extension.py:1706)\n    load (kernels/__init__.py:66)\n"
IN_BARRIER = (
    "pid {0} RANK={1}\n    barrier (torch/distributed/distributed_c10d.py:3685)\n    compile_all (initialize.py:141)\n"
)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_frame_that_waits_for_a_lock_is_of_the_rank_whose_stack_it_is(tmp_path, rank):
    stacks = "".join((BATON if r == rank else IN_BARRIER).format(1401 + r, r) for r in range(4))
    found = verdict(tmp_path, {"pyspy.txt": stacks, "job.log": AT.format(1, 1) + AT.format(3, 1)})
    assert (found.cause, found.culprits.ranks) == ("stale-lock-or-store", (rank,))


SAVES = """    is_main = int(os.environ.get("RANK", "0")) == {0}
    if is_main:
        trainer.save_model(args.out)
"""
LEFT = (
    '[rank0]:   File "train.py", line 5, in main\n'
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error\n"
)


def test_an_excerpt_of_code_names_the_rank_that_calls_alone(tmp_path):
    found = verdict(tmp_path, {"n1.log": LEFT, "tail.py": SAVES.format(0)})
    assert (found.cause, found.culprits.ranks) == ("rank0-only-collective", (0,))


@pytest.mark.parametrize("code", [SAVES.format(0).replace("if is_main:", "if True:"), "    print(trainer)\n"])
def test_code_without_the_fault_says_nothing(tmp_path, code):
    assert verdict(tmp_path, {"n1.log": LEFT, "tail.py": code}).culprits.ranks != (0,)


# -- names of addresses

FELL_BACK = "(RayWorkerWrapper pid=402, ip=10.0.61.8) [rank0]:[W808 09:14:20.415117026 ProcessGroupGloo.cpp:533] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())\n"
UNREACHED = "(RayWorkerWrapper pid=288, ip=10.0.61.31) [rank8]: RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:22871 (rank=8, size=16, local=[10.0.61.31])\n"


@pytest.mark.parametrize(
    ("table", "host"),
    [
        ("$ getent hosts $(hostname)\n127.0.0.1       ip-10-0-61-8 localhost\n", "ip-10-0-61-8"),
        ("$ cat /etc/hosts\n10.0.61.8   trainer-a.lan trainer-a\n10.0.61.31   trainer-b\n", "trainer-a"),
        ("$ getent hosts trainer-a\n10.0.61.99   trainer-a\n", "10.0.61.8"),
        ("$ cat /etc/hosts\n10.0.61.8   trainer-a\n10.0.61.8   trainer-c\n", "10.0.61.8"),
    ],
)
def test_a_host_is_called_by_its_name_where_a_table_has_it(tmp_path, table, host):
    found = verdict(tmp_path, {"leader.log": FELL_BACK, "worker.log": UNREACHED, "hosts.txt": table})
    assert found.culprits.hosts == (host,)


# -- runs that ended well

WARNS = "UserWarning: Detected different devices in the system: NVIDIA A10, NVIDIA L4. Please make sure to set `CUDA_DEVICE_ORDER=PCI_BUS_ID`\n[0] it 100 loss 3.114\n[0] it 20000 loss 1.502\n"


def test_a_warning_of_a_run_that_completed_is_not_the_verdict(tmp_path):
    folder = texts.write(tmp_path, {"run.log": WARNS, "seff.txt": "Job ID: 33\nState: COMPLETED (exit code 0)\n"})
    found = diagnose([folder], jobs=1)
    assert found.verdict.cause == "healthy"
    assert [finding.cause for finding in found.findings] == ["wrong-environment"]


@pytest.mark.parametrize(
    "others",
    [
        {"seff.txt": "Job ID: 33\nState: FAILED (exit code 1)\n"},
        {
            "seff.txt": "Job ID: 33\nState: COMPLETED (exit code 0)\n",
            "ticket.txt": "It is half as fast as last week on the same nodes, and we do not know why.\n",
        },
    ],
)
def test_of_one_that_did_not_or_of_which_somebody_complains_it_is(tmp_path, others):
    assert verdict(tmp_path, {"run.log": WARNS, **others}).cause == "wrong-environment"


def test_workers_that_are_told_port_zero(tmp_path):
    told = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={0}\nRANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={0}\n"
    assert verdict(tmp_path / "a", {"env.txt": told.format(0)}).cause == "rendezvous-endpoint"
    assert verdict(tmp_path / "b", {"env.txt": told.format(29500)}).cause != "rendezvous-endpoint"


def test_what_ray_s_processes_print_is_no_complaint(tmp_path):
    (tmp_path / "ray.log").write_text(
        "(raylet) Spilled 4212 MiB, 31 objects, write throughput 702 MiB/s.\n"
        "Training completed after 3 iterations at 2025-06-03 10:41:06. Total running time: 40min 57s\n"
        "(RayTrainWorker pid=7810) Exception ignored in: <function Loader.__del__ at 0x7f4b3c1a4d60>\n"
        "(RayTrainWorker pid=7810) AssertionError: can only test a child process\n"
    )
    assert diagnose([tmp_path], jobs=1).verdict.cause == "healthy"


# -- ranks that see no GPU, and why

WARNED = "/venv/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). {} (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)\n"
MISFIT = "Error 803: system has unsupported display driver / cuda driver combination"


def without_gpus(why: str, host: str = "ale", first: int = 2) -> str:
    warned = f"{host}: {WARNED.format(why)}" if why else ""
    return "".join(
        f"{warned}{host}: [rank{rank}]: RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!\n"
        for rank in (first, first + 1)
    )


@pytest.mark.parametrize(("why", "cause"), [(MISFIT, "driver-mismatch"), ("", "device-ordinal")])
def test_a_driver_that_does_not_fit_says_why_the_ranks_of_its_host_see_no_gpu(tmp_path, why, cause):
    well = "".join(f"pils: [rank{rank}] init ok: NVIDIA L40S\n" for rank in (0, 1))
    (tmp_path / "job.log").write_text(well + without_gpus(why))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks, verdict.culprits.hosts) == (cause, (2, 3), ("ale",))
