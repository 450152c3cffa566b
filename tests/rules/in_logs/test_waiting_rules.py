"""Rules on what ranks say of themselves: messages and roots that no recorder holds, and ranks that left early."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.grades import SUPPORTED
from whichrank.model.verdict import Diagnosis

SAMPLES = ROOT / "tests" / "samples" / "gloo_waits"
NCCL = ROOT / "tests" / "samples" / "nccl_waits"


def judged(folder: Path) -> Diagnosis:
    return diagnose([folder], jobs=1)


@pytest.mark.parametrize(
    ("name", "code", "cause", "ranks"),
    [
        ("both_receive_first", "COLL131", "p2p-deadlock", (1, 2)),
        ("send_left_out", "COLL132", "p2p-unmatched", (2,)),
        ("receive_left_out", "COLL132", "p2p-unmatched", (3,)),
        ("a_round_ahead", "COLL132", "p2p-unmatched", (3,)),
        ("gone_to_a_barrier", "COLL132", "p2p-unmatched", (3,)),
        ("left_by_sys_exit", "CODE101", "rank-exception", (2,)),
        ("other_root", "COLL133", "root-mismatch", (0,)),
        ("root_of_the_next_turn", "COLL133", "root-mismatch", (2,)),
        ("later_stage_receives", "COLL132", "p2p-unmatched", (0,)),
        ("smaller_batch", "COLL121", "size-mismatch", (1,)),
        ("group_of_its_members", "COLL135", "conditional-collective", (1,)),
        ("left_early", "COLL112", "teardown-hang", (1,)),
        ("left_loop_early", "COLL139", "conditional-collective", (0, 2)),
        ("lock_around_a_gather", "COLL105", "process-group-order", (2,)),
        ("batch_left_out", "COLL132", "p2p-unmatched", (2,)),
        ("forward_of_one_rank", "COLL101", "conditional-collective", (3,)),
        ("held_with_an_old_dump", "SLOW107", "rank-stuck-in-user-code", (2,)),
        ("left_the_ring", "COLL132", "p2p-unmatched", (2,)),
        ("ended_before_a_new_group", "COLL135", "conditional-collective", (2,)),
        ("lock_of_an_earlier_job", "SLOW102", "stale-lock-or-store", (1,)),
        ("state_of_one_rank", "COLL102", "rank0-only-collective", (0,)),
        ("roles_of_a_pipeline", "COLL132", "p2p-unmatched", (0,)),
        ("fewer_parts_in_a_later_loop", "COLL132", "p2p-unmatched", (2,)),
        ("barrier_of_all_by_two", "COLL101", "conditional-collective", (3, 4)),
        ("root_by_own_score", "COLL133", "root-mismatch", (2,)),
        ("went_on_without_a_key", "COLL102", "conditional-collective", (0,)),
        ("nothing_to_send", "COLL132", "p2p-unmatched", (3,)),
        ("thread_fills_a_queue", "COLL112", "teardown-hang", (0,)),
        ("shared_weights_in_another_order", "COLL139", "process-group-order", (0, 3)),
        ("two_left_the_loop", "COLL103", "uneven-inputs", (2, 3)),
        ("shorter_epoch", "COLL103", "uneven-inputs", (4,)),
        ("polls_behind_its_loop", "COLL149", "uneven-inputs", (2,)),
        ("loop_in_an_argument", "COLL103", "uneven-inputs", (0, 2)),
        ("order_by_size", "COLL105", "process-group-order", (2,)),
        ("callback_of_one_rank", "COLL101", "conditional-collective", (0,)),
        ("kept_by_a_thread", "COLL112", "teardown-hang", (0,)),
        ("fullest_first", "COLL104", "collective-order", (3,)),
        ("metric_of_one_rank", "COLL101", "rank0-only-collective", (0,)),
        ("two_circles", "COLL131", "p2p-deadlock", (0, 1, 2, 3)),
        ("lock_of_a_thread", "COLL105", "process-group-order", (1,)),
        ("joins_a_thread", "COLL112", "teardown-hang", (3,)),
        ("each_owes_its_half", "COLL131", "p2p-deadlock", (0, 4)),
        ("exception_in_exit", "COLL103", "rank-exception", (3,)),
        ("joins_a_process", "COLL112", "teardown-hang", (0,)),
        ("partner_of_another_round", "COLL132", "p2p-unmatched", (3,)),
        ("both_send_in_a_schedule", "COLL131", "p2p-deadlock", (2, 3)),
        ("root_of_a_local_average", "COLL133", "root-mismatch", (3,)),
        ("best_of_one_rank", "COLL101", "rank0-only-collective", (0,)),
    ],
)
def test_who_is_behind_it(name, code, cause, ranks):
    found = judged(SAMPLES / name)
    assert (found.findings[0].code, found.verdict.cause, found.verdict.culprits.ranks) == (code, cause, ranks)
    assert not set(found.verdict.victims) & set(ranks)


@pytest.mark.parametrize(
    ("name", "code", "cause", "ranks", "candidates"),
    [
        ("message_before_a_collective", "COLL106", "p2p-deadlock", (0, 3), ()),
        ("each_owes_its_half", "COLL131", "p2p-deadlock", (0, 4), ()),
        ("first_call_of_one_rank", "COLL139", "rank0-only-collective", (0,), ()),
        ("pairs_in_a_ring", "COLL139", "process-group-order", (0, 1, 2), ()),
        ("member_elsewhere", "COLL139", "conditional-collective", (), (0, 3)),
        ("send_left_out", "COLL107", "p2p-unmatched", (3,), ()),
        ("extra_gather_long_ago", "COLL102", "rank0-only-collective", (0,), ()),
        ("left_by_os_exit", "COLL112", "teardown-hang", (2,), ()),
        ("batch_left_out", "COLL107", "p2p-unmatched", (2,), ()),
        ("two_sides", "COLL139", "conditional-collective", (), (0, 1, 2, 3)),
        ("other_partners", "COLL106", "p2p-unmatched", (), (0, 1, 2, 3)),
        ("thread_in_the_same_group", "COLL104", "collective-order", (2,), ()),
        ("draws_words_without_end", "SLOW107", "rank-stuck-in-user-code", (3,), ()),
        ("ends_its_epoch_first", "COLL103", "uneven-inputs", (1,), ()),
        ("nothing_to_send", "COLL107", "p2p-unmatched", (3,), ()),
        ("drawn_without_itself", "COLL139", "conditional-collective", (4,), ()),
        ("one_group_more", "COLL135", "conditional-collective", (3,), ()),
    ],
)
def test_who_is_behind_it_on_nccl(name, code, cause, ranks, candidates):
    found = judged(NCCL / name)
    verdict = found.verdict
    assert (found.findings[0].code, verdict.cause, verdict.culprits.ranks) == (code, cause, ranks)
    assert verdict.culprits.candidates == candidates
    assert verdict.category == ("crash" if name == "left_by_os_exit" else "hang")


def test_of_whom_a_batch_is_not_known(tmp_path):
    """Ranks that wait for messages are not to blame for not coming elsewhere."""

    def without_batch(row):
        row["in"] = None if "batch" in str(row.get("in")) else row.get("in")

    culprits = judged(edited("batch_left_out", tmp_path, without_batch)).verdict.culprits
    assert (culprits.ranks, culprits.candidates) == ((), (0, 2, 4, 5))


def test_handles_of_messages_that_all_wait_for():
    """`work.wait()` has no Python frame of its own, and Gloo's recorder holds no message: C frames show it."""
    verdict = judged(SAMPLES / "other_partners").verdict
    assert (verdict.category, verdict.cause) == ("hang", "p2p-unmatched")
    assert (verdict.culprits.ranks, verdict.culprits.candidates) == ((), (0, 1, 2, 3))


