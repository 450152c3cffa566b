"""Evidence of jobs that are well, full of words that look like failures: nobody is accused."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

Files = dict[str, str]


def steps(
    count: int = 60, first: int = 0, line: str = "step {step}/1000 loss {loss:.4f} lr 3.0e-04 grad_norm 0.812"
) -> str:
    return "".join(line.format(step=first + n, loss=2.5 - 0.001 * n) + "\n" for n in range(count))


def info(text: str, level: str = "INFO", pid: int = 4411) -> str:
    return f"node1:{pid}:{pid + 60} [0] NCCL {level} {text}\n"


def ranks(text: str, count: int = 2) -> Files:
    """The same output of every rank, as torchrun redirects it."""
    return {f"rank{rank}/stderr.log": text for rank in range(count)}


def kernel(text: str, stamp: str = "Mon Nov  3 02:11:05 2025") -> str:
    return f"[{stamp}] {text}\n"


START = (
    info("Bootstrap: Using eth0:192.0.2.2<0>")
    + "NCCL version 2.28.9+cuda12.9\n"
    + info("comm 0x55d3479b71fb rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1 - Init COMPLETE")
)
DONE = info("comm 0x55d3479b71fb rank 0 nranks 2 cudaDev 0 busId 1b000 - Destroy COMPLETE")
BOOT = "".join(
    f"[    {n / 100:.6f}] ACPI: SSDT 0x000000006EF{n:03X}000 000{n:03X} (v02 INTEL  CpuSsdt)\n" for n in range(120)
)
RAS = """NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 640
  1 ranks have launched up to operation 641
  Rank 2 -- GPU 2 managed by process 4413 on node 192.0.2.2
