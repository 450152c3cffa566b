"""Ranks that say that they have less to read."""

from __future__ import annotations

from whichrank.flows.diagnose.pipeline import diagnose

TIMEOUT = (
    "[rank{0}]:[E0930 13:15:41.000000000 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600021 "
    "milliseconds before timing out.\n"
)


def verdict(tmp_path, counts, *, waiting=(0, 1, 3)):
    text = "".join(f"[rank{r}]: {count} batches in this epoch\n" for r, count in enumerate(counts))
    text += "".join(TIMEOUT.format(r) for r in waiting)
    (tmp_path / "job.log").write_text(text)
    return diagnose([tmp_path], jobs=1).verdict


def test_the_rank_with_fewer_batches_is_named(tmp_path):
    found = verdict(tmp_path, [1024, 1024, 1011, 1024])
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "uneven-inputs", (2,))
    assert "1011" in found.summary


def test_equal_counts_or_no_hang_say_nothing(tmp_path):
    assert verdict(tmp_path, [1024] * 4).cause != "uneven-inputs"
    assert verdict(tmp_path, [1024, 1024, 1011, 1024], waiting=()).cause != "uneven-inputs"


def test_one_rank_with_more_is_not_the_one_that_ran_out(tmp_path):
    assert verdict(tmp_path, [1024, 1024, 2048, 1024]).cause != "uneven-inputs"


def test_steps_per_epoch_count_too(tmp_path):
    text = "".join(
        f"rank {r} | shard {r}: {steps} steps per epoch\n" for r, steps in enumerate((2841, 2841, 2819, 2841))
    )
    (tmp_path / "job.log").write_text(text + "".join(TIMEOUT.format(r) for r in (0, 1, 3)))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.ranks) == ("uneven-inputs", (2,))
