"""Rules on known messages: each fires on the words of several versions, and keeps silent on what is harmless."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose import conclude, discover_rules
from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.timeline.case import Case

RULES = {rule.CODE: rule for rule in discover_rules()}
MINE = {
    code for code, rule in RULES.items() if any(hasattr(rule, helper) for helper in ("sighted", "doings", "_possible"))
}


def warn(text: str, host: str = "node1", pid: int = 100, place: str = "misc/socket.cc:500") -> str:
    return f"{host}:{pid}:{pid + 7} [0] {place} NCCL WARN {text}\n"


def info(text: str, host: str = "node1", pid: int = 100) -> str:
    return f"{host}:{pid}:{pid + 7} [0] NCCL INFO {text}\n"


def status(number: int, extra: str = "") -> str:
    return warn(
        f"NET/IB : Got completion from peer 10.1.1.2<40000> with status={number} opcode=0 len=0 vendor err 0 (Send){extra}"
    )


TIMED_OUT = texts.TIMED_OUT.format(1)
EARLY = TIMED_OUT.replace("SeqNum=15", "SeqNum=2")
STARTED = info("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC") + info("Connected all rings")
GIDS = " localGid ::ffff:10.1.{}.4 remoteGids::ffff:10.1.{}.5"
SAVE = "if rank == 0:\n    dist.barrier()\n    save(model)\n"
CROSSED = (
    "if rank == 0:\n    dist.all_reduce(x)\n    dist.isend(y, 1)\nelse:\n    dist.irecv(y, 0)\n    dist.all_reduce(x)\n"
)
RAS = (
    "NCCL version 2.28.9 compiled with CUDA 13.0\n\nCommunicators... (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         2         8        16        16   RUNNING  MISMATCH\n\nErrors\n======\n\nWarnings\n========\n\n"
    "#0-0 (1f33daea854b060b) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    "  15 ranks have launched up to operation 40\n  1 ranks have launched up to operation 41\n"
    "  Rank 3 -- GPU 3 managed by process 4410 on node 10.1.1.2\n"
)

FIRE: list[tuple[str, str, texts.Files]] = [
    ("NETI201", "gloo on loopback", {"a.log": "RuntimeError: Gloo connectFullMesh failed with [../pair.cc:144]\n  timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:40213\n"}),
    ("NETI201", "nccl on a bridge address", {"a.log": warn("socketStartConnect: Connect to 172.17.0.3<43617> failed : Connection refused")}),
    ("NETI201", "link-local bootstrap", {"a.log": info("Bootstrap : Using tun0:fe80::1%tun0<0>")}),
    ("NETI201", "loopback on two hosts", {"a.log": info("Bootstrap: Using lo:127.0.0.1<0>") + info("Bootstrap: Using lo:127.0.0.1<0>", "node2", 200)}),
    ("NETI202", "no route, 2.16", {"a.log": warn("socketPollConnect: Connect to 10.1.2.4<40123> returned 113(No route to host) errno 115(Operation now in progress)")}),
    ("NETI202", "no route, 2.10", {"a.log": warn("Net : Connect to 10.1.2.4<40123> failed : No route to host")}),
    ("NETI202", "timed out, 2.27", {"a.log": warn("ncclSocketConnect: connect to 10.1.2.4<34501> returned Connection timed out, exceeded error retry count after 35 attempts")}),
    ("NETI203", "sockets between hosts, measured", {"a.log": info("Using network Socket") + info("Using network Socket", "node2", 200) + "# Avg bus bandwidth    : 0.91\n"}),
    ("RDMA201", "2.9", {"a.log": warn("NET/IB : Got completion with error 4, opcode 1, len 0, vendor err 81")}),
    ("RDMA201", "2.28", {"a.log": warn("NET/IB : Got completion from peer 10.0.0.12<40054> with status=IBV_WC_LOC_PROT_ERR(4) opcode=IBV_WC_SEND(0) vendor_err=81 hca mlx5_0")}),
    ("RDMA202", "2.24", {"a.log": warn("Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1, curr state INIT, next state RTR", place="misc/ibvwrap.cc:324")}),
    ("RDMA202", "RoCE never answered", {"a.log": status(12, GIDS.format(1, 1))}),
    ("RDMA203", "port error", {"a.log": warn("NET/IB : mlx5_7:1 Got async event : port error")}),
    ("RDMA203", "no answer in a run that had worked", {"a.log": texts.steps(30) + status(12)}),
    ("RDMA204", "timed out", {"a.log": warn("Call to ibv_modify_qp failed with error Connection timed out", place="misc/ibvwrap.cc:284")}),
    ("RDMA204", "InfiniBand never answered", {"a.log": status(12)}),
    ("RDMA205", "two networks", {"a.log": status(12, GIDS.format(1, 2))}),
    ("RDMA206", "not opened", {"a.log": warn("NET/IB : Unable to open device mlx5_0")}),
    ("RDMA207", "no provider", {"a.log": "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n"}),
    ("RDMA207", "none, and a bridge", {"a.log": warn("Failed to open libibverbs.so[.1]") + info("NET : Using interface eth0:172.17.0.4<0>")}),
    ("RDMA208", "reg_mr", {"a.log": warn("Call to ibv_reg_mr failed with error Cannot allocate memory")}),
    ("RDMA208", "create_cq", {"a.log": warn("Call to ibv_create_cq failed with error Cannot allocate memory")}),
    ("RDMA209", "no provider", {"a.log": "find_ofi_provider:500 NCCL WARN NET/OFI No eligible providers were found\n"}),
    ("RDMA210", "transfer", {"a.log": "ofi_process_cq:222 NCCL WARN NET/OFI Request 0x7f01 completed with error. RC: 113. Error: No route to host. Completed length: 0\n"}),
    ("RDMA211", "peermem", {"a.log": "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument (nvidia-peermem)\n"}),
    ("RDMA211", "slow without it", {"a.log": info("GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)"), "note.txt": "two nodes are slower than one node\n"}),
    ("RDMA212", "ping", {"a.log": "From 10.77.1.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)\n"}),
    ("GPUH201", "python", texts.ranks(4, {2: texts.traceback("RuntimeError: CUDA error: uncorrectable ECC error encountered")}, texts.lost_peer())),
    ("GPUH202", "nvml", {"a.log": "Unable to determine the device handle for GPU 0000:17:00.0: GPU is lost.  Reboot the system to recover this GPU\n"}),
    ("GPUH203", "cuda", {"a.log": texts.traceback("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution")}),
    ("GPUH204", "802", {"a.log": "Test CUDA failure common.cu:941 'system not yet initialized'\n"}),
    ("GPUH204", "nvls", {"a.log": warn("Cuda failure 1 'invalid argument'", place="transport/nvls.cc:254")}),
    ("PCIE201", "iommu fault", {"a.log": "AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x002f device=0000:41:00.0 address=0xd0000000 flags=0x0030]\n"}),
    ("PCIE201", "helps without", {"a.log": STARTED, "note.txt": "It hangs. It works with NCCL_P2P_DISABLE=1.\n"}),
    ("PCIE201", "a virtual machine that stalls", {"a.log": STARTED, "note.txt": "A new VM with 3 GPUs. They are stuck at the first all_reduce.\n"}),
    ("PCIE202", "refused", {"a.log": warn("failed to peer with device 1(=1b000): 217 peer access is not supported between these two devices")}),
    ("PCIE202", "a model without", {"a.log": STARTED, "note.txt": "4x RTX 4090, hangs at the first all_reduce. Works with NCCL_P2P_DISABLE=1\n"}),
    ("PCIE203", "printed", {"session.txt": "tensor([3., 4.], device='cuda:0')\ntensor([0., 0.], device='cuda:1')\n"}),
    ("PCIE203", "tested", {"a.log": "# Out of bounds values : 24 FAILED\n"}),
    ("PCIE204", "ipc", {"a.log": warn("cudaIpcGetMemHandle failed : invalid argument")}),
    ("SOFT201", "no image", {"a.log": texts.traceback("RuntimeError: CUDA error: no kernel image is available for execution on the device")}),
    ("SOFT201", "older than the GPUs", {"a.log": "NCCL version 2.5.6+cuda10.1\n" + info("Using 256 threads, Min Comp Cap 8, Trees disabled")}),
    ("SOFT202", "symbol", {"a.log": "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister\n", "env.txt": "nvidia-nccl-cu11==2.20.5\nnvidia-nccl-cu12==2.26.2\n"}),
    ("SOFT203", "shm.cc", {"a.log": warn("Cuda failure 1 'invalid argument'", place="transport/shm.cc:590")}),
    ("SOFT204", "announced, and a hang", {"a.log": "[HAMI-core Msg(812:140:libvgpu.c:836)]: Initializing.....\n" + TIMED_OUT}),
    ("SOFT205", "too many", {"a.log": warn("Error : too many XML nodes (max 256)")}),
    ("SOFT206", "two shapes", {"a.log": info("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation") + info("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", "node2", 200)}),
    ("LNCH201", "baton", {"stack.log": 'Traceback (most recent call last):\n  File "/x/torch/utils/file_baton.py", line 42, in wait\n    time.sleep(self.wait_seconds)\nKeyboardInterrupt\n'}),
    ("HOST201", "index", texts.ranks(4, {2: texts.traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/index-cache/abc_shuffle_idx.npy'")}, texts.lost_peer())),
    ("HOST202", "killed", {"a.log": "Loading checkpoint shards:  33%|███▎      | 1/3\n" + texts.table({0: -9, 1: -15}, 0)}),
    ("HOST203", "make", {"a.log": "make: warning:  Clock skew detected.  Your build may be incomplete.\n"}),
    ("CONF201", "no algorithm", {"a.log": warn("Error : no algorithm/protocol available for function Broadcast with datatype ncclInt8", place="enqueue.cc:1")}),
    ("COLL201", "contiguous", texts.ranks(4, {1: texts.traceback("ValueError: Tensors must be contiguous")}, texts.lost_peer())),
    ("COLL201", "another device", {"a.log": warn("AllReduce : sendbuff allocated on device 0 mismatchs with NCCL device 1", place="misc/argcheck.cc:30")}),
    ("COLL202", "under a guard", {"a.log": TIMED_OUT, "train.py": SAVE}),
    ("COLL202", "a log that reduces", {"a.log": TIMED_OUT, "model.py": "if self.trainer.is_global_zero:\n    self.log('val_loss', loss, sync_dist=True)\n"}),
    ("COLL203", "both send first", {"a.log": TIMED_OUT, "train.py": "if rank == 0:\n    dist.send(a, 1)\n    dist.recv(b, 1)\nelse:\n    dist.send(a, 0)\n    dist.recv(b, 0)\n"}),
    ("COLL203", "crossed", {"a.log": TIMED_OUT, "train.py": CROSSED}),
    ("COLL204", "counts", {"ras.txt": RAS}),
    ("COLL205", "iterable", {"a.log": TIMED_OUT, "note.txt": "custom IterableDataset with dynamic batching\n"}),
    ("SLOW201", "mapping", {"a.log": "Map (num_proc=16):  35%|███▌      | 35000/100000 [12:01<22:20]\n" + EARLY}),
    ("SLOW202", "saving", {"a.log": "Saving model checkpoint to output/checkpoint-500\n" + TIMED_OUT}),
    ("SLOW203", "evaluating", {"a.log": "***** Running Evaluation *****\n" + TIMED_OUT}),
    ("SLOW205", "timed out", texts.ranks(2, {1: texts.traceback("RuntimeError: DataLoader timed out after 120 seconds")}, texts.lost_peer())),
    ("HOST204", "ssh", {"a.log": "ssh: connect to host node3 port 22: Connection timed out\n"}),
    ("LNCH202", "store", {"a.log": "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.\n"}),
    ("SILE201", "Megatron", {"a.log": "AssertionError: Parameter hashes not matching across DP replicas\n"}),
    ("SILE202", "Megatron", {"a.log": "Rank 3, node gpu-12, device 3, iteration #812: First rerun: unexpected result is not reproducible within the tolerance (2.1 != nan)\n"}),
    ("SILE203", "the loss", {"a.log": "AssertionError: Rank 12: found NaN in local forward loss calculation. Device: 4, node: gpu-12\n"}),
    ("SILE203", "the gradients", {"a.log": "RuntimeError: Rank 3, node gpu-12, device 3, iteration 812: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')\n"}),
    ("COLL206", "a value", {"a.log": TIMED_OUT, "train.py": "import torch.distributed as dist\nif loss.item() > threshold:\n    dist.all_reduce(flag)\n"}),
    ("COLL207", "another module", {"a.log": "Invalidate trace cache @ step 12: expected module 25, but got module 323\n" + TIMED_OUT.replace("ALLREDUCE", "_ALLGATHER_BASE")}),
    ("LNCH202", "the start barrier", {"a.log": "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=16, worker_count=8, timeout=0:30:00)\n"}),
    ("SLOW202", "told", {"a.log": TIMED_OUT, "note.txt": "The barrier expires while rank 0 consolidates the checkpoint into one file.\n"}),
    ("SLOW203", "told", {"a.log": TIMED_OUT, "note.txt": "Rank 0 runs the validation with beam search, which takes more than 30 minutes.\n"}),
    ("SLOW204", "tuning", {"a.log": "AUTOTUNE mm(4096x4096, 4096x4096)\n" + TIMED_OUT}),
]  # fmt: skip

STILL: list[tuple[str, str, texts.Files]] = [
    ("COLL203", "one sends and the other receives", {"a.log": TIMED_OUT, "train.py": "if rank == 0:\n    dist.send(a, 1)\n    dist.recv(b, 1)\nelse:\n    dist.recv(b, 0)\n    dist.send(a, 0)\n"}),
    ("RDMA207", "none installed, and a hang of one machine", {"a.log": warn("Failed to open libibverbs.so[.1]") + info("NET : Using interface eth0:172.17.0.4<0>"), "note.txt": "The GPUs are stuck in the first collective.\n"}),
    ("CODE201", "denied", {"note.txt": "There is no packet loss and disabling the firewall did not help.\n"}),
    ("CODE201", "settings and code", {"env.txt": "MASTER_ADDR=127.0.0.1\nMASTER_PORT=29500\n", "a.log": 'if mode == "dataloader_stall" and rank == 1 and step == 4:\nProcess 1465: python -m torch.distributed.run straggler.py\n'}),
    ("COLL206", "the same for all ranks", {"a.log": TIMED_OUT, "train.py": "import torch.distributed as dist\nif step % args.save_every == 0 and world_size > 1:\n    dist.all_reduce(flag)\n"}),
    ("COLL206", "in both arms", {"a.log": TIMED_OUT, "train.py": "import torch.distributed as dist\nif images is None:\n    dist.all_reduce(zero)\nelse:\n    dist.all_reduce(loss)\n"}),
    ("COLL206", "no hang", {"a.log": texts.steps(30), "train.py": "import torch.distributed as dist\nif loss.item() > threshold:\n    dist.all_reduce(flag)\n"}),
    ("COLL207", "training goes on", {"a.log": "Invalidate trace cache @ step 12: expected module 25, but got module 323\n" + texts.steps(30)}),
    ("COLL207", "the first step", {"a.log": "Invalidate trace cache @ step 0: expected module 1, but got module 0\n" + TIMED_OUT.replace("ALLREDUCE", "_ALLGATHER_BASE")}),
    ("SLOW202", "a slow save of a good run", {"note.txt": "Saving a checkpoint takes 4 minutes.\n"}),
    ("SILE203", "nothing found", {"a.log": texts.steps(30) + "check_for_nan_in_loss_and_grad .................. True\n"}),
    ("PCIE201", "an IOMMU of a machine that is well", {"lspci.txt": "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"}),
    ("NETI201", "loopback on one host", {"a.log": info("Bootstrap : Using lo:127.0.0.1<0>")}),
    ("NETI201", "a bridge and a run that works", {"a.log": info("Bootstrap : Using docker0:172.17.0.1<0>") + texts.steps(30)}),
    ("NETI202", "refused alone", {"a.log": warn("socketStartConnect: Connect to 10.1.2.4<34501> failed : Connection refused")}),
    ("NETI202", "tried again", {"a.log": info("ncclSocketConnect: connect to 10.1.2.4<34501> returned Connection timed out, retrying (3/34) after sleep for 300 msec")}),
    ("NETI203", "sockets alone", {"a.log": info("Using network Socket")}),
    ("RDMA201", "flushed", {"a.log": status(5)}),
    ("RDMA203", "never answered at the start", {"a.log": status(12)}),
    ("RDMA206", "no device", {"a.log": info("NET/IB : No device found.")}),
    ("RDMA207", "none installed", {"a.log": info("Failed to open libibverbs.so[.1]")}),
    ("RDMA207", "none installed, bridge, and training", {"a.log": warn("Failed to open libibverbs.so[.1]") + info("NET : Using interface eth0:172.17.0.4<0>") + texts.steps(30)}),
    ("RDMA209", "no plug-in", {"a.log": info("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.")}),
    ("RDMA211", "off and not slow", {"a.log": info("GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")}),
    ("GPUH204", "cuda failure elsewhere", {"a.log": warn("Cuda failure 1 'invalid argument'", place="enqueue.cc:254")}),
    ("PCIE201", "off", {"a.log": STARTED, "note.txt": "4x RTX 4090, hangs. Works with NCCL_P2P_DISABLE=1. IOMMU and ACS are disabled\n"}),
    ("PCIE202", "a model, and it runs", {"a.log": STARTED + texts.steps(30), "note.txt": "4x RTX 4090\n"}),
    ("PCIE203", "zeros from the start", {"session.txt": "tensor([0., 0.], device='cuda:0')\ntensor([0., 0.], device='cuda:1')\n"}),
    ("PCIE203", "tested and right", {"a.log": "# Out of bounds values : 0 OK\n"}),
    ("SOFT201", "new enough", {"a.log": "NCCL version 2.6.4+cuda11.0\n" + info("Using 256 threads, Min Comp Cap 8, Trees disabled")}),
    ("SOFT202", "one package", {"env.txt": "nvidia-nccl-cu12==2.26.2\n"}),
    ("SOFT203", "falls back", {"a.log": info("cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.")}),
    ("SOFT204", "announced, and all is well", {"a.log": "[HAMI-core Msg(812:140:libvgpu.c:836)]: Initializing.....\n" + texts.steps(30)}),
    ("SOFT206", "same shapes", {"a.log": info("NET/Plugin: Could not find: libnccl-net.so") + info("NET/Plugin: Could not find: libnccl-net.so", "node2", 200)}),
    ("HOST201", "missing on all", texts.ranks(2, {}, texts.traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/index-cache/abc_shuffle_idx.npy'"))),
    ("HOST202", "killed in training", {"a.log": "Loading checkpoint shards:  33%|███▎      | 1/3\n" + texts.steps(30) + texts.table({0: -9, 1: -15}, 0)}),
    ("COLL201", "survived", {"a.log": texts.traceback("ValueError: Tensors must be contiguous") + texts.steps(40)}),
    ("COLL202", "guarded, and nobody waits", {"a.log": texts.steps(5), "train.py": SAVE}),
    ("COLL202", "in both branches", {"a.log": TIMED_OUT, "train.py": SAVE + "else:\n    dist.barrier()\n"}),
    ("COLL203", "same order", {"a.log": TIMED_OUT, "train.py": CROSSED.replace("    dist.irecv(y, 0)\n    dist.all_reduce(x)", "    dist.all_reduce(x)\n    dist.irecv(y, 0)")}),
    ("COLL205", "no time-out", {"note.txt": "custom IterableDataset with dynamic batching\n"}),
    ("SLOW201", "no time-out", {"a.log": "Map (num_proc=16):  35%|███▌      | 35000/100000 [12:01<22:20]\n"}),
    ("SLOW202", "saved long before", {"a.log": "Saving model checkpoint to output/checkpoint-500\n***** Running Evaluation *****\n" + TIMED_OUT}),
]  # fmt: skip


def judged(code: str, case: Case) -> list[Finding]:
    answer = RULES[code].judge(case)
    return [] if isinstance(answer, NotEvaluated) else answer


@pytest.mark.parametrize(("code", "why", "files"), FIRE, ids=[f"{c}-{w}" for c, w, _ in FIRE])
def test_fires(code, why, files, tmp_path):
    found = judged(code, texts.case_of(texts.write(tmp_path, files)))
    assert [f.cause for f in found] == [RULES[code].CAUSE], why
    assert all(f.evidence and f.fix for f in found)
    assert sum(a.confidence for a in found[0].alternatives) + found[0].confidence <= 1.001


@pytest.mark.parametrize(("code", "why", "files"), STILL, ids=[f"{c}-{w}" for c, w, _ in STILL])
def test_keeps_silent(code, why, files, tmp_path):
    assert judged(code, texts.case_of(texts.write(tmp_path, files))) == [], why


def test_every_rule_has_a_case_that_fires():
    assert {code for code, _, _ in FIRE} | {"SOFT207", "CODE201"} == MINE


@pytest.mark.parametrize(
    ("error", "cause", "severity"),
    [
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "duplicate-gpu", "warning"),
        ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed", "unknown", "info"),
    ],
)
def test_a_result_without_its_reason_is_told_as_possibilities(error, cause, severity, tmp_path):
    (found,) = judged("SOFT207", texts.case_of(texts.write(tmp_path, {"a.log": error + "\n"})))
    assert (found.cause, found.severity, found.subject.ranks) == (cause, severity, ())
    assert found.alternatives
    told = {"b.log": error + "\n" + warn("Error : no algorithm/protocol available")}
    assert judged("SOFT207", texts.case_of(texts.write(tmp_path, told))) == []


def test_the_rank_that_has_it_is_named_and_the_victims_are_not(tmp_path):
    case = texts.case_of(texts.write(tmp_path, next(files for code, _, files in FIRE if code == "GPUH201")))
    found = judged("GPUH201", case)
    assert found[0].subject.ranks == (2,)
    assert set(found[0].victims) == {0, 1, 3}


def test_the_blocked_peer_is_named_not_the_one_that_tells(tmp_path):
    found = judged("NETI202", texts.case_of(texts.write(tmp_path, FIRE[4][2])))
    assert found[0].subject.hosts == ("10.1.2.4",)
    assert found[0].subject.ranks == ()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Both nodes wait. Disabling the firewall on both machines fixed it.", "firewall"),
        ("One node of 32 is consistently slower than the others, and everybody waits for it.", "straggler"),
        ("Setting NCCL_IB_GID_INDEX=3 solved it.", "roce-gid"),
        ("The two machines have different versions of NCCL.", "nccl-version-mismatch"),
        ("The dataloader is the bottleneck: the GPUs idle most of the time.", "input-bound"),
        ("Some experts receive no tokens on a rank, and their all-gather is skipped there.", "conditional-collective"),
    ],
)
def test_the_words_of_a_person_name_a_cause_and_nobody(words, cause, tmp_path):
    found = judged("CODE201", texts.case_of(texts.write(tmp_path, {"note.txt": words + "\n"})))
    assert found[0].cause == cause
    assert found[0].confidence <= 0.75
    assert found[0].subject == Subject()
    assert found[0].fix


NOISE = (
    info("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.")
    + info("Failed to open libibverbs.so[.1]")
    + info("NET/IB : No device found.")
    + info("Using network Socket")
    + info("RAS failed to establish a client listening socket at localhost:28028")
    + info("cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.")
    + info("[Service thread] Connection closed by localRank 0")
    + info("Topology detection : could not read /sys/devices/pci0000:00/max_link_speed, ignoring")
    + "/x/site-packages/torch/foo.py:12: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\n"
    + "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
    + "Environment variable NCCL_BLOCKING_WAIT is deprecated; use TORCH_NCCL_BLOCKING_WAIT instead\n"
    + "Guessing device ID based on global rank. This can cause a hang if rank to GPU mapping is heterogeneous.\n"
    + "huggingface/tokenizers: The current process just got forked, after parallelism has already been used.\n"
    + "ERROR: ld.so: object '/opt/libfoo.so' from LD_PRELOAD cannot be preloaded: ignored.\n"
    + "set_mempolicy: Operation not permitted\n"
)
HEALTHY: dict[str, texts.Files] = {
    "noise and training": {"rank0/stdout.log": NOISE + texts.steps(200), "rank1/stdout.log": NOISE + texts.steps(200)},
    "noise alone": {"rank0/stdout.log": NOISE, "rank1/stdout.log": NOISE},
    "evaluations and checkpoints": {"a.log": (texts.steps(30) + "***** Running Evaluation *****\nSaving model checkpoint to out/checkpoint-5\n") * 3},
    "a RAS report of a running job": {"ras.txt": RAS},
    "a caught error": {"a.log": texts.traceback("ValueError: Tensors must be contiguous") + texts.steps(200)},
    "wheels and machines": {"env.txt": "torch==2.11.0\nnvidia-nccl-cu12==2.28.9\n8x NVIDIA H200, 2 TB RAM\nulimit -l : 65536\n"},
    "code beside a running job": {"a.log": texts.steps(200), "train.py": SAVE + CROSSED},
    "connections that were retried": {"a.log": info("ncclSocketConnect: connect to 10.1.2.4<34501> returned Connection refused, retrying (3/34) after sleep for 300 msec") + texts.steps(100)},
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_but_noisy_accuses_nobody(name, tmp_path):
    verdict = conclude(texts.case_of(texts.write(tmp_path, HEALTHY[name])), []).verdict
    assert verdict.cause in ("healthy", "unknown")
    assert verdict.culprits.ranks == ()


def test_what_is_only_noted_is_where_to_look_first(tmp_path):
    verdict = conclude(texts.case_of(texts.write(tmp_path, {"ras.txt": RAS})), []).verdict
    assert verdict.cause == "unknown"
    assert [a.cause for a in verdict.alternatives] == ["collective-desync"]
