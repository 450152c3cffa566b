"""The cause behind what helped; what did not help excludes causes."""

from __future__ import annotations

import pytest

from whichrank.flows.diagnose.pipeline import diagnose


def verdict(tmp_path, text, name="ticket.txt"):
    (tmp_path / name).write_text(text)
    return diagnose([tmp_path], jobs=1).verdict


def test_what_helped_is_told_and_nobody_is_accused(tmp_path):
    found = verdict(
        tmp_path,
        "Both GPUs sit at full load and training never gets past the first batch.\n"
        "NCCL_IB_DISABLE=1 makes no difference. With NCCL_P2P_DISABLE=1 it trains normally.\n",
    )
    assert found.category == "hang"
    assert found.cause in ("p2p-driver", "p2p-acs-iommu")
    assert not found.culprits.ranks
    assert found.confidence <= 0.7


def test_what_did_not_help_excludes(tmp_path):
    found = verdict(
        tmp_path,
        "The job hangs in the first all_reduce over two machines.\n"
        "NCCL_P2P_DISABLE=1 did not help. Everything works with NCCL_IB_DISABLE=1.\n",
    )
    assert found.category == "hang"
    assert not found.cause.startswith("p2p-")
    assert found.cause in ("roce-gid", "ib-fabric-partition", "mtu-mismatch", "acs-gdr")


@pytest.mark.parametrize(
    ("seen", "category"),
    [
        ("Our job freezes at step 200 on all ranks, nobody knows why.", "hang"),
        ("Two nodes are four times slower than one of them, nobody knows why.", "slow"),
        ("It is 2.6x slower than last week, and NCCL_DEBUG=INFO shows nothing to us.", "slow"),
        ("We expected 41 % and get 23.6 on all of them.", "slow"),
    ],
)
def test_the_category_is_told_where_nothing_else_is_known(tmp_path, seen, category):
    found = verdict(tmp_path, f"Hello everybody, a question about our cluster.\n\n{seen}\n")
    assert (found.category, found.cause, found.confidence) == (category, "unknown", 0.0)


def test_a_log_is_believed_more_than_a_report(tmp_path):
    (tmp_path / "train.log").write_text(
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = verdict(tmp_path, "It hangs for us. It works with NCCL_P2P_DISABLE=1, some colleague says.\n")
    assert (found.category, found.cause, found.culprits.ranks) == ("crash", "gpu-out-of-memory", (3,))


def test_who_complains_does_not_tell_of_a_run_that_ended_well(tmp_path):
    found = verdict(
        tmp_path,
        "The process is killed at random points of the training, without any message.\n\n"
        "With the small model the training finished once, but was killed several times before.\n",
    )
    assert found.category == "crash"


def test_a_run_that_counts_on_behind_a_failure_has_recovered(tmp_path):
    steps = "".join(f"epoch {n} loss 0.{9 - n}\n" for n in range(2))
    failed = "RuntimeError: NCCL error: remote process exited or there was a network error\n"
    again = "restored checkpoint of epoch 1\n" + "".join(f"epoch {n} loss 0.{9 - n}\n" for n in range(2, 6))
    assert verdict(tmp_path, steps + failed + again, "driver.log").cause == "healthy"
    assert verdict(tmp_path, steps + failed, "driver.log").cause != "healthy"
    newest_first = "\n".join(reversed(f"{again}{failed}".strip().split("\n")))
    assert verdict(tmp_path, newest_first, "driver.log").cause != "healthy"


TABLE = """The job crashes in the first all_reduce on two GPUs of one machine since we updated torch.

| | torch 2.6 | torch 2.7 |
|---|---|---|
| default | ok | fails |
| NCCL_CUMEM_ENABLE=0 | ok | {} |
| NCCL_P2P_DISABLE=1 | ok | fails |
"""


def test_a_table_of_what_was_tried(tmp_path):
    assert verdict(tmp_path, TABLE.format("ok")).cause == "cumem-host"
    (tmp_path / "ticket.txt").unlink()
    assert verdict(tmp_path, TABLE.format("hangs")).cause != "cumem-host"


def test_what_was_tried_and_did_nothing_is_no_hint(tmp_path):
    found = verdict(
        tmp_path,
        "Training is slow, the GPUs are mostly idle.\n\nThings I tried:\n"
        "- data on node-local NVMe instead of Lustre: no change\n"
        "- `torch.compile` off (slower by the same factor)\n",
    )
    assert found.cause not in ("storage-stall", "rank-stuck-in-compile")


def test_the_one_trial_that_took_half_as_long_helped(tmp_path):
    text = (
        "One epoch takes 44 minutes, the GPUs are mostly idle and training is slow.\n\nThings I tried:\n"
        "- num_workers 4 / 8 / 14: 47, 45, 44 min\n- pin_memory: 44 min\n"
        "- `export OMP_NUM_THREADS=1` in the job script: **6 min per epoch**\n"
    )
    assert verdict(tmp_path, text, "issue.md").cause == "cpu-starved"
    assert verdict(tmp_path, text.replace("6 min", "43 min"), "issue.md").cause != "cpu-starved"


def test_a_setting_that_is_not_in_effect_excludes_nothing(tmp_path):
    text = (
        "node1:20411:20466 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 4, opcode 0, "
        "len 32694, vendor err 81\n\n"
        "ACS was disabled in the BIOS, I believe. It works if I set NCCL_NET_GDR_LEVEL=0.\n\n"
    )
    assert verdict(tmp_path, text, "issue.md").cause != "acs-gdr"
    shown = text + "\t\tACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"
    assert verdict(tmp_path, shown, "issue.md").cause == "acs-gdr"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("It is not there if I comment out the block that runs the validation.", "rank-stuck-in-evaluation"),
        ("Without saving checkpoints it does not hang.", "rank-stuck-in-checkpoint"),
        ("When I disable torch.compile the job runs through.", "rank-stuck-in-compile"),
        ("Commenting out the validation did not help.", "unknown"),
    ],
)
def test_what_was_left_out_and_helped(tmp_path, said, cause):
    found = verdict(tmp_path, f"After an epoch the job hangs until the NCCL timeout.\n{said}\n")
    assert (found.category, found.cause) == ("hang", cause)