@pytest.mark.parametrize("kept", [("dumps", "groups", "last_words.json", "stacks"), ("dumps", "groups")])
def test_one_of_two_members_does_not_come_to_the_first_call(kept, tmp_path):
    """Whether the call is one too many or was left out, nothing says: also not that only one rank did something new."""
    for name in kept:
        source = SAMPLES / "member_elsewhere" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    verdict = judged(tmp_path).verdict
    assert (verdict.category, verdict.cause) == ("hang", "conditional-collective")
    assert (verdict.culprits.ranks, verdict.culprits.candidates) == ((), (0, 3))
    assert verdict.confidence < 0.8


def test_without_the_groups_of_their_calls_nobody_is_accused_of_a_circle(tmp_path):
    shutil.copytree(NCCL / "pairs_in_a_ring", tmp_path / "case")
    path = tmp_path / "case" / "last_words.json"
    document = json.loads(path.read_text())
    for row in document["processes"]:
        row["in"] = "all_reduce"
    path.write_text(json.dumps(document))
    found = judged(tmp_path / "case")
    assert (found.verdict.category, found.verdict.cause, found.verdict.culprits.ranks) == ("hang", "unknown", ())


def test_a_server_and_its_client_that_both_receive():
    found = judged(SAMPLES / "reply_left_out")
    assert (found.findings[0].code, found.verdict.cause) == ("COLL132", "p2p-unmatched")
    assert found.verdict.culprits.ranks == (), "either may have left it out"
    assert found.verdict.culprits.candidates == (0, 3)
    assert found.verdict.victims == (1, 2)


