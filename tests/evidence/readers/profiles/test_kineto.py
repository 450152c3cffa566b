"""Profiles in Chrome's format: recorded, constructed in all their variants, cut and damaged."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from tests.traces import ALL_REDUCE, job
from whichrank.evidence.intake import claims
from whichrank.evidence.readers import kineto
from whichrank.evidence.readers.kineto import table
from whichrank.evidence.trace_files import is_trace, is_trace_file
from whichrank.facts.collective_names import operation
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.records.profiles.trace import COMMUNICATION, COMPUTE, MEMORY

SAMPLES = Path(__file__).parents[3] / "samples" / "traces" / "gloo_data_4rank"


def read(path):
    return kineto.read(Item(path, path.name, path.stat().st_size, 0))


def written(path, document):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def kernel(name="gemm", ts=1.0, dur=2.0, cat="kernel", **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": ts,
        "dur": dur,
        "args": {"stream": 7, **args},
    }


def test_the_recorded_sample():
    reading = read(SAMPLES / "rank-2.json.gz")
    (trace,) = reading.records
    assert (reading.quality, trace.events, trace.rank, trace.world) == ("complete", 3125, 2, 4)
    assert (trace.backend, trace.host_name, len(trace.device)) == ("gloo", "vm", 0)
    assert trace.only_group is not None
    assert trace.only_group.ranks == (0, 1, 2, 3)
    assert (trace.host.kind == COMMUNICATION).sum() == 20
    assert trace.profiler_steps == 5
    assert trace.base_ns == 1790857026000000000


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("form", ["object", "array", "open array", "keys after"])
def test_every_form_reads_the_same(tmp_path, suffix, indent, form, monkeypatch):
    monkeypatch.setattr("whichrank.evidence.trace_files.PIECE", 4096)  # many cuts in a small file
    (first, *_) = job(tmp_path / "job", world=1, steps=6)
    document = first.document()
    if form == "array":
        text = json.dumps(document["traceEvents"], indent=indent)
    elif form == "open array":
        text = json.dumps(document["traceEvents"], indent=indent).rstrip().removesuffix("]")
    elif form == "keys after":
        found = document.pop("traceEvents")
        text = json.dumps({"traceEvents": found, **document}, indent=indent)
    else:
        text = json.dumps(document, indent=indent)
    path = written(tmp_path / f"rank-0{suffix}", text.encode())
    assert is_trace(path.read_bytes()[:4096])
    assert is_trace_file(Item(path, path.name, path.stat().st_size, 0))
    (trace,) = read(path).records
    assert trace.rank == 0
    assert len(trace.device) == 6 * 6
    assert (trace.device.kind == COMMUNICATION).sum() == 6
    assert trace.events == len(first.events)
    assert int((trace.device.end - trace.device.start).sum()) == 6 * (100 + 3000 + 500 + 200) * 1000


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "trace.json.zst"
    path.write_bytes(zstandard.compress(json.dumps([kernel()]).encode()))
    assert len(read(path).records[0].device) == 1


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_cut_file_is_read_to_the_cut(tmp_path, share, suffix):
    whole = gzip.decompress((SAMPLES / "rank-0.json.gz").read_bytes())
    if suffix == ".json":
        text = whole[: int(share * len(whole))]
    else:
        text = gzip.compress(whole)
        text = text[: int(share * len(text))]
    path = tmp_path / f"rank-0{suffix}"
    path.write_bytes(text)
    reading = read(path)
    assert reading.quality == "partial"
    assert "ends" in reading.note
    assert 0.5 * share * 3125 < reading.records[0].events <= 3125


def test_what_is_not_quite_json_is_mended(tmp_path):
    lines = [json.dumps(kernel(f"k{i}", ts=i * 10.0)) for i in range(50)]
    lines[3] = lines[3].replace('"stream": 7', '"stream": 7, "occupancy": nan, "other": -Infinity')
    lines[7] = lines[7].replace('"stream": 7', '"stream": 7, "Process Group Description": ')
    lines[11] = lines[11].replace('"k11"', '"C:\\path\\k11"')
    lines[13] = lines[13].replace('"k13"', '"k\t13"')
    lines[17] = lines[17].replace('"stream": 7', '"stream": 7, "list": [{"a": 1}, {"b": 2}]')
    path = written(tmp_path / "t.json", ('{"traceEvents": [' + ", ".join(lines) + "]}").encode())
    reading = read(path)
    assert len(reading.records[0].device) == 50
    assert reading.quality == "complete"
    lines[20] = '{"ph": "X", "cat": "kernel", "name": "broken'
    path = written(tmp_path / "t.json", ('{"traceEvents": [' + ", ".join(lines) + "]}").encode())
    reading = read(path)
    assert len(reading.records[0].device) in (48, 49)
    assert "not valid JSON" in reading.note


def test_nanoseconds_survive_microseconds_since_1970(tmp_path):
    text = '[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,'
    text += '"ts":1683564901548726.123,"dur":0.457,"args":{"stream":7}}]'
    (trace,) = read(written(tmp_path / "t.json", text.encode())).records
    assert (int(trace.device.start[0]), int(trace.device.end[0])) == (1683564901548726123, 1683564901548726580)
    (trace,) = read(written(tmp_path / "u.json", [kernel(ts=1683564901548726, dur=3)])).records
    assert int(trace.device.start[0]) == 1683564901548726000


ERAS = [
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
    ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "broadcast"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "reduce_scatter"),
    (ALL_REDUCE, "all_reduce"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
    ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs const*)", "all_gather"),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", ""),
    ("mscclKernel_Sum_half_SimpleLL(mscclWork)", ""),
    ("void vllm::cross_device_reduce_1stage<float, 2>(RankData*, RankSignals)", "reduce"),
    ("void c10d::symmetric_memory::one_shot_all_reduce_kernel<float>", "all_reduce"),
]


@pytest.mark.parametrize(("name", "op"), ERAS)
def test_communication_kernels_of_every_era(tmp_path, name, op):
    (trace,) = read(written(tmp_path / "t.json", [kernel(name)])).records
    assert trace.device.kind.tolist() == [COMMUNICATION]
    assert operation(name) == op


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (kernel("triton_red_fused_all_reduce_add_3"), COMPUTE),
        (kernel("void at::native::reduce_kernel<512, 1>"), COMPUTE),
        (kernel("Memcpy HtoD (Pinned -> Device)", cat="gpu_memcpy"), MEMORY),
        (kernel("CopyHostToDevice", cat="gpu_memcpy"), MEMORY),
        (kernel("__amd_rocclr_fillBufferAligned", stream=0), MEMORY),
        (kernel("Cijk_Alik_Bljk_HB", cat="Kernel"), COMPUTE),
        (kernel("any", stream="stream 7"), COMPUTE),
        (kernel("renamed", **{"Collective name": "all_gather"}), COMMUNICATION),
    ],
)
def test_kinds_of_device_work(tmp_path, event, kind):
    (trace,) = read(written(tmp_path / "t.json", [event])).records
    assert trace.device.kind.tolist() == [kind]


def test_calls_of_the_driver_with_streams_are_the_hosts(tmp_path):
    rocm = [
        {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 9, "tid": 9, "ts": 1, "dur": 1,
         "args": {"stream": "0x55", "correlation": 5, "kernel": "k"}},
        kernel("k", ts=5, correlation=5),
    ]  # fmt: skip
    (trace,) = read(written(tmp_path / "t.json", rocm)).records
    assert (len(trace.device), len(trace.host)) == (1, 1)


def test_devices_by_the_names_of_their_processes(tmp_path):
    xla = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 13, "args": {"name": "Stream #13(compute)"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 99, "args": {"name": "XLA Modules"}},
        {"ph": "X", "name": "fusion.3", "pid": 1, "tid": 13, "ts": 0, "dur": 10},
        {"ph": "X", "name": "all-reduce.1", "pid": 1, "tid": 13, "ts": 10, "dur": 5},
        {"ph": "X", "name": "jit_step", "pid": 1, "tid": 99, "ts": 0, "dur": 15},
        {"ph": "X", "name": "PjitFunction", "pid": 2, "tid": 1, "ts": 0, "dur": 3},
    ]
    (trace,) = read(written(tmp_path / "t.json", {"traceEvents": xla})).records
    assert trace.device.kind.tolist() == [COMPUTE, COMMUNICATION]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-3.json.gz", 3), ("rank3_trace.json", 3), ("trace_rank_12.pt.trace.json", 12),
        ("worker0.pt.trace.json", 0),
        ("node7_4242.1690000000000.pt.trace.json.gz", None), ("trace.json", None), ("7.json", 7),
        ("pid_123456.json", None),
    ],
)  # fmt: skip
def test_ranks_by_file_names(name, rank):
    assert kineto.rank_of_name(f"runs/2024/{name}") == rank


def test_odd_types_cost_only_what_is_odd(tmp_path):
    odd = [kernel(), {**kernel("b"), "ts": "12"}, {**kernel("c"), "pid": [1]}, {**kernel("d"), "args": 3},
           {**kernel("e"), "dur": None}, {"ph": "Q"}, {"name": "no phase"}, {**kernel("f"), "name": 3}]  # fmt: skip
    reading = read(written(tmp_path / "t.json", {"traceEvents": odd}))
    assert len(reading.records[0].device) >= 2


def test_too_many_spans_and_names_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "MOST_SPANS", 100)
    monkeypatch.setattr(table, "MOST_NAMES", 5)
    monkeypatch.setattr("whichrank.evidence.trace_files.PIECE", 4096)
    many = written(tmp_path / "t.json", [kernel(f"name {i}", ts=i) for i in range(2000)])
    (trace,) = read(many).records
    assert 100 <= len(trace.device) < 300
    assert len(trace.names) <= 8


@pytest.mark.parametrize(
    "data", [b"{", b'{"schemaVersion": 1, "deviceProperties": []', b'{"traceEvents": 3}', b"[" * 100_000]
)
def test_what_holds_no_events_is_unreadable(tmp_path, data):
    path = tmp_path / "t.json"
    path.write_bytes(data)
    try:
        reading = read(path)
    except UnreadableError:
        return
    assert reading.quality == "partial" or not len(reading.records[0].device)


def test_other_json_is_not_a_trace():
    assert not is_trace(b'{"version": "2.10", "entries": []}')
    assert not is_trace(b'[{"rank": 1}]')
    assert not is_trace(b"\x1f\x8b not really gzip")


def test_spans_are_in_order_of_time():
    (trace,) = read(SAMPLES / "rank-1.json.gz").records
    assert (np.diff(trace.host.start) >= 0).all()


@pytest.mark.parametrize("ts", ["1e400", "99999999999999999999999999999.125", "-99999999999999999999999999999.125"])
def test_times_beyond_any_clock(tmp_path, ts):
    text = json.dumps({"traceEvents": [kernel(), kernel(ts=2.5)]}).replace('"ts": 2.5', f'"ts": {ts}')
    try:
        (trace,) = read(written(tmp_path / "trace.json", text.encode())).records
    except UnreadableError:
        return
    assert trace.events


def test_decimal_times_beyond_any_clock_are_bounded():
    from decimal import Decimal

    assert table._nanoseconds([Decimal(1), Decimal("9" * 40)])[0] == 1000
    with pytest.raises(TypeError):
        table._nanoseconds([Decimal(1), Decimal("NaN")])


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_events_may_begin_far_behind_the_head(tmp_path, suffix):
    """Tools note the whole machine and all packages before the events."""
    noise = {f"package {i}": random.Random(i).randbytes(40).hex() for i in range(1000)}
    text = json.dumps({"metadata": noise, "traceEvents": [kernel("k", ts=1)]})
    path = written(tmp_path / f"rank-0{suffix}", text.encode())
    item = Item(path, path.name, path.stat().st_size, 0)
    assert not is_trace(item.head())
    assert is_trace_file(item)
    assert [reader.NAME for reader in claims(item)] == ["kineto"]
    assert len(read(path).records[0].device) == 1


def test_another_json_is_no_trace(tmp_path):
    path = written(tmp_path / "a.json", json.dumps({"ph": "X", "list": list(range(5000))}).encode())
    assert not is_trace_file(Item(path, path.name, path.stat().st_size, 0))