"""
CAUGHT = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 88, in step\n    loss = model(batch)\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB\n"
    "WARNING: out of memory in step 31, the batch is split and tried again\n"
)
DOWNLOAD = (
    'Traceback (most recent call last):\n  File "/app/hub.py", line 12, in get\n    r.raise_for_status()\n'
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded\n"
    "Retrying in 1s [Retry 1/5].\n"
)

NOISY: dict[str, Files] = {
    "deprecations": ranks("/x/site-packages/torch/amp/a.py:12: FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated.\n/x/b.py:3: UserWarning: The given NumPy array is not writable\n" + steps()),
    "the launcher's notices": {"torchrun.log": "W1115 02:36:11.1 900 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded\n" + steps()},
    "torch's notices at the start": ranks("[W1115 02:36:11.1 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.\n[W1115 02:36:11.1 Utils.hpp:164] Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING is deprecated; use TORCH_NCCL_ASYNC_ERROR_HANDLING instead (function operator())\n" + steps()),
    "gloo on one host": ranks("[W1115 02:36:11.1 ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())\n[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n" + steps()),
    "RAS of a running job": {"ncclras.txt": RAS},
    "RAS of a running job, and its log": {"ncclras.txt": RAS, **ranks(START + steps(200))},
    "an Xid of another GPU days before": {"rank0/stderr.log": START + steps(400), "dmesg.txt": kernel("NVRM: Xid (PCI:0000:9b:00): 31, pid=911, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted", "Mon Nov  3 02:11:05 2025") + kernel("systemd[1]: Started Daily apt download activities.", "Fri Nov 14 06:00:01 2025")},
    "a kernel log of a quiet host": {"dmesg.txt": BOOT + kernel("EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro") + kernel("nvidia-nvlink: Nvlink Core is being initialized, major device number 234")},
    "corrected errors of PCIe": {"dmesg.txt": BOOT + kernel("pcieport 0000:00:01.1: AER: Corrected error received: 0000:00:01.1") + kernel("pcieport 0000:00:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"), **ranks(steps())},
    "a person ends it": {"torchrun.log": steps(200) + '^CTraceback (most recent call last):\n  File "/app/train.py", line 40, in <module>\n    main()\nKeyboardInterrupt\n'},
    "no plug-ins and no verbs": ranks(info("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.") + info("Failed to open libibverbs.so[.1]") + info("NET/IB : No device found.") + START + steps()),
    "an old plug-in interface": ranks(info("NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.") + info("NET/Plugin: Loaded net plugin Libfabric (v7)") + info("NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.") + START + steps()),
    "teardown of the proxies": ranks(START + steps() + info("[Service thread] Connection closed by localRank 0") + info("[Service thread] Connection closed by localRank 1") + DONE),
    "a port scanner": ranks(info("socketFinalizeAccept: socket magic mismatch (0x1 != 0x2), discarding") + START + steps(200)),
    "RAS port taken": ranks(info("RAS failed to establish a client listening socket at localhost:28028") + START + steps()),
    "not destroyed at the end": ranks(steps(100) + "[rank0]:[W1115 02:36:11.710092703 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. For more info, please see https://pytorch.org/docs (function operator())\n"),
    "the store goes last": ranks(START + steps(100) + DONE + '[W1115 02:36:11.7 TCPStore.cpp:106] [c10d] recvVector failed on SocketImpl(fd=3, addr=[node1]:41620, remote=[node1]:29500): Connection was likely closed\n[W1115 02:36:11.7 ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0 Rank 1] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?\n'),
    "tokenizers": ranks("huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\t- Avoid using `tokenizers` before the fork if possible\n" + steps()),
    "progress bars": {"a.log": "".join(f"\rTraining:  {n}%|{'#' * (n // 10):<10}| {n * 10}/1000 [00:{n % 60:02d}<10:00,  1.61it/s, loss=2.{n:02d}]" for n in range(1, 99)) + "\n"},
    "out of memory, caught and tried again": {"rank0/stderr.log": steps(30) + CAUGHT + steps(60, 31), "rank1/stderr.log": steps(91)},
    "a connection that was tried again": ranks(info("ncclSocketConnect: connect to 192.0.2.4<34501> returned Connection refused, retrying (3/34) after sleep for 300 msec") + "[W1115 02:36:11.1 socket.cpp:752] [c10d] The client socket has failed to connect to [node0]:29500 (errno: 111 - Connection refused).\n" + START + steps(100)),
    "a download that was tried again": ranks(DOWNLOAD + steps(100)),
    "counters at nothing": {"a.log": steps(80, line="step {step}/1000 loss {loss:.4f} nan_count 0 inf_count 0 skipped 0 errors 0 oom_count=0")},
    "words that look like errors": {"a.log": steps(80, line="step {step}/1000 loss {loss:.3f} error_rate=0.01 timeout=1800 wer 0.12 dropped_tokens 0 retries=0") + "validation: 0 errors, 0 failed, deadlock detector: off\n"},
    "arguments of a run": {"a.log": "  timeout_minutes ................................. 30\n  distributed_timeout_minutes ..................... 10\n  log_straggler ................................... False\n  check_for_nan_in_loss_and_grad .................. True\n  overlap_grad_reduce ............................. False\n  rerun_mode ...................................... validate_results\n" + steps()},
    "loss scale of mixed precision": {"a.log": "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n" + steps(80)},
    "gradients that overflowed once": {"a.log": steps(40) + "step 40/1000 loss 2.4610 lr 3.0e-04 grad_norm inf\n" + steps(40, 41)},
    "evaluations and checkpoints": {"a.log": (steps(30) + "***** Running Evaluation *****\nEvaluating: 100%|##########| 500/500 [05:10<00:00]\nSaving model checkpoint to out/checkpoint-500\n") * 3},
    "compiling before the first step": ranks("AUTOTUNE mm(4096x4096, 4096x4096)\nW1115 02:36:11.1 88 torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.cache_size_limit (8)\n" + steps(60)),
    "preparing before the first step": ranks("Map (num_proc=16): 100%|##########| 100000/100000 [12:01<00:00, 48.5 examples/s]\n> WARNING: could not find index map files, building the indices on rank 0 ...\n > elapsed time to build and save doc-idx mapping (seconds): 12.1\n" + steps(60)),
    "a sharing library": ranks("[HAMI-core Msg(812:140:libvgpu.c:836)]: Initializing.....\n[HAMI-core Msg(812:140:libvgpu.c:855)]: Initialized\n" + START + steps()),
    "limits and mounts of a host": {"limits.txt": "core file size (blocks, -c) 0\nmax locked memory (kbytes, -l) 65536\nopen files (-n) 1048576\n", "df.txt": "Filesystem      Size  Used Avail Use% Mounted on\n/dev/loop3       64M   64M     0 100% /snap/core20/1974\n/dev/sda1       1.8T  1.1T  700G  61% /\ntmpfs           504G   12G  492G   3% /dev/shm\n", **ranks(steps())},
    "a machine with ACS": {"lspci.txt": "00:01.0 PCI bridge: Intel Corporation\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n", **ranks(steps())},
    "what is installed": {"env.txt": "torch==2.11.0\nnvidia-nccl-cu12==2.28.9\nnvidia-cuda-runtime-cu12==12.9.79\nGPU 0: NVIDIA GeForce RTX 4090\nDriver Version: 575.57.08\nIOMMU is enabled\n1007 GB RAM\n"},
    "a name that was looked up again, and two agents that say that they are done": {
        f"node{n}.log": f"[W719 06:00:0{n}.551903771 socket.cpp:755] [c10d] The IPv6 network addresses of (gpu-31, 29400) cannot be retrieved (gai error: -2 - Name or service not known).\n"
        + (steps() if n == 0 else "")
        + f"I0719 06:09:4{n}.020000 7711 torch/distributed/elastic/agent/server/api.py:879] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish.\n"
        for n in range(2)
    },
    "a person's notes on a good run": {"notes.txt": "The run went well: 3 days, no hangs, no packet loss. Firewall rules were reviewed. Checkpoints are saved every 500 steps in about 4 minutes.\n", **ranks(steps(300))},
    "a notebook's shell": {"a.log": "[1]+  Running                 nohup torchrun train.py &\n" + steps()},
    "Slurm's own lines": {"slurm.out": "srun: job 4711 queued and waiting for resources\nsrun: job 4711 has been allocated resources\n" + steps() + "srun: jobid 4711: nodes(2):`node[1-2]', cpu counts: 96(x2)\n"},
    "old kernels of containers": {"events.txt": "LAST SEEN   TYPE     REASON      OBJECT          MESSAGE\n3m          Normal   Pulled      pod/worker-0    Successfully pulled image\n3m          Normal   Started     pod/worker-0    Started container worker\n", **ranks(steps())},
    "a healthy benchmark": {"nccl_tests.log": START + "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n  1073741824     268435456     float     sum      -1   2301.1  466.61  816.57      0   2300.2  466.80  816.90      0\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 412.3\n"},
    "retransmissions of an ordinary network": {"nstat.txt": "#kernel\nTcpRetransSegs                  12                 0.0\nTcpOutSegs                      9811204            0.0\n", **ranks(steps())},
}  # fmt: skip


def write(folder: Path, files: Files) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_there_are_enough_of_them() -> None:
    assert len(NOISY) >= 30


@pytest.mark.parametrize("name", NOISY)
def test_nobody_is_accused(name: str, tmp_path: Path) -> None:
    verdict = diagnose([write(tmp_path, NOISY[name])], jobs=1).verdict
    assert verdict.cause in ("healthy", "unknown"), verdict.summary
    assert verdict.culprits.ranks == ()
    assert verdict.culprits.hosts == ()


@pytest.mark.parametrize("name", NOISY)
def test_what_is_pasted_in_one_piece_accuses_nobody_either(name: str, tmp_path: Path) -> None:
    pasted = {"paste.txt": "".join(NOISY[name].values())}
    verdict = diagnose([write(tmp_path, pasted)], jobs=1).verdict
    assert verdict.cause in ("healthy", "unknown"), verdict.summary


ASKED = (
    "Should I worry? The log mentions that libibverbs is not installed and there are lines about closed connections.\n"
)
FINISHED = START + info("Failed to open libibverbs.so[.1]") + steps(40) + "Training finished.\nexit code 0\n"


@pytest.mark.parametrize(
    ("question", "cause"),
    [
        (ASKED, "healthy"),
        (ASKED + "The two nodes are 6x slower than one node.\n", "ib-missing-userspace"),
    ],
)
def test_a_question_does_not_outvote_a_run_that_finished_unless_it_was_slow(question, cause, tmp_path: Path) -> None:
    verdict = diagnose([write(tmp_path, {"mail.md": question, "train.log": FINISHED})], jobs=1).verdict
    assert verdict.cause == cause, verdict.summary


REQUEUED = (
    "JobID 8801 on pm[11-12] try 0\n"
    + steps(20)
    + "slurmstepd: error: *** JOB 8801 ON pm11 CANCELLED AT 2026-02-11T10:00:10 DUE TO PREEMPTION ***\n"
    "srun: error: pm12: task 15: Killed\n"
    "slurmstepd: error: Detected 1 oom_kill event in StepId=8790.0. Some of the step tasks have been OOM Killed.\n"
    "---- requeued (SLURM_RESTART_COUNT=1) on pm[21-22] ----\n"
    "resuming from /scratch/ck_19\n"
)


@pytest.mark.parametrize(
    ("end", "cause"), [(steps(20, 20) + "training done, 40 steps\n", "healthy"), ("", "job-ended-from-outside")]
)
def test_an_attempt_that_was_followed_by_one_that_finished(end: str, cause: str, tmp_path: Path) -> None:
    verdict = diagnose([write(tmp_path, {"slurm-8801.out": REQUEUED + end})], jobs=1).verdict
    assert verdict.cause == cause, verdict.summary


STEPS = "".join(f"2026-03-01 10:00:{step:02d} step {step} loss 2.{step}\n" for step in range(30))
STACK = 'Process {0}: python train.py\nPython v3.12\n\nThread {0} ({1}): "MainThread"\n    {2}\n    <module> (train.py:60)\n'


def _looked_at(folder: Path, log: str, *frames: tuple[str, str]) -> str:
    """The category of a job whose ranks were looked at while it printed this."""
    (folder / "job.log").write_text(log)
    for rank, (state, frame) in enumerate(frames):
        (folder / f"stacks_rank{rank}_pid{100 + rank}.txt").write_text(STACK.format(100 + rank, state, frame))
    return diagnose([folder]).verdict.category


def test_stacks_of_ranks_at_work_do_not_outvote_a_log_of_steps(tmp_path: Path) -> None:
    asleep = ("idle", "wait_for_pages (train.py:41)")
    assert _looked_at(tmp_path, STEPS, asleep, asleep, asleep) == "healthy"


def test_ranks_that_may_all_wait_for_their_gpus_are_not_called_healthy(tmp_path: Path) -> None:
    native = ("active", "main (train.py:50)")
    assert _looked_at(tmp_path, STEPS, native, native, native, native) != "healthy"


def test_a_finish_that_all_ranks_tell_is_newer_than_a_look_at_one_of_them(tmp_path: Path) -> None:
    log = "".join(f"rank{rank}: step {step} loss 2.{step}\n" for step in range(9) for rank in range(3))
    waiting, busy = ("active", "synchronize (torch/cuda/__init__.py:1040)"), ("idle", "encode (train.py:33)")
    assert _looked_at(tmp_path, log, waiting, busy, waiting) != "healthy"
    a_step = "".join(f"rank{rank}: third step done\n" for rank in range(3))
    assert _looked_at(tmp_path, log + a_step, waiting, busy, waiting) != "healthy"
    finished = "".join(f"rank{rank}: finished, 2 failed gates\n" for rank in range(3))
    assert _looked_at(tmp_path, log + finished, waiting, busy, waiting) == "healthy"