def test_in_a_loop_whose_rounds_nobody_counts_either_may_be_ahead(tmp_path):
    found = judged(edited("a_round_ahead", tmp_path, lambda row: row.update(step=None)))
    assert (found.verdict.cause, found.verdict.culprits.ranks) == ("p2p-unmatched", ())
    assert found.verdict.culprits.candidates == (2, 3)


def test_a_hang_began_when_its_first_rank_began_to_wait():
    """Three ranks never noted a time after the last operation of all: their clocks are bounded from one side."""
    onset = judged(SAMPLES / "gone_to_a_barrier").job.onset
    assert onset is not None
    assert onset.startswith("2026-11-16T10:59:43")


def test_the_message_names_both_halves():
    told = judged(SAMPLES / "send_left_out").verdict.summary
    assert "Rank 3 waits in recv from rank 2" in told
    assert "rank 2 never posted" in told


def edited(name: str, folder: Path, change) -> Path:
    """The sample with other words of its processes."""
    shutil.copytree(SAMPLES / name, folder / name)
    path = folder / name / "last_words.json"
    document = json.loads(path.read_text())
    for row in document["processes"]:
        change(row)
    path.write_text(json.dumps(document))
    return folder / name


def without_peers(row):
    row["in"] = (row["in"] or "").partition(" ")[0] or None


IN_DATA = 'Thread 0x7F01 (idle): "MainThread"\n    get (queue.py:170)\n    __next__ (toolkit/data/batches.py:64)\n'
IN_TEARDOWN = (
    "#0  0x00007f3a10c45d2d in __pthread_timedjoin_ex (threadid=1397) at pthread_join_common.c:89\n"
    "#1  0x00007f3a04d33e27 in commReclaim(ncclComm*) () from /opt/nccl/libnccl.so.2\n"
    "#2  0x00007f3a04d345fd in ncclCommAbort () from /opt/nccl/libnccl.so.2\n"
)
IN_MAIN = 'Thread 0x7F01 (active): "MainThread"\n    train (job/train.py:64)\n'


@pytest.mark.parametrize(
    ("text", "cause", "ranks"),
    [
        (IN_DATA, "rank-stuck-in-data-loading", ()),
        (f"rank 3:\n{IN_DATA}", "rank-stuck-in-data-loading", (3,)),
        (IN_TEARDOWN, "teardown-hang", ()),
        (f"rank 3:\n{IN_TEARDOWN}", "teardown-hang", ()),
        (IN_MAIN, "unknown", ()),
        (f"{IN_DATA}\n{IN_DATA}", "unknown", ()),
        (f"{IN_DATA}step 1/9 loss 2.0\nstep 2/9 loss 2.0\n", "unknown", ()),
    ],
)
def test_the_only_stack_is_half_believed(text, cause, ranks, tmp_path):
    (tmp_path / "look.txt").write_text(text)
    verdict = judged(tmp_path).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, ranks)
    assert verdict.confidence < SUPPORTED


