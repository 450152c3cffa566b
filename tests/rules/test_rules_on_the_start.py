"""Ranks that do not find each other at the start, by their connections and stacks."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.diagnose import diagnose

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
