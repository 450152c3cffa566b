"""Who is meant, where names differ between the sources: servers, actors, hosts with two names, addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

CLOSED = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.9.0.2]:51100"


def verdict(folder: Path, files: dict[str, str]) -> Verdict:
    return diagnose([texts.write(folder, files)]).verdict


def of_server(rank: int, text: str, minute: int = 2) -> str:
    """As vLLM begins every line."""
    begin = f"(Worker_TP{rank} pid={700 + rank}) ERROR 03-10 23:{minute:02}:37 [executor.py:711] "
    return "".join(f"{begin}{line}\n" for line in text.splitlines())


def test_a_worker_of_a_server_by_its_place(tmp_path: Path) -> None:
    taken = texts.traceback("zmq.error.ZMQError: Address already in use (addr='tcp://10.9.0.2:40043')")
    lost = "".join(of_server(rank, CLOSED, 3) for rank in (4, 5, 7))
    found = verdict(
        tmp_path, {"a.log": "".join(of_server(r, CLOSED, 3) for r in range(4)), "b.log": of_server(6, taken) + lost}
    )
    assert (found.cause, found.culprits.ranks) == ("port-in-use", (6,))


def test_an_actor_that_the_kernel_killed(tmp_path: Path) -> None:
    died = (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: Trainer\n\tactor_id: 77aa01\n\tpid: 8123\n\tname: q1Trainer_0:3\n"
        "\tnamespace: 9f\n\tip: 10.9.0.2\nThe actor is dead.\n"
    )
    kernel = (
        "[18140.11] Memory cgroup out of memory: Killed process 8123 (ray::Trainer) total-vm:21473kB, anon-rss:639kB\n"
    )
    found = verdict(tmp_path, {"driver.log": died, "dmesg.txt": kernel})
    assert (found.cause, found.culprits.ranks) == ("host-out-of-memory", (3,))


KILLED = (
    "(raylet, ip=10.9.0.2) node_manager.cc:3064: 1 Workers (tasks / actors) killed due to memory pressure (OOM), "
    "0 Workers crashed due to other reasons at node (ID: 84, IP: 10.9.0.2) over the last time period.\n"
)
USED = (
    "Memory on the node (IP: 10.9.0.2, ID: 84) where the task (actor ID: d5, name=Learner.step, pid={0}, memory used="
    "90.10GB) was running was 240.1GB / 250.0GB (0.9604), which exceeds the memory usage threshold of 0.95. Ray killed "
    "this worker (ID: d8) because it was the most recently scheduled task\n"
    "PID\tMEM(GB)\tCOMMAND\n8211\t90.10\tray::Learner.step rank=6\n8209\t44.71\tray::Learner.step rank=4\n"
)


@pytest.mark.parametrize(("pid", "ranks"), [(8211, (6,)), (8307, ())])
def test_an_actor_that_ray_killed_for_memory(tmp_path: Path, pid: int, ranks: tuple[int, ...]) -> None:
    lost = "".join(
        f"(Learner pid={8205 + rank}, ip=10.9.0.{1 + rank // 4}) [rank{rank}]: {line}\n"
        for rank in (0, 1, 4, 5)
        for line in texts.traceback("torch.distributed.DistBackendError: remote process exited").splitlines()
    )
    found = verdict(tmp_path, {"driver.log": KILLED + lost + USED.format(pid)})
    assert (found.cause, found.culprits.hosts) == ("host-out-of-memory", ("10.9.0.2",))
    assert found.culprits.ranks == ranks


def test_a_rank_that_counts_to_where_the_other_has_been(tmp_path: Path) -> None:
    def counted(rank: int, last: int) -> str:
        said = f"rank {rank} in world size 2 is assigned as DP rank 0, PP rank 0, TP rank {rank}"
        return of_server(rank, said) + "".join(of_server(rank, f"packing shard {n}/9") for n in range(1, last + 1))

    gave_up = of_server(1, texts.traceback("RuntimeError: Application timeout caused pair closure"), 40)
    files = {"head.log": counted(0, 6) + of_server(0, CLOSED, 41), "other.log": counted(1, 9) + gave_up}
    found = verdict(tmp_path / "late", files)
    assert (found.cause, found.culprits.ranks) == ("rank-stuck-in-preprocessing", (0,))
    both = {"head.log": counted(0, 9) + of_server(0, CLOSED, 41), "other.log": counted(1, 9) + gave_up}
    assert verdict(tmp_path / "even", both).cause == "collective-desync"


def test_a_host_with_and_without_its_domain_is_one(tmp_path: Path) -> None:
    full = (
        "kt-7:91:120 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-Qz to 9637892 bytes, "
        "error: No space left on device (28)\n"
    )
    failed = "[rank1]: " + "\n[rank1]: ".join(
        texts.traceback("RuntimeError: NCCL error: unhandled system error").splitlines()
    )
    table = texts.table({1: 1}, 1, "kt-7.lab.example")
    assert verdict(tmp_path, {"out.log": full + failed + "\n" + table}).culprits.hosts == ("kt-7",)


def test_a_host_whose_task_ended_before_the_others_gave_up(tmp_path: Path) -> None:
    waited = "".join(
        f"[kt-{n}] {line}\n" for n in (1, 2) for line in texts.traceback("RendezvousTimeoutError").splitlines()
    )
    waited = waited.replace("RendezvousTimeoutError", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError")
    early = "srun: error: kt-3: task 2: Exited with exit code 1\n"
    late = "srun: error: kt-1: task 0: Exited with exit code 1\nsrun: error: kt-2: task 1: Exited with exit code 1\n"
    found = verdict(tmp_path / "early", {"job.out": early + waited + late})
    assert (found.cause, found.culprits.hosts) == ("missing-rank-at-init", ("kt-3",))
    assert verdict(tmp_path / "late", {"job.out": waited + late + early}).culprits.hosts == ()


def completion(host: str, peer: str) -> str:
    return (
        f"{host}:91:120 [5] transport/net_ib.cc:1726 NCCL WARN NET/IB: Got completion from peer {peer}<40125> with "
        "status=12 opcode=0 len=0 vendor err 129 (Send)\n"
    )


def test_the_one_end_of_all_connections_that_failed(tmp_path: Path) -> None:
    told = completion("kt-1", "10.9.0.3") + completion("kt-2", "10.9.0.3") + completion("kt-3", "10.9.0.1")
    assert verdict(tmp_path / "one", {"job.out": told}).culprits.hosts == ("kt-3",)
    told = completion("kt-1", "10.9.0.3") + completion("kt-2", "10.9.0.4") + completion("kt-3", "10.9.0.1")
    assert verdict(tmp_path / "none", {"job.out": told}).culprits.hosts == ()


def test_the_host_whose_limit_differs(tmp_path: Path) -> None:
    rows = "".join(f"kt-{n}: nofile 4096 | memlock {limit} | stack 8192\n" for n, limit in enumerate(("unlimited", 64)))
    refused = "[rank3]: " + texts.traceback(
        "RuntimeError: Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
    ).replace("\n", "\n[rank3]: ")
    found = verdict(tmp_path / "one", {"job.out": rows + refused})
    assert (found.cause, found.culprits.hosts) == ("memlock-ulimit", ("kt-1",))
    all_low = verdict(tmp_path / "all", {"job.out": rows.replace("unlimited", "64") + refused})
    assert (all_low.cause, all_low.culprits.hosts) == ("memlock-ulimit", ())


def test_the_host_whose_own_name_leads_to_loopback(tmp_path: Path) -> None:
    def table(own: int, address: str) -> str:
        rows = "".join(f"10.9.0.{n} kt-{n}\n" for n in range(1, 4) if n != own)
        return f"--- kt-{own}:/etc/hosts\n127.0.0.1 localhost\n{address} kt-{own}\n{rows}"

    refused = texts.traceback(
        "RuntimeError: [gloo/transport/tcp/pair.cc:761] connect [127.0.1.1]:60817: Connection refused"
    )
    files = texts.ranks(3, {0: refused, 2: refused}, texts.GLOO_CLOSED)
    tables = table(1, "10.9.0.1") + table(2, "127.0.1.1") + table(3, "10.9.0.3")
    found = verdict(tmp_path / "one", {**files, "hosts.txt": tables})
    assert (found.cause, found.culprits.hosts) == ("hostname-resolution", ("kt-2",))
    all_of_them = "".join(table(n, "127.0.1.1") for n in range(1, 4))
    assert verdict(tmp_path / "all", {**files, "hosts.txt": all_of_them}).culprits.hosts == ()


def test_an_address_in_no_network_of_the_host_that_tried(tmp_path: Path) -> None:
    lists = (
        "# first, kt-1 (10.9.0.1)\nlo  UNKNOWN  127.0.0.1/8\neth0@if4  UP  172.30.0.2/16\neth1  UP  10.9.0.1/24\n"
        "# second, kt-2 (10.9.0.2)\nlo  UNKNOWN  127.0.0.1/8\nens5  UP  {}/24\ndocker0  DOWN  172.30.0.1/16\n"
    )
    tried = (
        "(Actor pid=31, ip=10.9.0.2) [E socket.cpp:922] [c10d] The client socket has timed out after 1800s while "
        "trying to connect to (172.30.0.2, 44737).\n"
    )
    found = verdict(tmp_path / "shared", {"ip.txt": lists.format("10.9.0.2"), "ppo.log": tried})
    assert (found.cause, found.culprits.hosts) == ("wrong-interface", ("kt-1",))
    other = lists.replace("10.9.0.2)", "10.8.0.2)").format("10.8.0.2")
    found = verdict(tmp_path / "apart", {"ip.txt": other, "ppo.log": tried.replace("10.9.0.2", "10.8.0.2")})
    assert found.cause == "rendezvous-endpoint"


def test_a_cable_that_was_pulled_at_the_common_end(tmp_path: Path) -> None:
    ended = (
        "[rank{0}]:[E303 10:00:31.118338405 ProcessGroupNCCL.cpp:2068] [PG ID 2 PG GUID 5(dp) Rank 1] Process group "
        "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, "
        "NCCL version 2.25.1\n"
    )
    kernel = "Mar  3 10:00:07 kt-3 kernel: mlx5_core 0000:9a:00.0: Port module event: module 0, Cable unplugged\n"
    told = completion("kt-1", "10.9.0.3") + completion("kt-2", "10.9.0.3") + completion("kt-3", "10.9.0.1")
    late = texts.TIMED_OUT.format(0).replace("E1115 00:20:45", "E303 10:10:31")
    found = verdict(tmp_path, {"syslog.txt": kernel, "job.out": told + ended.format(1) + ended.format(2) + late})
    assert (found.category, found.cause, found.culprits.hosts) == ("crash", "ib-link-flap", ("kt-3",))


def test_tasks_of_hosts_are_no_ranks(tmp_path: Path) -> None:
    ended = "".join(f"srun: error: kt-{task + 1}: task {task}: Exited with exit code 1\n" for task in range(3))
    by_host = texts.case_of(texts.write(tmp_path / "hosts", {"job.out": texts.TIMED_OUT.format(5) + ended}))
    assert {rank: process.host for rank, process in by_host.people.by_rank.items()} == {5: None}
    by_rank = texts.case_of(texts.write(tmp_path / "ranks", {"job.out": texts.TIMED_OUT.format(2) + ended}))
    assert {rank: process.host for rank, process in by_rank.people.by_rank.items()} == {0: "kt-1", 1: "kt-2", 2: "kt-3"}


def test_the_host_that_all_others_lost(tmp_path: Path) -> None:
    lost = "".join(
        f"kt-{n}:91:120 [1] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer kt-3<41325>\n"
        for n in (1, 2)
    )
    failed = "[rank9]: " + texts.traceback("ValueError: bad shard").replace("\n", "\n[rank9]: ")
    found = verdict(tmp_path, {"job.out": lost + failed})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("rank-exception", (9,), ("kt-3",))


@pytest.mark.parametrize(
    ("limits", "ranks"), [(("unlimited", "4096"), (2, 3)), (("4096", "4096"), (2,)), (("unlimited", "unlimited"), (2,))]
)
def test_a_limit_of_locked_memory_is_that_of_all_ranks_of_a_host(
    tmp_path: Path, limits: tuple[str, str], ranks: tuple[int, ...]
) -> None:
    def said(rank: int, text: str) -> str:
        return f"[1,{rank}]<stdout>:kv-{1 + rank // 2}{text}\n"

    full = "misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"
    gone = "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer kv-2<33262>"
    log = "mpirun -np 4 -H kv-1:2,kv-2:2 --tag-output ./all_reduce_perf -b 8M -e 1G\n"
    log += "".join(said(rank, f" memlock={limits[rank // 2]}") for rank in range(4))
    log += "".join(said(r, f":{90 + r}:{190 + r} [0] {words}") for r, words in ((2, full), (0, gone), (1, gone)))
    found = verdict(tmp_path, {"mpirun.log": log})
    assert (found.cause, found.culprits.ranks) == ("memlock-ulimit", ranks)


NOT_FINITE = "AssertionError: Rank 9: found Inf in local forward loss calculation. Device: 1{}"


@pytest.mark.parametrize(("node", "hosts"), [(", node: yak-2", ("yak-2",)), ("", ())])
def test_a_rank_that_names_its_node_when_it_fails(tmp_path: Path, node: str, hosts: tuple[str, ...]) -> None:
    found = verdict(tmp_path, texts.ranks(16, {9: texts.traceback(NOT_FINITE.format(node))}, "step 4 loss 2.1\n"))
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("nan-origin", (9,), hosts)


RAN_OUT = "[rank{0}] data: {1} batches per epoch\n"


@pytest.mark.parametrize(
    ("placed", "hosts"),
    [("yak-1 (ranks 0-3) yak-2 (ranks 4-7)", ("yak-2",)), ("all on yak-1", ())],
)
def test_the_host_of_a_rank_with_fewer_batches(tmp_path: Path, placed: str, hosts: tuple[str, ...]) -> None:
    told = "".join(RAN_OUT.format(rank, 640 if rank == 6 else 648) for rank in range(8))
    waited = "".join(texts.TIMED_OUT.format(rank) for rank in (0, 3, 4))
    found = verdict(tmp_path, {"job.log": f"hosts: {placed}\n{told}{waited}"})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("uneven-inputs", (6,), hosts)


@pytest.mark.parametrize(("own", "hosts"), [("10.9.0.1", ("kt-2",)), ("127.0.1.1", ())])
def test_what_hosts_answer_when_they_are_asked_for_their_own_names(
    tmp_path: Path, own: str, hosts: tuple[str, ...]
) -> None:
    answers = f"[ops@kt-1 ~]$ getent hosts kt-1\n{own}  kt-1\n[ops@kt-2 ~]$ getent hosts kt-2\n127.0.1.1  kt-2\n"
    refused = "(Engine pid=81, ip=10.9.0.1) RuntimeError: [gloo/transport/tcp/pair.cc:7] connect [127.0.1.1]:608: Connection refused\n"  # noqa: E501
    found = verdict(tmp_path, {"job.log": refused, "answers.txt": answers})
    assert (found.cause, found.culprits.hosts) == ("hostname-resolution", hosts)


FULL_SHM = (
    "{0}:71:90 [1] NCCL INFO comm 0x5 rank 3 nranks 4 cudaDev 1 nvmlDev 1 busId 2 commId 0x9 - Init START\n"
    "{0}:71:95 [1] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-a to 33030532 bytes, error: "
    "No space left on device (28)\n"
    "[rank3]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
    "[rank3]: Last error:\n[rank3]: Error: failed to extend /dev/shm/nccl-a, error: No space left on device (28)\n"
)


@pytest.mark.parametrize("called", ["node-1", "bert-node-1"])
def test_a_pod_that_a_heading_calls_by_the_end_of_its_name(tmp_path: Path, called: str) -> None:
    asked = f"== {called.replace('1', '0')}\nshm 64G 1M 64G 1% /dev/shm\n== {called}\nshm 64M 63M 1M 99% /dev/shm\n"
    found = verdict(tmp_path, {"asked.txt": asked, f"{called}.log": FULL_SHM.format("bert-node-1")})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("shm-too-small", (3,), ("bert-node-1",))


@pytest.mark.parametrize(("third", "hosts"), [("rank8", ("kt-2",)), ("rank9", ("kt-2",)), ("rank7", ())])
def test_a_rank_between_those_whose_hosts_are_known(tmp_path: Path, third: str, hosts: tuple[str, ...]) -> None:
    told = "".join(
        f"2025-05-06 09:00:00 kt-{n} {rank} INFO resumed\n" for n, rank in enumerate(("rank0", "rank4", third), 1)
    )
    full = "[rank6]: " + texts.traceback("OSError: [Errno 24] Too many open files").replace("\n", "\n[rank6]: ")
    found = verdict(tmp_path, {"job.log": told + full})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("fd-limit", (6,), hosts)