@pytest.mark.parametrize("name", ["both_receive_first", "send_left_out", "receive_left_out"])
def test_without_their_words_nobody_is_named_and_nothing_is_healthy(name, tmp_path):
    verdict = judged(edited(name, tmp_path, without_peers)).verdict
    assert (verdict.category, verdict.culprits.ranks) == ("hang", ())
    listed = {verdict.cause, *(other.cause for other in verdict.alternatives)}
    assert verdict.cause == "unknown" or (
        verdict.confidence < SUPPORTED and {"p2p-deadlock", "p2p-unmatched"} <= listed
    )


def test_without_the_members_of_the_group_both_sides_are_told(tmp_path):
    def bare(row):
        row["in"] = str(row["in"]).partition(" of ")[0]

    verdict = judged(edited("group_of_its_members", tmp_path, bare)).verdict
    assert (verdict.culprits.ranks, verdict.culprits.candidates) == ((), (0, 1, 2, 3))


def test_a_send_and_its_recv_are_no_circle(tmp_path):
    def other_half(row):
        if row["rank"] == 2:
            row["in"] = "send to 1"

    found = judged(edited("both_receive_first", tmp_path, other_half))
    assert not {"COLL131", "COLL132"} & {finding.code for finding in found.findings}


def test_without_a_majority_no_root_is_the_wrong_one(tmp_path):
    def two_sides(row):
        row["in"] = f"broadcast from {row['rank'] % 2}"

    found = judged(edited("other_root", tmp_path, two_sides))
    assert [f.subject.ranks for f in found.findings if f.code == "COLL133"] == [()]


def test_the_same_root_is_no_mismatch(tmp_path):
    def agreed(row):
        row["in"] = "broadcast from 0"

    assert "COLL133" not in {f.code for f in judged(edited("other_root", tmp_path, agreed)).findings}


def test_a_rank_that_was_killed_did_not_leave_early(tmp_path):
    def killed(row):
        if row["rank"] == 3:
            row.update(exit_code=None, signal=9, signal_name="SIGKILL", phase="joined")

    found = judged(edited("left_early", tmp_path, killed))
    assert "COLL112" not in {f.code for f in found.findings}
    assert found.verdict.culprits.ranks != (1,)


@pytest.mark.parametrize(
    ("places", "still_s", "ranks", "candidates"),
    [
        (["a.py:10 get"] * 4, 95.0, (), (0, 1, 2, 3)),
        (["a.py:10 get", "b.py:4 ask", "a.py:10 get", "a.py:10 get"], 95.0, (1,), ()),
        (["a.py:10 get", "b.py:4 ask", "a.py:10 get", "b.py:4 ask"], 95.0, (), (0, 1, 2, 3)),
        (["a.py:10 get"] * 4, 3.0, None, None),
    ],
)
def test_nobody_moves_and_nobody_is_in_a_collective(tmp_path, places, still_s, ranks, candidates):
    rows = [
        {"rank": rank, "pid": 100 + rank, "world_size": 4, "phase": "joined", "alive": True, "waiting": False,
         "heard_ns": 10**18, "still_s": still_s, "place": f"/srv/{place}"}
        for rank, place in enumerate(places)
    ]  # fmt: skip
    (tmp_path / "last_words.json").write_text(json.dumps({"whichrank_last_words": 1, "host": "h", "processes": rows}))
    verdict = judged(tmp_path).verdict
    if ranks is None:
        assert verdict.category != "hang"
    else:
        assert (verdict.category, verdict.cause) == ("hang", "rank-stuck-in-user-code")
        assert (verdict.culprits.ranks, verdict.culprits.candidates) == (ranks, candidates)


@pytest.mark.parametrize(
    ("silent_s", "phases", "cause", "ranks"),
    [
        (84, ("joined", "joined"), "rank-stuck-in-user-code", ()),
        (84, ("torch imported", "ended"), "teardown-hang", (0,)),  # a short job, of which one heard little
        (2, ("joined", "joined"), None, ()),
        (10**9, ("joined", "joined"), None, ()),  # nobody listened to them before
    ],
)
def test_no_rank_says_anything_any_more(tmp_path, silent_s, phases, cause, ranks):
    heard = 10**18 if silent_s < 10**6 else 0
    rows = [
        {"rank": rank, "pid": 100 + rank, "world_size": 2, "phase": phase, "alive": phase != "ended", "waiting": False,
         "heard_ns": heard, "still_s": 1.2, "exit_code": 0 if phase == "ended" else None, "ended_ns": heard}
        for rank, phase in enumerate(phases)
    ]  # fmt: skip
    words = {"whichrank_last_words": 1, "host": "h", "taken_ns": heard + silent_s * 10**9, "processes": rows}
    (tmp_path / "last_words.json").write_text(json.dumps(words))
    verdict = judged(tmp_path).verdict
    assert (verdict.category == "hang", verdict.culprits.ranks) == (cause is not None, ranks)
    assert cause is None or verdict.cause == cause


