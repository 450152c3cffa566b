"""The reader of stacks, on recorded ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence.readers import stacks
from whichrank.model.contracts import Item, Reading
from whichrank.records.dump import Frame
from whichrank.records.stack import Call, ProcessStack, innermost_user_frame, main_thread

SAMPLES = Path(__file__).parents[2] / "samples" / "stacks"


def read(path: Path, label: str | None = None) -> Reading:
    return stacks.read(Item(path, label or path.name, path.stat().st_size, 0))


def write(folder: Path, text: str | bytes, label: str = "stack.txt") -> Reading:
    path = folder / "evidence"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path, label)


def only(reading: Reading) -> ProcessStack:
    (stack,) = reading.records
    assert isinstance(stack, ProcessStack)
    return stack


def test_a_waiting_process_by_py_spy() -> None:
    stack = only(read(SAMPLES / "stack.758.txt"))
    assert (stack.tool, stack.pid, stack.rank, stack.python) == ("py-spy", 758, None, "3.12.3")
    assert stack.command.endswith("train_lm.py --config base.yaml")
    assert [(t.name, t.tid, t.state, t.main, t.line) for t in stack.threads] == [
        ("MainThread", 758, "active", True, 4), ("", 915, "idle", False, 10),
    ]  # fmt: skip
    assert stack.threads[0].frames[0] == Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3068)
    assert innermost_user_frame(stack) == Frame("evaluate", "train_lm.py", 29)


def test_a_process_stuck_in_its_loader() -> None:
    assert innermost_user_frame(only(read(SAMPLES / "stack.1357.txt"))) == Frame(
        "fetch_remote_shard", "train_lm.py", 22
    )


def test_a_process_without_frames_and_the_agent() -> None:
    reading = read(SAMPLES / "stack.1698.txt")
    assert (reading.quality, reading.note) == ("partial", "1 process(es) without a frame")
    assert only(reading).threads[0].state == "gil"
    assert innermost_user_frame(only(read(SAMPLES / "stack.733.txt"))) is None


def test_several_processes_in_one_file_and_native_frames(tmp_path: Path) -> None:
    both = (SAMPLES / "stack.758.txt").read_text() + "\n" + (SAMPLES / "stack.1357.txt").read_text()
    native = (
        "    cudaStreamSynchronize (libcudart.so.12)\n    c10::cuda::f<int (*)(int)> (libc10_cuda.so)\n    all_reduce"
    )
    reading = write(tmp_path, both.replace("    all_reduce", native), "dump/rank3/all.txt")
    assert [(stack.pid, stack.rank) for stack in reading.records] == [(758, None), (1357, None)]
    frames = reading.records[0].threads[0].frames
    assert frames[:2] == (
        Frame("cudaStreamSynchronize", "libcudart.so.12", 0),
        Frame("c10::cuda::f<int (*)(int)>", "libc10_cuda.so", 0),
    )  # fmt: skip
    assert innermost_user_frame(reading.records[0]) == Frame("evaluate", "train_lm.py", 29)


def test_only_a_name_that_says_rank_names_one(tmp_path: Path) -> None:
    text = (SAMPLES / "stack.758.txt").read_text()
    assert only(write(tmp_path, text, "stacks/rank13.txt")).rank == 13
    assert only(write(tmp_path, text, "stacks/node_rank_1.txt")).rank is None
    assert only(write(tmp_path, text, "stack.13.txt")).rank is None


def test_of_more_processes_than_are_kept_the_others_are_told_of(tmp_path: Path) -> None:
    one = 'Process {0}: python train.py\r\nThread {0} (idle): "MainThread"\n    wait (train.py:1)\n'
    reading = write(tmp_path, "".join(map(one.format, range(1, 5001))))
    assert len(reading.records) == 4096
    assert (reading.quality, reading.records[-1].pid) == ("partial", 4096)


def test_py_spy_that_failed(tmp_path: Path) -> None:
    reading = write(tmp_path, "Error: Permission Denied: Try running again with elevated permissions\n")
    assert (reading.quality, reading.records) == ("partial", [])
    assert "Permission Denied" in reading.note
    assert stacks.sniff(b"Error: Permission Denied: Try running again with elevated permissions", "stack.1.txt")


def test_py_spy_json(tmp_path: Path) -> None:
    frame = {
        "name": "load",
        "filename": "/srv/app/train.py",
        "short_filename": "train.py",
        "line": 7,
        "locals": None,
    }
    traces = [
        {"pid": 7, "thread_id": 9, "thread_name": "MainThread", "os_thread_id": 7, "active": True, "owns_gil": True,
         "frames": [frame], "process_info": {"pid": 7, "command_line": "python train.py", "parent": None}},
        {"pid": 7, "thread_id": 8, "thread_name": None, "os_thread_id": 8, "active": False,
         "owns_gil": False, "frames": []},
    ]  # fmt: skip
    other = [traces[1] | {"pid": 5}]
    reading = write(tmp_path, json.dumps(traces, indent=2) + "\n" + json.dumps(other))
    assert [(stack.pid, len(stack.threads)) for stack in reading.records] == [(7, 2), (5, 1)]
    main = main_thread(reading.records[0])
    assert main is not None
    assert (main.state, main.frames) == ("gil", (Frame("load", "train.py", 7),))
    assert reading.records[0].command == "python train.py"
    cut = write(tmp_path, json.dumps(traces, indent=2) + '\n[{"pid": 1, "frames": [')
    assert cut.quality == "partial"
    assert len(cut.records) == 1


WITH_VARIABLES = """\
Process 4577: python -u score.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4577 (idle): "MainThread"
    recv (torch/distributed/distributed_c10d.py:2799)
        Arguments:
            tensor: <Tensor at 0x7f3e281eaf80>
            src: 2
            group: None
        Locals:
            work: <torch._C._distributed_c10d.Work at 0x7f3e27ae0870>
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
        Locals:
            kwargs: {"src": 2}
    collect (score.py:48)
        Arguments:
            rank: 1
            world: 5
    <module> (score.py:79)
