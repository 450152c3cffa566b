"""A log's own prefixes: learned from its lines, and those of collectors."""

from __future__ import annotations

import pytest

from tests import cost
from whichrank.evidence.text.own_prefix import learn
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock, clock_of
from whichrank.model.contracts import Item


@pytest.mark.parametrize(
    ("lines", "line", "rank"),
    [
        ("[0] rank 0 ready\n[9] rank 9 ready\n", "[9] Exception in thread prefetch-0:", 9),
        ("[c7:3] [rank3]: x\n[c8:11] [rank11]: y\n", "[c8:11] WARNING cache.py:88 disk full", 11),
        ("[gpu-b1 r0] step 1\n[gpu-b2 r6] step 1\n", "[gpu-b2 r6] 19:49:38 amax inf", 6),
        ("(mk-a, rank=0) x\n(mk-b, rank=9) y\n", '(mk-b, rank=9)   File "a.py", line 4, in f', 9),
        ("mk-a [rank 0] INFO x\nmk-b [rank 9] INFO y\n", "mk-b [rank 9] INFO loader: 2103 batches", 9),
        ("bn07 rank  0 | 02:20:04 | init\nbn09 rank 11 | 02:20:06 | init\n", "bn09 rank 11 | 02:21:00 | done", 11),
        ("".join(f"{n}: WARN rank {n} waits\n" for n in range(5)), "3: loss 2.1", 3),
        ("0|data|INFO|rank 0: 1024 batches\n5|data|INFO|rank 5: 1011 batches\n", "5|train|INFO|epoch 0 finished", 5),
        ("INFO mod.io r0: rank 0 up\nINFO mod.io r6: rank 6 up\n", "WARNING mod.net r6: retry 2", 6),
        ("[r0 s1 d0] rank 0 up\n[r3 s1 d1] rank 3 up\n", "[r3 s1 d1] shard 9 missing", 3),
        ("[rank0 pp=0 tp=0] x\n[rank5 pp=1 tp=1] y\n", "[rank5 pp=1 tp=1] pool exhausted", 5),
        ("[default0]:INFO a r0: x rank 0\n[default1]:INFO a r9: x rank 9\n", "[default1]:INFO a r9: y", 9),
        ("".join(f"[{n}] step {s}\n" for s in range(3) for n in range(4)), "[2] OSError: no space", 2),
        ("".join(f"w{n} | step {s}\n" for s in range(4) for n in range(3)), "w1 | loss nan", 1),
        ("173@lynx030| [rank173]: x\n040@lynx005| [rank40]: y\n", "173@lynx030| 22:04 wrote 655 MB", 173),
        ("w12 rank 12 up\nw07 rank 7 up\n", "w12 ERROR lost the store", 12),
        ("".join(f"i 19:03:4{r} pod-{r // 2} {r} data: {r + 7} files\n" for r in range(4)), "e 19:04:00 pod-1 3 x", 3),
        ("".join(f"rak{r // 2}[{r}] start, karta {r % 2}\n" for r in range(4)), "rak1[2] RuntimeError: x", 2),
        ("(00) a\n" * 40 + "".join(f"({n:02}) step {s}\n" for s in range(4) for n in range(3)), "(02) b", 2),
    ],
)
def test_a_prefix_is_learned_from_lines_that_say_their_rank(tmp_path, lines, line, rank):
    path = tmp_path / "job.log"
    path.write_text(lines)
    voice = listen(line.encode(), clock_of(Item(path, "job.log", path.stat().st_size, 0)))
    assert voice.rank == rank