@pytest.mark.parametrize(
    ("rank", "numel", "cause", "ranks"),
    [
        (0, 98566144, "rank0-only-collective", (0,)),
        (2, 98566144, "conditional-collective", (2,)),
        (0, 1, None, ()),  # it may be the same barrier
    ],
)
def test_a_stack_in_another_collective_than_the_one_that_timed_out(tmp_path, rank, numel, cause, ranks):
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, "
    (tmp_path / "job.log").write_text(
        "".join(
            f"[rank{other}]:[E ProcessGroupNCCL.cpp:523] [Rank {other}] {said}NumelIn={numel}, NumelOut={numel}, "
            "Timeout(ms)=600000) ran for 600218 milliseconds before timing out.\n"
            for other in range(4)
            if other != rank
        )
    )
    (tmp_path / f"stack_rank{rank}.txt").write_text(
        'Thread 51207 (idle): "MainThread"\n    barrier (torch/distributed/distributed_c10d.py:3439)\n'
        "    save_state (train.py:40)\n    <module> (train.py:90)\n"
    )
    verdict = judged(tmp_path).verdict
    assert verdict.culprits.ranks == ranks
    assert cause is None or verdict.cause == cause


UNREAD = "ncclSocketInit: connecting to address  with family 1 is neither AF_INET(2) nor AF_INET6(10)"


@pytest.mark.parametrize(
    ("half", "ranks", "cause"),
    [("send", (0, 2), "p2p-deadlock"), ("send", (2,), None), ("all_reduce", (0, 2), None)],
)
def test_two_ranks_that_begin_an_exchange_with_a_send(tmp_path, half, ranks, cause):
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/halo.py", line 31, in exchange',
        "    dist.send(mine, dst=peer)",
        f'  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2627, in {half}',
        "    work = isend(tensor)",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:4257, internal error, NCCL 2.28.9",
        "ncclInternalError: Internal check failed.",
        "Last error:",
        UNREAD,
    ]
    (tmp_path / "job.log").write_text("".join(f"[rank{rank}]: {line}\n" for rank in ranks for line in lines))
    verdict = judged(tmp_path).verdict
    if cause is None:
        assert verdict.cause != "p2p-deadlock"
    else:
        assert (verdict.cause, verdict.culprits.ranks, verdict.category) == (cause, ranks, "crash")


EXPORT = (
    'Thread 11 (active): "MainThread"\n'
    "    _iterate_state_dict (torch/distributed/_state_dict_utils.py:183)\n"
    "    _gather_state_dict (torch/distributed/_state_dict_utils.py:288)\n"
    "    get_model_state_dict (torch/distributed/checkpoint/state_dict.py:1191)\n"
    "    export (fit.py:54)\n    main (fit.py:98)\n    <module> (fit.py:103)\n"
)
SAVE = (
    'Thread 11 (active): "MainThread"\n'
    "    _legacy_save (torch/serialization.py:1011)\n"
    "    export (fit.py:56)\n    main (fit.py:98)\n    <module> (fit.py:103)\n"
)
AT_BARRIER = (
    'Thread 11 (idle): "MainThread"\n'
    "    barrier (torch/distributed/distributed_c10d.py:5037)\n"
    "    export (fit.py:58)\n    main (fit.py:98)\n    <module> (fit.py:103)\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [(EXPORT, "conditional-collective"), (SAVE, "rank-stuck-in-checkpoint")],
    ids=["gathers", "saves"],
)
def test_gathering_a_state_dict_is_a_collective_and_saving_it_is_not(tmp_path, text, cause):
    for rank in range(4):
        head = f"Process {40 + rank}: python fit.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        (tmp_path / f"stacks_rank{rank}.txt").write_text(head + (text if rank == 2 else AT_BARRIER))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, (2,))


