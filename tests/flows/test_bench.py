"""bench: formulas, real Gloo runs, judgements, comparison, output of nccl-tests, curves, and the sweep."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from msgspec.structs import replace

from whichrank.evidence import nccl_tests
from whichrank.facts.hardware.bandwidth import COLLECTIVES, bandwidths, bus_factor, expected, family, known
from whichrank.flows.bench import measure as flow
from whichrank.flows.bench.sweep import candidates, sweep
from whichrank.model.errors import UnreadableError, UsageError
from whichrank.model.evidence import Coverage
from whichrank.records.bench import BenchResult, BenchRun
from whichrank.report import _bench as report
from whichrank.report._curves import png, series
from whichrank.rules.benchmark import slow_rank_before

SCHEMA = Path(report.__file__).parent / "schemas/bench.schema.json"
H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [("all_reduce", 8, 1.75), ("all_reduce", 16, 1.875), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75),
     ("all_to_all", 2, 0.5), ("broadcast", 8, 1.0), ("send_recv", 8, 1.0), ("barrier", 8, None)],
)  # fmt: skip
def test_bus_bandwidth_by_the_formulas_of_nccl_tests(operation, ranks, factor):
    assert bus_factor(operation, ranks) == factor


def test_a_known_row():
    """1 GiB in 4478.8 us on 16 ranks: 239.74 and 449.51 GB/s (Oracle's documentation)."""
    alg, bus = bandwidths("all_reduce", 1 << 30, 4478.8e-6, 16)
    assert (round(alg, 2), round(bus, 2)) == (239.74, 449.51)
    assert bandwidths("barrier", 0, 1e-3, 2) == (None, None)


def test_what_such_a_machine_gives():
    assert len(known()) > 50
    assert expected("NVIDIA H200", 1, 8, "all_reduce", 1 << 30).busbw == 463.58
    assert 436 < expected("NVIDIA H200", 1, 8, "all_reduce", 512 << 20).busbw < 464
    assert expected("NVIDIA H200", 1, 8, "all_reduce", 1 << 10) is None
    assert expected("NVIDIA H100 PCIe", 1, 8, "all_reduce", 1 << 30) is None
    assert (family(H100), family("NVIDIA H100 NVL"), family("cpu")) == ("H100", None, None)


@pytest.mark.job
def test_gloo_for_real(whichrank, tmp_path):
    kept, page, picture = tmp_path / "a.json", tmp_path / "a.html", tmp_path / "a.png"
    done = whichrank(
        "bench", "--backend", "gloo", "--nproc-per-node", 2, "--sizes", "4K,256K", "--seconds", "0.02", "--quiet",
        "--format", "json", "--save", kept, "--html", page, "--png", picture, "--stragglers",
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert {r["collective"] for r in document["results"]} == set(COLLECTIVES)
    assert all(r["correct"] for r in document["results"])
    for r in document["results"]:
        if r["collective"] != "barrier":
            factor = bus_factor(r["collective"], 2)
            assert r["busbw_gbs"] == pytest.approx(r["bytes"] / 1e3 / r["time_us"] * factor)
    assert document["stragglers"]["compute"]
    assert "<svg" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(kept.read_text())["results"] == document["results"]


def test_too_few_ranks(whichrank):
    done = whichrank("bench", "--nproc-per-node", 1, "--quiet")
    assert done.returncode == 2
    assert "at least two ranks" in done.stderr


def test_sizes():
    assert flow.sizes("1K:64K:4") == [1024, 4096, 16384, 65536]
    assert flow.sizes("1M,16MiB") == [1 << 20, 16 << 20]
    for wrong in ("x", "4K:1K:2", "1K:2K:1", ""):
        with pytest.raises(UsageError):
            flow.sizes(wrong)


# -- judgements


def result(collective="all_reduce", octets=1 << 30, ranks=8, busbw=470.0, time_us=1000.0, **more):
    return BenchResult(collective, octets, "float32", ranks, time_us, busbw / 1.75, busbw, True, 0.01, **more)


def codes(run):
    return [finding.code for finding in flow.bench(run).findings]


def test_nvls_is_off():
    told = flow.bench(BenchRun([result(busbw=365.0)], "nccl", H100, ("a",) * 8))
    assert "365 GB/s on an H100 node: NVLS is off" in told.findings[0].message
    assert codes(BenchRun([result(busbw=470.0)], "nccl", H100, ("a",) * 8)) == []
    assert codes(BenchRun([result(busbw=365.0, ranks=4)], "nccl", H100, ("a",) * 4)) == []  # too few ranks for NVLS
    assert codes(BenchRun([result("all_gather", busbw=365.0)], "nccl", H100, ("a",) * 8)) == []


def test_far_below_what_is_usual():
    assert codes(BenchRun([result(busbw=231.0)], "nccl", "NVIDIA H200", ("a",) * 8)) == ["BNCH103"]
    assert codes(BenchRun([result(busbw=455.0)], "nccl", "NVIDIA H200", ("a",) * 8)) == []
    assert codes(BenchRun([result(busbw=20.0, octets=1 << 20)], "nccl", "NVIDIA H200", ("a",) * 8)) == []


def test_wrong_results_are_an_error():
    bad = BenchResult("all_reduce", 1 << 20, "float32", 2, 10.0, 1.0, 1.0, correct=False)
    assert flow.bench(BenchRun([bad], "nccl", "cpu", ("a",))).findings[0].severity == "error"


def test_slower_than_before():
    old = [result(octets=1 << n, time_us=100.0) for n in (20, 24)]
    same = [result(octets=1 << n, time_us=105.0) for n in (20, 24)]
    slow = [result(octets=1 << n, time_us=140.0) for n in (20, 24)]
    assert codes(BenchRun(same, baseline=old)) == []
    assert codes(BenchRun(slow, baseline=old)) == ["BNCH104"]
    noisy = [BenchResult("all_reduce", 1 << n, "float32", 8, 140.0, 1, 1, True, 0.5) for n in (20, 24)]
    assert codes(BenchRun(noisy, baseline=old)) == []


def test_the_slow_rank_is_found_by_its_own_work():
    dice = random.Random(3)
    ranks = [[0.01 * dice.uniform(0.97, 1.03) for _ in range(12)] for _ in range(8)]
    assert slow_rank_before.slow_ranks(ranks) == []
    ranks[5] = [r * 1.4 for r in ranks[5]]
    wait = [[0.004] * 12 for _ in range(8)]
    wait[5] = [0.0001] * 12
    (finding,) = flow.bench(BenchRun(stragglers={"compute": ranks, "wait": wait}, hosts=tuple("abcdefgh"))).findings
    assert finding.subject.ranks == (5,)
    assert finding.subject.hosts == ("f",)
    assert "it waits least" in finding.message
    one_hiccup = [[0.01] * 11 + [0.5] for _ in range(8)]
    assert slow_rank_before.slow_ranks(one_hiccup) == []


# -- nccl-tests: the shapes of their versions, as their printf formats make them


def old(rows, columns="redop"):
    """v2.0 to v2.11: no root, and an error instead of a count."""
    named = " redop" if columns else ""
    lines = [
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1",
        "#",
    ]
    lines += [
        f"#   Rank {n:2d} Pid {100 + n:6d} on dgx01 device {n:2d} [0x{n:02x}] NVIDIA A100-SXM4-40GB" for n in range(2)
    ]
    lines += [
        "#",
        f"#       size         count    type  {named}     time   algbw   busbw  error     time   algbw   busbw  error",
    ]
    for size, time, alg, bus in rows:
        op = "     sum" if columns else ""
        half = f"{time:7.1f}  {alg:6.2f}  {bus:6.2f}  2e-07"
        lines.append(f"{size:12d}  {size // 4:12d}  {'float':>6s}{op}  {half}  {half}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 42.2 "]) + "\n"


def new(rows, version, ranks=8, wrong="0", prefix=""):
    """v2.13 and later: thirteen columns for every test."""
    lines = [f"# nccl-tests version {version} nccl-headers=22809 nccl-library=22809"] if version >= "2.17.4" else []
    lines += ["# Collective test starting: all_reduce_perf"] if version >= "2.17" else []
    place = "[0000:{0:02x}:00]" if version >= "2.16" else "[0x{0:02x}]"
    lines += [
        f"#  Rank {n:2d} Group  0 Pid {100 + n:6d} on   h100-{n // 8} device {n % 8:2d} {place.format(n)} {H100}"
        for n in range(ranks)
    ]
    lines.append("#       size         count      type   redop    root" + "     time   algbw   busbw #wrong" * 2)
    for size, time, alg, bus in rows:
        half = f"{time:7.1f}  {alg:6.2f}  {bus:6.2f}  {wrong:>5s}"
        lines.append(f"{size:12d}  {size // 4:12d}  {'float':>8s}  {'sum':>6s}  {'-1':>6s}  {half}  {half}")
    lines.append("# Out of bounds values : 0 OK" if wrong in ("0", "N/A") else "# Out of bounds values : 7 FAILED")
    return "\n".join(prefix + line for line in lines) + "\n"


ROW = [(1 << 30, 4478.8, 239.74, 449.51)]


@pytest.mark.parametrize("version", ["2.13.0", "2.16.0", "2.17.0", "2.19.6"])
@pytest.mark.parametrize(
    "prefix",
    ["", "0: ", "[1,0]<stdout>:", "   [1,0]<stdout>: ", "2026-05-06T12:01:02.123Z stdout F ", "[pod/llama-0/main] ",
     "worker-0  | "],
)  # fmt: skip
def test_tables_of_every_version(version, prefix):
    run = nccl_tests.read(new(ROW, version, 16, prefix=prefix).encode(), "log")
    assert len(run.results) == 2
    first = run.results[0]
    assert (first.collective, first.bytes, first.ranks) == ("all_reduce", 1 << 30, 16)
    assert (first.time_us, first.busbw_gbs, first.correct) == (4478.8, 449.51, True)
    assert run.results[1].in_place
    assert run.device == H100
    assert run.nodes == 2


def test_tables_without_a_name_and_without_a_root():
    run = nccl_tests.read(old([(1 << 27, 3298.6, 40.69, 40.69)]).encode(), "log")
    assert (run.results[0].collective, run.results[0].ranks, run.results[0].correct) == ("all_reduce", 2, True)
    gathered = nccl_tests.read(old([(1 << 27, 3298.6, 40.69, 20.35)], columns="").encode(), "log")
    assert gathered.results[0].collective == "all_gather"


def test_tables_as_people_paste_them():
    """Without the marks of comments; a launcher's tag inside the line; empty cells of tests that reduce nothing."""
    whole = new(ROW, "2.16.0", prefix="[0]")
    for text in (whole.replace("#", ""), whole.replace("      -1", "      -1[0]").replace("  0  ", "  0[0]  ")):
        first = nccl_tests.read(text.encode(), "log").results[0]
        assert (first.collective, first.ranks, first.busbw_gbs, first.correct) == ("all_reduce", 8, 449.51, True)
    empty = old([(1 << 27, 3298.6, 40.69, 20.35)]).replace("     sum", "        ")
    assert [r.busbw_gbs for r in nccl_tests.read(empty.encode(), "log").results] == [20.35, 20.35]


def test_wrong_and_unchecked_results():
    assert nccl_tests.read(new(ROW, "2.16.0", wrong="7").encode(), "x").results[0].correct is False
    assert nccl_tests.read(new(ROW, "2.16.0", wrong="1e+06").encode(), "x").results[0].correct is False
    assert nccl_tests.read(new(ROW, "2.16.0", wrong="N/A").encode(), "x").results[0].correct is None


@pytest.mark.parametrize("version", [1, 2, 3])
def test_json_of_nccl_tests(version):
    device = {"rank": 0, "hostname": "h100-0", "device_info": H100}
    group = {"time": 4478.8, "alg_bw": 239.74, "bus_bw": 449.51, "nwrong": 0.0}
    row = {"size": 1 << 30, "count": 1 << 28, "type": "float", "redop": "sum", "root": "    -1",
           "out_of_place": group, "in_place": {**group, "nwrong": None}, "experiment_name": "AllReduce"}  # fmt: skip
    document = {
        "version": version, "args": ["./all_reduce_perf", "-b", "1G"], "nccl_version": 22809,
        "config": {"nthreads": 1, "ngpus": 8, "devices": [device]}, "results": [row, {**row, "out_of_place": None}],
    }  # fmt: skip
    run = nccl_tests.read(json.dumps(document).encode(), "out.json")
    assert len(run.results) == 3
    assert (run.results[0].collective, run.results[0].ranks, run.nccl) == ("all_reduce", 8, "2.28.9")
    assert run.results[1].correct is None


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b'{"results": 3}',
        b"\x00\xff" * 50,
        b"# size time algbw busbw\n1 2 3\n",
        b"size a b algbw busbw c\n1 2 3 x y 6\n",
    ],
)
def test_what_is_no_output_of_nccl_tests(damage):
    with pytest.raises(UnreadableError):
        nccl_tests.read(damage, "x")


