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
