"""What a stack says a rank is doing."""

from __future__ import annotations

import pytest

from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, ThreadStack
from whichrank.timeline.job_state.activity import of_frames, of_process

TORCH = "/opt/venv/lib/python3.12/site-packages/torch"


def frames(*rows: tuple[str, str, int]) -> tuple[Frame, ...]:
    return tuple(Frame(function, file, line) for function, file, line in rows)


MAIN = ("main", "/srv/job/train.py", 90)


@pytest.mark.parametrize(
    ("doing", "inner"),
    [
        ("waiting", [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3068)]),
        ("waiting", [("synchronize", f"{TORCH}/cuda/__init__.py", 1162)]),
        ("waiting", [("_engine_run_backward", f"{TORCH}/autograd/graph.py", 869)]),
        ("starting", [("_store_based_barrier", f"{TORCH}/distributed/distributed_c10d.py", 900)]),
        ("starting", [("new_group", f"{TORCH}/distributed/distributed_c10d.py", 5000)]),
        ("leaving", [("destroy_process_group", f"{TORCH}/distributed/distributed_c10d.py", 2200)]),
        ("data", [("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1200)]),
        ("data", [("get", "/usr/lib/python3.12/queue.py", 170), ("__next__", "toolkit/data/batches.py", 64)]),
        ("leaving", [("pthread_join", "pthread_join.c", 89), ("commReclaim(ncclComm*)", "libnccl.so.2", 0)]),
        ("leaving", [("syscall", "/lib64/libc.so.6", 0), ("c10d::ProcessGroupNCCL::abort()", "", 0)]),
        ("data", [("fetch_remote_shard", "/srv/job/input.py", 22)]),
        ("checkpoint", [("_save", f"{TORCH}/serialization.py", 700)]),
        ("checkpoint", [("write_file", "/usr/lib/python3.12/shutil.py", 3), ("save_checkpoint", "/srv/job/io.py", 8)]),
        ("evaluation", [("evaluate", "/srv/job/eval.py", 40)]),
        ("preprocessing", [("tokenize_corpus", "/srv/job/prepare.py", 17)]),
        ("compile", [("compile_fx", f"{TORCH}/_inductor/compile_fx.py", 88)]),
        ("storage", [("fsync", "<built-in>", 0), ("flush_all", "/srv/job/io.py", 9)]),
        ("user", [("acquire", "/usr/lib/python3.12/threading.py", 300), ("wait_for_turn", "/srv/job/turns.py", 5)]),
    ],
)  # fmt: skip
def test_the_innermost_telling_frame_decides(doing, inner):
    assert of_frames(frames(*inner, MAIN)).doing == doing


def test_a_collective_inside_an_evaluation_is_waiting():
    stack = frames(
        ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3068),
        ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
        ("evaluate", "/srv/job/train.py", 29),
        MAIN,
    )
    found = of_frames(stack)
    assert (found.doing, found.collective, str(found.place)) == ("waiting", "all_reduce", "train.py:29 in evaluate")


@pytest.mark.parametrize(
    ("doing", "inner"),
    [
        ("data", [("download", "/srv/job/shards.py", 7), ("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54)]),
        ("checkpoint", [("write", "/srv/job/upload.py", 7), ("_save", f"{TORCH}/serialization.py", 700)]),
        ("compile", [("tune", "/srv/job/tuner.py", 7), ("call_user_compiler", f"{TORCH}/_dynamo/output_graph.py", 2)]),
        # A compiled model that runs is no compilation.
        ("user", [("work", "/srv/job/model.py", 7), ("compile_wrapper", f"{TORCH}/_dynamo/eval_frame.py", 900)]),
        ("user", [("__del__", "/srv/job/things.py", 7), ("train", "/srv/job/sharded.py", 21)]),
    ],
)  # fmt: skip
def test_a_library_that_calls_the_training_code_back_says_what_it_does(doing, inner):
    assert of_frames(frames(*inner, MAIN)).doing == doing


def test_no_frames_say_nothing():
    assert of_frames(()).doing == "unknown"


def test_a_thread_that_tears_down_tells_where_the_main_one_does_not():
    driver = (Frame("??", "/lib64/libcuda.so.1", 0),)
    ending = (*driver, Frame("ncclCommAbort", "init.cc", 1508))
    threads = (ThreadStack("main", 1, "unknown", driver, main=True), ThreadStack("", 2, "unknown", ending))
    assert of_process(ProcessStack("bt.txt", "gdb", threads)).doing == "leaving"
    assert of_process(ProcessStack("bt.txt", "gdb", threads[:1])).doing == "unknown"


@pytest.mark.parametrize(
    ("function", "file", "collective"),
    [
        ("_all_gather_base", "torch/distributed/distributed_c10d.py", "all_gather"),
        ("_all_reduce", "torch/distributed/distributed_c10d.py", "all_reduce"),
        ("gather", "accelerate/utils/operations.py", "gather"),
    ],
)
def test_other_names_of_collectives(function, file, collective):
    found = of_frames(frames((function, file, 2184), ("save_model", "main.py", 402)))
    assert (found.doing, found.collective) == ("waiting", collective)


def test_a_method_of_a_library_does_not_name_what_the_job_does():
    found = of_frames(frames(("_eval_power", "sympy/core/numbers.py", 2100), ("reward", "rewards.py", 41)))
    assert found.doing == "user"