def timed_out(rank: int, group: str, guid: int, inside: int, work: int, second: int = 1) -> str:
    """What torch prints of a rank whose watchdog gave a group up."""
    at = f"[rank{rank}]:[E1118 05:52:{second:02}.859987671 ProcessGroupNCCL.cpp:"
    return (
        f"{at}689] [Rank {inside}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={work}, "
        f"OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=20000) ran for 20013 milliseconds before timing out.\n"
        f"{at}2303] [PG ID {guid} PG GUID {guid}({group}) Rank {inside}]  failure detected by watchdog at work "
        f"sequence id: {work} PG status: last enqueued work: {work}, last completed work: {work - 1}\n"
    )


def judged_log(folder: Path, text: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    (folder / "job.log").write_text(text)
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.cause, verdict.culprits.ranks, verdict.culprits.candidates


ALL_WAIT = "".join(timed_out(rank, "default_pg", 0, rank, 31) for rank in range(6))


def test_two_groups_that_stand_still_with_all_of_their_ranks(tmp_path):
    pair = timed_out(4, "columns", 3, 0, 90) + timed_out(5, "columns", 3, 1, 90)
    assert judged_log(tmp_path, ALL_WAIT + pair) == ("process-group-order", (), (4, 5))


def test_a_member_that_never_came_to_another_group(tmp_path):
    others = "".join(timed_out(rank, "shards", 2, rank, 26) for rank in range(6) if rank != 4)
    later = timed_out(4, "shards", 2, 4, 27, second=50)  # what was aborted counts as done by then
    assert judged_log(tmp_path, ALL_WAIT + others + later) == ("collective-desync", (4,), ())


def test_a_rank_that_waits_in_a_group_of_its_own(tmp_path):
    """It took its small group first, the others the default group; of two the end of the log is missing."""
    waits = "".join(timed_out(rank, "default_pg", 0, rank, 97) for rank in (0, 1, 2, 3, 5))
    cause, ranks, _ = judged_log(tmp_path, "world size 8\n" + waits + timed_out(6, "tp1", 2, 2, 898))
    assert (cause, ranks) == ("process-group-order", (6,))


def test_one_group_that_stands_still_accuses_nobody(tmp_path):
    assert judged_log(tmp_path, ALL_WAIT) == ("collective-stalled", (), ())


def looked(folder: Path, *stacks: str) -> tuple[str, tuple[int, ...]]:
    for rank, text in enumerate(stacks):
        head = f"Process {40 + rank}: python fit.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        (folder / f"stacks_rank{rank}.txt").write_text(head + text)
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.cause, verdict.culprits.ranks


IN_C_CODE = 'Thread 11 (active): "MainThread"\n    train (fit.py:125)\n    <module> (fit.py:138)\n'
NO_BATCH = (
    'Thread 11 (idle): "MainThread"\n    Condition.wait (threading.py:355)\n    Queue.get (queue.py:171)\n'
    "    Prefetcher.__iter__ (fit.py:71)\n    train (fit.py:116)\n    <module> (fit.py:138)\n"
)


def test_half_of_the_ranks_at_one_line_and_the_others_blocked(tmp_path):
    assert looked(tmp_path, IN_C_CODE, NO_BATCH, NO_BATCH, IN_C_CODE) == ("rank-stuck-in-data-loading", (1, 2))


def test_half_of_the_ranks_at_one_line_and_the_others_at_work(tmp_path):
    assert looked(tmp_path, IN_C_CODE, *[NO_BATCH.replace("idle", "active")] * 2, IN_C_CODE)[1] == ()


@pytest.mark.parametrize(("op", "ranks"), [("ALLTOALL_BASE", ()), ("ALLREDUCE", (2,))])
def test_who_still_waits_in_an_earlier_exchange_lacks_what_another_did_not_send(tmp_path, op, ranks):
    lines = [timed_out(rank, "default_pg", 0, rank, 260 if rank == 2 else 261) for rank in range(4)]
    assert judged_log(tmp_path, "".join(lines).replace("ALLREDUCE", op))[1] == ranks
