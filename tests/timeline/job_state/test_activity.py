"""What a stack says a rank is doing."""

from __future__ import annotations

import pytest

from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, ThreadStack
from whichrank.timeline.job_state.activity import at_one_line, of_frames, of_moving, of_process

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
        (
            "waiting",
            [
                ("FlatParamHandle.flat_param_to", f"{TORCH}/distributed/fsdp/_flat_param.py", 2494),
                ("_unshard_fsdp_state_params", f"{TORCH}/distributed/fsdp/_unshard_param_utils.py", 220),
                ("_full_pre_state_dict_hook", f"{TORCH}/distributed/fsdp/_state_dict_utils.py", 295),
                ("save_checkpoint", "/srv/job/io.py", 8),
            ],
        ),
        ("leaving", [("destroy_process_group", f"{TORCH}/distributed/distributed_c10d.py", 2200)]),
        ("data", [("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1200)]),
        ("data", [("get", "/usr/lib/python3.12/queue.py", 170), ("__next__", "toolkit/data/batches.py", 64)]),
        ("leaving", [("pthread_join", "pthread_join.c", 89), ("commReclaim(ncclComm*)", "libnccl.so.2", 0)]),
        ("leaving", [("std::thread::join", "libc", 0), ("c10d::ProcessGroupGloo::~ProcessGroupGloo", "libtorch", 0)]),
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


def at(line: int, state: str = "active", *inner: tuple[str, str, int]) -> ProcessStack:
    script = frames(*inner, ("main", "/srv/job/train.py", line), ("<module>", "/srv/job/train.py", 99))
    return ProcessStack("stack.txt", "py-spy", (ThreadStack("MainThread", 1, state, script, main=True),))


def doing(*stacks: ProcessStack) -> list[str]:
    by_rank = dict(enumerate(stacks))
    return [a.doing for a in at_one_line({r: of_process(s) for r, s in by_rank.items()}, by_rank).values()]


def test_most_ranks_in_c_code_below_one_line_wait_for_their_gpus():
    read = at(70, "idle", ("read", "/srv/job/shards.py", 12))
    assert doing(at(80), at(80), read, at(80)) == ["waiting", "waiting", "user", "waiting"]
    assert doing(at(80), at(80), at(81)) == ["waiting"] * 3, "who is in C code elsewhere waits there"


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param([at(80), at(80), at(80)], id="all at one line may compute there"),
        pytest.param([at(80), at(80), at(81), at(81)], id="no side is larger"),
        pytest.param([at(80, "gil"), at(80, "gil"), at(81, "idle")], id="they run Python"),
        pytest.param([at(80, "idle"), at(80, "idle"), at(81, "idle")], id="they sleep"),
        pytest.param([at(80), at(81)], id="two ranks are no crowd"),
    ],
)
def test_otherwise_a_common_line_says_nothing(stacks):
    assert doing(*stacks) == ["user"] * len(stacks)


def test_a_rank_that_moves_on_does_not_wait_for_others():
    stack = at(60, "active", ("synchronize", f"{TORCH}/cuda/__init__.py", 1162), ("generate", "/srv/job/sample.py", 8))
    waits = of_process(stack)
    assert (waits.doing, of_moving(waits, stack).doing) == ("waiting", "evaluation")
    inside = at(60, "active", ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3068))
    assert of_moving(of_process(inside), inside).doing == "waiting"


def test_what_the_script_is_called_says_nothing():
    stack = frames(("main", "/srv/job/clip_reader.py", 9), ("<module>", "/srv/job/clip_reader.py", 30))
    assert of_frames(stack).doing == "user"
    assert of_frames(frames(("take", "/srv/job/clip_reader.py", 9), MAIN)).doing == "data"
