"""A rank that is late says why itself, or never says what all others said."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.facts.phases import activity_in
from whichrank.flows.diagnose.own_lines import _COUNTED
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.diagnose.spoken_lines import _FRAME, SpokenLines
from whichrank.model.contracts import Item
from whichrank.model.verdict import Verdict
from whichrank.timeline.identity.who import People

WORLD = 8


def timeouts(late: int, stamp: str = "E1121 14:26:09.542377", prefix: str = "") -> list[str]:
    """What torch prints on all ranks but one."""
    return [
        f"{prefix}[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=40, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=300000) ran for 300060 "
        "milliseconds before timing out."
        for rank in range(WORLD)
        if rank != late
    ]


def judged(folder: Path, *lines: str) -> Verdict:
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return diagnose([folder], jobs=1).verdict


def steps(until: int, first: int = 1) -> list[str]:
    return [f"[rank{rank}]: step {step} loss 2.{step}" for step in range(first, until) for rank in range(WORLD)]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("V1121 14:20:20.2 51 torch/_dynamo/guards.py:30] Recompiling function f in m.py:2", "rank-stuck-in-compile"),
        ("loader: shard 00031.tar: read timed out, retry 1 of 20 (backoff 40 s)", "rank-stuck-in-data-loading"),
        ("loss is not finite in sample 8812, batch skipped", "conditional-collective"),
        ("waiting for the file lock /cache/tokens.lock", "stale-lock-or-store"),
        ("saving optimizer checkpoint shard 3 to /mnt/slow", "rank-stuck-in-checkpoint"),
    ],
)  # fmt: skip
def test_the_line_that_only_the_late_rank_printed(tmp_path, line, cause):
    verdict = judged(tmp_path, *steps(4), f"[rank5]: {line}", *timeouts(late=5))
    assert (verdict.cause, verdict.culprits.ranks, verdict.category) == (cause, (5,), "hang")


def test_a_line_that_all_ranks_print_tells_nothing(tmp_path):
    everybody = [f"[rank{rank}]: saving checkpoint shard {rank}" for rank in range(WORLD)]
    verdict = judged(tmp_path, *steps(4), *everybody, *steps(7, first=4), *timeouts(late=5))
    assert verdict.cause != "rank-stuck-in-checkpoint"


def test_what_comes_after_the_timeouts_is_a_consequence(tmp_path):
    verdict = judged(tmp_path, *steps(4), *timeouts(late=5), "[rank5]: writing a last checkpoint before the end")
    assert verdict.cause != "rank-stuck-in-checkpoint"


def test_a_rank_that_never_said_what_all_others_did_is_the_late_one(tmp_path):
    done = [f"[rank{rank}]: __{rank}_0.distcp uploaded in 3{rank}.5 s" for rank in range(WORLD) if rank != 6]
    some = [line for line in timeouts(late=6) if "[rank2]" not in line]  # of rank 2 the end of the log is missing
    verdict = judged(tmp_path, *steps(4), *done, *some)
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-stuck-in-checkpoint", (6,))


def test_the_kernel_of_the_late_ranks_node_behind_a_task_label(tmp_path):
    nodes = [f"{rank // 4}: [rank{rank}] INFO segment 8 opened" for rank in range(WORLD)]
    kernel = "1: Nov 21 14:20:31 h2-114 kernel: nfs: server scratch-02 not responding, still trying"
    late = [f"{rank // 4}: {line}" for rank, line in zip((0, 1, 2, 3, 4, 6, 7), timeouts(late=5), strict=True)]
    verdict = judged(tmp_path, *nodes, kernel, *late)
    assert (verdict.cause, verdict.culprits.ranks) == ("storage-stall", (5,))


def test_a_late_rank_that_says_nothing_of_its_own_stays_unexplained(tmp_path):
    verdict = judged(tmp_path, *steps(4), *timeouts(late=5))
    assert verdict.cause in ("collective-desync", "collective-stalled")


def test_the_rank_whose_value_turned_first_is_the_origin(tmp_path):
    turned = [
        "[rank6]: step 5 layers.3.grad amax inf",
        "[rank0]: step 5 loss 2.5 grad_norm nan",
        *(f"[rank{rank}]: step 6 loss nan" for rank in range(WORLD)),
        *(f"[rank{rank}]: FloatingPointError: loss is nan for 2 steps" for rank in range(WORLD)),
    ]
    verdict = judged(tmp_path, *steps(5), *turned)
    assert (verdict.cause, verdict.culprits.ranks) == ("nan-origin", (6,))


def test_frames_of_a_stack_are_nothing_that_a_rank_said():
    assert _FRAME.match("    run_path (<frozen runpy>:291)")
    assert _FRAME.match('  File "/usr/lib/python3.12/queue.py", line 140 in put')
    assert activity_in("run_path (<frozen runpy>:291)") is None
    assert activity_in("the loader looks frozen") == "rank-frozen"


def test_what_whichrank_says_of_a_rank_is_no_word_of_that_rank(tmp_path):
    said = "whichrank: the job makes no progress: rank 5 does nothing in its checkpoint while others wait"
    verdict = judged(tmp_path, *steps(4), f"[rank5]: {said}", *timeouts(late=5))
    assert verdict.cause != "rank-stuck-in-checkpoint"
    assert "whichrank:" not in verdict.summary


STALLED = (
    "[1,0]<stderr>:[2023-02-11 09:1{0}:44.120000: W horovod/common/stall_inspector.cc:107] One or more tensors were "
    "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for "
    "more than 60 seconds.\n[1,0]<stderr>:Missing ranks:\n"
    "[1,0]<stderr>:{1}: [DistributedOptimizer.Allreduce_0/grad.head.bias, Allreduce_0/grad.head.weight]"
)
SHUT_DOWN = (
    "[1,{0}]<stderr>:Traceback (most recent call last):\n"
    "[1,{0}]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an "
    "exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks "
    "finished execution."
)
ABORTED = "mpirun noticed that process rank 4 with PID 871 on node va-03 exited on signal 6 (Aborted)."


def test_ranks_that_horovod_shut_down_lost_the_one_that_its_report_misses(tmp_path):
    busy = "[1,2]<stdout>:writing checkpoint shards to /scratch/run7"
    stalls = [STALLED.format(minute, 2) for minute in range(3)]
    verdict = judged(tmp_path, busy, *stalls, *map(SHUT_DOWN.format, (1, 4, 6)), ABORTED)
    assert (verdict.cause, verdict.culprits.ranks, verdict.category) == ("rank-stuck-in-checkpoint", (2,), "hang")


def test_ranks_that_horovod_shut_down_lost_the_one_that_raised(tmp_path):
    raised = "[1,3]<stderr>:Traceback (most recent call last):\n[1,3]<stderr>:KeyError: 'labels'"
    verdict = judged(tmp_path, raised, *map(SHUT_DOWN.format, (1, 4, 6)), ABORTED)
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-exception", (3,))


WORKERS = (
    "dataloader.py:557: UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number"
    " of worker in current system is 4, which is smaller than what this DataLoader is going to create."
)
OVER = "WARNING pinning: 24 threads for 6 cores, CPUs are oversubscribed"


def by_host(rank: int) -> str:
    return f"[zeta-{rank // 2}] [rank{rank}]"


@pytest.mark.parametrize("line", [WORKERS, OVER])
def test_what_all_ranks_of_one_host_say_of_its_cpus(tmp_path, line):
    lines = [f"{by_host(rank)} {line}" for rank in (4, 5)] + [f"{by_host(rank)} model ready" for rank in range(WORLD)]
    late = [text for text in timeouts(late=5) if "[rank4]" not in text]
    verdict = judged(tmp_path, *lines, *(by_host(int(text[5])) + text[7:] for text in late))
    assert (verdict.cause, verdict.culprits.ranks, verdict.culprits.hosts) == ("cpu-starved", (4, 5), ("zeta-2",))


@pytest.mark.parametrize("said", [range(WORLD), (2, 4, 5), (4,)])
def test_what_others_say_of_their_cpus_too_or_not_all_of_a_host(tmp_path, said):
    lines = [f"{by_host(rank)} {WORKERS}" for rank in said] + [f"{by_host(rank)} model ready" for rank in range(WORLD)]
    verdict = judged(tmp_path, *lines, *(by_host(int(text[5])) + text[7:] for text in timeouts(late=5)))
    assert verdict.cause != "cpu-starved"


SILENT = "2026-11-21T14:1{0}:00Z {1} kernel: nfs: server {2} not responding, still trying"
BACK = "2026-11-21T14:1{0}:00Z {1} kernel: nfs: server {2} OK"


@pytest.mark.parametrize(
    ("kernel", "stalled"),
    [
        ([SILENT.format(1, "gn-1", "fs3"), BACK.format(2, "gn-1", "fs3"), SILENT.format(4, "gn-2", "fs5")], True),
        ([SILENT.format(1, "gn-2", "fs5"), BACK.format(2, "gn-2", "fs5"), SILENT.format(4, "gn-2", "fs5")], True),
        ([SILENT.format(1, "gn-1", "fs3"), SILENT.format(4, "gn-2", "fs5"), BACK.format(5, "gn-2", "fs5")], False),
    ],
    ids=["of another host, back", "back and gone again", "of its host, back"],
)
def test_a_file_server_that_answers_again_holds_nobody_up(tmp_path, kernel, stalled):
    began = [f"2026-11-21T14:00:00Z gn-{1 + rank // 4} [rank{rank}] data ready" for rank in range(WORLD)]
    late = [
        f"2026-11-21T14:26:09Z gn-{1 + rank // 4} {line}"
        for rank, line in zip((0, 1, 2, 3, 4, 5, 7), timeouts(6), strict=True)
    ]
    verdict = judged(tmp_path, *began, *kernel, *late)
    assert (verdict.cause == "storage-stall") == stalled
    assert not stalled or (verdict.culprits.ranks, verdict.culprits.hosts) == ((6,), ("gn-2",))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('msg="epoch done" epoch=0 batches=31', "uneven-inputs"),
        ('msg="saving checkpoint" shard=5', "conditional-collective"),  # it is in a call: it was not stuck there
    ],
)
def test_why_a_rank_is_in_another_call(tmp_path, line, cause):
    said = [f"ts=2025-11-21T14:20:2{rank}Z level=info rank={rank} msg=prefetch queue=30/32" for rank in range(WORLD)]
    odd = timeouts(late=-1)[5].replace("ALLREDUCE", "ALLGATHER")
    own = f"ts=2025-11-21T14:21:09Z level=info rank=5 {line}"
    verdict = judged(tmp_path, *said, own, *timeouts(late=5), odd)
    assert (verdict.cause, verdict.culprits.ranks) == (cause, (5,))


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((1000, 1000, 1000, 1000, 1000, 872, 1000, 1000), True),
        ((1002, 1001, 1003, 1000, 1002, 872, 1001, 1003), True),  # the others lie close together
        ((1002, 940, 1003, 960, 1002, 872, 1001, 1003), False),
        ((1009, 1001, 1012, 1000, 1002, 984, 1001, 1014), True),  # in batches of 32: 31 each, and 30
    ],
    ids=["same", "close", "far apart", "batches"],
)
def test_a_share_of_the_data_that_is_smaller_than_those_of_all_others(tmp_path, counts, told):
    shares = [f"[rank{rank}] shard holds {count} samples, batch size 32" for rank, count in enumerate(counts)]
    verdict = judged(tmp_path, *shares, *steps(6), *timeouts(late=5))
    assert (verdict.cause == "uneven-inputs") == told
    assert not told or verdict.culprits.ranks == (5,)


@pytest.mark.parametrize(
    ("name", "noisy", "cause"),
    [("mb", False, "uneven-inputs"), ("branch", False, "conditional-collective"), ("mb", True, None)],
)
def test_a_value_that_was_the_same_on_all_ranks_until_the_last_round(tmp_path, name, noisy, cause):
    odd = [
        (rank, turn) for rank in range(WORLD) for turn in range(8) if (rank, turn) == (5, 7) or (noisy and rank == turn)
    ]
    rounds = [
        f"[rank{rank}] round {turn}: {name}={15 if (rank, turn) in odd else 16} loss=2.{rank}"
        for turn in range(8)
        for rank in range(WORLD)
    ]
    verdict = judged(tmp_path, *rounds, *timeouts(late=5))
    assert (verdict.cause == cause) == (cause is not None)
    assert cause is None or verdict.culprits.ranks == (5,)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("batch 4412: 0 positive boxes, mask head skipped", "conditional-collective"),
        ("skipping the expert layer, no tokens routed", "conditional-collective"),
        ("process group destroyed", "teardown-hang"),
        ("exiting with code 0", "teardown-hang"),
        ("uscita con codice 0", "teardown-hang"),
    ],
)
def test_what_a_rank_says_that_left_or_skipped_a_part(tmp_path, line, cause):
    verdict = judged(tmp_path, *steps(4), f"[rank5]: {line}", *timeouts(late=5))
    assert (verdict.cause, verdict.culprits.ranks) == (cause, (5,))


def test_the_end_of_its_data_says_why_a_rank_left(tmp_path):
    left = ["[rank5]: epoch 0: ran out of data after 31 batches", "[rank5]: exiting with code 0"]
    verdict = judged(tmp_path, *steps(4), *left, *timeouts(late=5))
    assert (verdict.cause, verdict.culprits.ranks) == ("uneven-inputs", (5,))


@pytest.mark.parametrize("alone", [True, False])
def test_what_all_ranks_print_and_one_with_other_numbers(tmp_path, alone):
    """A cache that only one rank misses; where each has other numbers they tell nothing."""
    hits = [0 if rank == 5 else 14 if alone else 3 + rank for rank in range(WORLD)]
    lines = [f"[rank{r}]: compile: fx cache hits {hits[r]} misses {14 - hits[r]}, max-autotune" for r in range(WORLD)]
    verdict = judged(tmp_path, *lines, *steps(4), *timeouts(late=5))
    assert (verdict.cause == "rank-stuck-in-compile") == alone


def test_a_lock_that_somebody_else_left(tmp_path):
    said = ["[rank5]: rowmix: cache /tmp/ext/rowmix, lock of Apr 26 15:58, wait for owner 18822"]
    free = [f"[rank{r}]: rowmix: cache /tmp/ext/rowmix, no lock, building" for r in range(WORLD) if r != 5]
    verdict = judged(tmp_path, *free, *said, *steps(4), *timeouts(late=5))
    assert (verdict.cause, verdict.culprits.ranks) == ("stale-lock-or-store", (5,))


@pytest.mark.parametrize(("begin", "heard"), [('{"whichrank_variables": 1, ', 0), ("{", 1)])
def test_json_that_whichrank_wrote_is_nobody_s_words(tmp_path, begin, heard):
    path = tmp_path / "rank_5.json"
    path.write_text(f'{begin}"rank": 5, "frames": ["train.py:31 in main", "shards: 2 of 3, cache: local fallback"]}}')
    item = Item(path, path.name, path.stat().st_size, 0)
    assert len(SpokenLines([item], People(), WORLD).lines) == heard


@pytest.mark.parametrize(("shares", "cause"), [((31, 1659), "uneven-inputs"), ((32, 1712), "collective-desync")])
def test_a_share_that_is_smaller_in_the_last_round(tmp_path, shares, cause):
    said = "[rank{}]: epoch {}: {} shards/worker x 12 workers, {} batches"
    epochs = [said.format(r, n, *(shares if (r, n) == (5, 2) else (32, 1712))) for n in range(3) for r in range(WORLD)]
    other = timeouts(late=99)
    other = [line.replace("=64,", "=26214912,") for line in other]
    other[5] = other[5].replace("=26214912,", "=2,")
    verdict = judged(tmp_path, *steps(4), *epochs, *other)
    assert (verdict.cause, verdict.culprits.ranks) == (cause, (5,))


@pytest.mark.parametrize(("name", "counts"), [("batch_count", True), ("micro_bs", True), ("n", True), ("lr", False)])
def test_names_of_how_much_there_is_to_do(name, counts):
    assert bool(_COUNTED.search(name)) == counts


def test_a_rank_that_has_not_said_the_end_of_this_round(tmp_path):
    def saves(step: int, slow: int | None = None) -> list[str]:
        begun = [f"[rank{rank}]: writing /ckpt/step_{step:04}/state_{rank:02}.pt" for rank in range(WORLD)]
        return begun + [f"[rank{rank}]: 2.1 MiB in 0.0{rank}s" for rank in range(WORLD) if rank != slow]

    verdict = judged(tmp_path, *steps(4), *saves(4), *steps(7, first=4), *saves(8, slow=5), *timeouts(late=5))
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-stuck-in-checkpoint", (5,))
    verdict = judged(tmp_path, *steps(4), *saves(4), *steps(7, first=4), *saves(8), *timeouts(late=5))
    assert verdict.cause != "rank-stuck-in-checkpoint"


def test_an_evaluation_that_is_over_on_one_rank_alone(tmp_path):
    rounds = [f"12:00:0{batch} I r{rank} ctr: eval batch {batch}" for batch in range(4) for rank in range(WORLD)]
    over = "12:00:05 I r5 ctr: eval pass over, 779 rows in 2.6s, writing predictions"
    verdict = judged(tmp_path, *rounds, over, *timeouts(late=5))
    assert (verdict.cause, verdict.culprits.ranks) == ("uneven-inputs", (5,))
