"""Ranks that do not find each other at the start, by their connections and stacks."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose

HEADING = "State      Recv-Q Send-Q Local Address:Port Peer Address:Port\n"
STORE, DATA = 29500, 41449

RENDEZVOUS = (
    "Thread 0x00007f6005a18b80 (most recent call first):\n"
    '  File "/site-packages/torch/distributed/rendezvous.py", line 199 in _create_c10d_store\n'
    '  File "/job/train.py", line 7 in main\n'
)
CONNECTING = (
    "Thread 0x00007f6005a18b80 (most recent call first):\n"
    '  File "/site-packages/torch/distributed/distributed_c10d.py", line 2120 in _new_process_group_helper\n'
    '  File "/job/train.py", line 7 in main\n'
)


def listens(port: int) -> str:
    return f"LISTEN     0      4096   [::]:{port} [::]:*\n"


def connected(own: int, peer: int) -> str:
    return f"ESTAB      0      0      [::ffff:10.0.0.9]:{own} [::ffff:10.0.0.9]:{peer}\n"


def refused(own: int) -> str:
    return f"UNCONN     0      1      [::ffff:10.0.0.9]:{own} [::]:*\n"


def told(folder: Path, ranks: list[tuple[str, str]], port: int = STORE) -> tuple[str, tuple[int, ...]]:
    """Cause and culprits, from what every rank has for sockets and stack."""
    for rank, (sockets, stack) in enumerate(ranks):
        for name, text in (
            (f"host/sockets.rank_{rank}.txt", HEADING + sockets),
            (f"stacks/rank_{rank}.txt", stack),
            (
                f"environment/rank_{rank}.env",
                f"MASTER_ADDR=10.0.0.9\nMASTER_PORT={port}\nRANK={rank}\nWORLD_SIZE={len(ranks)}\n",
            ),
        ):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.cause, verdict.culprits.ranks


def test_a_rank_that_looks_elsewhere(tmp_path):
    host = listens(STORE) + connected(50000, STORE) + connected(STORE, 50000) + connected(STORE, 50001)
    beyond = (connected(50001, STORE) + listens(DATA), CONNECTING)
    ranks = [(host, RENDEZVOUS), (refused(50002), RENDEZVOUS), beyond, beyond]
    assert told(tmp_path, ranks) == ("rendezvous-endpoint", (1,))


def test_a_store_of_the_launcher(tmp_path):
    beyond = (connected(50001, STORE) + listens(DATA), CONNECTING)
    ranks = [beyond, beyond, (refused(50002), RENDEZVOUS), beyond]
    assert told(tmp_path, ranks) == ("rendezvous-endpoint", (2,))


def test_a_store_that_nobody_looks_for(tmp_path):
    host = listens(STORE + 1) + connected(50000, STORE + 1) + connected(STORE + 1, 50000)
    alone = (refused(50002), RENDEZVOUS)
    assert told(tmp_path, [(host, RENDEZVOUS), alone, alone]) == ("rendezvous-endpoint", (0,))


def test_the_only_other_rank_looks_elsewhere(tmp_path):
    host = listens(STORE) + connected(50000, STORE) + connected(STORE, 50000)
    assert told(tmp_path, [(host, RENDEZVOUS), (refused(50002), RENDEZVOUS)]) == ("rendezvous-endpoint", (1,))


def test_a_host_that_does_not_answer(tmp_path):
    host = listens(STORE) + connected(50000, STORE) + connected(STORE, 50000)
    asks = refused(50002).replace("UNCONN  ", "SYN-SENT").replace("[::]:*", f"[::ffff:10.0.0.9]:{STORE}")
    assert told(tmp_path, [(host, RENDEZVOUS), (asks, RENDEZVOUS)])[1] == ()


def test_all_have_met(tmp_path):
    host = listens(STORE) + connected(50000, STORE) + connected(STORE, 50000)
    inside = (connected(50001, STORE), RENDEZVOUS)
    assert told(tmp_path, [(host, RENDEZVOUS), inside, inside])[1] == ()


def test_ranks_that_met_in_an_old_file(tmp_path):
    alone = (listens(DATA), CONNECTING)
    assert told(tmp_path, [alone, alone]) == ("stale-lock-or-store", ())


def test_ranks_that_are_about_to_connect_by_a_store(tmp_path):
    beyond = (connected(50001, STORE) + listens(DATA), CONNECTING)
    assert told(tmp_path, [beyond, beyond])[0] != "stale-lock-or-store"


def begun(rank: int, version: str, *more: str, size: int = 4) -> str:
    """What a rank prints that began to make the first communicator; before 2.22 without the name of the call."""
    at = f"node1:{500 + rank}:{500 + rank} [0] NCCL INFO "
    call = "" if version < "2.22" else "ncclCommInitRank "
    start = f"{call}comm 0x55 rank {rank} nranks {size} cudaDev 0 nvmlDev 0 busId 60 commId 0xd3f5 - Init START"
    return "".join(f"{at}{line}\n" for line in (f"NCCL version {version}+cuda12.4", start, *more))


def absent(folder: Path, *outputs: str) -> tuple[str, tuple[int, ...]]:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(outputs):
        (folder / f"nccl.{number}.log").write_text(text)
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.cause, verdict.culprits.ranks


def test_who_did_not_begin_is_absent(tmp_path):
    assert absent(tmp_path, *(begun(rank, "2.28.9") for rank in (0, 1, 3))) == ("missing-rank-at-init", (2,))


def test_all_have_met_where_the_start_is_told_behind_the_bootstrap(tmp_path):
    for version in ("2.19.3", "2.21.5", "2.22.3"):
        assert absent(tmp_path / version, *(begun(rank, version) for rank in (0, 1, 3)))[1] == ()
    unnamed = [begun(rank, "2.19.3").partition("\n")[2] for rank in (0, 1, 3)]
    assert absent(tmp_path / "unnamed", *unnamed)[1] == ()


def test_all_have_met_where_the_topology_is_known(tmp_path):
    for number, line in enumerate(
        (
            "comm 0x55 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0",
            "Trees [0] 1/-1/-1->0->-1",
            "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
            "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        )
    ):
        logs = [begun(0, "2.28.9", line), begun(1, "2.28.9")]
        assert absent(tmp_path / str(number), *logs)[1] == (), line


def test_the_log_of_one_rank_accuses_nobody_by_itself(tmp_path):
    assert absent(tmp_path / "alone", begun(0, "2.28.9"))[1] == ()
    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "note.txt").write_text("The job hangs at the start.\n")
    assert absent(tmp_path / "told", begun(0, "2.28.9", size=2)) == ("missing-rank-at-init", (1,))


def test_a_log_that_ends_while_a_rank_is_on_its_way_accuses_nobody(tmp_path):
    here = [begun(rank, "2.28.9") for rank in (0, 1, 3)]
    on_its_way = "node1:502:502 [0] NCCL INFO NET/IB : No device found.\n"
    (tmp_path / "job.log").write_text("".join([*here, on_its_way]))
    assert diagnose([tmp_path], jobs=1).verdict.culprits.ranks == ()
    (tmp_path / "job.log").write_text("".join([on_its_way, *here]))
    assert diagnose([tmp_path], jobs=1).verdict.culprits.ranks == (2,)


LOCKED = (
    "Thread 0x00007f6005a18b80 (most recent call first):\n"
    '  File "/job/train.py", line 27 in acquire\n'
    '  File "/job/train.py", line 5 in main\n'
)
REDUCING = (
    "Thread 0x00007f6005a18b80 (most recent call first):\n"
    '  File "/site-packages/torch/distributed/distributed_c10d.py", line 3010 in all_reduce\n'
    '  File "/job/train.py", line 31 in main\n'
)


def by_stacks(folder: Path, *stacks: str) -> tuple[str, tuple[int, ...]]:
    for rank, text in enumerate(stacks):
        (folder / f"stack_rank{rank}.txt").write_text(text)
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.cause, verdict.culprits.ranks


def test_stacks_alone_tell_who_does_not_come_to_the_start(tmp_path):
    assert by_stacks(tmp_path, CONNECTING, LOCKED, CONNECTING) == ("missing-rank-at-init", (1,))


def test_who_waits_in_a_collective_is_past_the_start(tmp_path):
    assert by_stacks(tmp_path, CONNECTING, REDUCING, CONNECTING)[0] != "missing-rank-at-init"


def test_one_of_two_ranks_may_only_be_earlier(tmp_path):
    assert by_stacks(tmp_path, CONNECTING, LOCKED)[0] != "missing-rank-at-init"
