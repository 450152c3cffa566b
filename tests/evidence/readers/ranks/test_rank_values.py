"""Values by rank or host, in the shapes in which trainers and people print them."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers.rank_values import read, sniff
from whichrank.model.contracts import Item

TIMERS = """times across ranks (ms):
    forward-compute:
     rank  0: 482.34
     rank  1: 735.43
    all-grads-sync:
     rank  0: 261.90
     rank  1: 2.11
"""
PREFIXED = """[default0]:=== Report at Step 10 ===
[default0]:Section Timings (ms):
[default0]:  backward:
[default0]:    Rank 0: 431.00ms
[default0]:    Rank 1: 700.69ms
"""
BARS = """| step | host | ranks | data s | comm wait s | img/s |
|---|---|---|---|---|---|
| 500 | w-0 | 0-7 | 0.05 | 1.84 | 755 |
| 500 | w-1 | 8-15 | 1.87 | 0.03 | 760 |
"""
COLUMNS = """step  rank  host     loss      sha1(params)
 1000     0  ada-0   4.4486   d02ec6c19fb0
 1000     1  ada-1   4.4513   62f7b654ccf3
"""
PARTS = "[rank0] timers it 7: fwd 0.21 h2d 0.05 comm_wait 1.71\n[rank1] timers it 7: fwd 0.62 h2d 0.06 comm_wait 0.08\n"
PAIRS = """[rank0] step 7 loss 2.1 fwd_ms=21.5 param_sha1 0f8c1a77
[rank1] step 7 loss 2.2 fwd_ms=40.1 param_sha1 b2e40c19
"""
JSON_LINES = """{"rank": 0, "step": 40, "loss": 1.2, "rows_ms": 6.2}
{"rank": 1, "step": 40, "loss": 1.1, "rows_ms": 109.4}
"""
FROM_THE_MARGIN = "allreduce wait per rank, mean of 200 steps [ms]:\nrank  9: 1031\nrank 18: 6\n"
EXTREMES = (
    "0: INFO:megatron.core.utils:[2024-05-02 09:00:11] | MnRtt/Rnk: 3451.20ms/8 | MxRtt/Rnk: 5177.93ms/19 | "
    "MnTmp/Rnk: 52C/0\n0: INFO:megatron.core.utils:^^^^ Bottom 2 Ranks with lowest  Etpt(TF): 197.60/19, 296.17/2,\n"
)
COMMAS = "rank,step_time_ms,tokens/s\n0,250.1,8100\n1,249.9,8110\n"


def cells(tmp_path, text):
    path = tmp_path / "out.log"
    path.write_text(text)
    item = Item(path, "out.log", len(text.encode()), 0)
    assert sniff(item.head(), "out.log")
    records = read(item).records
    return [
        (c.name, c.quantity, c.member.ranks, c.member.host, c.step, c.token or c.value)
        for record in records
        for c in record.cells
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TIMERS,
            [
                ("forward-compute", "work", (0,), None, -1, 482.34),
                ("forward-compute", "work", (1,), None, -1, 735.43),
                ("all-grads-sync", "wait", (0,), None, -1, 261.9),
                ("all-grads-sync", "wait", (1,), None, -1, 2.11),
            ],
        ),
        (
            FROM_THE_MARGIN,
            [
                ("allreduce wait per rank, mean of 200 steps [ms]", "wait", (9,), None, -1, 1031.0),
                ("allreduce wait per rank, mean of 200 steps [ms]", "wait", (18,), None, -1, 6.0),
            ],
        ),
        (
            EXTREMES,
            [
                ("GPU time of a step", "work", (8,), None, -1, 3451.2),
                ("GPU time of a step", "work", (19,), None, -1, 5177.93),
                ("throughput", "rate", (19,), None, -1, 197.6),
                ("throughput", "rate", (2,), None, -1, 296.17),
            ],
        ),
        (
            PREFIXED,
            [("backward", "work", (0,), None, 10, 431.0), ("backward", "work", (1,), None, 10, 700.69)],
        ),
        (
            BARS,
            [
                ("data s", "data", tuple(range(8)), "w-0", 500, 0.05),
                ("comm wait s", "wait", tuple(range(8)), "w-0", 500, 1.84),
                ("img/s", "rate", tuple(range(8)), "w-0", 500, 755.0),
                ("data s", "data", tuple(range(8, 16)), "w-1", 500, 1.87),
                ("comm wait s", "wait", tuple(range(8, 16)), "w-1", 500, 0.03),
                ("img/s", "rate", tuple(range(8, 16)), "w-1", 500, 760.0),
            ],
        ),
        (
            COLUMNS,
            [
                ("sha1(params)", "checksum", (0,), "ada-0", 1000, "d02ec6c19fb0"),
                ("sha1(params)", "checksum", (1,), "ada-1", 1000, "62f7b654ccf3"),
            ],
        ),
        (
            PAIRS,
            [
                ("fwd_ms", "work", (0,), None, 7, 21.5),
                ("param_sha1", "checksum", (0,), None, 7, "0f8c1a77"),
                ("fwd_ms", "work", (1,), None, 7, 40.1),
                ("param_sha1", "checksum", (1,), None, 7, "b2e40c19"),
            ],
        ),
        (
            JSON_LINES,
            [
                ("rows_ms", "step", (0,), None, 40, 6.2),
                ("rows_ms", "step", (1,), None, 40, 109.4),
            ],
        ),
        (
            PARTS,
            [
                ("fwd", "work", (0,), None, -1, 0.21),
                ("comm_wait", "wait", (0,), None, -1, 1.71),
                ("fwd", "work", (1,), None, -1, 0.62),
                ("comm_wait", "wait", (1,), None, -1, 0.08),
            ],
        ),
        (
            COMMAS,
            [
                ("step_time_ms", "step", (0,), None, -1, 250.1),
                ("tokens/s", "rate", (0,), None, -1, 8100.0),
                ("step_time_ms", "step", (1,), None, -1, 249.9),
                ("tokens/s", "rate", (1,), None, -1, 8110.0),
            ],
        ),
    ],
)
def test_shapes(tmp_path, text, expected):
    assert cells(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "rank 0 started\nrank 1 started\n",
        "[rank0]: Traceback (most recent call last):\n[rank1]: TimeoutError: timed out after 600000 ms\n",
        "[rank0]: shard 0017.tar of 64, grad_sha1 0f8c1a77\n[rank1]: shard 0018.tar of 64, grad_sha1 b2e40c19\n",
        "node worker-1 is Ready\nhost table: nothing\n",
    ],
)
def test_what_is_no_value_by_rank(tmp_path, text):
    path = tmp_path / "out.log"
    path.write_text(text)
    assert read(Item(path, "out.log", len(text), 0)).records == []


@pytest.mark.parametrize(
    ("line", "name", "quantity", "values"),
    [
        ("0: 09:15:07 step_s by rank 0:2.01 1:1.92 2:7.08 3:2.00", "step_s", "step", [2.01, 1.92, 7.08, 2.0]),
        ("fwd time (ms) per rank: [20.5, 21, 39.5]", "fwd time (ms)", "work", [20.5, 21.0, 39.5]),
        ("per-rank data wait: r0=1.5s, r1=1.5s, r2=9s", "data wait", "data", [1500.0, 1500.0, 9000.0]),
    ],
)
def test_the_values_of_all_ranks_in_one_line(tmp_path, line, name, quantity, values):
    found = cells(tmp_path, f"rank 0 of 4 begins\n{line}\n")
    assert found == [(name, quantity, (rank,), None, -1, value) for rank, value in enumerate(values)]


def test_what_several_lines_tell_of_all_ranks(tmp_path):
    line = "offload_ms across ranks 0=2 1=2 2=8\n"
    assert cells(tmp_path, line) == []  # once may be at the start
    assert cells(tmp_path, 2 * line) == 2 * [
        ("offload_ms", "step", (n,), None, -1, float(v)) for n, v in enumerate((2, 2, 8))
    ]


@pytest.mark.parametrize(
    "line",
    [
        "startup_s by rank 0:9.1 1:4.0 2:4.1",
        "samples by rank 0:2048 1:2048 2:2040",  # nothing that takes time
        "copy_s by rank 0:2.01 1:1.92",  # too few to tell
        "copy_s by rank 0:2.01 0:1.92 1:1.90",  # a rank with two values
        "copy_s by rank at 10:15:07 and 10:16:08",
    ],
)
def test_other_lists_by_rank_tell_no_times(tmp_path, line):
    assert cells(tmp_path, f"rank 0 of 4 begins\n{line}\n") == []


def test_rows_of_one_number_per_rank_below_a_heading(tmp_path):
    text = "ms per step by rank\n  fwd     20.5 21.0 39.5\n  wait    30.0 29.5 2.5\nsaved\n  fwd     1 2 3\n"
    assert cells(tmp_path, 2 * text) == 2 * [
        *(("fwd", "work", (rank,), None, -1, value) for rank, value in enumerate((20.5, 21.0, 39.5))),
        *(("wait", "wait", (rank,), None, -1, value) for rank, value in enumerate((30.0, 29.5, 2.5))),
    ]


def test_rows_of_other_lengths_are_no_table(tmp_path):
    text = "ms per step by rank\n  fwd     20.5 21.0 39.5\n  wait    30.0 29.5 2.5 7.0\n"
    assert {name for name, *_ in cells(tmp_path, 2 * text)} == {"fwd"}


def test_a_tag_of_the_program_names_the_rank(tmp_path):
    text = "".join(f"INFO app r{rank}: it {n} fwd=2{rank}ms meet=7ms\n" for n in range(3) for rank in range(2))
    found = cells(tmp_path, "INFO app r0: rank 0 up\nINFO app r1: rank 1 up\n" + text)
    assert {(name, ranks, value) for name, _, ranks, *_, value in found if name == "fwd"} == {
        ("fwd", (0,), 20.0),
        ("fwd", (1,), 21.0),
    }


def test_a_unit_before_all_values(tmp_path):
    line = "[rank {}] update 20/100 loss 24.2 | ms: rollout {} backward 300 allreduce {}\n"
    found = cells(tmp_path, line.format(0, 158, 607) + line.format(1, 408, 135))
    assert [(name, quantity, value) for name, quantity, _, _, _, value in found[:3]] == [
        ("rollout", "step", 158.0),
        ("backward", "work", 300.0),
        ("allreduce", "wait", 607.0),
    ]


def test_a_file_that_is_called_after_a_rank_need_not_name_it(tmp_path):
    path = tmp_path / "rank3.stdout.txt"
    path.write_text("".join(f"batch {n} loss=2.1 read=368ms meet=73ms\n" for n in range(4)))
    item = Item(path, "run/rank3.stdout.txt", path.stat().st_size, 0)
    assert sniff(item.head(), "rank3.stdout.txt")
    (record,) = read(item).records
    assert {(cell.name, cell.member.ranks) for cell in record.cells} == {("read", (3,)), ("meet", (3,))}


WORKERS = "".join(f'{{"worker": {worker}, "iter": 7, "rollout_ms": {200 + worker}}}\n' for worker in range(3))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (WORKERS, [(0,), (1,), (2,)]),
        (WORKERS.replace('"worker": 1', '"worker": 5'), []),  # no number of all ranks
        (WORKERS.replace('"iter"', '"rank": 3, "iter"'), [(3,), (3,), (3,)]),
    ],
)
def test_the_own_word_of_a_program_for_its_ranks(tmp_path, text, ranks):
    path = tmp_path / "job.log"
    path.write_text(text)
    records = read(Item(path, "job.log", len(text), 0)).records
    assert [cell.member.ranks for record in records for cell in record.cells] == ranks


def test_digests_of_repeats_in_lines_of_json(tmp_path):
    line = '{{"rank": {}, "ev": "selftest", "gemm_bf16": ["{}", "9c41f07be2"], "sizes": ["100000", "200000"]}}\n'
    found = cells(tmp_path, line.format(0, "9c41f07be2") + line.format(1, "5db7c7dd51"))
    assert [(name, kind, ranks) for name, kind, ranks, *_ in found] == [
        ("gemm_bf16", "checksum", (0,)),
        ("gemm_bf16", "checksum", (1,)),
    ]
    assert len({value for *_, value in found}) == 2


def test_digests_behind_one_word_for_all(tmp_path):
    up = "".join(f"03:39:01.{n}02Z r{n} rank {n} of 2, pid 71{n}\n" for n in range(2))
    line = "03:40:07.671Z r{} digest step=41500 params={} seed=12345678\n"
    found = cells(tmp_path, up + line.format(0, "f0f1826fbde97e8f") + line.format(1, "c3e8d197a8a78ec3"))
    assert [(name, kind, ranks) for name, kind, ranks, *_ in found] == [
        ("params", "checksum", (0,)),
        ("params", "checksum", (1,)),
    ]


def test_parts_of_a_step_without_units(tmp_path):
    line = "[rank {}] round 5 math 6.4 park 1.1 fetch {} wait {} temp 51 clk 1410\n"
    found = cells(tmp_path, line.format(0, 0.9, 13.2) + line.format(1, 6.6, 0.1))
    assert [(name, kind, value) for name, kind, ranks, _, _, value in found if ranks == (1,)] == [
        ("fetch", "data", 6.6),
        ("wait", "wait", 0.1),
    ]
