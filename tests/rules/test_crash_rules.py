"""Crashes told by logs: the right cause, exactly the right ranks, and victims never."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.rules import crash_texts as texts
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.discovery import discover_rules
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.model.grades import SUPPORTED
from whichrank.timeline.case import Case

SAMPLES = ROOT / "tests" / "samples"
SHARED = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared"))
RULES = {rule.CODE: rule for rule in discover_rules()}
MINE = [
    code
    for code, rule in RULES.items()
    if hasattr(rule, "statements")  # they all speak through that module
    and not texts.is_on_known_messages(rule)  # those have their own tests
]
LAUNCHER = (
    '{"whichrank_last_words": 1, "host": "node1", "processes": [{"rank": 0, "pid": 11, "world_size": 2, "phase": "joined", '
    '"alive": true}, {"rank": 1, "pid": 12, "world_size": 2, "phase": "joined", "alive": true}], "launchers": [{"rank": -1, '
    '"pid": 10, "alive": false, "signal": 9, "ended_ns": 1794700000000000000}]}'
)
OOM = texts.traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 3 has a total")
OOM_OLD = texts.traceback(
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 77.02 GiB already "
    "allocated; 12.00 MiB free; 77.10 GiB reserved in total by PyTorch)"
)
ILLEGAL = (
    "[rank3]:[E1115 00:10:45.7 ProcessGroupNCCL.cpp:1] [PG 2 Rank 3] Process group watchdog thread terminated with "
    "exception: CUDA error: an illegal memory access was encountered\n"
)
ASSERT = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [0,0,0], thread: [64,0,0] Assertion "
    "`-sizes[i] <= index && index < sizes[i]` failed.\n" + texts.traceback("RuntimeError: CUDA error: device-side assert "
    "triggered")
)  # fmt: skip
WORKER = texts.traceback("RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is possible")
UNUSED = texts.traceback(
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error "
    "indicates that your module has parameters that were not used in producing loss.\nParameter indices which did not "
    "receive grad for rank 1: 2 3"
)
PORT = texts.traceback(
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
    "29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)
CONNECT = texts.traceback(
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to "
    "(10.28.1.16, 29400)."
)
DNS = (
    "[W1115 00:10:45.7 socket.cpp:755] [c10d] The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai "
    "error: -2 - Name or service not known).\n"
)
NO_ADDRESS = (
    "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:127] rp != nullptr. Unable to find "
    "address for: node-a7.cluster.example"
)
IFNAME = "node1:700:700 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth4\n"
UNSET = "ncclSocketInit: connecting to address  with family 21840 is neither AF_INET(2) nor AF_INET6(10)\n"
SEMAPHORE = texts.traceback(
    "OSError: [Errno 28] No space left on device", "/env/lib/python3.11/multiprocessing/synchronize.py", 57, "__init__"
)
JOBLIB = (
    "/env/lib/python3.11/site-packages/joblib/_multiprocessing_helpers.py:44: UserWarning: [Errno 28] No space left on "
    "device.  joblib will operate in serial mode\n"
)
SLURM = "srun: error: node7: task 2: Killed\n"
STUCK = (
    "[rank1]:[F1115 00:10:45.7 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL's "
    "watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"
)
DEATH = (
    "W1115 00:10:45.300000 900 site-packages/torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM "
    "death signal, shutting down workers\n"
)
SEEN = texts.steps(3)  # output of a rank that says nothing of its end
CLOSED = texts.lost_peer()
A, B = "OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float", "OpType=ALLREDUCE, TensorShape=[5], TensorDtypes=Float"
C = "OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Long"
D = "OpType=BROADCAST, TensorShape=[4], TensorDtypes=Float"
STALLED = (
    "[2026-11-15 00:10:45.181832: W /tmp/build/horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be "
    "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
    "Missing ranks:\n"
)
ONE_SIDE = "RuntimeError: Detected mismatch between collectives on ranks. Rank {0} is running inconsistent collective: CollectiveFingerPrint(OpType={1}, TensorShape=[8], TensorDtypes=Float\n"
BIG = "OpType=ALLREDUCE, TensorShape=[{}], TensorDtypes=BFloat16"

AGENT_LOST = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details."
DESYNC = (
    "[rank2]:[E1114 15:32:37.784530287 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 2]  failure detected by "
    "watchdog at work sequence id: 714 PG status: last enqueued work: 714, last completed work: 713\n"
    "\t - [2] Timeout at collective: ALLREDUCE, #714\n"
    "\t     [3] finished collective #713, but didn't join collective #714 (count from 1)\n"
)
CARRIED = (
    "Traceback (most recent call last):\n"
    '  File "/srv/train.py", line 30, in main\n    for batch in loader:\n'
    '  File "/opt/venv/lib/python3.12/site-packages/torch/_utils.py", line 750, in reraise\n    raise exception\n'
    "{0}: Caught {0} in DataLoader worker process 3.\n"
    "Original Traceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.12/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n'
    "    data = fetcher.fetch(index)\n"
    '  File "/srv/data.py", line 12, in __getitem__\n    return self.items[index]\n'
    "{0}: {1}\n\n"
)
ONLY_ONE = "".join(
    f"W1115 00:10:45.300000 900 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process {pid} closing signal"
    " SIGTERM\n"
    for pid in (1000, 1002)
) + texts.table({1: 3}, 1).replace("Failures:\n", "Failures:\n  <NO_OTHER_FAILURES>\n")
FIRE: list[tuple[str, str, texts.Files, tuple[int, ...]]] = [
    ("CODE101", "own exception", texts.ranks(4, {2: texts.traceback("KeyError: 'labels'"), 0: texts.GLOO_CLOSED}), (2,)),
    ("CODE101", "two ranks raise the same", texts.ranks(4, {r: texts.traceback(f"ValueError: bad sample {r}") for r in (1, 2)}, CLOSED), (1, 2)),
    ("CODE101", "found by the exit codes", {"job.log": texts.traceback("KeyError: 'x'") + texts.table({0: -15, 1: 1, 2: -15}, 1)}, (1,)),
    ("CODE101", "only an exit code", {"agent.err": texts.table({0: -15, 1: 1, 2: -15}, 1)}, (1,)),
    ("CODE101", "only the first is in the table", {"agent.err": ONLY_ONE}, (1,)),
    ("CODE101", "raised in a worker of the data loader", texts.ranks(2, {1: CARRIED.format("KeyError", "'b'")}, CLOSED), (1,)),
    ("CODE101", "one task of Slurm", {"job.log": "srun: error: node-0: task 7: Exited with exit code 1\nsrun: error: node-11: tasks 0-6: Terminated\n"}, ()),
    ("CODE101", "a failed download", texts.ranks(2, {1: texts.traceback("ConnectionRefusedError: [Errno 111] refused") + "\nThe above exception was the direct cause of the following exception:\n\n" + texts.traceback("requests.exceptions.ConnectionError: Max retries")}, CLOSED), (1,)),
    ("HOST101", "torch 2.x", texts.ranks(4, {3: OOM}, CLOSED), (3,)),
    ("HOST101", "torch before 2.1", texts.ranks(2, {0: OOM_OLD}), (0,)),
    ("HOST101", "NCCL's buffers", {"a.log": texts.nccl("Cuda failure 2 'out of memory'", rank=1), "b.log": texts.nccl("x", 0, pid=9)}, (1,)),
    ("HOST102", "Slurm saw the killer", {"job.log": "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been OOM Killed.\n"}, ()),
    ("HOST102", "Slurm names the task", {**texts.ranks(4, {}, CLOSED), "slurm.out": "srun: error: node7: task 2: Out Of Memory\n"}, (2,)),
    ("HOST102", "killed when memory was short", {"a.log": "node7: [INFO] [utils.py:793:see_memory_usage] CPU Virtual Memory:  used = 441.62 GB, percent = 97.7%\n" + texts.table({0: -9, 1: -15}, 0)}, (0,)),
    ("HOST102", "allocation failed", texts.ranks(2, {1: texts.traceback("RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error code 12 (Cannot allocate memory)")}), (1,)),
    ("HOST103", "by the agent's table", {"agent.err": texts.table({0: -15, 1: -15, 2: -9}, 2)}, (2,)),
    ("HOST103", "by Slurm, one task per rank", {**texts.ranks(4, {}, CLOSED), "slurm.out": SLURM}, (2,)),
    ("HOST103", "DeepSpeed's launcher", {"job.log": "[2026-11-15 00:10:45,220] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 80\n[2026-11-15 00:10:45,220] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'a.py', '--local_rank=3'] exits with return code = -9\n"}, ()),
    ("HOST103", "behind a progress bar", {"job.log": "  6%|▌         | 371/6256 [04:47<1:10:53, 13.82it/s]Killed\n"}, ()),
    ("HOST103", "an engine lost a worker", {"job.log": "(EngineCore pid=612) ERROR 11-15 02:36:11 [multiproc_executor.py:283] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.\n"}, ()),
    ("HOST104", "time limit", {"job.log": "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2026-02-11T02:36:11 DUE TO TIME LIMIT ***\n"}, ()),
    ("HOST104", "SIGTERM to the agent", {"agent.err": DEATH}, ()),
    ("HOST105", "node failure", {"job.log": "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2026-02-11T02:36:11 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"}, ()),
    ("HOST105", "no heartbeat", {"agent.err": "As part of the sync operation the node(s) node7_1234_0 have been removed from the rendezvous 'job' since they had no heartbeat.\n"}, ()),
    ("HOST106", "bus error", texts.ranks(2, {1: WORKER}, texts.GLOO_CLOSED), (1,)),
    ("HOST107", "NCCL 2.22 and later", {"a.log": texts.nccl("Error while creating shared memory segment /dev/shm/nccl-aB3 (size 9637888), error: No space left on device (28)", 1), "b.log": texts.nccl("x", 0, pid=9)}, (1,)),
    ("HOST107", "NCCL before 2.16", {"a.log": texts.nccl("Call to posix_fallocate failed : No space left on device", 1), "b.log": texts.nccl("x", 0, pid=9)}, (1,)),
    ("HOST107", "in a worker of the data loader", texts.ranks(2, {1: CARRIED.format("RuntimeError", "unable to allocate shared memory(shm) for file </torch_16_37_0>: Resource temporarily unavailable (11)")}, CLOSED), (1,)),
    ("HOST107", "a bus error in a worker", texts.ranks(2, {1: WORKER}, CLOSED), (1,)),
    ("HOST107", "a semaphore", texts.ranks(2, {1: SEMAPHORE}, CLOSED), (1,)),
    ("HOST107", "joblib's try", texts.ranks(2, {1: JOBLIB}, SEEN), (1,)),
    ("HOST108", "errno 24", texts.ranks(2, {0: texts.traceback("OSError: [Errno 24] Too many open files: 'x'")}), (0,)),
    ("HOST109", "errno 28", texts.ranks(2, {0: texts.traceback("OSError: [Errno 28] No space left on device: '/scratch/c.pt'")}, CLOSED), (0,)),
    ("CUDA102", "with the assertion", texts.ranks(2, {1: ASSERT}, CLOSED), (1,)),
    ("CUDA102", "torch 1.x", texts.ranks(2, {1: "THCudaCheck FAIL file=/pytorch/aten/src/THC/a.cu line=140 error=59 : device-side assert triggered\n" + texts.traceback("RuntimeError: cuda runtime error (59) : device-side assert triggered at /pytorch/aten/src/THC/a.cu:140")}, CLOSED), (1,)),
    ("CUDA103", "torch 1.x", texts.ranks(2, {1: texts.traceback("RuntimeError: cuda runtime error (700) : an illegal memory access was encountered at /pytorch/aten/src/THC/a.cu:140")}, CLOSED), (1,)),
    ("CUDA103", "ROCm", texts.ranks(2, {1: "Memory access fault by GPU node-3 (Agent handle: 0x55d0) on address 0x7f0000200000. Reason: Page not present or supervisor privilege.\nAborted (core dumped)\n"}, CLOSED), (1,)),
    ("CUDA103", "in the watchdog", {"job.log": ILLEGAL + texts.TIMED_OUT.format(0)}, (3,)),
    ("CUDA104", "exit code -11", {**texts.ranks(3, {}, CLOSED), "agent.err": texts.table({0: -15, 1: -11, 2: -15}, 1)}, (1,)),
    ("CUDA104", "faulthandler", texts.ranks(2, {0: 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "train.py", line 3 in f\n'}), (0,)),
    ("CUDA104", "heap", texts.ranks(2, {1: "double free or corruption (!prev)\n"}), (1,)),
    ("CUDA104", "the old launcher", {"job.log": "subprocess.CalledProcessError: Command '['/usr/bin/python3', '-u', 'a.py', '--local_rank=3']' died with <Signals.SIGSEGV: 11>.\n"}, ()),
    ("CUDA104", "Open MPI", {"job.log": "[n4:812] *** Process received signal ***\n[n4:812] Signal: Bus error (7)\n[n4:812] Signal code: Non-existant physical address (2)\n"}, ()),
    ("CUDA105", "stuck watchdog", texts.ranks(4, {1: STUCK}, SEEN), (1,)),
    ("LNCH108", "launcher killed", {"last_words.json": LAUNCHER}, ()),
    ("LNCH102", "store went first", texts.ranks(4, {1: texts.STORE_GONE, 2: texts.STORE_GONE}, SEEN), ()),
    ("LNCH103", "taken port", texts.ranks(2, {0: PORT}, CONNECT), (0,)),
    ("LNCH104", "the words of errno alone", {"rank1/stderr.log": texts.traceback("RuntimeError: Connection timed out", "/x/site-packages/torch/distributed/rendezvous.py", 95, "_env_rendezvous_handler"), "rank0/stderr.log": ""}, (1,)),
    ("LNCH102", "the agent was connected before", {"a.log": texts.traceback(AGENT_LOST, "/x/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", 1255, "num_nodes_waiting")}, ()),
    ("LNCH104", "the agent can't connect", {"a.log": texts.traceback(AGENT_LOST, "/x/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", 161, "_create_tcp_store")}, ()),
    ("LNCH102", "no heartbeat, and the workers are ended", {"a.log": "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n2_3427_0' has failed to send a keep-alive heartbeat to the rendezvous 'job' due to an error of type RendezvousConnectionError.\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 3494 closing signal SIGTERM\n"}, ()),
    ("CODE101", "a compiler that the rank started", texts.ranks(2, {1: texts.traceback("subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.")}, texts.lost_peer()), (1,)),
    ("LNCH102", "asked for NCCL's id", texts.ranks(2, {1: texts.traceback("RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer. This may indicate a possible application crash on rank 0 or a network set up issue.")}), ()),
    ("LNCH111", "one node of two", {"a.log": "".join(f"initializing ddp: GLOBAL_RANK: {r}, MEMBER: {r + 1}/8\n" for r in range(4))}, ()),
    ("LNCH111", "both nodes count from zero", {"a.log": "".join(f"Initializing distributed: GLOBAL_RANK: {r}, MEMBER: {r + 1}/8\n" for r in (0, 1, 0, 1, 2, 3))}, ()),
    ("CODE101", "its last line", {"a.log": "│ ❱  88 │   │   p_mask = batch[\"attention_mask\"]   │\n╰──────────────\nKeyError: 'attention_mask'\n"}, ()),
    ("CODE101", "its last line, with a prefix", {"a.log": '[rank4]:   File "/x/trainer.py", line 767, in mark\n[rank4]: AssertionError: Tying weights has to happen within a replica\n'}, (4,)),
    ("CODE101", "an argument that is not known", {"a.log": "train.py: error: unrecognized arguments: --local-rank=2\n"}, ()),
    ("SILE101", "the norm at the end", {"a.log": "".join(f" iteration {n:8d}/  250000 | learning rate: 2.999E-04 | loss scale: 1.0 | grad norm: nan |\n" for n in (5426, 5427))}, ()),
    ("LNCH104", "no connection", texts.ranks(4, {3: CONNECT}), (3,)),
    ("LNCH105", "crowded barrier", {"job.log": "Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=4, worker_count=16, timeout=0:01:00)\n"}, ()),
    ("LNCH105", "NCCL's bootstrap", {"a.log": texts.nccl("Bootstrap Root : rank 1 of 2 ranks has already checked in")}, ()),
    ("LNCH106", "up to NCCL 2.29", {"a.log": texts.nccl("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"), "b.log": texts.nccl("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60", 1, pid=9)}, (0, 1)),
    ("LNCH106", "NCCL 2.30", {"a.log": texts.nccl("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", size=3), "b.log": texts.nccl("x", 1, 3, 9), "c.log": texts.nccl("y", 2, 3, 10, bus="70")}, (0, 1)),
    ("LNCH106", "a smaller communicator", {"a.log": texts.nccl("x", 5, 8) + texts.nccl("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60", 1, 2)}, ()),
    ("LNCH103", "taken port, before 2.5", texts.ranks(2, {0: texts.traceback("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29512 (errno: 98 - Address already in use).")}, CONNECT), (0,)),
    ("LNCH107", "none", texts.ranks(4, {2: texts.traceback("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!")}, SEEN), (2,)),
    ("LNCH107", "ordinal", texts.ranks(4, {2: texts.traceback("RuntimeError: CUDA error: invalid device ordinal")}, SEEN), (2,)),
    ("NETI101", "resolver", texts.ranks(4, {1: DNS}, SEEN), (1,)),
    ("NETI101", "Gloo looks its own host up", texts.ranks(2, {1: texts.traceback(NO_ADDRESS)}, SEEN), (1,)),
    ("NETI102", "never filled in, beside a name that is set", {"a.log": IFNAME + UNSET}, ()),
    ("NETI102", "NCCL", {"a.log": texts.nccl("Bootstrap : no socket interface found", 1), "b.log": texts.nccl("x", 0, pid=9)}, (1,)),
    ("NETI102", "Gloo", texts.ranks(2, {1: texts.traceback("RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth9")}, SEEN), (1,)),
    ("NETI103", "NCCL's sign", texts.ranks(2, {1: texts.traceback("RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ^docker0")}, SEEN), (1,)),
    ("COLL120", "one rank skips", texts.ranks(4, {1: UNUSED}, texts.GLOO_CLOSED), (1,)),
    ("COLL120", "all skip", texts.ranks(2, {}, UNUSED), ()),
    ("COLL121", "DETAIL", texts.fingerprints({0: A, 1: A, 2: B, 3: A}), (2,)),
    ("COLL121", "two ranks have no majority", texts.fingerprints({0: A, 1: B}), ()),
    ("COLL121", "Gloo", texts.ranks(2, {0: "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"}), ()),
    ("COLL121", "another model", texts.ranks(4, {2: "[rank2]: RuntimeError: [2]: params[3] in this process with sizes [4, 5] appears not to match sizes of the same param in process 0.\n"}), (2,)),
    ("COLL122", "DETAIL", texts.fingerprints({0: A, 1: A, 2: A, 3: C}), (3,)),
    ("COLL123", "DETAIL", texts.fingerprints({0: D, 1: A, 2: A, 3: A}), (0,)),
    ("COLL137", "rank 0 alone", texts.ranks(4, {0: texts.TIMED_OUT.format(0).replace("ALLREDUCE", "_ALLGATHER_BASE"), **{r: texts.TIMED_OUT.format(r) for r in (1, 2, 3)}}), (0,)),
    ("COLL126", "gradient buckets", texts.fingerprints({0: BIG.format(195812480), 1: BIG.format(51123456), 2: BIG.format(51123456)}), (0,)),
    ("COLL134", "who is behind", {"a.log": DESYNC}, (3,)),
    ("COLL124", "rank 0 lists them", texts.ranks(4, {0: "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 30000 ms\n", 1: "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.\n"}, SEEN), (2,)),
    ("COLL124", "rank 0 is missing", texts.ranks(3, {r: f"[rank{r}]: RuntimeError: Rank {r} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.\n" for r in (1, 2)}), (0,)),
    ("COLL123", "one side", {"a.log": ONE_SIDE.format(0, "BROADCAST")}, ()),
    ("COLL123", "one side of each", {"a.log": "".join(ONE_SIDE.format(r, op) for r, op in enumerate(("BROADCAST", "ALLREDUCE")))}, ()),
    ("COLL121", "NCCL 2.4", {"a.log": "node1:7:9 [0] init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 5. You can use NCCL_DEBUG=INFO\n"}, ()),
    ("COLL121", "another number of parameters", {"a.log": texts.traceback("RuntimeError: DDP expects same model across all ranks, but Rank 2 has 128 params, while rank 0 has inconsistent 130 params.")}, ()),
    ("COLL127", "one is missing", {"a.log": STALLED + "3: [allreduce.a, allreduce.b]\n"}, (3,)),
    ("COLL127", "two of five", {"a.log": STALLED + "1: [allreduce.a]\n4!: [allreduce.a]\n"}, (1, 4)),
    ("COLL127", "most are missing", {"a.log": STALLED + "1: [allreduce.a]\n2: [allreduce.a]\n3: [allreduce.a]\n"}, ()),
    ("COLL127", "each lacks another", {"a.log": STALLED + "0: [allreduce.a]\n1: [allreduce.b]\n"}, ()),
    ("COLL127", "who is ready", {"a.log": STALLED.partition("\n")[0] + "Stalled ops: a [ready ranks: 3, 1, 0], b [ready ranks: 0, 1, 3]\n"}, (2,)),
    ("COLL127", "one alone is ready", {"a.log": STALLED.partition("\n")[0] + "Stalled ops: a [ready ranks: 3]\n"}, ()),
    ("COLL127", "the newest report", {"a.log": STALLED + "2: [allreduce.a]\n" + texts.steps(1) + STALLED + "1: [allreduce.z]\n"}, (1,)),
    ("COLL125", "totals differ", {**texts.ranks(3, {1: texts.steps(999, total=998), 0: texts.steps(999, total=1001) + texts.TIMED_OUT.format(0), 2: texts.steps(999, total=1001)})}, (1,)),
    ("COLL125", "Join", texts.ranks(2, {}, texts.traceback("RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks.")), ()),
    ("CONF101", "steps as long as the timeout", {"rank0/stderr.log": "".join(f"2026-11-15 00:1{i}:00 step {i}/100 loss 2.0\n" for i in range(8)) + "[rank0]:[E1115 00:18:45.7 ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=90000) ran for 90041 milliseconds before timing out.\n"}, ()),
    ("CONF102", "no launcher", {"job.log": texts.traceback("ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set")}, ()),
    ("SILE101", "one rank turns first", texts.ranks(3, {1: texts.steps(5) + texts.steps(5, "nan", first=5), 0: texts.steps(6) + texts.steps(4, "nan", first=6), 2: texts.steps(6) + texts.steps(4, "nan", first=6)}), (1,)),
    ("SILE101", "the norm of one rank", {"a.log": "".join(f"step {n} rank {r} loss {'nan' if n > 5 else '2.3'} grad_norm {'nan' if n > 5 else 'inf' if (n, r) == (5, 3) else '0.7'}\n" for n in range(9) for r in range(4))}, (3,)),
    ("SILE101", "the norm of all", {"a.log": "".join(f"step {n} rank {r} loss {'nan' if n > 5 else '2.3'} grad_norm {'nan' if n > 5 else 'inf' if n == 5 else '0.7'}\n" for n in range(9) for r in range(4))}, ()),
    ("SILE101", "all together", texts.ranks(2, {}, texts.steps(5) + texts.steps(5, "nan", first=5)), ()),
    ("SOFT101", "NCCL says so", {"a.log": texts.nccl("Mismatched NCCL version detected : rank 0 version 22803 rank 1 version 22105")}, ()),
    ("SOFT102", "too old", texts.ranks(2, {1: texts.traceback("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).")}, SEEN), (1,)),
]  # fmt: skip

NOISE = (
    "/opt/x.py:12: FutureWarning: torch.cuda.amp.autocast(args...) is deprecated.\n"
    "[rank0]:[W1115 00:00:01.1 ProcessGroupNCCL.cpp:1] Warning: WARNING: destroy_process_group() was not called before "
    "program exit, which can leak resources.\n"
    "[rank0]:[W1115 00:00:02.1 TCPStore.cpp:1] [c10d] recvValue failed on SocketImpl(fd=45, addr=[localhost]:4630, "
    "remote=[localhost]:29615): Failed to recv, got 0 bytes. Connection was likely closed.\n"
)  # fmt: skip
NCCL_NOISE = "".join(
    f"node1:700:700 [0] {line}\n"
    for line in (
        "NCCL INFO NCCL version 2.28.9+cuda13.0",
        "NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
        "NCCL WARN Failed to open libibverbs.so[.1]",
        "misc/socket.cc:64 NCCL INFO -> 3",
        "NCCL INFO [Service thread] Connection closed by localRank 1",
    )
)
CAUGHT = texts.traceback("ValueError: a sample that was skipped")
QUIET: list[tuple[str, texts.Files]] = [
    ("a norm that a scaler skipped", {"a.log": " iteration        1/  250000 | lm loss: 2.1E+00 | grad norm: nan |\n" + "".join(f" iteration {n:8d}/  250000 | lm loss: 2.0E+00 | grad norm: 1.5 |\n" for n in range(2, 30))}),
    ("all members met", {"a.log": "".join(f"GLOBAL_RANK: {r}, MEMBER: {r + 1}/8\n" for r in range(4)) + "All distributed processes registered. Starting with 8 processes\n"}),
    ("a noisy healthy job", {"rank0/stderr.log": texts.steps(30) + NOISE, "nccl.log": NCCL_NOISE}),
    ("an exception that was caught", {"rank0/stderr.log": CAUGHT + texts.steps(30)}),
    ("memory that ran out and was tried again", {"rank0/stderr.log": OOM + texts.steps(30)}),
    ("victims alone", texts.ranks(4, {}, CLOSED)),
    ("victims on Gloo", texts.ranks(4, {}, texts.GLOO_CLOSED)),
    ("time-outs alone", texts.ranks(4, {r: texts.TIMED_OUT.format(r) for r in range(4)})),
    ("aborts of the watchdog", {"agent.err": texts.table({0: -6, 1: -6, 2: -15}, 0), **texts.ranks(3, {r: texts.TIMED_OUT.format(r) for r in (0, 1)}, SEEN)}),
    ("aborts of another host after the first watchdogs", {"agent.err": texts.table({4: -6, 5: -6, 6: -15}, 4), "job.log": "[rank5]: loading\n", **texts.ranks(3, {r: texts.TIMED_OUT.format(r) for r in (0, 1)}, SEEN)}),
    ("crashes on the way out", {"agent.err": texts.table({0: -11, 1: -11, 2: -11}, 0), **texts.ranks(3, {}, CLOSED)}),
    ("an exception of Gloo that nobody caught", {"a.log": "terminate called after throwing an instance of 'gloo::IoException'\n  what():  [/x/gloo/transport/tcp/pair.cc:724] connect [10.0.0.2]:41877: Connection refused\nAborted (core dumped)\n"}),
    ("tasks of Slurm that all failed", {"job.log": "srun: error: node-0: tasks 0-3: Exited with exit code 1\nsrun: error: node-1: task 4: Terminated\n"}),
    ("aborts without a log", {"agent.err": texts.table({0: -6, 1: -15, 2: -15}, 0)}),
    ("SIGTERM by the launcher", {"agent.err": texts.table({0: -15, 1: -15}, 0)}),
    ("a gradient scaler that skips a step", texts.ranks(2, {}, texts.steps(4) + texts.steps(1, "inf", first=4) + texts.steps(9, first=5))),
    ("a name that resolved at the second try", {"rank1/stderr.log": DNS + "[rank1]:[I1115 00:00:09.1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0 Rank 1] ProcessGroupNCCL initialization options: size: 4, global rank: 1, TIMEOUT(ms): 600000\n"}),
    ("a store that was lost in the run", {"rank1/stderr.log": SEEN + CONNECT}),
    ("a stall that passed", {"a.log": STALLED + "3: [allreduce.a]\n" + texts.steps(30)}),
    ("an ignored exception", {"rank0/stderr.log": "Exception ignored in: <function D.__del__>\n" + CAUGHT}),
    ("an evaluation of another length", texts.ranks(2, {0: texts.steps(51, total=50), 1: texts.steps(99, total=1001) + texts.TIMED_OUT.format(1)})),
]  # fmt: skip


def judged(case: Case) -> list[Finding]:
    answers = [RULES[code].judge(case) for code in MINE]
    return [finding for answer in answers if not isinstance(answer, NotEvaluated) for finding in answer]


@pytest.mark.parametrize(("code", "name", "files", "ranks"), FIRE, ids=[f"{c}-{n}" for c, n, _, _ in FIRE])
def test_it_names_the_cause_and_the_ranks(tmp_path, code, name, files, ranks):
    found = judged(texts.case_of(texts.write(tmp_path, files)))
    mine = [f for f in found if f.code == code]
    assert [f.subject.ranks for f in mine] == [ranks]
    assert mine[0].cause == RULES[code].CAUSE
    assert mine[0].message.endswith(".")
    assert not set(mine[0].victims) & set(ranks)
    assert mine[0].confidence + sum(a.confidence for a in mine[0].alternatives) <= 1.0
    accused = {rank for f in found if f.grade >= Grade.SUPPORTS and f.severity == "error" for rank in f.subject.ranks}
    assert accused <= set(ranks)


def test_what_all_ranks_raise_accuses_none_of_them(tmp_path):
    files = texts.ranks(4, {r: texts.traceback("ValueError: the mix has no data left") for r in range(4)})
    (found,) = [f for f in judged(texts.case_of(texts.write(tmp_path, files))) if f.code == "CODE101"]
    assert (found.cause, found.subject.ranks, found.grade) == ("rank-exception", (), Grade.HINTS)


@pytest.mark.parametrize(("warned", "ranks"), [((2,), (2,)), ((), ()), ((1, 2), ())])
def test_ranks_that_give_up_on_their_loss(tmp_path, warned, ranks):
    said = "features.py:88: RuntimeWarning: divide by zero encountered in log10\n"
    raised = texts.traceback("RuntimeError: loss is nan for 60 batches, stopping")
    files = texts.ranks(4, {r: (said if r in warned else "") + raised for r in range(4)})
    found = diagnose([texts.write(tmp_path, files)], jobs=1).verdict
    assert (found.cause, found.category, found.culprits.ranks) == ("nan-origin", "corruption", ranks)


def test_every_rule_has_a_case_that_fires():
    # tests/rules/test_hardware_rules.py and test_joined_evidence.py
    on_hosts = {"HOST151", "HOST152", "HOST153", "HOST158", "RDMA152", "RDMA155"}
    assert {code for code, *_ in FIRE} == set(MINE) - on_hosts


@pytest.mark.parametrize(("name", "files"), QUIET, ids=[n for n, _ in QUIET])
def test_nobody_is_accused(tmp_path, name, files):
    found = judged(texts.case_of(texts.write(tmp_path, files)))
    assert [(f.code, f.message) for f in found] == []


def test_who_has_ended_is_not_one_that_does_not_come(tmp_path):
    words = "[rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.\n"
    ended = "E0526 11:02:25.394000 1399 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 0 (pid: 7090) of binary: /x/python\n"
    verdict = diagnose([texts.write(tmp_path, {"job.log": words + ended})]).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-exception", (0,))


@pytest.mark.parametrize(
    ("words", "name"), [("Segmentation fault (11)", "SIGSEGV"), ("Bus error (7)", "SIGBUS"), ("Aborted (6)", "SIGABRT")]
)
def test_the_signal_that_open_mpi_names(tmp_path, words, name):
    text = f"[n4:812] *** Process received signal ***\n[n4:812] Signal: {words}\n"
    (found,) = judged(texts.case_of(texts.write(tmp_path, {"job.log": text})))
    assert (found.code, name in found.message) == ("CUDA104", True)


def test_who_only_noticed_an_end_names_nobody_and_weighs_little(tmp_path):
    text = "RayWorkerProc rank=[1] died unexpectedly, shutting down executor.\n"
    (found,) = judged(texts.case_of(texts.write(tmp_path, {"rank0/stderr.log": text})))
    assert (found.cause, found.subject, found.grade is Grade.HINTS) == ("rank-killed", Subject(), True)
    assert "SIGKILL" not in found.message
    assert {a.cause for a in found.alternatives} == {"rank-native-crash", "host-out-of-memory"}


def test_a_signal_from_outside_accuses_nobody_and_explains_the_rest(tmp_path):
    killed = texts.table({0: -15, 1: -9}, 1).replace("00:10:45", "00:10:50")
    found = judged(
        texts.case_of(texts.write(tmp_path, {"agent.err": DEATH + killed, **texts.ranks(2, {}, texts.STORE_GONE)}))
    )
    assert [(f.code, f.severity, f.subject.ranks) for f in found] == [("HOST104", "warning", ())]


def test_a_process_that_the_agent_killed_is_a_victim(tmp_path):
    forced = (
        "W1115 00:10:46.300000 900 torch/distributed/elastic/multiprocessing/api.py:1029] Unable to shutdown process 1000 "
        "via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n"
    )
    files = {
        "agent.err": forced + texts.table({0: -9, 1: 1}, 1),
        **texts.ranks(2, {1: texts.traceback("KeyError: 1")}, SEEN),
    }
    found = judged(texts.case_of(texts.write(tmp_path, files)))
    assert [(f.code, f.subject.ranks) for f in found] == [("CODE101", (1,))]


def test_the_earlier_exception_comes_first(tmp_path):
    stamp = "[rank{}]:[E1115 00:1{}:45.710092703 x.cpp:683] hello, SeqNum=1\n"
    late = stamp.format(0, 5) + texts.lost_peer() + texts.traceback("AttributeError: 'NoneType'")
    files = texts.ranks(2, {1: stamp.format(1, 0) + texts.traceback("KeyError: 'labels'"), 0: late})
    found = [f for f in judged(texts.case_of(texts.write(tmp_path, files))) if f.code == "CODE101"]
    assert found[0].subject.ranks == (1,)
    assert found[0].subject.code[0].line == 118
    assert all(f.grade is Grade.HINTS for f in found[1:])


@pytest.mark.parametrize("count", ["0", "1506656875"])
def test_a_number_that_is_no_models(count, tmp_path):
    error = f"RuntimeError: DDP expects same model across all ranks, but Rank 2 has 128 params, while rank 0 has inconsistent {count} params."
    (found,) = judged(texts.case_of(texts.write(tmp_path, {"a.log": texts.traceback(error)})))
    assert (found.code, found.cause, found.subject.ranks) == ("COLL121", "conditional-collective", ())
    assert found.grade is Grade.HINTS
    assert f"128 and {count}" in found.message


def test_the_port_stands_in_the_address(tmp_path):
    files = next(files for code, name, files, _ in FIRE if (code, name) == ("LNCH103", "taken port, before 2.5"))
    (found,) = (f for f in judged(texts.case_of(texts.write(tmp_path, files))) if f.code == "LNCH103")
    assert "on port 29512:" in found.message


def test_a_crash_under_a_library_that_intercepts_calls(tmp_path):
    announced = "[HAMI-core Msg(812:140:libvgpu.c:836)]: Initializing.....\n"
    crash = "Segmentation fault (core dumped)\n"
    verdict = diagnose([texts.write(tmp_path / "a", {"a.log": announced + crash})], jobs=1).verdict
    assert (verdict.category, verdict.cause) == ("crash", "library-interposer")
    assert [a.cause for a in verdict.alternatives] == ["rank-native-crash"]
    trained = diagnose([texts.write(tmp_path / "b", {"a.log": announced + texts.steps(30) + crash})], jobs=1).verdict
    assert trained.cause == "rank-native-crash"


def test_recorded_kill():
    found = judged(texts.case_of(SAMPLES / "crashes" / "sigkill"))
    assert [(f.cause, f.subject.ranks) for f in found] == [("rank-killed", (2,))]
    assert any("-9" in ref.quote for ref in found[0].evidence)
    assert any("dmesg" in step.command for step in found[0].next)


def test_recorded_exception():
    found = judged(texts.case_of(SAMPLES / "torch_output" / "exception"))
    assert [(f.cause, f.subject.ranks) for f in found] == [("gpu-out-of-memory", (3,))]
    assert found[0].onset_ns is not None


def test_recorded_duplicate():
    for sample in ("torch_output/duplicate_gpu.log", "nccl/dup.log"):
        found = judged(texts.case_of(SAMPLES / sample))
        assert [(f.cause, f.subject.ranks) for f in found] == [("duplicate-gpu", (0, 1))], sample


@pytest.mark.parametrize(
    "name", ["nccl_h200/exception", "nccl_h200/sigkill", "nccl_h200_single/dup", "nccl_h200/healthy"]
)
def test_whole_recorded_cases(name):
    folder = SHARED / "cases" / name
    if not folder.is_dir():
        pytest.skip("the recorded cases are not beside this checkout")
    import yaml

    truth = yaml.safe_load((folder / "truth.yaml").read_text())
    found = judged(texts.case_of(folder))
    wanted = [] if truth["cause"] == "healthy" else [(truth["cause"], tuple(truth["culprit_ranks"]))]
    assert [(f.cause, f.subject.ranks) for f in found] == wanted


def test_a_hang_ended_by_hand_is_no_crash():
    folder = SHARED / "cases" / "nccl_h200" / "missing_rank"
    if not folder.is_dir():
        pytest.skip("the recorded cases are not beside this checkout")
    found = judged(texts.case_of(folder))
    assert [(f.cause, f.severity, f.subject.ranks) for f in found] == [("job-ended-from-outside", "warning", ())]


def codes(folder: Path, files: texts.Files) -> set[str]:
    return {f.code for f in judged(texts.case_of(texts.write(folder, files)))}


BUS = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"


@pytest.mark.parametrize(("size", "code"), [(None, "HOST107"), (64 << 10, "HOST107"), (128 << 20, "HOST106")])
def test_a_bus_error_where_shared_memory_has_room(tmp_path, size, code):
    """torch guesses what a bus error in a worker comes from; a file that was cut while it was mapped is another way."""
    files = texts.ranks(2, {1: BUS}, CLOSED)
    if size is not None:
        files["conditions.json"] = f'{{"whichrank_conditions": 1, "host": {{"name": "vm", "shm_kb": {size}}}}}'
    assert codes(tmp_path, files) & {"HOST106", "HOST107"} == {code}


def test_a_semaphore_is_no_file_on_a_disk(tmp_path):
    told = codes(tmp_path / "a", texts.ranks(2, {1: SEMAPHORE}, CLOSED))
    assert told & {"HOST107", "HOST109"} == {"HOST107"}
    assert codes(tmp_path / "b", texts.ranks(2, {1: JOBLIB}, SEEN)) == {"HOST107"}
    # What multiprocessing writes to is a disk where it is no lock, queue or segment.
    manager = SEMAPHORE.replace("synchronize.py", "managers.py")
    assert codes(tmp_path / "c", texts.ranks(2, {1: manager}, CLOSED)) & {"HOST107", "HOST109"} == {"HOST109"}


def test_a_host_name_is_no_interface(tmp_path):
    (found,) = judged(
        texts.case_of(texts.write(tmp_path, texts.ranks(2, {1: texts.traceback(NO_ADDRESS + ".")}, SEEN)))
    )
    assert found.cause == "hostname-resolution"
    assert "the name node-a7.cluster.example." in found.message
    assert "GLOO_SOCKET_IFNAME" in found.fix[0]
    assert [ref.locator for ref in found.evidence] == ["line 4"]  # the exception itself, and only once


def test_an_address_that_was_never_filled_in_needs_a_name_beside_it(tmp_path):
    assert codes(tmp_path, {"a.log": UNSET}) == set()


def test_a_name_may_end_with_the_dot_of_the_root_zone(tmp_path):
    files = {"agent.err": texts.table({0: -15, 1: -9}, 1, host="node7.")}
    (found,) = judged(texts.case_of(texts.write(tmp_path, files)))
    assert "node7." not in found.message
    assert found.subject.ranks == (1,)


def test_causes_are_of_their_family():
    for code in MINE:
        folder = RULES[code].__name__.split(".")[2].replace("_", "-")
        assert causes()[RULES[code].CAUSE].family == folder, code


def test_the_exception_of_a_worker_is_told_rather_than_what_carries_it(tmp_path):
    verdict = diagnose(
        [texts.write(tmp_path, texts.ranks(2, {1: CARRIED.format("KeyError", "'b'")}, CLOSED))], jobs=1
    ).verdict
    assert verdict.summary.startswith("Rank 1 raised KeyError: 'b' at data.py:12 in __getitem__")


def test_an_abort_of_the_only_rank_that_lost_nobody(tmp_path):
    """The agent tells all ranks to end, those that have died already among them."""
    told = "".join(
        f"W1115 15:50:07.838000 42 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process {1000 + r} closing "
        "signal SIGTERM\n" for r in range(3)
    )  # fmt: skip
    files = {
        "agent.err": told + texts.table({0: -11, 1: -6, 2: -11}, 0),
        **texts.ranks(3, {1: SEEN}, CLOSED),
    }
    verdict = diagnose([texts.write(tmp_path, files)], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-native-crash", (1,))


def test_the_first_to_end_where_only_the_exception_of_another_is_shown(tmp_path):
    verdict = diagnose([SAMPLES / "crashes" / "spawned"], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-exception", (1,))
    assert verdict.confidence < SUPPORTED
    # Who ended together with the others, or out of a wait, is not the first.
    whole = json.loads((SAMPLES / "crashes" / "spawned" / "last_words.json").read_text())
    for change in ({"ended_ns": whole["processes"][0]["ended_ns"] - 1_000_000}, {"waiting": True}):
        shutil.copytree(SAMPLES / "crashes" / "spawned", tmp_path / "case", dirs_exist_ok=True)
        altered = {
            **whole,
            "processes": [{**row, **(change if row["rank"] == 1 else {})} for row in whole["processes"]],
        }
        (tmp_path / "case" / "last_words.json").write_text(json.dumps(altered))
        assert diagnose([tmp_path / "case"], jobs=1).verdict.cause == "unknown"


def test_who_ended_by_another_size_where_all_others_agree():
    verdict = diagnose([SAMPLES / "crashes" / "another_size"], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("size-mismatch", (0,))
    assert "than ranks 1-3 to all_reduce #42" in verdict.summary


def test_nobody_is_named_where_only_two_are_left(tmp_path):
    """Of three dumps one is lost: it might have been the odd one as well."""
    shutil.copytree(SAMPLES / "crashes" / "another_size", tmp_path / "case")
    (tmp_path / "case" / "dumps" / "rank_2").unlink()
    verdict = diagnose([tmp_path / "case"], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("size-mismatch", ())


def test_a_crash_that_a_library_reports_on_the_host_of_one_task(tmp_path):
    lines = [
        "[c608-061:2760180:0:2760180] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x40)",
        "==== backtrace (tid:2760180) ====",
        "srun: error: c608-061: task 1: Segmentation fault (core dumped)",
        "[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, remote process exited",
        "srun: error: c608-071: task 3: Exited with exit code 1",
    ]
    (tmp_path / "slurm-1.out").write_text("\n".join(lines) + "\n")
    (tmp_path / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --ntasks-per-node=1\nsrun python train.py\n"
    )
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-native-crash", (1,))
    assert "SIGSEGV" in verdict.summary


@pytest.mark.parametrize(
    ("above", "ranks"),
    [
        ("training stopped on rank 1", (1,)),
        ("rank=1 step 82: skipping nothing, giving up", (1,)),
        ("lost connection to rank 1", ()),
        ("no answer from rank 1 for rank 2", ()),
    ],
)
def test_an_exception_that_a_logger_printed(tmp_path, above, ranks):
    """Four ranks in one stream: the line of the logger says whose it is."""
    steps = "".join(
        f"[2026-11-19 01:25:5{n},100][INFO] rank={rank} step={n}0 loss=1.2\n" for n in range(4) for rank in range(4)
    )
    raised = texts.traceback("KeyError: 'en-IE'")
    (tmp_path / "job.log").write_text(f"{steps}[2026-11-19 01:25:54,079][ERROR] {above}\n{raised}")
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-exception", ranks)


@pytest.mark.parametrize(("above", "ranks"), [("training failed: KeyError", (3,)), ("round 3 done", ())])
def test_an_exception_below_the_line_of_a_worker(tmp_path, above, ranks):
    """Nothing says rank; all lines with a time say which worker they are of."""
    steps = "".join(f"2026-11-19 13:52:3{n}.87 | worker {n} | round 1 loss 0.3{n}\n" for n in range(4))
    raised = texts.traceback("KeyError: 'en-IE'")
    (tmp_path / "job.log").write_text(f"{steps}2026-11-19 13:52:42.41 | worker 3 | {above}\n{raised}")
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-exception", ranks)


def test_a_checkpoint_that_a_restart_can_not_read(tmp_path):
    """It was not written to its end: that is why, and not what the ranks of the next attempt raise."""
    wrote = "[enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file data/871: file write failed"
    read = "PytorchStreamReader failed reading zip archive: failed finding central directory"
    raised = '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "train.py", line 9, in main\n'
    raised += "[rank{0}]: RuntimeError: {1}\n"
    again = "".join(raised.format(rank, read) for rank in (3, 2, 1))
    (tmp_path / "job.log").write_text(
        f"step 1 loss 2\nstep 2 loss 1\n{raised.format(0, wrote)}  restart_count=1\n{again}"
    )
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.ranks) == ("disk-full", (0,))


@pytest.mark.parametrize(("stale", "cause"), [(82500, "replica-divergence"), (84000, "unknown")])
def test_ranks_that_went_on_from_different_steps(tmp_path, stale, cause):
    for host, ranks, step in (("kite", (0, 1), 84000), ("heron", (2, 3), stale)):
        lines = "".join(
            f"2024-09-02 22:10:34.46{r} | INFO     | asr:log:285 - rank {r}: resume from /ckpt/last.ckpt: step {step}, rng\n"
            for r in ranks
        )
        lines += "".join(
            f"2024-09-02 22:1{n}:34.466 | INFO     | asr:fit:9 - step {step + n} loss 0.9\n" for n in range(5)
        )
        (tmp_path / f"asr_{host}.log").write_text(lines)
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.ranks) == (cause, (2, 3) if stale == 82500 else ())
