"""The reader of torch's output, on recorded jobs and on variants of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import torch_output
from whichrank.model.contracts import Item, Reading
from whichrank.records.events.base import Event
from whichrank.records.events.run_state import RunFinished
from whichrank.records.log import FINITE, NOT_A_NUMBER, Progress
from whichrank.records.stack import ProcessStack

SAMPLES = Path(__file__).parents[2] / "samples" / "torch_output"
SHARED = Path(os.environ.get("WHICHRANK_SHARED", Path(__file__).parents[4] / "shared"))
RECORDED_NS = 1_794_707_200 * 10**9  # 2026-11-15, the day of the recordings

Read = Callable[..., Reading]


def item_of(path: Path, label: str | None = None) -> Item:
    return Item(path, label or str(path.relative_to(SAMPLES)), path.stat().st_size, RECORDED_NS)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def run(text: str | bytes, name: str = "job.log") -> Reading:
        path = tmp_path / "evidence"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return torch_output.read(item_of(path, name))

    return run


def events(reading: Reading, kind: str) -> list[Any]:
    return [record for record in reading.records if isinstance(record, Event) and record.kind == kind]


def told(event: Event) -> dict[str, Any]:
    """What an event says beyond who and where; what it does not say is left out."""
    own = {name: getattr(event, name) for name in event.__struct_fields__ if name not in Event.__struct_fields__}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in own.items()
        if value not in (None, "")
    }


def only(reading: Reading, kind: str) -> Any:
    (event,) = events(reading, kind)
    return event


def progress(reading: Reading) -> Progress:
    (columns,) = [record for record in reading.records if isinstance(record, Progress)]
    return columns


# -- recorded jobs


def test_the_watchdog_of_a_redirected_rank() -> None:
    reading = torch_output.read(item_of(SAMPLES / "conditional/rank2/stderr.log"))
    timeout = only(reading, "watchdog_timeout")
    assert (timeout.rank, timeout.group_rank, timeout.line) == (2, 2, 15)
    assert told(timeout) == {
        "seq": 15, "op": "ALLREDUCE", "numel_in": 270864, "numel_out": 270864, "timeout_ms": 22000, "ran_ms": 22041,
    }  # fmt: skip
    assert timeout.time_ns == 1794701359176779564
    counters = only(reading, "watchdog_progress")
    assert (counters.work, counters.enqueued, counters.completed) == (15, 16, 14)
    assert (counters.pg_id, counters.pg_guid, counters.pg_desc) == (
        0,
        "0",
        "default_pg",
    )
    assert only(reading, "dump_signal").own == 1
    assert told(only(reading, "dump_written")) == {"path": "/mnt/run/job/fr_2"}
    assert told(only(reading, "collective_stack")) == {"missing": 1}
    assert [event.name for event in events(reading, "group_init")] == ["0", "2"]
    assert [event.group_rank for event in events(reading, "group_init")] == [2, 0]
    assert only(reading, "native_crash").what == "terminate"
    failed = only(reading, "traceback")
    assert failed.type == "torch.distributed.DistBackendError"
    assert [(frame.function, frame.line) for frame in failed.frames][:2] == [("<module>", 98), ("main", 60)]


def test_a_rank_that_was_told_to_dump() -> None:
    signal = only(torch_output.read(item_of(SAMPLES / "conditional/rank0/stderr.log")), "dump_signal")
    assert (signal.rank, signal.from_rank, signal.own) == (0, 2, 0)
    assert (signal.enqueued, signal.completed) == (14, 14)


def test_the_elastic_agent() -> None:
    reading = torch_output.read(item_of(SAMPLES / "conditional/torchrun.err"))
    rows = events(reading, "elastic_failure")
    assert [(row.rank, row.local_rank, row.exitcode, row.pid, row.root) for row in rows] == [
        (0, 0, -15, 758, 0), (1, 1, -15, 759, 0), (3, 3, -15, 761, 0), (2, 2, -6, 760, 1),
    ]  # fmt: skip
    assert {row.host for row in rows} == {"localhost"}
    assert rows[-1].time_ns == 1794701372 * 10**9
    assert [event.target_pid for event in events(reading, "elastic_signal")] == [758, 759, 761]
    ended = only(reading, "process_exit")
    assert (ended.local_rank, ended.pid, ended.rank, ended.exitcode) == (2, 760, None, -6)
    assert only(reading, "traceback").rank is None


def test_out_of_memory_is_read_from_the_exception_not_from_quoted_code() -> None:
    reading = torch_output.read(item_of(SAMPLES / "exception/rank3/stderr.log"))
    error = only(reading, "cuda_error")
    assert (error.rank, error.line, error.what, error.tried_bytes) == (
        3,
        21,
        "out_of_memory",
        20 << 30,
    )
    assert only(reading, "traceback").message == "CUDA out of memory. Tried to allocate 20.00 GiB"
    assert {event.what for event in events(reading, "group_teardown")} == {
        "destructor",
        "not_destroyed",
    }


def test_a_lost_peer() -> None:
    reading = torch_output.read(item_of(SAMPLES / "exception/rank0/stderr.log"))
    error = only(reading, "nccl_error")
    assert (error.rank, error.error, error.seq) == (0, "ncclRemoteError", 13)
    assert error.last_error == "socketProgress: Connection closed by remote peer localhost<50610>"
    assert told(only(reading, "peer_closed")) == {"via": "nccl", "peer": "localhost<50610>"}
    assert not events(reading, "watchdog_timeout")


def test_the_stack_of_the_failed_collective() -> None:
    reading = torch_output.read(item_of(SAMPLES / "watchdog_stack.log"))
    stack = only(reading, "collective_stack")
    assert [(frame.function, frame.line) for frame in stack.frames] == [
        ("all_reduce", 3068), ("wrapper", 83), ("<module>", 48),
    ]  # fmt: skip
    assert stack.rank == 0


def test_two_ranks_and_the_agent_in_one_file() -> None:
    reading = torch_output.read(item_of(SAMPLES / "duplicate_gpu.log"))
    errors = events(reading, "nccl_error")
    assert [(error.rank, error.error) for error in errors] == [
        (1, "ncclInvalidUsage"),
        (0, "ncclInvalidUsage"),
    ]
    assert errors[0].last_error == "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60"
    assert [event.rank for event in events(reading, "traceback")] == [1, 0, None]


def test_four_gloo_ranks_in_one_file() -> None:
    reading = torch_output.read(item_of(SAMPLES / "gloo_skip.log"))
    assert {(event.rank, event.direction) for event in events(reading, "gloo_timeout")} == {
        (0, "recv"), (1, "recv"), (3, "send"),
    }  # fmt: skip
    closed = only(reading, "peer_closed")
    assert (closed.rank, told(closed)) == (2, {"via": "gloo", "peer": "[127.0.0.1]:29398"})
    traces = {event.rank: event for event in events(reading, "traceback")}
    assert set(traces) == {0, 1, 3, None}
    assert [frame.line for frame in traces[0].frames] == [70, 60, 29, 25, 83, 3252]
    assert reading.quality == "complete"


def test_progress_of_a_script() -> None:
    columns = progress(torch_output.read(item_of(SAMPLES / "conditional/rank2/stdout.log")))
    assert columns.step.tolist() == [0, 1, 2, 3, 4, 5]
    assert set(columns.rank.tolist()) == {2}
    assert set(columns.loss_state.tolist()) == {FINITE}
    assert columns.loss[0] == pytest.approx(0.008836)


# -- variants of the recorded ones


GLOO = (SAMPLES / "gloo_skip.log").read_text()


def interleaved(text: str) -> str:
    """The tracebacks of ranks 0, 1 and 3 line by line, as three processes on one pipe would write them."""
    lines = {rank: [x for x in text.splitlines() if x.startswith(f"[rank{rank}]: ")] for rank in (0, 1, 3)}
    mixed = [line for row in zip(*lines.values(), strict=False) for line in row]
    return "\n".join(mixed) + "\n"


def test_interleaved_tracebacks_are_put_together_again(read: Read) -> None:
    traces = events(read(interleaved(GLOO)), "traceback")
    assert sorted(event.rank or 0 for event in traces) == [0, 1, 3]
    for trace in traces:
        assert [frame.line for frame in trace.frames] == [70, 60, 29, 25, 83, 3252]
        assert trace.type == "RuntimeError"
        assert "Timed out waiting 15000ms" in trace.message


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("[default3]:", {"local_rank": 3, "rank": None}),
        ("[default3|11]:", {"local_rank": 3, "rank": 11}),
        ("[1,13]<stderr>:", {"rank": 13}),
        ("(RayTrainWorker pid=4711, ip=10.0.0.7) ", {"pid": 4711, "host": "10.0.0.7", "rank": None}),
        ("\x1b[36m(RayTrainWorker pid=4711)\x1b[0m ", {"pid": 4711}),
        ("[pod/train-worker-3/pytorch] ", {"host": "train-worker-3", "rank": None}),
        ("2026-11-15T00:07:30.000000000Z stderr F ", {"time_ns": 1794701250 * 10**9}),
        ("13: ", {"rank": None}),
        ("node7: ", {"host": "node7"}),
        ("Nov 15 00:07:30 node7 python[99]: ", {"host": "node7", "pid": 99, "time_ns": 1794701250 * 10**9}),
    ],
)
def test_launcher_prefixes(read: Read, prefix: str, expected: dict[str, object]) -> None:
    plain = [line.removeprefix("[rank0]: ") for line in GLOO.splitlines() if line.startswith("[rank0]: ")]
    trace = only(read("".join(f"{prefix}{line}\n" for line in plain)), "traceback")
    assert [frame.line for frame in trace.frames] == [70, 60, 29, 25, 83, 3252]
    for name, value in expected.items():
        assert getattr(trace, name) == value, name


@pytest.mark.parametrize(
    ("bracket", "names", "group_rank"),
    [
        ("[Rank 1]", {}, 1),
        ("[PG 3 Rank 1]", {"pg_name": "3"}, 1),
        ("[PG 3 (tp) Rank 1]", {"pg_name": "3", "pg_desc": "tp"}, 1),
        ("[PG ID 3 PG GUID 7(tp) Rank 1]", {"pg_id": 3, "pg_guid": "7", "pg_desc": "tp"}, 1),
        ("[PG ID 3 PG GUID mesh_tp Rank 1]", {"pg_id": 3, "pg_guid": "mesh_tp"}, 1),
    ],
)
def test_group_brackets_of_all_versions(read: Read, bracket: str, names: dict[str, object], group_rank: int) -> None:
    line = f"[rank13]:[E1115 00:09:19.176955169 ProcessGroupNCCL.cpp:2303] {bracket}  failure detected by watchdog "
    line += "at work sequence id: 15 PG status: last enqueued work: 16, last started work: 15, last completed work: 14"
    event = only(read(line), "watchdog_progress")
    assert (event.rank, event.group_rank) == (13, group_rank)
    assert told(event) == names | {"work": 15, "enqueued": 16, "started": 15, "completed": 14}


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (
            (
                "[E ProcessGroupNCCL.cpp:474] [Rank 2] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=5, OpType=ALLGATHER, Timeout(ms)=1800000) ran for 1800123 milliseconds"
            ),
            {"seq": 5, "op": "ALLGATHER", "timeout_ms": 1800000, "ran_ms": 1800123},
        ),
        ("[rank2]: RuntimeError: Watchdog caught collective operation timeout: NCCL operation timed out", {}),
        (
            "RuntimeError: Work WorkNCCL(SeqNum=5, OpType=SEND) timed out in blocking wait.",
            {"seq": 5, "op": "SEND"},
        ),
    ],
)
def test_watchdog_lines_of_other_versions(read: Read, line: str, data: dict[str, object]) -> None:
    assert told(only(read(line), "watchdog_timeout")) == data


@pytest.mark.parametrize(
    "line",
    [
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:9] [PG 0 Rank 1] Timeout at NCCL work: 9, last enqueued NCCL work: 12, "
            "last completed NCCL work: 8."
        ),
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:9] [PG 0 Rank 1] Exception (either an error or timeout) detected by "
            "watchdog at work: 9, last enqueued NCCL work: 12, last completed NCCL work: 8."
        ),
    ],
)
def test_watchdog_counters_of_2_3_to_2_5(read: Read, line: str) -> None:
    event = only(read(line), "watchdog_progress")
    assert (event.rank, event.work, event.enqueued, event.completed) == (1, 9, 12, 8)


MESSAGES = [
    ("[rank3]: RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 15000 ms",
     "monitored_barrier_failed", {"what": "missing", "ranks": [1, 3], "ms": 15000}),
    ("     [2, 5] finished collective #7, but didn't join collective #8 (count from 1)",
     "desync_report", {"what": "not_joined", "ranks": [2, 5], "seq": 7}),
    ("ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring",
     "watchdog_stuck", {"seconds": 480}),
    ("torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 1/2 clients joined.",
     "store_error", {"what": "clients_missing", "seconds": 31, "joined": 1, "expected": 2}),
    (("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to "
     "(node0, 29500)."), "store_error", {"what": "connect_timeout", "server": "node0", "port": 29500, "ms": 60000}),
    ("torch.distributed.DistStoreError: wait timeout after 10000ms, keys: /default_pg/0//cuda//0",
     "store_error", {"what": "key_timeout", "ms": 10000, "key": "/default_pg/0//cuda//0"}),
    ("Parameter indices which did not receive grad for rank 1: 2 3",
     "ddp_error", {"what": "unused_indices", "indices": [2, 3]}),
    (("RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has inconsistent "
     "2 params."), "ddp_error", {"what": "param_count", "ranks": [1, 0], "counts": [4, 2]}),
    ("RuntimeError: [3]: params[2] in this process with sizes [4, 5] appears not to match sizes of the same param",
     "ddp_error", {"what": "param_shape", "index": 2, "sizes": "4, 5"}),
    ("RuntimeError: CUDA error: an illegal memory access was encountered",
     "cuda_error", {"what": "illegal_access", "reason": "an illegal memory access was encountered"}),
    ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
     "dataloader_worker_died", {"worker_pids": [77], "signal": 9}),
    ("RuntimeError: DataLoader worker (pid(s) 77, 78) exited unexpectedly",
     "dataloader_worker_died", {"worker_pids": [77, 78]}),
    ("srun: error: node7: tasks 4-6,9: Killed", "process_exit", {"tasks": [4, 5, 6, 9], "signal": 9, "by": "slurm"}),
    ("slurmstepd: error: *** STEP 12.0 ON node7 CANCELLED AT 2026-11-15T00:00:00 DUE TO TIME LIMIT ***",
     "job_ended", {"reason": "DUE TO TIME LIMIT"}),
    ("mpirun noticed that process rank 3 with PID 17 on node n3 exited on signal 9 (Killed).",
     "process_exit", {"signal": 9, "by": "mpi"}),
    ("prterun noticed that process rank 7 with PID 0 on node n2 exited on\nsignal 6 (Aborted).",
     "process_exit", {"signal": 6, "by": "mpi"}),
    (("W1115 00:13:59.818000 1674 torch/distributed/elastic/agent/server/api.py:739] Received 2 death signal, "
     "shutting down workers"), "elastic_signal", {"what": "death", "signal": "2", "signal_number": 2}),
    ("job.sh: line 3:  4711 Killed                  python train.py", "native_crash", {"signal": 9}),
    ("Segmentation fault (core dumped)", "native_crash", {"signal": 11}),
    ("Segmentation fault(core dumped)", "native_crash", {"signal": 11}),
    ("  6%|▌         | 371/6256 [04:47<1:10:53, 13.82it/s, loss=0.31]Killed", "native_crash", {"signal": 9}),
    ("[n4:812] Signal: Segmentation fault (11)", "native_crash", {"what": "mpi", "signal": 11}),
    ("[n4:812] Signal: Bus error: 10 (10)", "native_crash", {"what": "mpi", "signal": 10}),
    ("RuntimeError: cuda runtime error (59) : device-side assert triggered at /pytorch/aten/src/THC/a.cu:140",
     "cuda_error", {"what": "device_assert", "reason": "device-side assert triggered"}),
    ("THCudaCheck FAIL file=/pytorch/aten/src/THC/a.cu line=140 error=77 : an illegal memory access was encountered",
     "cuda_error", {"what": "illegal_access", "reason": "an illegal memory access was encountered"}),
    ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
     "cuda_error", {"what": "out_of_memory", "reason": "out of memory"}),
    ("RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at /pytorch/aten/src/THC/a.cu:58",
     "cuda_error", {"what": "ecc"}),
    ("RuntimeError: cuda runtime error (4) : unspecified launch failure at /pytorch/aten/src/THC/a.cu:58",
     "cuda_error", {"what": "launch_failure"}),
    (("Memory access fault by GPU node-3 (Agent handle: 0x55d0) on address 0x7f0000200000. Reason: Page not present or "
     "supervisor privilege."), "cuda_error", {"what": "illegal_access"}),
    ("Memory access fault by GPU node-3 on address 0x7f0000200000. Reason: Unknown.",
     "cuda_error", {"what": "illegal_access"}),
    ("Memory access fault by GPU node-3 (Agent handle: 0x55d0) on address (nil). Reason: SRAM ECC failure.",
     "cuda_error", {"what": "ecc"}),
    ("srun: error: node7: task 3: Out Of Memory", "process_exit", {"tasks": [3], "signal": 9, "by": "slurm"}),
    (("[2026-11-15 00:10:45,220] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'a.py', "
     "'--local_rank=3'] exits with return code = -9"),
     "process_exit", {"by": "deepspeed", "exitcode": -9, "signal": 9}),
    (("[2026-11-15 00:10:45,220] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'a.py', "
     "'--local_rank=3'] exits with return code = 1"), "process_exit", {"by": "deepspeed", "exitcode": 1}),
    (("subprocess.CalledProcessError: Command '['/usr/bin/python3', '-u', 'a.py', '--local_rank=3']' died with "
     "<Signals.SIGSEGV: 11>."), "process_exit", {"by": "subprocess", "signal": 11}),
    ("subprocess.CalledProcessError: Command 'python a.py' died with unknown signal 64.",
     "process_exit", {"by": "subprocess", "signal": 64}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "data"), MESSAGES)
def test_single_messages(read: Read, line: str, kind: str, data: dict[str, object]) -> None:
    event = only(read(f"some line before\n{line}\nsome line after\n"), kind)
    assert event.line == 2
    assert data.items() <= told(event).items()


@pytest.mark.parametrize("line", [
    "subprocess.CalledProcessError: Command '['ninja', '-v']' died with <Signals.SIGKILL: 9>.",
    "Memory access fault by GPU node-3 (Agent handle: 0x55d0) on address (nil). Reason: Generic hang recovery.",
    "epoch 3/9 [ok]Killed the old workers",
    "THCudaCheckWarn FAIL file=/pytorch/aten/src/THC/a.cu line=140 error=29 : driver shutting down",
])  # fmt: skip
def test_words_that_tell_of_no_end_of_a_rank(read: Read, line: str) -> None:
    assert [r.kind for r in read(f"a line\n{line}\n").records if isinstance(r, Event)] == []


@pytest.mark.parametrize("line", [
    "['/usr/bin/python', '-u', 'a.py', '--local_rank=3'] exits with return code = -9",
    "CalledProcessError: Command '['/usr/bin/python3', 'a.py', '--local_rank=3']' died with <Signals.SIGBUS: 7>.",
])  # fmt: skip
def test_the_command_of_a_launcher_names_no_rank(read: Read, line: str) -> None:
    """It is that of the last process that was started."""
    event = only(read(f"{line}\n"), "process_exit")
    assert (event.rank, event.local_rank, event.pid) == (None, None, None)


def test_out_of_memory_with_all_its_sizes(read: Read) -> None:
    new = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.00 "
        "GiB of which 512.00 MiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch"
    )
    old = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 79.00 GiB total "
        "capacity; 70.00 GiB already allocated; 512.00 MiB free; 71.00 GiB reserved in total by PyTorch)"
    )
    for text in (new, old):
        data = told(only(read(text), "cuda_error"))
        assert (data["gpu"], data["tried_bytes"], data["free_bytes"]) == (1, 2 << 30, 512 << 20)
        assert (data["total_bytes"], data["allocated_bytes"]) == (79 << 30, 70 << 30)


STALLED = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to submit "
    "different tensors or that only subset of ranks is submitting tensors, which will cause deadlock. "
)
LOGGED = "[2026-11-15 00:10:45.181832: W /tmp/build/horovod/common/stall_inspector.cc:105] " + STALLED


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (f"WARNING: {STALLED}Stalled ops: allreduce.a [ready ranks: 2, 0], allreduce.b [ready ranks: 0, 3]\n",
         {"ready": [0, 2, 3], "missing": [], "some": []}),
        (f"WARNING: {STALLED}\nStalled ops:\nallreduce.a [missing ranks: 1, 3]\nbroadcast.b [missing ranks: 3]\n",
         {"missing": [3], "some": [1]}),
        ((f"{LOGGED}\nStalled ranks:\n1: [allreduce.a, allreduce.b]\n3!: [allreduce.a, allreduce.b]\n"
          'One or more rank (marked by "!") is stalled for longer than 120 seconds. Will shutdown.\n'),
         {"missing": [1, 3], "some": []}),
        (f"{LOGGED}\nMissing ranks:\n0: [allreduce.a]\n1: [allreduce.b]\n", {"missing": [], "some": [0, 1]}),
        (f"{LOGGED}\nMissing ranks:\n2: [cond/then/_10/HorovodAllreduce_grads_0, b, c, d, e, f ...]\n",
         {"missing": [2]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "[1,0]<stderr>:", "0: ", "[default0]:"])
def test_the_report_of_the_stall_inspector(read: Read, text: str, data: dict[str, object], prefix: str) -> None:
    lines = "".join(f"{prefix}{line}\n" for line in f"before\n{text}1: something else\n".splitlines())
    event = only(read(lines), "stall_report")
    assert event.line == 2
    assert data.items() <= told(event).items()


@pytest.mark.parametrize(
    ("sides", "data"),
    [
        (("Rank 1 is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[8, 4], "
          "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda"),
         {"rank_a": 1, "op_a": "BROADCAST", "shape_a": "8, 4", "dtype_a": "Float"}),
        ("Rank 1 is running inconsistent collective: CollectiveFingerPrint(OpType=BARRIER",
         {"rank_a": 1, "op_a": "BARRIER"}),
        (("Rank 0 is running collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[20]), but Rank 1 is "
          "running collective: REDUCE."), {"rank_a": 0, "op_a": "ALLREDUCE", "rank_b": 1, "op_b": "REDUCE"}),
        ("Rank 0 is running collective: BARRIER, but Rank 1 is running collective: _ALLGATHER_BASE.",
         {"op_a": "BARRIER", "op_b": "_ALLGATHER_BASE"}),
    ],
)  # fmt: skip
def test_fingerprints_of_early_versions(read: Read, sides: str, data: dict[str, object]) -> None:
    event = only(
        read(f"RuntimeError: Detected mismatch between collectives on ranks. {sides}\n"), "fingerprint_mismatch"
    )
    assert data.items() <= told(event).items()


def test_a_fingerprint_mismatch(read: Read) -> None:
    sides = [
        f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=4, OpType={op}, "
        f"TensorShape=[{shape}], "
        "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))"
        for rank, op, shape in ((1, "ALLREDUCE", "4, 2"), (0, "BROADCAST", "4"))
    ]
    text = f"[rank1]: RuntimeError: Detected mismatch between collectives on ranks. {sides[0]}, but {sides[1]}."
    text += "Collectives differ in the following aspects: \tOp type: ALLREDUCEvs BROADCAST"
    data = told(only(read(text), "fingerprint_mismatch"))
    assert (data["rank_a"], data["op_a"], data["shape_a"]) == (1, "ALLREDUCE", "4, 2")
    assert (data["rank_b"], data["op_b"], data["shape_b"], data["seq_b"]) == (0, "BROADCAST", "4", 4)
    assert data["aspects"] == "Op type: ALLREDUCEvs BROADCAST"


def test_chained_threaded_and_ignored_exceptions(read: Read) -> None:
    text = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
    x()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
    y()
a.b.Custom: words
Exception in thread Thread-3 (loader):
Traceback (most recent call last):
  File "b.py", line 9, in loader
    z()
ValueError: bad
Exception ignored in: <function g at 0x7f>
Traceback (most recent call last):
  File "c.py", line 2, in g
    q()
OSError: gone
"""
    found = [(trace.type, trace.chained_from, trace.thread, trace.ignored) for trace in events(read(text), "traceback")]
    assert found == [
        ("KeyError", "", "", 0), ("a.b.Custom", "KeyError", "", 0), ("ValueError", "", "Thread-3", 0),
        ("OSError", "", "", 1),
    ]  # fmt: skip