Thread 4590 (idle): "logger"
    emit (log.py:3)
        Locals:
            rank: 4
"""


def test_variables_that_py_spy_shows(tmp_path: Path) -> None:
    stack = only(write(tmp_path, WITH_VARIABLES))
    assert (stack.pid, stack.rank, stack.call) == (4577, 1, Call("recv", "from", 2))
    assert [len(thread.frames) for thread in stack.threads] == [4, 1]
    another = WITH_VARIABLES.replace("            world: 5", "            global_rank: 3")
    assert only(write(tmp_path, another)).rank is None  # a rank within a group, it may be


def test_variables_in_the_json_of_py_spy(tmp_path: Path) -> None:
    named = [{"name": "src", "arg": True, "repr": "2"}, {"name": "global_rank", "arg": False, "repr": "1"}]
    torch = {"name": "broadcast", "short_filename": "torch/distributed/distributed_c10d.py", "line": 3, "locals": named}
    own = {"name": "main", "short_filename": "train.py", "line": 9, "locals": None}
    trace = {"pid": 7, "thread_name": "MainThread", "active": False, "frames": [torch, own]}
    stack = only(write(tmp_path, json.dumps([trace]), "stack.json"))
    assert (stack.rank, stack.call) == (1, Call("broadcast", "from", 2))


def test_the_group_that_is_made_by_its_variables(tmp_path: Path) -> None:
    frames = """\
    _new_process_group_helper (torch/distributed/distributed_c10d.py:2169)
        Arguments:
            global_ranks_in_group: [0, 1, 2]
            group_name: "2"
        Locals:
            global_rank: 2
    new_group (torch/distributed/distributed_c10d.py:5999)
        Arguments:
            ranks: None
    main (train.py:9)