@pytest.mark.parametrize(
    "lines",
    [
        "[0] rank 0 ready\n[1] rank 5 ready\n[2] rank 2 ready\n",  # a local rank, or a thread
        "[3] rank 3 ready\n[4] step 10\n",  # one is not enough
        "[1] loading\n[2] loading\n",
        "(mk-a, rank=3) x\n(mk-b, rank=3) y\n(mk-b, rank=4) z\n",  # one rank on two hosts
        "0: rank 0 waits\n1: rank 1 waits\n2: rank 2 waits\n",  # too few that only mention a rank
        "".join(f"{n}: rank {n} waits\n" for n in range(8)) + "3: lost rank 5\n",
        "".join(f"[{n}] step {s}\n" for s in range(3) for n in (0, 1, 3)),  # a number is missing
        "".join(f"[{n}] loading part {n}\n" for n in range(4)),  # each only once: a counter
        "0:INFO rank 0 up\n1:INFO rank 1 up\n" * 2,  # a level is no host
        "[0] step\n" * 9 + "[1] step\n" * 9 + "[2] step\n" * 3,  # a level or a state, not one of equals
        "".join(f"[{n}] step {s}\nepoch\nlr\n" for s in range(3) for n in range(4)),  # few of all lines
    ],
)
def test_what_does_not_agree_is_not_learned(lines):
    assert learn(lines.encode()) is None


def test_names_in_brackets_before_half_of_the_lines_are_hosts_where_others_speak_of_them():
    lines = "[kt-1] a\n[kt-2] b\n [kt-2] c\n[kt-1] d\n"
    said = "srun: error: kt-1: task 0: Exited\nsrun: error: kt-2: task 1: Exited\n"
    shape = learn((lines + said).encode())
    assert shape is not None
    assert [match["host"] for line in lines.splitlines() if (match := shape.match(line))] == [
        "kt-1",
        "kt-2",
        "kt-2",
        "kt-1",
    ]
    assert learn((lines + "srun: error: kt-1: task 0: Exited\nend of it\n").encode()) is None


@pytest.mark.parametrize(
    ("line", "pid", "place", "text"),
    [
        ("(Worker_TP9 pid=709) ERROR 03-10 23:02:37 [v1/executor.py:711] lost", 709, "TP9", "lost"),
        ("(Worker_PP0_TP1_EP1 pid=12) INFO 03-10 23:02:37 worker.py:84] up", 12, "PP0_TP1", "up"),
        ("(VllmWorker TP2 pid=4411) INFO 03-10 23:02:37 [worker.py:84] up", 4411, "TP2", "up"),
        ("[2026-01-05 10:00:00 TP3] Load weight end", None, "TP3", "Load weight end"),
        ("[2026-01-05 10:00:00 DP1 TP3 EP3] Load weight end", None, "DP1_TP3", "Load weight end"),
        ("[2026-01-05 10:00:00] TP3 is up", None, "", "TP3 is up"),
    ],
)
def test_processes_of_servers(line, pid, place, text):
    voice = listen(line.encode(), Clock(2_000_000_000_000_000_000))
    assert (voice.pid, voice.place, voice.text) == (pid, place, text)
    assert voice.time_ns


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ('{"log": "[rank3]: ValueError: bad batch\\n", "stream": "stderr", "time": "x"}', 3, "ValueError: bad batch"),
        ('{"level": "error", "rank": 2, "message": "CUDA error: device-side x"}', 2, "CUDA error: device-side x"),
        ('{"log":"[rank1]: NCCL error: remote process exited or th', 1, "NCCL error: remote process exited or th"),
        ('2026-02-20T15:33:11.120Z,trainer-6,stderr,"[rank6]: torch.SomeError: x"', 6, "torch.SomeError: x"),
        ("2026-02-11 04:03:36 gh01 trainer[rank0]: step 5100 loss 1.8", 0, "step 5100 loss 1.8"),
        ("20:21:21 [rank 12/16 @p5-b] part 31/212: SlowDown", 12, "part 31/212: SlowDown"),
        ("[titan] 2025-11-21 14:20:14,902 - root - INFO - [rank6] tuning", 6, "tuning"),
        ("[03/12 06:10:01 trainer rank5]: batch ignored", 5, "batch ignored"),
        ("[10:05:02] ERROR    rank 3: torch.OutOfMemoryError: y", 3, "torch.OutOfMemoryError: y"),
    ],
)  # fmt: skip
def test_collectors_are_unwrapped(line, rank, text):
    voice = listen(line.encode(), Clock(2_000_000_000_000_000_000))
    assert (voice.rank, voice.text.strip()) == (rank, text)


