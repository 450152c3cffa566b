"""Short reports of people: a line or two of output, a command, a few words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict


def verdict(folder: Path, text: str) -> Verdict:
    file = folder / "issue.md"
    file.write_text(text)
    return diagnose([file], jobs=1).verdict


ORDINAL = "RuntimeError: cuda runtime error (101) : invalid device ordinal at csrc/cuda/Module.cpp:59\n"


@pytest.mark.parametrize(
    ("visible", "ranks"), [("1,2", (2, 3)), ("0,1,2", (3,)), ("0,1,2,3", ()), ("GPU-8c2e,GPU-91aa", ())]
)
def test_ranks_beyond_the_visible_gpus_have_none(tmp_path, visible, ranks):
    found = verdict(tmp_path, f"I ran\nCUDA_VISIBLE_DEVICES={visible} torchrun --nproc_per_node=4 train.py\n{ORDINAL}")
    assert (found.cause, found.culprits.ranks) == ("device-ordinal", ranks)


LOOK_UP = (
    "I tried `python -m torch.distributed.run --standalone --nnodes={} --nproc-per-node=4 train.py` and it says\n\n"
    "[W socket.cpp:601] [c10d] The IPv6 network addresses of (hal9, 53821) cannot be retrieved (gai error: -3 - "
    "Temporary failure in name resolution).\n"
)


@pytest.mark.parametrize(("nodes", "hosts"), [(1, ("hal9",)), (2, ())])
def test_the_name_that_a_single_host_looks_up_is_its_own(tmp_path, nodes, hosts):
    found = verdict(tmp_path, LOOK_UP.format(nodes))
    assert (found.cause, found.culprits.hosts) == ("hostname-resolution", hosts)


def test_a_line_of_output_without_a_fence_counts(tmp_path):
    line = "Using /home/a/.cache/torch_extensions/py310_cu118 as PyTorch extensions root...\n"
    assert verdict(tmp_path, f"Training is stuck at the start.\n\n{2 * line}").cause == "stale-lock-or-store"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("The job crashes after a while with too many files open.", "fd-limit"),
        ("The training hangs when I call the method only in process 0.", "rank0-only-collective"),
        ("Multi-node training is slow: the image does not include the aws-ofi-nccl plugin.", "efa-provider-missing"),
        ("Training is stuck at its end, in dist.barrier().", "collective-desync"),
        (
            "The job hangs: one rank leaves its loop early, the others wait for another step.",
            "conditional-collective",
        ),
        ("Training is slow: the data loader is very slow.", "input-bound"),
        ("多卡训练报 timeout 错误：分词这一步要花很长时间，跑到 30 分钟就一定报错。", "rank-stuck-in-preprocessing"),
        ("It hangs in NCCL, ranks have data of unequal length.", "uneven-inputs"),
        ("The buffers on the 2 ranks are not in fact in sync, the loss is wrong.", "replica-divergence"),
        ("With `save_checkpoint` under main_process it hangs at the saving stage.", "rank0-only-collective"),
        ("Ranks 5-7 crash:\n```text\nRuntimeError: batch size must be positive\n```", "rank-exception"),
    ],
)
def test_a_few_words(tmp_path, said, cause):
    assert verdict(tmp_path, said + "\n").cause == cause


def test_a_runtime_error_about_communication_is_an_echo(tmp_path):
    said = "Rank 3 crashes:\n```text\nRuntimeError: Rank 3 lost its connection to the store\n```\n"
    assert verdict(tmp_path, said).cause != "rank-exception"


MISSED = "FileNotFoundError: [Errno 2] No such file or directory: '{}/pack/ready.tmp'\n"


@pytest.mark.parametrize(
    ("folder", "where", "cause"),
    [
        ("/tmp", "multi-node training", "cache-not-shared"),
        ("/tmp", "一个节点", "rank-exception"),
        ("/lustre/a", "multi-node training", "rank-exception"),
    ],
)
def test_a_file_in_a_folder_that_every_host_has_for_itself(tmp_path, folder, where, cause):
    said = f"It fails with {where} and this error:\n\n{MISSED.format(folder)}"
    assert verdict(tmp_path, said).cause == cause


def test_a_title_that_cites_a_message_says_that_it_hangs(tmp_path):
    title = '# At validation "Some NCCL operations have failed or timed out. Due to the asynchronous nature"\n'
    found = verdict(tmp_path, title + "\nThat is after each epoch, I use 4 GPUs.\n")
    assert (found.category, found.cause) == ("hang", "rank-stuck-in-evaluation")


CLOSING = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process {} closing signal {}\n"


@pytest.mark.parametrize(
    ("signal", "cause", "least"),
    [("SIGHUP", "job-ended-from-outside", 0.9), ("SIGINT", "job-ended-from-outside", 0.5), ("SIGTERM", "unknown", 0)],
)
def test_an_agent_that_passes_a_signal_on_received_it(tmp_path, signal, cause, least):
    said = "".join(CLOSING.format(pid, signal) for pid in (4711, 4712))
    found = verdict(tmp_path, f"After an hour of training:\n```\n{said}```\n")
    assert found.cause == cause
    assert found.confidence >= least


FORWARD = (
    "```\nfor step, batch in enumerate(loader):\n    if step % 10 == 0 and {}:\n        out = model(**batch)\n```\n"
)


@pytest.mark.parametrize(
    ("model", "condition", "cause"),
    [
        ("ZeRO-3", "args.global_rank == 0", "rank0-only-collective"),
        ("FSDP", "rank == 0", "rank0-only-collective"),
        ("ZeRO-1", "rank == 0", "unknown"),
        ("FSDP", "args.debug", "unknown"),
    ],
)
def test_the_forward_pass_of_a_sharded_model_on_rank_0_alone(tmp_path, model, condition, cause):
    said = f"# My job with {model} hangs after some steps\n\nThe loop:\n{FORWARD.format(condition)}"
    assert verdict(tmp_path, said).cause == cause


MIXED = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=9, OpType=BROADCAST, TensorShape=[1], TensorDtypes=Long)\n"
)


@pytest.mark.parametrize(("title", "category"), [("Deadlock with other keys", "hang"), ("An error", "crash")])
def test_a_check_that_ends_what_hung_without_it(tmp_path, title, category):
    said = f'# {title} on the ranks\n```\nTraceback (most recent call last):\n  File "a.py", line 3, in f\n{MIXED}```\n'
    assert verdict(tmp_path, said).category == category


NOTICE = (
    "2026-01-03 05:25:39 INF Requesting instance drain event-id=spot-itn-1 instance-id=i-0f1 kind=SPOT_ITN "
    "node-name=ip-10-0-3-15.ec2.internal\n"
)


@pytest.mark.parametrize(("fails_after_s", "told"), [(100, True), (3600, False)])
def test_a_notice_that_comes_true_later(tmp_path, fails_after_s, told):
    def stamp(seconds: int) -> str:
        return (datetime(2026, 1, 3, 5, 25, 39, tzinfo=timezone.utc) + timedelta(seconds=seconds)).isoformat(" ")

    steps = "".join(f"{stamp(s)} INFO step {s} loss 1.{s % 10}\n" for s in range(2, fails_after_s, 2))
    failed = (
        f"{stamp(fails_after_s)} ERROR rank 3 failed\nTraceback (most recent call last):\n"
        '  File "/srv/train.py", line 71, in step\n    dist.all_reduce(loss)\n'
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
        "Last error:\nsocketProgress: Connection closed by remote peer ip-10-0-3-15.ec2.internal<40122>\n"
    )
    file = tmp_path / "train.log"
    file.write_text(NOTICE + steps + failed)
    found = diagnose([file], jobs=1).verdict
    assert (found.cause == "job-ended-from-outside") is told
    assert not told or found.culprits.hosts == ("ip-10-0-3-15.ec2.internal",)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "# Two machines: NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
            "ib-fabric-partition",
        ),
        ("# It fails, and we do not see Got completion with error 12, opcode 0, in it", "unknown"),
    ],
)
def test_a_message_that_only_the_title_tells(tmp_path, said, cause):
    assert verdict(tmp_path, f"{said}\n\nWhat can we do?\n").cause == cause


def test_ranks_with_nothing_to_learn_from_take_another_path(tmp_path):
    said = "It hangs at the first backward when some GPUs receive a batch in which all images have zero annotations.\n"
    found = verdict(tmp_path, said)
    assert (found.category, found.cause) == ("hang", "conditional-collective")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("I want to start it again, and the error log says that the tcp address is already taken.", "port-in-use"),
        ("It says AssertionError: MPI world size 16 does not match torch world size 8", "world-size-mismatch"),
    ],
)
def test_what_one_sentence_tells(tmp_path, said, cause):
    assert verdict(tmp_path, f"# Training does not start\n\n{said}\n").cause == cause


def test_a_sentence_without_spaces(tmp_path):
    found = verdict(
        tmp_path, "# 反向传播会卡住\n\n其中一张卡的图像里有正样本，另一张卡的图像全都没有正样本，这时就卡住了。\n"
    )
    assert (found.category, found.cause) == ("hang", "conditional-collective")


def test_a_line_that_somebody_points_at(tmp_path):
    code = "    if args.local_rank == 0:\nHERE --->        torch.distributed.barrier()  # only the first one\n"
    found = verdict(tmp_path, f"# It hangs at evaluation\n\nIt hangs at this line:\n\n```\n{code}```\n")
    assert (found.category, found.cause) == ("hang", "rank0-only-collective")
