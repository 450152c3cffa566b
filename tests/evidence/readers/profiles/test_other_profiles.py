"""Nsight Systems exports and NCCL Inspector logs. Constructed: none of either can be recorded without a GPU.

The tables follow Nsight Systems' documented export schema, the lines NCCL's ext-profiler/inspector/README.
"""

from __future__ import annotations

import json
import sqlite3

import pytest

from whichrank.evidence.readers import nccl_inspector, nsys
from whichrank.flows.trace.analyse import trace
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError


def export(path, rank_late=0):
    base = sqlite3.connect(path)
    base.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE TARGET_INFO_GPU (name TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, demangledName INTEGER, shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, copyKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, nameId INTEGER, globalTid INTEGER,
            correlationId INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
            globalTid INTEGER);
        INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H100 80GB HBM3');
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)'),
            (3, 'cudaLaunchKernel_v7000'), (4, 'step');
    """)
    for step in range(3):
        t = 1_000_000 + step * 1_000_000
        base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, 4, 7)", (t - 1000, t + 990_000))
        base.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, 1, 1)",
            (t, t + 400_000 + rank_late, 10 * step),
        )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 9, ?, 2, 2)",
                     (t + 400_000 + rank_late, t + 800_000, 10 * step + 1))  # fmt: skip
        base.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 7, ?, 1)",
            (t + 800_000, t + 850_000, 10 * step + 2),
        )
        for n in range(3):
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 3, 7, ?)", (t - 500, t - 400, 10 * step + n)
            )
    base.commit()
    base.close()


def test_an_export_of_nsight_systems(tmp_path):
    export(tmp_path / "rank0.sqlite")
    report = trace([tmp_path])
    (one,) = report.ranks
    assert one.steps == 3
    assert report.coverage.sources[0].reader == "nsys"
    assert one.compute_pct == pytest.approx(100 * 400 / 1000, rel=0.06)
    assert one.exposed_pct == pytest.approx(100 * 400 / 1000, rel=0.06)
    assert one.overlap_pct == 0


def test_another_database_is_not_an_export(tmp_path):
    base = sqlite3.connect(tmp_path / "other.sqlite")
    base.execute("CREATE TABLE notes (text TEXT)")
    base.commit()
    base.close()
    path = tmp_path / "other.sqlite"
    assert nsys.read(Item(path, path.name, 1, 0)).quality == "ignored"
    path.write_bytes(b"SQLite format 3\x00" + bytes(4000))
    with pytest.raises(UnreadableError):
        nsys.read(Item(path, path.name, 1, 0))


def line(rank, number, start, length, **extra):
    return json.dumps({
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 4, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": start + length + 700,
                     "hostname": "node0", "pid": 100 + rank},
        "coll_perf": {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 64 << 20,
                      "coll_exec_time_us": length,
                      "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.5,
                      "event_trace_ts": {"coll_start_ts": start - 50, "coll_stop_ts": start - 45, "kernel_events": [
                          {"channel_id": 0, "kernel_start_ts": start, "kernel_stop_ts": start + length}]}, **extra},
    })  # fmt: skip


def test_logs_of_nccls_inspector_name_the_late_rank(tmp_path):
    for rank in range(4):
        late = 3000 if rank == 2 else 0
        lines = [line(rank, n, 1_752_867_229_000_000 + n * 20_000 + late, 5000 - late) for n in range(20)]
        (tmp_path / f"host-pid{rank}.log").write_text("\n".join(lines) + "\n")
    report = trace([tmp_path])
    assert [one.rank for one in report.ranks] == [0, 1, 2, 3]
    (kind,) = report.collectives
    assert (kind.op, kind.ranks, kind.bytes) == ("all_reduce", 4, 64 << 20)
    assert kind.moving_us == pytest.approx(2000, rel=0.01)
    assert kind.busbw_gbs == pytest.approx((64 << 20) / 2e-3 / 1e9 * 1.5, rel=0.01)
    assert [late.rank for late in report.stragglers] == [2]


def test_a_damaged_log_is_read_in_part(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(line(0, 1, 1000, 5) + "\nrubbish\n" + line(0, 2, 2000, 5)[:40])
    reading = nccl_inspector.read(Item(path, path.name, 1, 0))
    assert (reading.quality, reading.note) == ("partial", "1 collectives; 2 lines are none")
    path.write_text('{"header": 1, "coll_perf": 2}')
    with pytest.raises(UnreadableError):
        nccl_inspector.read(Item(path, path.name, 1, 0))


def test_one_export_with_all_processes_of_a_host(tmp_path):
    """`nsys profile torchrun …` writes one file; the upper bits of a thread's number are its process."""
    base = sqlite3.connect(tmp_path / "report1_host.sqlite")
    base.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, nameId INTEGER, globalTid INTEGER,
            correlationId INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
            globalTid INTEGER);
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)'),
            (3, 'cudaLaunchKernel_v7000'), (4, 'step');
    """)
    for device in range(4):
        process = (1000 - device) << 24
        late = 300_000 if device == 1 else 0
        for step in range(4):
            t = 1_000_000 + step * 1_000_000
            work = (t, t + 400_000 + late, device, 7, step, process, 1)
            reduce = (t + 400_000 + late, t + 900_000, device, 20, 100 + step, process, 2)
            base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", [work, reduce])
            for link in (step, 100 + step):
                call = (t - 9000, t - 8000, 3, process | 7, link)
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, 4, ?)", (t - 9500, t + 950_000, process | 7))
    base.commit()
    base.close()
    report = trace([tmp_path])
    assert [one.rank for one in report.ranks] == [0, 1, 2, 3]
    assert [round(one.compute_pct) for one in report.ranks] == [41, 72, 41, 41]
    assert [(late.rank, late.reason) for late in report.stragglers] == [(1, "compute")]


def test_a_database_whose_own_complaint_is_no_text(tmp_path):
    """SQLite quotes the broken name of a table in its message, and Python decodes that strictly."""
    path = tmp_path / "broken.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE AAAAAAAA(x)")
    base.close()
    content = path.read_bytes().replace(b"CREATE TABLE AAAAAAAA(x)", b"CREATE TABLE \xa6\xa6\xa6\xa6\xa6\xa6(x y(")
    path.write_bytes(content.replace(b"AAAAAAAA", b"\xa6" * 8))
    with pytest.raises(UnreadableError):
        nsys.read(Item(path, path.name, len(content), 0))