def test_a_traceback_inside_the_agents_table_belongs_to_its_row(read: Read) -> None:
    text = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-15_00:09:33
  host      : node7
  rank      : 13 (local_rank: 5)
  exitcode  : 1 (pid: 17)
  error_file: /tmp/x/attempt_0/5/error.json
  traceback : Traceback (most recent call last):
    File "train.py", line 70, in main
      step()
  ValueError: bad batch
============================================================
"""
    reading = read(text)
    row, trace = only(reading, "elastic_failure"), only(reading, "traceback")
    assert (row.rank, row.host, row.error_file) == (13, "node7", "/tmp/x/attempt_0/5/error.json")
    assert (trace.rank, trace.type, trace.message) == (13, "ValueError", "bad batch")


def test_a_truncated_traceback_is_said_to_be_one(read: Read) -> None:
    reading = read('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x(')
    assert only(reading, "traceback").truncated == 1
    assert reading.quality == "partial"
    assert "without an end" in reading.note


def test_a_progress_bar_glued_to_an_error(read: Read) -> None:
    bar = "".join(f"\r {i}%|#         | {i}/100 [00:0{i}<01:20,  2.00it/s, loss=0.{i}]" for i in range(1, 6))
    reading = read(f'{bar}Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x()\nKeyError: 1\n')
    assert only(reading, "traceback").type == "KeyError"
    columns = progress(reading)
    assert columns.step.tolist() == [1, 2, 3, 4, 5]
    assert columns.total.tolist() == [100] * 5
    assert columns.seconds_per_step.tolist() == [0.5] * 5


PROGRESS = [
    ("iter 10: loss 3.1415, time 100.00ms, mfu 10.00%", 10, 3.1415),
    ("{'loss': 2.25, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.5}", -1, 2.25),
    ("[rank0]:2026-11-15 00:00:00,000 - root - INFO - step:  7  loss:  4.5  grad_norm:  1.1", 7, 4.5),
    ((" [2026-11-15 00:00:00] iteration      100/  500000 | consumed samples: 1 | elapsed time per iteration (ms): "
     "1234.5 | lm loss: 1.2E+01 | loss scale: 1.0 | number of nan iterations:   0 |"), 100, 12.0),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.5", 640, 0.5),
    ("Epoch: [0][ 10/5005]\tTime  0.2\tLoss 6.9e+00 (7.0e+00)", 10, 6.9),
    ("Epoch 3:  12%|█▏        | 12/100 [00:01<00:10, 8.00it/s, v_num=0, train_loss=0.5]", 12, 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("line", "step", "loss"), PROGRESS)
def test_progress_of_frameworks(read: Read, line: str, step: int, loss: float) -> None:
    columns = progress(read(line + "\n"))
    assert columns.step.tolist() == [step]
    assert columns.loss.tolist() == pytest.approx([loss])


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("elapsed time per iteration (ms): 412.5", 0.4125),
        ("step_time=0.52s", 0.52),
        ("step time (ms): 212", 0.212),
        ("iter time 0.25", 0.25),
        ("dt: 338.1ms", 0.3381),
        ("0.50 s/step", 0.5),
        ("(512 ms/iter)", 0.512),
        ("4.00 it/s", 0.25),
        ("| 2 steps/s |", 0.5),
        ("time 10:03:22", None),
        ("batch time limit 600 s/epoch", None),
        ("8100 tokens/s", None),
    ],
)
def test_how_long_a_step_took(read: Read, told: str, seconds: float | None) -> None:
    (found,) = progress(read(f"step 3/100 loss 2.1 {told}\n")).seconds_per_step
    assert np.isnan(found) if seconds is None else found == pytest.approx(seconds)


def test_the_first_nan_of_each_rank_is_an_event(read: Read) -> None:
    lines = [
        f"rank {i % 4} step {i // 4} loss {'nan' if i // 4 >= (3 if i % 4 == 2 else 5) else 0.5}" for i in range(40)
    ]
    reading = read("\n".join(lines))
    first = {event.rank: event.step for event in events(reading, "loss_nonfinite")}
    assert first == {0: 5, 1: 5, 2: 3, 3: 5}
    assert np.count_nonzero(progress(reading).loss_state == NOT_A_NUMBER) == 22


def test_faulthandler_inside_a_log(read: Read) -> None:
    text = (SAMPLES.parent / "stacks" / "faulthandler.txt").read_text()
    reading = read("step 1 loss 0.5\n" + text + "step 2 loss 0.4\n", "logs/rank3/stderr.log")
    stacks = [record for record in reading.records if isinstance(record, ProcessStack)]
    assert [(stack.rank, stack.reason, len(stack.threads)) for stack in stacks] == [
        (3, "Timeout (0:00:02)!", 2), (3, "", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_encodings(read: Read, encoding: str) -> None:
    text = "[rank3]: RuntimeError: CUDA error: device-side assert triggered über\n"
    assert only(read(text.encode(encoding)), "cuda_error").what == "device_assert"


@pytest.mark.parametrize(
    ("check", "name", "key"),
    [("ifa", "eth7", "interface"), ("rp", "node-a7.cluster.example", "hostname")],
)
def test_what_gloo_found_no_address_for(read: Read, check: str, name: str, key: str) -> None:
    at = "[enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:127] "
    event = only(read(f"RuntimeError: {at}{check} != nullptr. Unable to find address for: {name}\n"), "gloo_init_error")
    assert {k: v for k, v in told(event).items() if k != "reason"} == {key: name}


# -- bounds


def test_many_ranks_are_all_kept_and_repetition_is_not(read: Read) -> None:
    line = (
        "[rank{0}]:[E1115 00:09:19.176779564 ProcessGroupNCCL.cpp:689] [Rank {0}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, Timeout(ms)=22000) ran for 22041 milliseconds\n"
    )
    reading = read("".join(line.format(rank) * 3 for rank in range(1024)))
    assert {event.rank for event in events(reading, "watchdog_timeout")} == set(range(1024))
    assert len(events(reading, "watchdog_timeout")) == 1024
    noisy = read("".join(f"Sending process {pid} closing signal SIGTERM\n" for pid in range(5000)))
    assert len(events(noisy, "elastic_signal")) == 400
    assert "4600 repeated event(s) not kept" in noisy.note


HOSTILE = [
    "File " * 20000,
    '  File "' + "a" * 300000,
    "[rank1]: " * 30000,
    "Rank 1 is running collective: CollectiveFingerPrint(" * 5000,
    "[PG " + "(" * 200000 + "Watchdog caught collective operation timeout",
    "CUDA out of memory. " + "1.0 GiB " * 30000,
    "loss" + " " * 200000 + "x",
    "%|" + "|" * 200000 + "it/s",
    "Parameters which did not receive grad for rank 1: " + "a, " * 100000,
    "Assertion `" * 30000,
    STALLED + "a [missing ranks: 1, 2], " * 10000,
    STALLED + "\n" + "1: [" + "a, " * 50000,
    "Rank 1 is running collective: " * 8000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_long_lines_take_linear_time(read: Read, text: str) -> None:
    with cost.at_most(2):
        read(text)


def test_a_million_speakers(read: Read) -> None:
    with cost.at_most(6):
        read("".join(f"[default{i % 10000}|{i}]:NCCL error: x\n" for i in range(20000)))


def test_sniffing() -> None:
    assert torch_output.sniff((SAMPLES / "gloo_skip.log").read_bytes()[:4096], "job.log")
    assert torch_output.sniff(b"rank 0 step 0 loss 0.5\n", "whatever")
    assert not torch_output.sniff(b"\x80\x04\x95" + bytes(200), "fr_0")
    assert not torch_output.sniff(b"import torch\nfrom x import y\ndef main():\n    pass\nclass A:\n", "train.py.txt")
    assert not torch_output.sniff(b"vm:1:1 [0] NCCL INFO a\n" * 50, "nccl.vm.1.log")


SOURCES = [
    (SAMPLES / name).read_bytes()
    for name in ("gloo_skip.log", "exception/rank0/stderr.log", "conditional/torchrun.err")
]
WORDS = [line.encode() for line, _, _ in MESSAGES] + [
    b"Traceback (most recent call last):", b'  File "a.py", line 1, in f', b"[rank1]: ", b"Root Cause", b"[0]:",
    b"Current thread 0x1 (most recent call first):", b"loss nan step 3", b"\r", b"\n", b"\x1b[31m", b"\xff\xfe",
]  # fmt: skip


@given(st.data())
def test_any_bytes_are_survived(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(SOURCES))
    start = data.draw(st.integers(0, len(source)))
    pieces = data.draw(st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=40)), max_size=30))
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(b"".join(pieces) + source[start : start + 3000] + b"\n".join(pieces))
    reading = torch_output.read(item_of(path, "x.log"))
    assert reading.quality in ("complete", "partial", "ignored")
    for record in reading.records:
        assert isinstance(record, Event | Progress | ProcessStack)


@pytest.mark.skipif(not (SHARED / "cases/incidents").is_dir(), reason="the collection of incidents is not here")
@pytest.mark.parametrize(
    ("path", "kind", "key", "value"),
    [
        ("bagel-131/train.log", "cuda_error", "what", "assert_line"),
        ("opendde-23/torchrun.log", "fingerprint_mismatch", "shape_b", "359, 1, 1436, 16"),
        ("mambair-39/train.log", "nccl_error", "error", "ncclInvalidUsage"),
        ("llama-603/torchrun.log", "process_exit", "exitcode", -9),
        ("accelerate-1192/launch.log", "cuda_error", "what", "ecc"),
        ("mochi-xdit-22/run.log", "store_error", "port", 29500),
        ("megatron-878/train.log", "dataloader_worker_died", "signal", 7),
        ("pytorch-64926/node0.log", "rendezvous_error", "error", "RendezvousConnectionError"),
    ],
)
def test_incidents_from_the_world(path: str, kind: str, key: str, value: object) -> None:
    reading = torch_output.read(item_of(SHARED / "cases/incidents" / path, path))
    assert value in [told(event).get(key) for event in events(reading, kind)]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("étape  11700/12000 | perte 1,9316", 11700),
        ("epoche 1 schritt    40  verlust 4.743", 40),
        ("passo 4725/5000 perdita=0.8531", 4725),
        ("шаг 300 потери 2.1", 300),
        ("步 120: 损失 1.2", 120),
    ],
)
def test_steps_in_other_languages(read: Read, line: str, step: int) -> None:
    assert progress(read(line + "\n")).step.tolist() == [step]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Apprentissage terminé : 12000 étapes", True),
        ("2025-12-01 18:03:26 | addestramento finito, 5000 passi", True),
        ("Training abgeschlossen nach 3 Epochen", True),
        ("обучение завершено", True),
        ("训练完成", True),
        ("学習が完了しました", True),
        ("Training noch nicht abgeschlossen", False),
        ("uscita con codice 0", True),
        ("uscita con codice 1", False),
        ("2025-03-27 14:00:04 kvd: server stopped, exit 0", False),
    ],
)
def test_ends_in_other_languages(read: Read, line: str, told: bool) -> None:
    ends = [record for record in read("step 1 loss 2\n" + line + "\n").records if isinstance(record, RunFinished)]
    assert bool(ends) == told