def test_a_cut_file_gives_what_is_whole():
    text = new(ROW * 3, "2.19.6")
    at = text.rfind("float") + 20
    assert len(nccl_tests.read(text[:at].encode(), "x").results) == 4


def test_judged_from_the_command_line(whichrank, tmp_path):
    file = tmp_path / "all_reduce.txt"
    file.write_text(new([(1 << 30, 2500.0, 208.6, 365.0)], "2.19.6"))
    done = whichrank("bench", "--read", file)
    assert done.returncode == 1
    assert "365 GB/s on an H100 node: NVLS is off" in done.stdout


PERF = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -J) exit 3;; -b) first=$2;; esac; shift; done
sed "s/SIZE/$first/" <<'END'
%s
END
"""


def test_programs_of_nccl_tests_are_found_and_run(whichrank, tmp_path):
    """An old build without -J: it is run again and its table is read. Others are missing, and told."""
    program = tmp_path / "all_reduce_perf"
    program.write_text(PERF % new(ROW, "2.13.0").replace("1073741824", "SIZE"))
    program.chmod(0o755)
    words = ("bench", "--backend", "nccl", "--sizes", "1G", "--nproc-per-node", 8, "--format", "json", "--nccl-tests")
    for given, path in (((tmp_path,), ""), ((), f"{tmp_path}:")):
        done = whichrank(*words, *given, PATH=f"{path}{os.environ['PATH']}")
        document = json.loads(done.stdout)
        assert document["results"][0]["bytes"] == 1 << 30, done.stderr
        assert "broadcast_perf is not there" in document["coverage"]["sources"][0]["note"]
    done = whichrank(*words, "/no/such/folder")
    assert done.returncode == 2


# -- curves


def test_a_picture_is_a_png():
    data = png(series([result(octets=1 << n, busbw=float(n)) for n in range(10, 30, 4)]), "bytes", "gb/s")
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    length = struct.unpack(">I", data[start - 8 : start - 4])[0]
    assert len(zlib.decompress(data[start : start + length])) == height * (width * 3 + 1)
    assert png({}, "", "")


def test_curves_beside_those_of_an_earlier_run():
    now = [result(busbw=400.0), result(busbw=410.0, in_place=True)]
    assert series(now, [result(busbw=470.0), result(octets=64, busbw=1.0)]) == {
        "all_reduce": [(1 << 30, 400.0)],
        "all_reduce, in place": [(1 << 30, 410.0)],
        "all_reduce, earlier": [(1 << 30, 470.0)],
    }


# -- the sweep


def noisy(speeds, seed, noise=0.08):
    dice = random.Random(seed)
    return lambda settings: speeds.get(tuple(settings.items()), 1.0) * dice.lognormvariate(0, noise)


TRIED = [{"NCCL_ALGO": a} for a in ("Ring", "Tree")] + [{"NCCL_PROTO": p} for p in ("LL", "LL128", "Simple")]


@pytest.mark.parametrize("seed", range(10))
def test_an_advantage_of_20_percent_is_found(seed):
    told = sweep(noisy({(("NCCL_PROTO", "LL128"),): 1.25}, seed, 0.04), TRIED, 60)
    assert told.winner == {"NCCL_PROTO": "LL128"}
    assert told.gain > 0.1


@pytest.mark.parametrize("seed", range(10))
def test_where_there_is_none_the_defaults_are_kept(seed):
    told = sweep(noisy({(("NCCL_ALGO", "Tree"),): 0.7}, 100 + seed), TRIED, 60)
    assert told.winner == {}


def test_settings_that_fail_cost_only_themselves():
    def run(settings):
        if settings.get("NCCL_PROTO") == "LL":
            raise UnreadableError("no result")
        return 1.3 if settings.get("NCCL_ALGO") == "Tree" else 1.0

    told = sweep(run, TRIED, 60)
    assert told.winner == {"NCCL_ALGO": "Tree"}
    assert [t.failed for t in told.trials if t.failed] == ["no result"]


@pytest.mark.parametrize("count", [1, 5])
def test_the_budget_is_kept_and_a_longer_one_proposed(monkeypatch, count):
    """By a clock of its own: ten seconds a run, a minute for all."""
    now = [0.0]

    def run(settings):
        now[0] += 10
        return 1.3 if settings else 1.0

    monkeypatch.setattr("whichrank.flows.bench.sweep.time.monotonic", lambda: now[0])
    told = sweep(run, TRIED[:count], 60)
    assert told.winner == {}
    assert told.seconds <= 60
    proposed = int(told.reason.rpartition("--budget ")[2])
    now[0] = 0.0
    assert sweep(run, TRIED[:count], proposed).winner
    assert now[0] <= proposed


def test_a_run_that_the_end_of_the_time_cuts_is_no_failure(monkeypatch):
    now, runs = [0.0], []

    def run(settings):
        runs.append(settings)
        now[0] += 10 if len(runs) < 6 else 40
        if now[0] > 80:
            raise UnreadableError("stopped after 3 s")
        return 1.3 if settings else 1.0

    monkeypatch.setattr("whichrank.flows.bench.sweep.time.monotonic", lambda: now[0])
    told = sweep(run, TRIED[:1], 80)
    assert told.winner == {}
    assert "too short to prove it" in told.reason


def test_the_defaults_fail_when_they_run_again():
    runs = []

    def run(settings):
        runs.append(settings)
        if not settings and runs.count({}) > 2:
            raise UnreadableError("stuck in all_reduce")
        return 1.3 if settings else 1.0

    told = sweep(run, TRIED[:1], 60)
    assert (told.winner, told.reason) == ({}, "a run of the rematch failed: stuck in all_reduce")


def test_only_what_the_hardware_allows_is_tried():
    alone = candidates("nccl", nodes=1, gpus=8, interfaces=["eth0"], hcas=["mlx5_0"])
    assert not [s for s in alone if "NCCL_IB_HCA" in s or "NCCL_SOCKET_IFNAME" in s]
    assert candidates("gloo", nodes=1, gpus=0, interfaces=["eth0"], hcas=[]) == []
    two = candidates("gloo", nodes=2, gpus=0, interfaces=["eth0", "eth1"], hcas=[])
    assert {"GLOO_SOCKET_IFNAME": "eth1"} in two


# -- the report


def shown(run):
    return "".join(report.text(SimpleNamespace(run=run, findings=[], coverage=Coverage())))


def test_the_work_of_every_rank_is_shown():
    told = shown(BenchRun(stragglers={"compute": [[0.010, 0.011, 0.012], [0.030]], "copies": [[], []]}))
    assert "compute: median 20.50 ms; rank 0 11.00 ms, rank 1 30.00 ms\n" in told
    assert "copies" not in told
    many = shown(BenchRun(stragglers={"compute": [[0.01 + rank / 1000] for rank in range(64)]}))
    assert "slowest: rank 63 73.00 ms, rank 62 72.00 ms, rank 61 71.00 ms\n" in many


def test_an_earlier_run_stands_beside():
    def result(time_us, **more):
        return BenchResult("all_reduce", 1024, "float", 2, time_us, 1.0, 1.0, True, **more)

    before = [result(100.0), result(50.0, in_place=True)]
    now = [result(110.0), result(40.0, in_place=True), replace(result(1.0), bytes=2048)]
    lines = shown(BenchRun(now, baseline=before)).splitlines()
    assert [line.split()[-3:] for line in lines if line.startswith("all_reduce")] == [
        ["-", "+10%", "yes"], ["yes,", "in", "place"], ["-", "new", "yes"],
    ]  # fmt: skip
    assert any("-20%" in line for line in lines)
