"""Rules on known messages: each fires on the words of several versions, and keeps silent on what is harmless."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import conclude, diagnose
from whichrank.flows.discovery import discover_rules
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.model.grades import SUPPORTED
from whichrank.timeline.case import Case

RULES = {rule.CODE: rule for rule in discover_rules()}
MINE = {code for code, rule in RULES.items() if texts.is_on_known_messages(rule) or hasattr(rule, "_possible")}


def warn(text: str, host: str = "node1", pid: int = 100, place: str = "misc/socket.cc:500") -> str:
    return f"{host}:{pid}:{pid + 7} [0] {place} NCCL WARN {text}\n"


def info(text: str, host: str = "node1", pid: int = 100) -> str:
    return f"{host}:{pid}:{pid + 7} [0] NCCL INFO {text}\n"


def status(number: int, extra: str = "") -> str:
    return warn(
        f"NET/IB : Got completion from peer 10.1.1.2<40000> with status={number} opcode=0 len=0 vendor err 0 (Send){extra}"
    )


def barrier(rank: int, joined: int) -> str:
    return f"[rank{rank}]: Waiting in store based barrier to initialize process group for 10.2 secondsrank: {rank}, key: store_based_barrier_key:0 (world_size=4, num_workers_joined={joined}, timeout=0:30:00 error=Socket Timeout)\n"


TIMED_OUT = texts.TIMED_OUT.format(1)
NAN_CHECK = "/pytorch/torch/csrc/distributed/c10d/NanCheck.cu:208: checkForNaN: block: [0,0,0], thread: [21,0,0] Assertion `!isnan(data[i])` failed.\n"
ROOT_OF_EXTENSIONS = "Using /root/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...\n"
EARLY = TIMED_OUT.replace("SeqNum=15", "SeqNum=2")
STARTED = info("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC") + info("Connected all rings")
GDR_OFF = info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")
DEVINFO = "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tlink_layer:\t\t{}\n"
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


def queue(host: str, mtu: int) -> str:
    return info(f"NET/IB: IbDev 0 Port 1 qpn 4711 mtu {mtu} GID 3 (0/15040B0AFFFF0000) fifoRkey=0x2bf0c", host)


REFUSED = warn("NET/IB : Got completion from peer 10.11.4.21<47182> with status=9 opcode=129 len=0 vendor err 138")
SENT = (
    "Traceback (most recent call last):",
    '  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2627, in send',
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:4257, internal error, NCCL 2.28.9",
    "ncclInternalError: Internal check failed.",
    "Last error:",
    "ncclSocketInit: connecting to address  with family 1 is neither AF_INET(2) nor AF_INET6(10)",
)
TOO_MANY = "UserWarning: This DataLoader will create 12 worker processes in total. Our suggested max number of worker in current system is 4\n"


def timings(host: str, first: int, fetch: float) -> str:
    """Four lines of each of four ranks of a host."""
    ranks = range(first, first + 4)
    started = "".join(
        info(f"comm 0x55 rank {r} nranks 8 cudaDev {r % 4} - Init COMPLETE", host, 100 + r) for r in ranks
    )
    return started + "".join(
        f"[rank {r}] last 100: total 47.1s  fetch {fetch + r / 100}s  sync 1.0s\n" for r in 4 * [*ranks]
    )


def network(host: str, name: str, *before: str) -> str:
    return "".join(before) + info(f"Using network {name}", host, 100)


LIBRARY = "{}: libibverbs: Warning: couldn't load driver '{}': {}: cannot open shared object file\n"
NO_DEVICE = info("NET/IB : No device found.")

FIRE: list[tuple[str, str, texts.Files]] = [
    ("SLOW209", "one of two hosts", {"node1.log": timings("node1", 0, 1.0), "node2.log": TOO_MANY + timings("node2", 4, 41.0)}),
    ("RDMA213", "a library that one host lacks", {f"node{n}.log": network(f"node{n}", "Socket" if n == 2 else "IB") for n in (1, 2, 3)}),
    ("RDMA214", "named by NCCL", {"a.log": info("NCCL_IB_HCA set to mlx5_0:1,mlx5_1:1") + NO_DEVICE}),
    ("RDMA214", "named in the launch", {"a.log": "NCCL_IB_HCA=mlx5_0 torchrun train.py\n" + NO_DEVICE}),
    ("RDMA155", "MTUs of queue pairs", {"a.log": queue("node1", 3) + queue("node2", 5) + REFUSED}),
    ("SLOW208", "load on 80 CPUs", {"a.txt": "CPU(s):              80\n 16:20:41 up 31 days,  3 users,  load average: 604.12, 588.30, 571.07\n"}),
    ("SLOW208", "load alone", {"a.txt": "top - 11:20:31 up 12 days, load average: 1381.22, 1377.90, 1340.07\n"}),
    ("SLOW206", "two, and another with all", {"a.txt": "pid 7's current affinity list: 0\npid 8's current affinity list: 0\npid 2's current affinity list: 0-95\n"}),
    ("RDMA207", "devices that no library opens", {"a.log": info("Failed to open libibverbs.so[.1]") + info("Using network Socket") + "$ ls /dev/infiniband\nrdma_cm  uverbs0  uverbs1\n"}),
    ("SLOW206", "taskset", {"a.txt": "".join(f"pid {1993574 + n}'s current affinity list: 0\n" for n in range(4))}),
    ("SLOW206", "OpenMP", {"a.txt": "".join(f"OMP: Info #250: KMP_AFFINITY: pid {47242 + n} tid {47242 + n} thread 0 bound to OS proc set 0\n" for n in range(4))}),
    ("NETI210", "the host's own name", {"a.log": "RuntimeError: Gloo connectFullMesh failed with [../pair.cc:144]\n  timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:40213\n"}),
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
    ("RDMA202", "RoCE by its ports, never answered", {"a.log": status(12), "devinfo.txt": DEVINFO.format("Ethernet")}),
    ("RDMA203", "port error", {"a.log": warn("NET/IB : mlx5_7:1 Got async event : port error")}),
    ("RDMA203", "port error, before 2.20", {"a.log": warn("NET/IB : Got async event : port error")}),
    ("RDMA203", "the adapter failed", {"a.log": warn("NET/IB : Got async event : local catastrophic error")}),
    ("RDMA203", "no answer in a run that had worked", {"a.log": texts.steps(30) + status(12)}),
    ("RDMA204", "timed out", {"a.log": warn("Call to ibv_modify_qp failed with error Connection timed out", place="misc/ibvwrap.cc:284")}),
    ("RDMA204", "InfiniBand never answered", {"a.log": status(12)}),
    ("RDMA204", "InfiniBand by its ports", {"a.log": status(12), "devinfo.txt": DEVINFO.format("InfiniBand")}),
    ("RDMA205", "two networks", {"a.log": status(12, GIDS.format(1, 2))}),
    ("RDMA206", "not opened", {"a.log": warn("NET/IB : Unable to open device mlx5_0")}),
    ("RDMA207", "no provider", {"a.log": "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n"}),
    ("RDMA207", "none, and a bridge", {"a.log": warn("Failed to open libibverbs.so[.1]") + info("NET : Using interface eth0:172.17.0.4<0>")}),
    ("RDMA152", "libibverbs warns", {"a.log": "[rank1]: libibverbs: Warning: RLIMIT_MEMLOCK is 32768 bytes.\n[rank1]: " + warn("Call to ibv_reg_mr failed")}),
    ("HOST160", "asleep", {"a.log": "Nov  3 20:41:51 ws2 systemd-logind[1066]: The system will suspend now!\n[rank0]:[E1119 21:11:52.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=3, NumelOut=3, Timeout(ms)=600000) ran for 600051 milliseconds before timing out.\n"}),
    ("RDMA208", "reg_mr", {"a.log": warn("Call to ibv_reg_mr failed with error Cannot allocate memory")}),
    ("RDMA208", "create_cq", {"a.log": warn("Call to ibv_create_cq failed with error Cannot allocate memory")}),
    ("RDMA208", "UCX", {"a.log": "ib_iface.c:961  UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory\n"}),
    ("RDMA209", "plain sockets, 1.12", {"a.log": info("NET/OFI Selected Provider is tcp (found 2 nics)")}),
    ("RDMA209", "plain sockets, 1.14", {"a.log": info("NET/OFI Selected provider is tcp, fabric is 10.2.0.0/16 (found 2 nics)")}),
    ("RDMA209", "no provider", {"a.log": "find_ofi_provider:500 NCCL WARN NET/OFI No eligible providers were found\n"}),
    ("RDMA210", "transfer", {"a.log": "ofi_process_cq:222 NCCL WARN NET/OFI Request 0x7f01 completed with error. RC: 113. Error: No route to host. Completed length: 0\n"}),
    ("RDMA211", "peermem", {"a.log": "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument (nvidia-peermem)\n"}),
    ("RDMA211", "slow without it", {"a.log": info("GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)"), "note.txt": "two nodes are slower than one node\n"}),
    ("RDMA212", "ping", {"a.log": "From 10.77.1.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)\n"}),
    ("GPUH106", "nvidia-smi in the log", {"a.log": "gpu04 | GPU 3 91 C, clocks_throttle_reasons.hw_thermal_slowdown Active\n"}),
    ("GPUH201", "python", texts.ranks(4, {2: texts.traceback("RuntimeError: CUDA error: uncorrectable ECC error encountered")}, texts.lost_peer())),
    ("GPUH202", "the last of the driver's three lines", {"a.log": "epoch 3\nNVRM: system has fallen off the bus and is not responding to commands.\n"}),
    ("GPUH202", "nvml", {"a.log": "Unable to determine the device handle for GPU 0000:17:00.0: GPU is lost.  Reboot the system to recover this GPU\n"}),
    ("GPUH203", "cuda", {"a.log": texts.traceback("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution")}),
    ("GPUH204", "802", {"a.log": "Test CUDA failure common.cu:941 'system not yet initialized'\n"}),
    ("GPUH204", "nvls, cut at the end", {"a.log": warn("Cuda failure 999 'unknown error", place="transport/nvls.cc:254")}),
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
    ("LNCH201", "a lock was there", {"a.log": "Warning: Lock file exists in build directory: '/root/.cache/torch_extensions/py310_cu121/plugin/lock'\n" + ROOT_OF_EXTENSIONS}),
    ("LNCH201", "nobody builds", {"a.log": "Loading extension module fused_adam...\n" + ROOT_OF_EXTENSIONS * 4}),
    ("LNCH201", "nobody builds, time-outs", {"a.log": ROOT_OF_EXTENSIONS * 2 + TIMED_OUT}),
    ("HOST201", "the same file on several ranks but not rank 0", {"a.log": "".join(f"[rank{n}]: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pack/ready.tmp'\n" for n in (8, 11, 9))}),
    ("HOST201", "index", texts.ranks(4, {2: texts.traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/index-cache/abc_shuffle_idx.npy'")}, texts.lost_peer())),
    ("HOST202", "killed", {"a.log": "Loading checkpoint shards:  33%|███▎      | 1/3\n" + texts.table({0: -9, 1: -15}, 0)}),
    ("HOST203", "make", {"a.log": "make: warning:  Clock skew detected.  Your build may be incomplete.\n"}),
    ("CONF201", "no algorithm", {"a.log": warn("Error : no algorithm/protocol available for function Broadcast with datatype ncclInt8", place="enqueue.cc:1")}),
    ("CONF202", "exported", {"a.log": "export NCCL_TIMEOUT=7200\n" + TIMED_OUT}),
    ("COLL201", "contiguous", texts.ranks(4, {1: texts.traceback("ValueError: Tensors must be contiguous")}, texts.lost_peer())),
    ("COLL201", "another device", {"a.log": warn("AllReduce : sendbuff allocated on device 0 mismatchs with NCCL device 1", place="misc/argcheck.cc:30")}),
    ("COLL202", "under a guard", {"a.log": TIMED_OUT, "train.py": SAVE}),
    ("COLL202", "a log that reduces", {"a.log": TIMED_OUT, "model.py": "if self.trainer.is_global_zero:\n    self.log('val_loss', loss, sync_dist=True)\n"}),
    ("COLL203", "both send first", {"a.log": TIMED_OUT, "train.py": "if rank == 0:\n    dist.send(a, 1)\n    dist.recv(b, 1)\nelse:\n    dist.send(a, 0)\n    dist.recv(b, 0)\n"}),
    ("COLL203", "crossed", {"a.log": TIMED_OUT, "train.py": CROSSED}),
    ("COLL204", "counts", {"ras.txt": RAS}),
    ("COLL143", "two sends", {"a.log": "".join(f"[rank{r}]: {line}\n" for r in (0, 2) for line in SENT)}),
    ("COLL136", "batches", {"a.log": "".join(f"[rank{r}]: {1000 if r == 2 else 1024} batches per epoch\n" for r in range(4)) + TIMED_OUT}),
    ("COLL205", "iterable", {"a.log": TIMED_OUT, "note.txt": "custom IterableDataset with dynamic batching\n"}),
    ("SLOW201", "mapping", {"a.log": "Map (num_proc=16):  35%|███▌      | 35000/100000 [12:01<22:20]\n" + EARLY}),
    ("SLOW201", "NCCL's id did not come", {"a.log": "Running tokenizer on dataset:  35%|███▌      | 35/100 [30:01<22:20]" + texts.traceback("RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout")}),
    ("SLOW201", "the main process goes first", {"a.log": texts.traceback("RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout", "/x/site-packages/transformers/training_args.py", 1891, "main_process_first")}),
    ("COLL208", "DeepSpeed", {"a.log": "RuntimeError: disagreement between rank0 and rank2: rank0: [4, 5, 6], rank2: [4, 5, 9]\n"}),
    ("GPUH206", "DCGM", {"a.log": "Detected clocks event due to thermal violation in GPU 3.\n"}),
    ("PCIE205", "DCGM", {"a.log": "Detected more than 8 PCIe replays per minute for GPU 3 : 41\n"}),
    ("SLOW207", "Slurm", {"a.log": "slurmstepd: error: CPU binding outside of job step allocation, allocated CPUs are: 0x00FF.\n"}),
    ("GPUH205", "GSP", {"a.log": "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL).\n"}),
    ("LNCH203", "two lists of devices", {"a.log": "# nThread 1 nGpus 8\n# Using devices\n# nThread 1 nGpus 8\n# Using devices\n#  Rank  0 Group  0 Pid    798 on       n14 device  0\n"}),
    ("LNCH203", "two averages", {"a.log": "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.75\n#\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.68\n"}),
    ("SLOW201", "half an hour, then somebody raised", {"a.log": 'Running tokenizer on dataset:  47%|████▊     | 169/363 [30:09<33:25, 96.30 examples/s]Traceback (most recent call last):\n  File "/x/train.py", line 14, in <module>\n'}),
    ("SLOW201", "waited at the store", {"a.log": "Tokenizing Prompts (num_proc=64):  92%|█████████▏| 328/359 [29:58<12:05, 41.59 examples/s]\n[rank1]:[W516 14:34:56.854597329 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=79, addr=[localhost]:41170, remote=[localhost]:29500) timed out after 1800000ms\n"}),
    ("SLOW203", "a title that repeats the message", {"issue.md": "Watchdog caught collective operation timeout\n\n```\nEvaluating the results...\n[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4178, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803391 milliseconds before timing out.\n```\n"}),
    ("SLOW203", "a few words alone", {"a.log": "start running validation\nSome NCCL operations have failed or timed out.\n"}),
    ("SLOW202", "saving", {"a.log": "Saving model checkpoint to output/checkpoint-500\n" + TIMED_OUT}),
    ("SLOW202", "saving the latest", {"a.log": "Saving latest checkpoint model to /ckpt\n" + TIMED_OUT}),
    ("SLOW203", "evaluating", {"a.log": "***** Running Evaluation *****\n" + TIMED_OUT}),
    ("SLOW205", "timed out", texts.ranks(2, {1: texts.traceback("RuntimeError: DataLoader timed out after 120 seconds")}, texts.lost_peer())),
    ("HOST204", "ssh", {"a.log": "ssh: connect to host node3 port 22: Connection timed out\n"}),
    ("HOST205", "errno 116", texts.ranks(4, {2: texts.traceback("OSError: [Errno 116] Stale file handle: '/data/shard-0007.bin'")}, texts.lost_peer())),
    ("LNCH202", "store", {"a.log": "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.\n"}),
    ("SILE201", "Megatron", {"a.log": "AssertionError: Parameter hashes not matching across DP replicas\n"}),
    ("SILE202", "Megatron", {"a.log": "Rank 3, node gpu-12, device 3, iteration #812: First rerun: unexpected result is not reproducible within the tolerance (2.1 != nan)\n"}),
    ("SILE203", "the loss", {"a.log": "AssertionError: Rank 12: found NaN in local forward loss calculation. Device: 4, node: gpu-12\n"}),
    ("SILE203", "the gradients", {"a.log": "RuntimeError: Rank 3, node gpu-12, device 3, iteration 812: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')\n"}),
    ("SILE203", "the smallest scale", {"a.log": "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\n" + texts.traceback("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")}),
    ("SILE203", "the smallest scale, fairseq", {"a.log": texts.traceback("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.")}),
    ("COLL206", "a value", {"a.log": TIMED_OUT, "train.py": "import torch.distributed as dist\nif loss.item() > threshold:\n    dist.all_reduce(flag)\n"}),
    ("COLL207", "another module", {"a.log": "Invalidate trace cache @ step 12: expected module 25, but got module 323\n" + TIMED_OUT.replace("ALLREDUCE", "_ALLGATHER_BASE")}),
    ("LNCH202", "the start barrier since 2.1", {"a.log": "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank 0, for key: store_based_barrier_key:0 (world_size=16, num_workers_joined=8, timeout=0:30:00 error=Socket Timeout)\n"}),
    ("LNCH202", "waited for, and no more words", {"a.log": barrier(0, 3) + barrier(1, 3)}),
    ("LNCH202", "the start barrier", {"a.log": "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=16, worker_count=8, timeout=0:30:00)\n"}),
    ("SLOW202", "told", {"a.log": TIMED_OUT, "note.txt": "The barrier expires while rank 0 consolidates the checkpoint into one file.\n"}),
    ("SLOW203", "told", {"a.log": TIMED_OUT, "note.txt": "Rank 0 runs the validation with beam search, which takes more than 30 minutes.\n"}),
    ("SLOW204", "tuning", {"a.log": "AUTOTUNE mm(4096x4096, 4096x4096)\n" + TIMED_OUT}),
    ("LNCH205", "slots", {"a.log": "There are not enough slots available in the system to satisfy the 16\n"}),
    ("LNCH205", "sizes", {"a.log": texts.traceback("RuntimeError: The sizes `data_parallel_size=4` and `tensor_parallel_size=4` multiplied should equal the world size (8).")}),
    ("CODE212", "a typo", {"a.log": "/usr/bin/python3: can't open file '/job/trian.py': [Errno 2] No such file or directory\n"}),
    ("LNCH206", "torchrun", {"a.log": texts.traceback("ValueError: port is missing in endpoint: node1. Try to specify --master-port")}),
    ("SOFT213", "records of another size", {"a.log": warn("Message truncated : received 1024 bytes instead of 256", place="bootstrap.cc:77")}),
    ("NETI205", "out of band", {"a.log": warn("no device found matching =eth7, verify NCCL_OOB_NET_IFNAME", place="bootstrap.cc:90")}),
]  # fmt: skip

STILL: list[tuple[str, str, texts.Files]] = [
    ("SLOW209", "both hosts", {"node1.log": TOO_MANY + timings("node1", 0, 1.0), "node2.log": TOO_MANY + timings("node2", 4, 41.0)}),
    ("SLOW209", "the other host is late", {"node1.log": TOO_MANY + timings("node1", 0, 1.0), "node2.log": timings("node2", 4, 41.0)}),
    ("SLOW209", "nobody is late", {"node1.log": timings("node1", 0, 1.0), "node2.log": TOO_MANY + timings("node2", 4, 1.0)}),
    ("RDMA214", "nobody asks for RDMA", {"a.log": NO_DEVICE}),
    ("RDMA214", "all but some", {"a.log": info("NCCL_IB_HCA set to ^mlx5_0") + NO_DEVICE}),
    ("RDMA214", "found on another host", {"a.log": info("NCCL_IB_HCA set to mlx5_0:1") + NO_DEVICE + info("NET/IB : Using [0]mlx5_0:1/IB", "node2")}),
    ("SLOW208", "busy, not overloaded", {"a.txt": "CPU(s):              80\n 16:20:41 up 31 days,  3 users,  load average: 91.12, 88.30, 71.07\n"}),
    ("SLOW208", "unknown machine", {"a.txt": "load average: 191.12, 188.30, 171.07\n"}),
    ("SLOW206", "each its own", {"a.txt": "".join(f"pid {1993574 + n}'s current affinity list: {n}\n" for n in range(4))}),
    ("SLOW206", "all of them all", {"a.txt": "".join(f"pid {1993574 + n}'s current affinity list: 0-63\n" for n in range(4))}),
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
    ("SILE203", "a scale that is looked for", {"a.log": "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"}),
    ("LNCH201", "built after all", {"a.log": "Warning: Lock file exists in build directory: '/x/plugin/lock'\n" + ROOT_OF_EXTENSIONS * 4 + "Loading extension module plugin...\n"}),
    ("LNCH201", "one builds", {"a.log": ROOT_OF_EXTENSIONS * 4 + "Emitting ninja build file /x/plugin/build.ninja...\n"}),
    ("LNCH201", "one process that only began", {"a.log": ROOT_OF_EXTENSIONS}),
    ("LNCH201", "removed by the program", {"a.log": "warning: Lock file exists in build directory: '/x/plugin/lock', removing\n"}),
    ("LNCH201", "something else came", {"a.log": ROOT_OF_EXTENSIONS * 4 + texts.traceback("KeyError: 'x'")}),
    ("CONF202", "no time-out", {"a.log": "export NCCL_TIMEOUT=7200\n" + texts.steps(30)}),
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
    ("RDMA209", "the fabric's own provider", {"a.log": info("NET/OFI Selected provider is efa, fabric is efa (found 32 nics)")}),
    ("RDMA209", "plain sockets, and training", {"a.log": info("NET/OFI Selected Provider is tcp (found 2 nics)") + texts.steps(30)}),
    ("CODE202", "it came up", {"a.log": GDR_OFF + info("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0")}),
    ("CODE202", "training", {"a.log": GDR_OFF + texts.steps(3)}),
    ("CODE202", "a whole log", {"a.log": GDR_OFF + info("Setting affinity for GPU 0") * 120}),
    ("CODE202", "a message that tells more", {"a.log": GDR_OFF + status(4)}),
    ("RDMA211", "off and not slow", {"a.log": info("GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")}),
    ("RDMA203", "a port that is up", {"a.log": warn("NET/IB : Got async event : port active")}),
    ("HOST205", "survived", {"a.log": "OSError: [Errno 116] Stale file handle\n" + texts.steps(40)}),
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
    ("HOST201", "the same file, rank 0 too", {"a.log": "".join(f"[rank{n}]: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pack/ready.tmp'\n" for n in (0, 1, 2))}),
    ("HOST201", "missing on all", texts.ranks(2, {}, texts.traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/index-cache/abc_shuffle_idx.npy'"))),
    ("HOST202", "killed in training", {"a.log": "Loading checkpoint shards:  33%|███▎      | 1/3\n" + texts.steps(30) + texts.table({0: -9, 1: -15}, 0)}),
    ("COLL201", "survived", {"a.log": texts.traceback("ValueError: Tensors must be contiguous") + texts.steps(40)}),
    ("COLL202", "guarded, and nobody waits", {"a.log": texts.steps(5), "train.py": SAVE}),
    ("COLL202", "in both branches", {"a.log": TIMED_OUT, "train.py": SAVE + "else:\n    dist.barrier()\n"}),
    ("COLL203", "same order", {"a.log": TIMED_OUT, "train.py": CROSSED.replace("    dist.irecv(y, 0)\n    dist.all_reduce(x)", "    dist.all_reduce(x)\n    dist.irecv(y, 0)")}),
    ("COLL205", "no time-out", {"note.txt": "custom IterableDataset with dynamic batching\n"}),
    ("SLOW201", "no time-out", {"a.log": "Map (num_proc=16):  35%|███▌      | 35000/100000 [12:01<22:20]\n"}),
    ("LNCH202", "waited for, and passed", {"a.log": barrier(0, 3) + "Rank 0: Completed store-based barrier for key:store_based_barrier_key:0 with 4 nodes.\n"}),
    ("LNCH202", "waited for, and trained", {"a.log": barrier(0, 3) + texts.steps(30)}),
    ("LNCH203", "two tests, one after the other", {"a.log": ("# Using devices\n#  Rank  0 Group  0 Pid    798 on       n14 device  0\n# Avg bus bandwidth    : 1.75\n" * 2)}),
    ("COLL208", "training goes on", {"a.log": "Mismatched data types: One rank had type int64, but another rank had type uint8.\n" + texts.steps(30)}),
    ("SLOW201", "five minutes, and an exception", {"a.log": 'Running tokenizer on dataset:  47%|████▊     | 169/363 [05:09<33:25, 96.30 examples/s]Traceback (most recent call last):\n  File "/x/train.py", line 14, in <module>\n'}),
    ("SLOW201", "the store was lost, nobody waited", {"a.log": texts.traceback("RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer", "/x/site-packages/transformers/training_args.py", 1891, "main_process_first")}),
    ("SLOW202", "saved long before", {"a.log": "Saving model checkpoint to output/checkpoint-500\n***** Running Evaluation *****\n" + TIMED_OUT}),
    ("LNCH205", "nobody is too many", {"a.log": barrier(0, 3)}),
    ("CODE212", "started again", {"a.log": "python: can't open file '/job/trian.py': [Errno 2] No such file\n" + texts.steps(40)}),
    ("LNCH206", "the agent is told twice", {"a.log": "ValueError: port is missing in endpoint: node1. Try to specify --master-port\n" + texts.steps(40)}),
    ("SOFT213", "a transfer, not the start", {"a.log": warn("NET/Socket : peer 10.1.2.4<34501> message truncated : receiving 1048576 bytes instead of 65536")}),
    ("CUDA102", "torch's check for NaN", {"a.log": NAN_CHECK + texts.traceback("RuntimeError: CUDA error: device-side assert triggered")}),
    ("NETI205", "the interface of the bootstrap", {"a.log": info("Bootstrap : Using eth0:10.1.2.3<0>")}),
]  # fmt: skip


def judged(code: str, case: Case) -> list[Finding]:
    answer = RULES[code].judge(case)
    return [] if isinstance(answer, NotEvaluated) else answer


@pytest.mark.parametrize(("code", "why", "files"), FIRE, ids=[f"{c}-{w}" for c, w, _ in FIRE])
def test_fires(code, why, files, tmp_path):
    found = judged(code, texts.case_of(texts.write(tmp_path, files)))
    assert [f.cause for f in found] == [RULES[code].CAUSE], why
    assert all(f.evidence and f.fix for f in found)
    assert not any(a.confidence for a in found[0].alternatives), "the verdict shares out what is left"


@pytest.mark.parametrize(("code", "why", "files"), STILL, ids=[f"{c}-{w}" for c, w, _ in STILL])
def test_keeps_silent(code, why, files, tmp_path):
    assert judged(code, texts.case_of(texts.write(tmp_path, files))) == [], why


def test_every_rule_has_a_case_that_fires():
    assert {code for code, _, _ in FIRE} | {
        "SOFT207",
        "CODE201",
        "CODE202",
        "CODE203",
        "CODE204",
        "CODE211",
        "NETI153",
    } == MINE


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


@pytest.mark.parametrize(
    ("code", "name"), [("LNCH201", "nobody builds"), ("SILE203", "the smallest scale"), ("CONF202", "exported")]
)
def test_nobody_is_named_where_all_do_it(code, name, tmp_path):
    files = next(files for c, n, files in FIRE if (c, n) == (code, name))
    marked = {path: "".join(f"[rank2]: {line}\n" for line in text.splitlines()) for path, text in files.items()}
    (found,) = judged(code, texts.case_of(texts.write(tmp_path, marked)))
    assert (found.subject.ranks, found.victims) == ((), ())


def test_a_timeout_that_nobody_reads_is_told_beside_the_wait(tmp_path):
    files = next(files for code, _, files in FIRE if code == "CONF202")
    verdict = conclude(texts.case_of(texts.write(tmp_path, files)), []).verdict
    assert verdict.cause == "collective-desync"
    assert [a.cause for a in verdict.alternatives] == ["wrong-environment"]
    assert "gave up after 600 s" in verdict.alternatives[0].why


def test_a_graph_that_was_given_is_the_first_suspect(tmp_path):
    words = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed\n"
    words += info("NCCL_GRAPH_FILE set by environment to /opt/vendor/graph.xml")
    (found,) = judged("SOFT207", texts.case_of(texts.write(tmp_path, {"a.log": words})))
    assert (found.cause, found.subject.ranks) == ("wrong-environment", ())
    assert found.confidence + sum(a.confidence for a in found.alternatives) <= 1.0


def test_the_rank_that_has_it_is_named_and_the_victims_are_not(tmp_path):
    case = texts.case_of(texts.write(tmp_path, next(files for code, _, files in FIRE if code == "GPUH201")))
    found = judged("GPUH201", case)
    assert found[0].subject.ranks == (2,)
    assert set(found[0].victims) == {0, 1, 3}


def test_the_blocked_peer_is_named_not_the_one_that_tells(tmp_path):
    files = next(files for code, _, files in FIRE if code == "NETI202")
    found = judged("NETI202", texts.case_of(texts.write(tmp_path, files)))
    assert found[0].subject.hosts == ("10.1.2.4",)
    assert found[0].subject.ranks == ()


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (GDR_OFF, "gdr-disabled"),
        ("ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n", "p2p-acs-iommu"),
        (warn('Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!'), "p2p-acs-iommu"),
        ("libfabric:81:1700000000::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa output empty list\n", "efa-provider-missing"),
    ],
)  # fmt: skip
def test_a_hint_that_stands_alone_is_told_as_a_hint(line, cause, tmp_path):
    verdict = diagnose([texts.write(tmp_path, {"a.log": line})], jobs=1).verdict
    assert (verdict.cause, verdict.culprits, verdict.victims) == (cause, Subject(), ())
    assert verdict.confidence < SUPPORTED
    assert "is a hint" in verdict.summary
    assert not verdict.summary.endswith(("..", "!."))


def test_the_rank_that_a_message_names_is_named(tmp_path):
    for rank, words in ((12, "AssertionError: Rank 12: found NaN in local grad norm in backward pass. Device: 4"),
                        (3, "[rank3]: RuntimeError: Rank 3, node gpu-1, device 3, iteration 8: Unexpected result nan (message='found NaN in local grad norm for bucket #0')")):  # fmt: skip
        (found,) = judged("SILE203", texts.case_of(texts.write(tmp_path / str(rank), {"a.log": words + "\n"})))
        assert found.subject.ranks == (rank,)
        assert found.message.startswith((f"Rank {rank} had values", f"Rank {rank} on gpu-1 had values"))


def test_a_sentence_is_one_sentence(tmp_path):
    """Who is meant in lower case within it, the message from where it begins, one full stop."""
    row = (
        "           8             2   float     sum"
        "node1: Test CUDA failure common.cu:253 'no kernel image is available for execution on the device'\n"
    )
    (found,) = judged("SOFT201", texts.case_of(texts.write(tmp_path / "a", {"a.log": row})))
    assert (
        found.message == "The build has no code for this GPU: no kernel image is available for execution on the device."
    )
    (found,) = judged("RDMA204", texts.case_of(texts.write(tmp_path / "b", {"a.log": status(12)})))
    assert found.message.startswith("The adapter of a process has no path to its peer: Got completion from")


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
    assert (found[0].kind, found[0].grade < Grade.PROVES) == ("reports", True)
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


def test_who_is_missing_at_the_start_barrier_is_named_where_all_others_are_there(tmp_path):
    words = "".join(barrier(rank, 3) for rank in (0, 1, 3))
    (found,) = judged("LNCH202", texts.case_of(texts.write(tmp_path / "all", {"a.log": words})))
    assert (found.subject.ranks, found.victims) == ((2,), (0, 1, 3))
    assert "Rank 2 did not reach" in found.message
    (found,) = judged("LNCH202", texts.case_of(texts.write(tmp_path / "some", {"a.log": barrier(0, 3)})))
    assert found.subject.ranks == ()
    assert "1 of 4 ranks did not reach" in found.message


def timed_out(
    rank: int, op: str, numel: int, *, group: str = "0 (default_pg)", seq: int = 78, told: bool = True
) -> str:
    stamp = f"[rank{rank}]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:"
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000)"
    first = f"{stamp}607] [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600026 milliseconds before timing out.\n"
    more = f"{stamp}1664] [PG {group} Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}.\n"
    return first + (more if told else "")


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        (timed_out(3, "BROADCAST", 4096), "conditional-collective"),
        (timed_out(3, "ALLREDUCE", 4097), "size-mismatch"),
        (timed_out(3, "ALLREDUCE", 2), "collective-desync"),
        (
            timed_out(3, "ALLREDUCE", 2) + "train:  99%|#########9| 9801/9805 [3:51:12<00:05,  1.41s/it, loss=2.183]\n",
            "uneven-inputs",
        ),
        (timed_out(3, "_REDUCE_SCATTER_BASE", 7), "conditional-collective"),
    ],
)
def test_time_outs_at_one_number_are_compared(odd, cause, tmp_path):
    others = "".join(timed_out(rank, "ALLREDUCE", 4096) for rank in range(3))
    verdict = diagnose([texts.write(tmp_path, {"job.log": others + odd})]).verdict
    assert (verdict.category, verdict.cause, verdict.culprits.ranks) == ("hang", cause, (3,))


def test_time_outs_of_groups_of_some_ranks_are_not_compared(tmp_path):
    words = "".join(
        timed_out(rank, ("ALLREDUCE", "BROADCAST")[rank % 2], 8, group=f"{1 + rank % 2}") for rank in range(4)
    )
    verdict = diagnose([texts.write(tmp_path, {"job.log": words.replace("Rank 3] Exc", "Rank 1] Exc")})]).verdict
    assert verdict.cause not in ("collective-order", "size-mismatch")
    # All wait in the same operation of a second group of all ranks.
    words = "".join(timed_out(rank, "ALLREDUCE", 8, group="1", told=rank != 2) for rank in range(4))
    verdict = diagnose([texts.write(tmp_path / "second", {"job.log": words})]).verdict
    assert verdict.cause == "collective-stalled"
    assert "work 78 of group 1" in verdict.summary


def test_a_pasted_block_may_be_indented(tmp_path):
    words = "".join(timed_out(rank, "ALLREDUCE", 8) for rank in range(3)) + timed_out(3, "BROADCAST", 8)
    indented = "".join(f"    {line}\n" for line in words.splitlines())
    assert diagnose([texts.write(tmp_path, {"job.log": indented})]).verdict.culprits.ranks == (3,)


SHARED_MEMORY_FAILED = (
    warn("Cuda failure 2 'out of memory'", place="include/alloc.h:120")
    + info("include/alloc.h:158 -> 1")
    + info("{}:528 -> 1")
    + "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n"
    + "[rank0]: Cuda failure 2 'out of memory'\n"
)


@pytest.mark.parametrize(
    ("file", "cause"), [("transport/shm.cc", "cumem-host"), ("transport/p2p.cc", "gpu-out-of-memory")]
)
def test_whose_memory_nccl_could_not_get(file, cause, tmp_path):
    log = texts.write(tmp_path, {"job.log": SHARED_MEMORY_FAILED.format(file)})
    assert diagnose([log]).verdict.cause == cause


UNREACHED = (
    info("NET/IB : Using [0]mlx5_0:1/{} [RO]; OOB bond0:10.0.0.6<0>")
    + "{}"
    + warn("Call to ibv_modify_qp failed with error Connection timed out", place="misc/ibvwrap.cc:284")
)
CHOSEN = info("NCCL_IB_GID_INDEX set by environment to 1.")


@pytest.mark.parametrize(
    ("layer", "said", "cause"),
    [("RoCE", CHOSEN, "roce-gid"), ("RoCE", "", "ib-fabric-partition"), ("IB", CHOSEN, "ib-fabric-partition")],
)
def test_a_gid_that_the_job_chose_itself(layer, said, cause, tmp_path):
    assert diagnose([texts.write(tmp_path, {"job.log": UNREACHED.format(layer, said)})]).verdict.cause == cause


@pytest.mark.parametrize(("limit", "cause"), [(1, "timeout-too-short"), (600000, "collective-stalled")])
def test_a_timeout_that_nothing_can_keep(limit, cause, tmp_path):
    words = "".join(timed_out(rank, "ALLREDUCE", 1).replace("=600000", f"={limit}") for rank in range(4))
    assert diagnose([texts.write(tmp_path, {"job.log": words})]).verdict.cause == cause


def test_gpudirect_off_matters_to_who_measures_speed(tmp_path):
    assert judged("RDMA211", texts.case_of(texts.write(tmp_path / "job", {"a.log": GDR_OFF + STARTED}))) == []
    log = GDR_OFF + STARTED + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 20.9817\n"
    verdict = diagnose([texts.write(tmp_path / "test", {"a.log": log})]).verdict
    assert (verdict.category, verdict.cause) == ("slow", "gdr-disabled")


def test_large_packets_that_one_host_loses(tmp_path):
    line = "h{:02} -> h00: ping -c2 -s 56: 2 received; ping -c2 -M do -s 8972: {} received\n"
    pings = "".join(line.format(host, 0 if host == 7 else 2) for host in range(1, 16))
    mtus = "h00: rdma0 mtu 9000 state UP  mlx5_0 active_mtu: 4096 (5) state: PORT_ACTIVE\n"
    failed = warn("NET/IB: Got completion from peer 10.70.0.17<44719> with status=12 opcode=0 len=0 vendor err 129")
    found = diagnose([texts.write(tmp_path / "lost", {"a.log": mtus + pings + failed})]).findings[0]
    assert found.cause == "mtu-mismatch"
    assert [ref.locator for ref in found.evidence] == ["line 8"]
    assert diagnose([texts.write(tmp_path / "usual", {"a.log": mtus})]).verdict.cause != "mtu-mismatch"


def test_the_rank_that_alone_says_that_its_epoch_ended(tmp_path):
    log = (
        "2025-03-19 20:16:55,018 DEBUG TRAIN | rank 0 | Batch 0/3500 loss 1.09\n"
        "2025-03-19 20:16:55,025 DEBUG TRAIN | rank 1 | Batch 0/3500 loss 1.12\n"
        "2025-03-19 20:17:02,660 INFO rank 1 | Epoch 0 TRAIN done, 3505 batches, start CV\n"
    )
    log += timed_out(0, "ALLREDUCE", 203161600, told=False) + timed_out(1, "ALLREDUCE", 1, told=False)
    verdict = diagnose([texts.write(tmp_path, {"job.log": log})]).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("uneven-inputs", (1,))


def test_queue_pairs_of_the_same_mtu(tmp_path):
    log = queue("node1", 5) + queue("node2", 5) + REFUSED
    assert judged("RDMA155", texts.case_of(texts.write(tmp_path, {"job.log": log}))) == []


def test_verbs_are_missing_where_they_are_wanted(tmp_path):
    missing = info("Failed to open libibverbs.so[.1]") + info("Using network Socket")
    wanted = info("NCCL_IB_HCA set to mlx5_0:1")
    assert judged("RDMA207", texts.case_of(texts.write(tmp_path / "any", {"a.log": missing}))) == []
    (found,) = judged("RDMA207", texts.case_of(texts.write(tmp_path / "wanted", {"a.log": wanted + missing})))
    assert found.cause == "ib-missing-userspace"


def test_every_node_is_its_own_rendezvous(tmp_path):
    line = "+ torchrun --nnodes={} --node-rank=1 --rdzv-backend=c10d --rdzv-endpoint=localhost:15213 -m train\n"
    ended = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
    verdict = diagnose([texts.write(tmp_path / "2", {"a.log": line.format(2) + ended})]).verdict
    assert verdict.cause == "rendezvous-endpoint"
    case = texts.case_of(texts.write(tmp_path / "1", {"a.log": line.format(1) + ended}))
    assert judged("LNCH206", case) == []


def test_a_benchmark_that_failed_beside_one_that_did_not(tmp_path):
    failed = "blackws01: Test CUDA failure common.cu:303 'an illegal memory access was encountered'\n"
    good = "NCCL version 2.31.2+cuda12.9\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 21.9\n"
    verdict = diagnose([texts.write(tmp_path, {"old.log": failed, "new.log": good})]).verdict
    assert (verdict.category, verdict.cause) == ("crash", "cuda-illegal-access")


def test_the_one_host_that_waits_for_a_lock(tmp_path):
    looked_for = ROOT_OF_EXTENSIONS * 2
    files = {f"gpu-{n}.log": info("cudaDriverVersion 12020", f"gpu-{n}", 100 + n) + looked_for for n in range(3)}
    for name in ("gpu-0.log", "gpu-2.log"):
        files[name] += "Loading extension module fused_adam...\n" * 2 + texts.TIMED_OUT.format(int(name[4]))
    (found,) = judged("LNCH201", texts.case_of(texts.write(tmp_path, files)))
    assert found.subject.hosts == ("gpu-1",)


def test_the_one_host_that_waits_for_a_lock_in_the_output_of_all(tmp_path):
    said = [info("cudaDriverVersion 12020", f"gpu-{n}", 100 + n) for n in range(3)]
    said += [f"gpu-{n}: {ROOT_OF_EXTENSIONS}" for n in range(3) for _ in range(2)]
    said += [f"gpu-{n}: Loading extension module fused_adam...\n" for n in (0, 2)] + [TIMED_OUT]
    (found,) = judged("LNCH201", texts.case_of(texts.write(tmp_path, {"all.log": "".join(said)})))
    assert found.subject.hosts == ("gpu-1",)


@pytest.mark.parametrize(("odd", "named"), [("0x1", ("c21",)), ("0xFFF", ()), ("0xFF00", ())])
def test_a_task_that_slurm_gives_far_fewer_cpus(tmp_path, odd, named):
    masks = [odd if task == 2 else "0xFF" for task in range(4)]
    said = "".join(
        f"{t}: cpu-bind=MASK - c2{t // 2}, task  {t}  {t % 2} [64{t}]: mask {m} set\n" for t, m in enumerate(masks)
    )
    found = judged("SLOW206", texts.case_of(texts.write(tmp_path, {"job.out": said})))
    assert tuple(host for f in found for host in f.subject.hosts) == named


@pytest.mark.parametrize(
    ("drivers", "cause"),
    [
        ({1: ["libefa"], 2: ["libefa", "libmlx5"], 3: ["libefa"]}, "ib-missing-userspace"),
        ({1: ["libefa"], 2: ["libefa"], 3: ["libefa"]}, "ib-device-not-exposed"),
        ({1: [], 2: [], 3: []}, "ib-device-not-exposed"),
    ],
)
def test_a_library_that_is_missing_where_sockets_are_used_alone(tmp_path, drivers, cause):
    said = {
        f"node{n}.log": network(
            f"node{n}", "Socket" if n == 2 else "IB", *(LIBRARY.format(f"node{n}", name, name) for name in names)
        )
        for n, names in drivers.items()
    }
    (found,) = judged("RDMA213", texts.case_of(texts.write(tmp_path, said)))
    assert (found.cause, found.subject.hosts) == (cause, ("node2",))
