"""Lists of ranks with pids, hosts and GPUs, in the shapes in which people save them."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers.rank_map import read, sniff
from whichrank.evidence.readers.rank_map.one_rank import introduction
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.model.contracts import Item

TABLE = "RANK PID HOST\n12 31440 tx3\n13 31441 tx3\n"
ARROWS = "rank -> host/gpu\n0 -> h200-a/0\n9 -> h200-b/1\n"
LISTPIDS = (
    "PID      JOBID    STEPID   LOCALID GLOBALID\n71201  90177 0 -  -\n71229  90177 0 0  4\n71231  90177 0 2  6\n"
)
RAY = (
    "(Trainer pid=9, ip=10.0.0.2) - (node_id=a1, ip=10.0.0.4, pid=20110) world_rank=0, local_rank=0, node_rank=0\n"
    "(Trainer pid=9, ip=10.0.0.2) - (node_id=a2, ip=10.0.0.7, pid=21871) world_rank=4, local_rank=0, node_rank=1\n"
)
PS = (
    "  PID STAT ELAPSED CMD\n 9440 Rl 41:10  RANK=8 LOCAL_RANK=0 python run.py\n"
    " 9443 Rl 41:10  RANK=9 LOCAL_RANK=1 python run.py\n"
)
JSON = '{"step": 4, "rank": 0, "host": "k1"}\n{"step": 4, "rank": 1, "host": "k2"}\n'
VISIBLE = (
    "[launcher altair] NODE_RANK=1 CUDA_VISIBLE_DEVICES=3,2,1,0\n"
    "[altair] local_rank 0 -> global rank 4 device cuda:0\n[altair] local_rank 1 -> global rank 5 device cuda:1\n"
)
WORDS = "[4] rank 4 local_rank 0 pid 9440 host n-07\n[5] rank 5 local_rank 1 pid 9441 host n-07\n"
BY_NCCL = "".join(f"[gx-08] NCCL: rank {n} cudaDev {n - 4} busId {n}b000 pid {900 + n}\n" for n in (4, 5))
ONE = "I 14:00:00 dlrm rank 2 of 4 on cpu3, backend gloo\nloading\n"
BRACKETS = "[n2 rank 8 pid 22108] resume\n[n2 rank 9 pid 22109] resume\n"
IN_BRACKETS = "outlier: rank 21 (node dgx-h-118): 394.8\noutlier: rank 5 (node dgx-h-102): 388.0\n"
RANGES = "hosts p5-ci-03 (ranks 0-1), p5-ci-09 (ranks 2-3)\n"
RANGES_FIRST = "ranks 2..3 on p5-ci-09\nranks 0..1 on p5-ci-03\n"
ON_TWO = [(0, None, "p5-ci-03", 0, None), (1, None, "p5-ci-03", 1, None)]
ON_TWO += [(2, None, "p5-ci-09", 0, None), (3, None, "p5-ci-09", 1, None)]
NO_HEADING = "740112 python3 train.py RANK=5\n740113 python3 train.py RANK=6\n"
MEMORY = "PID\tMEM(GB)\tCOMMAND\n8211\t90.10\tray::Learner.step rank=6\n8209\t44.71\tray::Learner.step rank=4\n"
SPAWNED = "[INFO] [launch.py:163:main] dist_world_size=2\n" + "".join(
    f"[INFO] [launch.py:253:main] process {30211 + n} spawned with command: ['python', 'sft.py', '--local_rank={n}']\n"
    for n in range(2)
)
SLOTS = "[INFO] [launch.py:145:main] WORLD INFO DICT: {'w0': [0], 'w1': [4]}\n"
MAPPING = "[INFO] [launch.py:163:main] global_rank_mapping=defaultdict(<class 'list'>, {'w0': [0, 1], 'w1': [2]})\n"
SLOTS_SPAWNED = SLOTS + "w1: [INFO] process 77 spawned with command: ['python', 'sft.py', '--local_rank=0']\n"
AGENT = "[default] Rendezvous complete for workers. Result:\n  group_rank=1\n  global_ranks=[4, 5]\n"
RANGES_ARE = "The stack is of p5-ci-09. Ranks 0-1 are p5-ci-03, 2-3 p5-ci-09.\n"
STARTS = (
    "09:41:00.120 p5-ci-03: agent up, ranks 0-1 on gpus 0-1\n09:41:00.140 p5-ci-09: agent up, ranks 2-3 on gpus 0-1\n"
)
COMMENTED = "$ cat /run/pids   # by the launcher: pid rank gpu\n9440 4 0\n9441 5 1\n"
LAST_WORDS = "[rank1] 8 workers, prefetch 4 (host elm1)\n[rank3] 8 workers, prefetch 4, node: elm2\n"
FIRST_WORDS = "[rank4] host cedar gpu V100\n[rank5] host cedar gpu V100\n"

BRACKETED = "".join(f"2026-01-19 18:15:36,667 slab[{2596 + n}] INFO rank {n}/2 rows 48\n" for n in (1, 0))
MEMBERS = "member 0 pid 8992 lr 0.40\nmember 1 pid 8993 lr 0.20\n14:02:11 round 1: 0.52 0.55\n"
TAGGED = "".join(
    f"[default{n}]:17:36:14 I score[{n}/{4577 + n}]: {word}\n" for word in ("index ready", "40 queries") for n in (1, 0)
)


def rows(tmp_path, text, name="list.txt"):
    path = tmp_path / name
    path.write_text(text)
    item = Item(path, name, len(text), 0)
    assert sniff(item.head(), name)
    return [(p.rank, p.pid, p.host, p.local_rank, p.gpu) for p in read(item).records]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WORDS, [(4, 9440, "n-07", 0, None), (5, 9441, "n-07", 1, None)]),
        (BY_NCCL, [(4, 904, "gx-08", None, 0), (5, 905, "gx-08", None, 1)]),
        (ONE, [(2, None, "cpu3", None, None)]),
        (TABLE, [(12, 31440, "tx3", None, None), (13, 31441, "tx3", None, None)]),
        (TABLE.replace(" ", ","), [(12, 31440, "tx3", None, None), (13, 31441, "tx3", None, None)]),
        (ARROWS, [(0, None, "h200-a", None, 0), (9, None, "h200-b", None, 1)]),
        (LISTPIDS, [(4, 71229, None, 0, None), (6, 71231, None, 2, None)]),
        (RAY, [(0, 20110, "10.0.0.4", 0, None), (4, 21871, "10.0.0.7", 0, None)]),
        (PS, [(8, 9440, None, 0, None), (9, 9443, None, 1, None)]),
        (JSON, [(0, None, "k1", None, None), (1, None, "k2", None, None)]),
        (VISIBLE, [(4, None, "altair", 0, 3), (5, None, "altair", 1, 2)]),
        (BRACKETS, [(8, 22108, "n2", None, None), (9, 22109, "n2", None, None)]),
        (IN_BRACKETS, [(21, None, "dgx-h-118", None, None), (5, None, "dgx-h-102", None, None)]),
        (RANGES, ON_TWO),
        ("# 2 hosts, 2 ranks each: p5-ci-03 0-1, p5-ci-09 2-3\n", ON_TWO),
        ("Two boxes (ranks 0-1 p5-ci-03, 2-3 p5-ci-09), no NFS.\n", ON_TWO),
        ("# ranks by pod: p5-ci-03: 0,1  p5-ci-09: 2,3\n", ON_TWO),
        ("Ranks in the order of the hostfile: p5-ci-03 slots=2, p5-ci-09 slots=2.\n", ON_TWO),
        ("# rank 0 is on the first\np5-ci-03 slots=2\np5-ci-09 slots=2\n", ON_TWO),
        (RANGES_FIRST, [*ON_TWO[2:], *ON_TWO[:2]]),
        (MEMORY, [(6, 8211, None, None, None), (4, 8209, None, None, None)]),
        (NO_HEADING, [(5, 740112, None, None, None), (6, 740113, None, None, None)]),
        (SPAWNED, [(0, 30211, None, 0, None), (1, 30212, None, 1, None)]),
        (SLOTS_SPAWNED, [(1, 77, "w1", 0, 4), (0, None, "w0", 0, 0)]),
        (MAPPING, [(0, None, "w0", 0, None), (1, None, "w0", 1, None), (2, None, "w1", 0, None)]),
        (AGENT, [(4, None, None, 0, None), (5, None, None, 1, None)]),
        (RANGES_ARE, ON_TWO),
        (STARTS, ON_TWO),
        (COMMENTED, [(4, 9440, None, None, 0), (5, 9441, None, None, 1)]),
        (
            "rank  9 (local 1) pid 61232 on mg-2\nrank 10 (local 2) pid 61233 on mg-2\n",
            [(9, 61232, "mg-2", 1, None), (10, 61233, "mg-2", 2, None)],
        ),
        (LAST_WORDS, [(1, None, "elm1", None, None), (3, None, "elm2", None, None)]),
        (MEMBERS, [(0, 8992, None, None, None), (1, 8993, None, None, None)]),
        (BRACKETED, [(0, 2596, None, None, None), (1, 2597, None, None, None)]),
        (TAGGED, [(0, 4577, None, None, None), (1, 4578, None, None, None)]),
        (FIRST_WORDS, [(4, None, "cedar", None, None), (5, None, "cedar", None, None)]),
    ],
)
def test_shapes(tmp_path, text, expected):
    assert rows(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "rank 0 started\nrank 1 started\n",
        MEMBERS.replace("member", "loader worker"),
        MEMBERS.replace("member 0", "member 2"),
        MEMBERS.replace("8993", "8992"),
        MEMBERS.replace("pid", "seed"),
        "step 1: loss 2\nstep 2: loss 1\nthe rank of the matrix is 4\n",
        "[rank0]: Traceback (most recent call last):\n[rank0]: KeyError: 1\n",
        "node1 (ranks 0-7) and node1 (ranks 2-3)\n",
        "node1 (ranks 0-7), node2 (ranks 4-11)\n",
        "node1 (ranks 8-15), node2 (ranks 16-23)\n",
        "pipeline of 8 ranks: stage-0 0-3, stage-1 4-7\n",
        "ranks are bound to numa0 0-31, numa1 32-63\n",
        "ranks are bound to NUMA node0 0-31, node1 32-63\n",
        "ranks read va-1 0-99, va-2 100-149\n",
        "Ranks 0-3 are fine-tuned, 4-7 are re-run.\n",
        COMMENTED.replace("launcher:", "launcher, so to say"),
        STARTS.replace("agent up,", "starts to wait for"),
        STARTS.replace("p5-ci-0", "stage-"),
        "[rank1] lost the peer (host elm1)\n[rank3] connected to rank 0, node: elm2\n",
        LAST_WORDS.replace("elm2", "elm1"),  # what all of them name may be the host of the store
        "ranks of the model: block-0: 0,1  block-1: 2,3\n",
        "ranks per host: ka-1: 0,2  ka-2: 1,3\n",
        "ranks: ka-1 slots=8, ka-2 slots=8, deepspeed --num_gpus 4\n",
        "ranks: ka-1 slots=8, ka-1 slots=4\n",
        "cpus of ka-1 0-3, ka-2 4-7\n",
        MEMORY.replace("rank=", "local_rank="),
        MEMORY.partition("\n")[2],
        "  global_ranks=[0, 1]\n  group_rank=0\n  global_ranks=[2, 3]\n",
        SPAWNED.replace("dist_world_size=2", "dist_world_size=4"),
    ],
)
def test_other_texts_are_no_lists(text, tmp_path):
    path = tmp_path / "job.log"
    path.write_text(text)
    assert read(Item(path, "job.log", len(text), 0)).quality == "ignored"
    assert not sniff((text * 200)[:4096].encode(), "job.log")  # of a longer file the head decides


def test_a_list_names_the_rank_of_a_process_in_the_kernel_log(tmp_path):
    from whichrank.flows.diagnose.pipeline import diagnose

    (tmp_path / "pids-tx3.txt").write_text("RANK PID\n12 31440\n14 31442\n")
    (tmp_path / "dmesg-tx3.txt").write_text(
        "Jun 17 19:07:31 tx3 kernel: nfs: server 10.8.0.2 not responding, still trying\n"
        "Jun 17 19:09:44 tx3 kernel: INFO: task python3:31442 blocked for more than 120 seconds.\n"
    )
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("storage-stall", (14,))


def test_a_speaker_in_brackets_is_not_the_host_that_a_line_names(tmp_path):
    lines = [f"[launcher] started rank={rank} local_rank={rank} pid={50 + rank} host=hgx-07" for rank in range(4)]
    assert {row[2] for row in rows(tmp_path, "\n".join(lines) + "\n")} == {"hgx-07"}


def test_the_pid_of_ray_s_prefix_is_that_of_the_rank(tmp_path):
    lines = [f"(Actor pid={740 + rank}, ip=10.7.3.2{rank % 2}) [rank{rank}]: ready, world 4" for rank in range(4)]
    assert [row[:2] for row in rows(tmp_path, "\n".join(lines) + "\n")] == [(n, 740 + n) for n in range(4)]


@pytest.mark.parametrize(
    "shape",
    [
        "[{host}] rank {rank}: 40 files",
        "04:10:11 {host} rank {rank}: up",
        "04:10:11 [{host}:rank{rank}] up",
        "04:10:11 {host} survey: rank {rank} gpu 0 30C",
        "07/12/2026 04:10:11 - INFO - sft - node {host} rank {rank} reads",
        "{host}: [2026-07-12 04:10:11] [INFO] [comm.py:669:init_distributed] cdb=None rank={rank} local_rank=0",
    ],
)
def test_the_host_that_stands_beside_the_rank(tmp_path, shape):
    places = [(0, "larch1"), (1, "larch1"), (2, "larch2")]
    lines = "".join(shape.format(host=host, rank=rank) + "\n" for rank, host in places)
    assert [(row[0], row[2]) for row in rows(tmp_path, lines)] == places


def test_one_name_beside_a_rank_is_a_host_where_it_is_called_one(tmp_path):
    lines = "04:10:11 larch1 rank 0: builds the index\n" * 2
    assert [row[2] for row in rows(tmp_path, lines + "  host      : larch1\n")] == ["larch1"]
    assert rows(tmp_path, lines) == []  # it may be the name of the run


@pytest.mark.parametrize(
    "lines",
    [
        "[step-10] rank 0: up\n[step-20] rank 1: up\n",
        "[run-a7] rank 0: up\n[run-b7] rank 0: up\n",
        "larch1: waits for rank 0 gpu 0\nlarch2: lost the peer rank 1 gpu 1\n",
    ],
)
def test_other_words_beside_ranks_are_no_hosts(tmp_path, lines):
    path = tmp_path / "job.log"
    path.write_text(lines)
    assert read(Item(path, "job.log", len(lines), 0)).quality == "ignored"


@pytest.mark.parametrize(
    "text",
    [
        "larch1 holds ranks 0 through 1, larch2 holds ranks 2 through 3\n",
        "node     ranks\nlarch1   0-1\nlarch2   2-3\n",
        "| host | rack | ranks |\n|---|---|---|\n| larch1 | B4 | 0-1 |\n| larch2 | B4 | 2-3 |\n",
        "ranks:\n  larch1: [0, 1]\n  larch2: [2, 3]\n",
        "ranks 0-1 => larch1, ranks 2-3 => larch2\n",
        "node larch1: replica 0, ranks 0..1\nnode larch2: replica 1, ranks 2..3\n",
        "[larch1] agent: global_ranks=[0, 1]\n[larch2] agent: global_ranks=[2, 3]\n",
        "".join(f"rank {rank} @ larch{1 + rank // 2}: ready\n" for rank in range(4)),
        "".join(f"rank {rank} (larch{1 + rank // 2}): ready\n" for rank in range(4)),
        "".join(f"> rank {rank} is on host larch{1 + rank // 2}\n" for rank in range(4)),
        "".join(f"larch{1 + r // 2}: distributed: GLOBAL_RANK: {r}, MEMBER: {r + 1}/4\n" for r in range(4)),
    ],
)
def test_more_ways_to_say_which_ranks_a_host_has(tmp_path, text):
    places = [(0, "larch1"), (1, "larch1"), (2, "larch2"), (3, "larch2")]
    assert sorted((row[0], row[2]) for row in rows(tmp_path, text)) == places


@pytest.mark.parametrize(
    "text",
    [
        "ranks:\n  stage-0: [0, 1]\n  stage-1: [2, 3]\n",
        "ranks:\n  larch1: [0, 1]\n  larch2: [0, 1]\n",
        "rank by loss: run-1 -> rank 1, run-2 -> rank 2\n",
        "comm 0x5d rank 0 nranks 2 cudaDev 0 busId 4b000\ncomm 0x5d rank 1 nranks 2 cudaDev 1 busId 5b000\n",
        "layer ranks\nlora-1 8-16\nlora-2 16-32\n",
        "rank 0 (fp16-mixed): ready\nrank 1 (fp16-mixed): ready\n",
    ],
)
def test_other_lists_of_ranks_have_no_hosts(tmp_path, text):
    path = tmp_path / "job.log"
    path.write_text(text)
    assert read(Item(path, "job.log", len(text), 0)).quality == "ignored"


def test_a_process_of_ray_that_speaks_of_itself(tmp_path):
    lines = [f"(Worker pid={60 + n}, ip=10.7.3.{20 + n // 2}) WARNING: rank {n} is short of memory" for n in (1, 2)]
    assert [row[:3] for row in rows(tmp_path, "\n".join(lines))] == [(1, 61, "10.7.3.20"), (2, 62, "10.7.3.21")]
    both = [line.replace("rank 2", "rank 1") for line in lines]  # it may be another that is spoken of
    assert rows(tmp_path, "\n".join(both), "both.txt") == []


def test_the_pids_that_ranks_say_of_themselves(tmp_path):
    path = tmp_path / "torchrun.log"
    text = "".join(f"10:52:50 trn-b2 rank{n} INFO starting pid {17356 + n}, world size 4\n" for n in range(4))
    path.write_text(text + "10:52:51 trn-b2 rank0 INFO lost connection to peer pid 99\n")
    records = read(Item(path, path.name, path.stat().st_size, 0)).records
    assert {record.rank: record.pid for record in records} == {n: 17356 + n for n in range(4)}


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (
            '{"ts": "13:13:55", "rank": 3, "host": "c5-12", "pid": 19337, "world": 4}',
            (3, 19337, "c5-12"),
        ),
        ("19/11 12:52:55|INFO|r3|host mn202 pid 6797 rank 3/6 torch 2.13.0", (3, 6797, "mn202")),
        ("13:07:06 <4> up on d-b pid 13699", (4, 13699, "d-b")),
        ("2026-11-19T13:03:47Z event='start' rank=1 host=g1 shard=ecg_01.npy", (1, None, "g1")),
        ("2026-11-19T13:04:59.293 ctr r2 vm-east2 torch 2.13.0 python 3.11.7 pid 11733", (2, 11733, "vm-east2")),
        ("     0.9s kp33[4] in group, pid 15117", (4, 15117, "kp33")),
        ("19-11-2026 12:59:11 [lab3 r2] avvio, torch 2.13.0, archivio su lab1:23456", (2, None, "lab3")),
    ],
)
def test_the_one_rank_of_a_file_introduces_itself(tmp_path, line, place):
    noise = "[W1119 12:52:55.478088387 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved.\n"
    (row,) = rows(tmp_path, f"{noise}{line}\n", "out.7.txt")
    assert row[:3] == place


@pytest.mark.parametrize(
    "text",
    [
        "r3: lost connection to node-2, pid 411 was killed there\n",
        "rank 3 ready on node-1, pid 411\nrank 4 ready on node-2, pid 412 (says rank 3)\n",
        "step 12[4] loss 2.1\n",
    ],
)
def test_what_is_no_introduction(tmp_path, text):
    path = tmp_path / "job.log"
    path.write_text(text)
    item = Item(path, "job.log", len(text), 0)
    assert introduction(text.encode(), clock_of(item)) is None