"""
    stack = only(write(tmp_path, WITH_VARIABLES.partition("    recv")[0] + frames))
    assert (stack.rank, stack.call) == (2, Call("new_group", ranks=(0, 1, 2), name="2"))


def test_faulthandler() -> None:
    first, second = read(SAMPLES / "faulthandler.txt").records
    assert (first.reason, second.reason) == ("Timeout (0:00:02)!", "")
    assert [thread.main for thread in first.threads] == [False, True]
    assert [thread.state for thread in second.threads] == ["unknown", "gil"]
    assert innermost_user_frame(second) == Frame("load_batch", "/srv/app/train.py", 4)
    assert innermost_user_frame(second.threads[0]) == Frame("loader", "/srv/app/train.py", 7)


def test_faulthandler_of_two_ranks_on_one_pipe(tmp_path: Path) -> None:
    lines = (SAMPLES / "faulthandler.txt").read_text().splitlines()[:9]
    text = "".join(f"[default0]:{line}\n[default1]:{line}\n" for line in lines)
    reading = write(tmp_path, text)
    assert [(stack.local_rank, len(stack.threads)) for stack in reading.records] == [(0, 2), (1, 2)]


def test_gdb() -> None:
    stack = only(read(SAMPLES / "gdb.txt"))
    assert (stack.tool, stack.pid, len(stack.threads)) == ("gdb", 15958, 3)
    main = main_thread(stack)
    assert main is not None
    assert main.tid == 15958
    assert main.frames[0].function == "__GI___clock_nanosleep"
    assert main.frames[1] == Frame("pysleep", "./Modules/timemodule.c", 2159)
    assert len(main.frames) == 12


def test_gdb_with_python_frames_and_templates(tmp_path: Path) -> None:
    text = """\
Attaching to process 41
[New LWP 42]
Thread 2 (Thread 0x7f01 (LWP 42)):
#0  0x00007f in std::function<void (int)>::operator() (this=0x1, a=2) at /x/y.cc:12
#1  poll () from /lib/libc.so.6
Thread 1 (Thread 0x7f00 (LWP 41) "python"):
Traceback (most recent call first):
  File "/srv/app/train.py", line 12, in load
    x = read()
  File "/srv/app/train.py", line 30, in <module>
"""
    stack = only(write(tmp_path, text))
    assert stack.threads[0].frames == (
        Frame("std::function<void (int)>::operator()", "/x/y.cc", 12), Frame("poll", "/lib/libc.so.6", 0),
    )  # fmt: skip
    assert innermost_user_frame(stack) == Frame("load", "/srv/app/train.py", 12)


BARE = """\
#0  0x00007f3a10c45d2d in __pthread_timedjoin_ex (threadid=1397, block=<optimized out>) at pthread_join_common.c:89
#1  0x00007f3a04d33e27 in commFree(ncclComm*) () from /opt/nccl/libnccl.so.2
#2  0x00007f3a04d345fd in ncclCommDestroy () from /opt/nccl/libnccl.so.2
"""
HEADLESS = """\
Thread 0x7F01 (idle): "MainThread"
    get (queue.py:170)
    __next__ (toolkit/data/batches.py:64)
Thread 0x7F02 (idle): "Thread-1"
    wait (threading.py:302)
