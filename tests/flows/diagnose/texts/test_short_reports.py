"""Short reports of people: a line or two of output, a command, a few words."""

from __future__ import annotations

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