def test_short_words_stay_with_their_values():
    voice = listen(b'{"msg": "step", "rank": 0, "step": 100, "loss": 3.6}', Clock(0))
    assert '"step": 100' in voice.text


def test_a_rank_on_two_hosts_is_no_rank():
    assert learn(b"[node1 r0] step 1\n[node1 r1] step 1\n[node2 r0] step 1\n[node2 r1] step 1\n") is None


def test_lines_with_the_host_alone(tmp_path):
    path = tmp_path / "job.log"
    path.write_text("bn07 rank 0 | init\nbn09 rank 8 | init\nbn09: slurmstepd: error: x\n")
    voice = listen(b"bn09: slurmstepd: error: x", clock_of(Item(path, "job.log", path.stat().st_size, 0)))
    assert (voice.host, voice.rank) == ("bn09", None)


def test_a_word_for_ranks_is_no_host():
    shape = learn(b"[rank  0] up\n[rank  9] up\n[rank 10] up\n[rank 10] [rank10]: x\n[rank  9] [rank9]: y\n")
    assert shape is None or "host" not in shape.groupindex


@pytest.mark.parametrize(("name", "host"), [("nodeb.log", "nodeb"), ("train.nodeb.out", "nodeb"), ("train.log", None)])
def test_the_host_after_which_a_file_is_called(tmp_path, name, host):
    path = tmp_path / name
    path.write_text("".join(f"2026-11-19 10:59:3{n}.994 nodeb rank2 INFO step {n}\n" for n in range(9)))
    voice = listen(b"2026-11-19 10:59:41.627 nodeb rank2 INFO done", clock_of(Item(path, name, path.stat().st_size, 0)))
    assert voice.host == host


def test_who_is_spoken_of_does_not_speak():
    voice = listen(b"Waiting for [rank 3] to answer", Clock(0))
    assert voice.rank is None


def test_a_line_of_many_marks_is_read_in_no_time():
    line = ("1." * 10 + " ") * 6 + "rank x"
    with cost.at_most(0.05):
        assert listen(line.encode(), Clock(0)).rank is None


@pytest.mark.parametrize(
    ("lines", "line", "host", "rank"),
    [
        ("juno: [rank0] up\nvesta: [rank5] up\n", "vesta: [rank5]: KeyError: 3", "vesta", 5),
        ("juno: [rank0] up\nvesta: [rank5] up\n", "vesta: ninja: build stopped", "vesta", None),
        ("ore-a r00 09:14:07 up\nore-b r12 09:14:09 up\n", "ore-b r12 09:15:00 WARN loss nan", "ore-b", 12),
        ("09:14:07 [ore1:rank0] up\n09:14:09 [ore2:rank9] up\n", "09:15:00 [ore2:rank9] loss nan", "ore2", 9),
        ("09:14:07 ore-1 train: up\n09:14:09 ore-2 train: up\n", "09:15:00 ore-2 train: [rank9] up", "ore-2", 9),
        ("ore-a r0 INFO up\nore-b r3 INFO up\nore-b r3 INFO x\nore-b [rank3]: y\n", "ore-b r3 INFO z", "ore-b", 3),
    ],
)
def test_several_hosts_before_ranks(tmp_path, lines, line, host, rank):
    path = tmp_path / "job.log"
    path.write_text(lines)
    voice = listen(line.encode(), clock_of(Item(path, "job.log", path.stat().st_size, 0)))
    assert (voice.host, voice.rank) == (host, rank)


@pytest.mark.parametrize(
    "lines",
    [
        "INFO: [rank0] up\nERROR: [rank1] down\n",  # levels
        "trainer: [rank0] up\ntrainer: [rank1] up\n",  # one name for all
        "data: [rank0] up\nmodel: [rank0] up\ndata: [rank1] up\n",  # modules
    ],
)
def test_other_names_before_ranks_are_no_hosts(lines):
    assert learn(lines.encode()) is None