"""


def test_frames_of_gdb_that_nothing_announces(tmp_path: Path) -> None:
    stack = only(write(tmp_path, f"it hangs here\n{BARE}"))
    assert (stack.tool, stack.pid, stack.rank, stack.line) == ("gdb", None, None, 2)
    main = main_thread(stack)
    assert main is not None
    assert [frame.function for frame in main.frames] == [
        "__pthread_timedjoin_ex", "commFree(ncclComm*)", "ncclCommDestroy",
    ]  # fmt: skip
    both = write(tmp_path, f"{BARE}then\n{BARE}").records
    assert [len(s.threads[0].frames) for s in both if isinstance(s, ProcessStack)] == [3, 3]


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("rank 3:", 3),
        ("stack of rank3", 3),
        ("== Rank 12 ==\n", 12),
        ("ranks 0 and 1", None),
        ("rank 0 and rank 1", None),
        ("2026-11-15 the log of the job says that rank 3 was the first one to be silent", None),
        ("rank 3:\nand this was taken later", None),
    ],
)
def test_the_line_above_a_stack_may_say_whose_it_is(title: str, rank: int | None, tmp_path: Path) -> None:
    assert only(write(tmp_path, f"{title}\n{HEADLESS}")).rank == rank
    assert only(write(tmp_path, f"{title}\n{BARE}")).rank == rank


def test_a_second_main_thread_is_another_process(tmp_path: Path) -> None:
    found = write(tmp_path, f"rank 0\n{HEADLESS}\nrank 1\n{HEADLESS}").records
    assert [(s.rank, len(s.threads)) for s in found if isinstance(s, ProcessStack)] == [(0, 2), (1, 2)]


def test_sniffing() -> None:
    assert stacks.sniff(BARE.encode(), "a.log")
    assert not stacks.sniff(b"frame #0: c10::Error::Error + 0x57 (0x7f in libc10.so)\n", "a.log")
    for path in SAMPLES.glob("*.txt"):
        assert stacks.sniff(path.read_bytes()[:4096], path.name), path
    assert not stacks.sniff(b"rank 0 step 0 loss 0.5\n", "stack.log")
    assert not stacks.sniff(b"Traceback (most recent call last):\n", "job.log")


PIECES = [path.read_bytes() for path in sorted(SAMPLES.glob("*.txt"))]
WORDS = [
    b"\nProcess 1: x\n",
    b"\nThread 1 (idle)\n",
    b"    f (a.py:1)\n",
    b"[",
    b"#0  f () at a:1\n",
    b"\xff",
    b'"frames"',
]


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from(WORDS), st.binary(max_size=30)), max_size=12),
    st.data(),
)
def test_any_bytes_are_survived(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(pieces)
    cut = data.draw(st.integers(0, len(text)))
    for record in write(tmp_path_factory.mktemp("fuzz"), text[cut:]).records:
        assert isinstance(record, ProcessStack)


def test_a_thread_whose_number_begins_with_a_zero(tmp_path: Path) -> None:
    text = 'Process 7: train.py\nPython v3.11.2 (python3)\n\nThread 077 (idle): "MainThread"\n    wait (a.py:1)\n'
    assert only(write(tmp_path, text)).threads[0].tid == 77


@pytest.mark.parametrize("heading", ["Process 44101: python train.py (rank 3)", "Process 44101 (rank 3)"])
@pytest.mark.parametrize("thread", ['Thread 44101 (idle): "MainThread"\n', ""])
def test_a_heading_that_names_the_rank(tmp_path, heading, thread):
    text = f"{heading}\n{thread}    all_reduce (torch/distributed/distributed_c10d.py:2050)\n    main (train.py:88)\n"
    stack = only(write(tmp_path, text))
    assert (stack.pid, stack.rank) == (44101, 3)
    assert [frame.function for frame in stack.threads[0].frames] == ["all_reduce", "main"]


@pytest.mark.parametrize(
    ("options", "local_rank"),
    [("--local_rank=3 --fp16", 3), ("--local-rank 3", 3), ("--no-local_rank=3", None), ("--local_rank=auto", None)],
)
def test_the_local_rank_that_a_launcher_gave_the_process(tmp_path: Path, options: str, local_rank: int | None) -> None:
    text = f'Process 41: python tune.py {options}\nThread 41 (idle): "MainThread"\n    step (tune.py:9)\n'
    assert only(write(tmp_path, text)).local_rank == local_rank
