"""Pids, hosts and ranks, put together from sources that each know a part."""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.records.dump import Frame
from whichrank.records.events.launchers import ElasticFailure
from whichrank.records.nccl import CommInit, NcclProcess
from whichrank.records.stack import ProcessStack, ThreadStack
from whichrank.timeline.identity.who import is_launcher, meet, short_name

REF = Ref("log", "line 1", "words")


def process(pid: int, rank: int, nranks: int, host: str = "node1") -> NcclProcess:
    inits = [CommInit("ncclCommInitRank", "0x1", "ab", rank, nranks, "complete", 3, cuda_dev=0, bus_id="17000")]
    return NcclProcess(f"nccl.{pid}.log", host, pid, inits=inits)


def stack(pid: int, command: str = "python train.py") -> ProcessStack:
    thread = ThreadStack("MainThread", pid, "idle", (Frame("main", "train.py", 3),), main=True)
    return ProcessStack(f"stack.{pid}.txt", "py-spy", (thread,), pid=pid, command=command)


def test_the_communicator_of_the_whole_job_ties_pids_to_global_ranks():
    people = meet([], 0, [process(70, 0, 2), process(71, 1, 2)], [], [], [])
    assert people.world == 2
    assert people.rank_of(71) == 1
    assert people.host_of(1) == "node1"


def test_a_rank_within_a_smaller_group_is_no_global_rank():
    people = meet([], 4, [process(70, 0, 2)], [], [], [])
    assert people.rank_of(70) is None


def test_a_communicator_of_fewer_ranks_than_stacks_are_of_is_a_part():
    numbered = [replace(stack(70 + rank), rank=rank) for rank in range(6)]
    people = meet([], 0, [process(70 + rank, rank // 2, 3) for rank in range(6)], [], [], numbered)
    assert [people.rank_of(70 + rank) for rank in range(6)] == list(range(6))


def member(pid: int, *communicators: tuple[str, int, int]) -> NcclProcess:
    made = [CommInit("ncclCommInitRank", "0x1", name, rank, size, "complete", 3) for name, rank, size in communicators]
    return NcclProcess(f"nccl.{pid}.log", "node1", pid, inits=made)


def test_columns_of_a_mesh_number_no_ranks_and_attempts_do():
    mesh = [member(70 + n, (f"row {n // 2}", n % 2, 2), (f"column {n % 2}", n // 2, 3)) for n in range(6)]
    assert [meet([], 0, mesh, [], [], []).rank_of(70 + n) for n in range(6)] == [None] * 6
    attempts = [member(70 + n, (f"all {n // 3}", n % 3, 3), (f"pair {n // 3}", n % 3, 2)) for n in range(6)]
    assert [meet([], 0, attempts, [], [], []).rank_of(70 + n) for n in range(3)] == [0, 1, 2]


def test_equal_pids_on_two_hosts_are_told_apart_by_the_host():
    people = meet([], 0, [process(70, 0, 2, "node1"), process(70, 1, 2, "node2")], [], [], [])
    assert people.rank_of(70) is None
    assert people.rank_of(70, "node2.cluster.local") == 1


def test_the_last_process_without_a_rank_is_the_last_rank_without_a_process():
    stacks = [stack(70), stack(71), stack(72), stack(60, "python /usr/bin/torchrun train.py")]
    people = meet([], 0, [process(70, 0, 3), process(71, 1, 3)], [], [], stacks)
    assert people.rank_of(72) == 2
    assert people.rank_of(60) is None


def test_two_processes_without_a_rank_are_not_guessed():
    people = meet([], 0, [process(70, 0, 3)], [], [], [stack(71), stack(72)])
    assert people.rank_of(71) is None


def test_the_agents_table_names_ranks():
    rows = [ElasticFailure(ref=REF, rank=5, local_rank=1, pid=99, host="node3")]
    people = meet([], 8, [], [], rows, [])
    assert people.rank_of(99) == 5
    assert people.host_of(5) == "node3"


def test_a_launcher_is_no_rank():
    assert is_launcher(stack(1, "/venv/bin/python /venv/bin/torchrun --nproc_per_node=4 train.py"))
    assert is_launcher(stack(1, "python -m torch.distributed.run train.py"))
    assert not is_launcher(stack(1, "python train.py --launcher pytorch"))


def test_addresses_are_no_names_with_domains():
    assert short_name("node7.cluster.example") == short_name("Node7")
    assert short_name("10.0.0.1") != short_name("10.0.0.2")
