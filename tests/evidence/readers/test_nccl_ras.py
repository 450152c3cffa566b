"""RAS answers: exact on recorded ones, every shape of the source, broken ones too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import nccl_ras
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.records.ras import RasRank, RasReport

SAMPLES = Path(__file__).parents[2] / "samples" / "nccl"


def item(path: Path) -> Item:
    return Item(path, path.name, path.stat().st_size, 0)


def reports(data: bytes) -> list[RasReport]:
    return nccl_ras.scan(data, "ras").records


def report(name: str) -> RasReport:
    (found,) = nccl_ras.read(item(SAMPLES / name)).records
    assert isinstance(found, RasReport)
    return found


# ---- recorded answers


def test_a_hang_as_text() -> None:
    found = report("conditional/ras.txt")
    assert found.form == "text"
    assert found.job is not None
    assert (found.job.nodes, found.job.processes, found.job.gpus, found.job.uniform) == (1, 4, 4, True)
    (group,) = found.groups
    assert (group.number, group.comms) == (0, 1)
    assert (group.status, group.errors) == ("RUNNING", ("MISMATCH",))
    (mismatch,) = found.mismatches
    assert (mismatch.comm_id, mismatch.topic, mismatch.counts) == ("f454ca2af5587460", "AllReduce", (9, 11))
    most, few = mismatch.values
    assert (most.ranks_count, most.listed) == (3, ())
    assert few.listed == (RasRank(2, "127.0.0.1", 760, 0),)
    assert found.complete


def test_the_same_hang_as_text_and_as_json() -> None:
    text, json = report("host4/status.txt"), report("host4/status.json.txt")
    assert text.mismatches[0].comm_id == json.mismatches[0].comm_id == "e741cd1f09f63dfd"
    assert text.mismatches[0].topic == json.mismatches[0].topic == "AllReduce"
    assert text.mismatches[0].counts == json.mismatches[0].counts == (6, 5)
    most, few = json.mismatches[0].values
    assert [rank.rank for rank in most.listed] == [0, 1, 2]
    (rank,) = few.listed
    assert (rank.rank, rank.pid, rank.host, rank.status) == (3, 598, "192.0.2.2", "RUNNING")
    assert rank.counts == {"Broadcast": 1, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": 5}
    assert (json.time, json.comms[0].size) == ("2026-11-15 00:17:57", 4)


def test_two_ranks_are_both_named() -> None:
    (mismatch,) = report("host2/status.txt").mismatches
    assert [(value.value, value.listed[0].rank) for value in mismatch.values] == [("6", 0), ("5", 1)]


def test_a_refusal_above_the_report() -> None:
    assert report("host4/bad_command.txt").mismatches[0].counts == (6, 5)


def test_no_communicator_yet() -> None:
    found = report("missing_rank/ras.txt")
    assert found.no_data
    assert found.groups == []
    assert found.complete


def test_usage_of_the_client_is_no_report() -> None:
    path = SAMPLES / "missing_rank" / "ncclras_usage.txt"
    assert not nccl_ras.sniff(path.read_bytes(), path.name)
    assert nccl_ras.read(item(path)).quality == "unusable"


@pytest.mark.parametrize("name", ["conditional/ras.txt", "host4/status.json.txt", "host4/bad_command.txt"])
def test_sniffing(name: str) -> None:
    assert nccl_ras.sniff((SAMPLES / name).read_bytes()[:4096], "anything")


# ---- every shape that NVIDIA/nccl src/ras/client_support.cc prints

HEAD = """NCCL version {version} compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12090

"""
SUMMARY = """Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      3          8            1
      1          7            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      4         31           31

The outlier node:
  Node 10.0.0.4 running processes 11,12,13,14,15,16,17

Communicators... (5.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         2         4      7-8        31        62     ABORT  INCOMPLETE,ERROR,MISMATCH
    1         4         2         1         2         8      INIT      OK

"""
ERRORS = """Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 321 on node 10.0.0.9 managing GPU 3 (NVML 7)

DEAD
  2 job processes are considered dead (unreachable via the RAS network)
  Process 322 on node 10.0.0.9 managing GPU 4
  Process 323 on node 10.0.0.9 managing GPU 5

#0-1 (00000000000012ab) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 21 -- GPU 3 (NVML 7) managed by process 321 on node 10.0.0.9
  Rank 22 -- [process information not found]

#0-0 (fa93daea854b060b) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 21,22

#0-0 (fa93daea854b060b) ERROR
  Asynchronous errors on 3 ranks
  2 ranks reported System error
  Rank 4 reported Remote process error -- GPU 4 managed by process 44 on node 10.0.0.1

"""
WARNINGS = """Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different status
  29 ranks have status RUNNING
  Rank 9 has status ABORT -- GPU 1 managed by process 91 on node 10.0.0.2
  Communicator ranks have different AllGather operation counts
  28 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124
  Rank 14 has not launched any operations -- [process information not found]

"""


def test_every_block() -> None:
    (found,) = reports((HEAD.format(version="2.27.7") + SUMMARY + ERRORS + WARNINGS).encode())
    assert found.job is not None
    assert (found.job.nodes, found.job.processes, found.job.uniform) == (4, 31, False)
    assert found.job.outlier_nodes == ("10.0.0.4",)
    assert [(group.status, group.errors) for group in found.groups] == [
        ("ABORT", ("INCOMPLETE", "ERROR", "MISMATCH")),
        ("INIT", ()),
    ]
    missing, dead, few, old, errors, timeouts = found.problems
    assert (missing.kind, missing.comm_id, missing.count) == ("INCOMPLETE", None, 1)
    assert (missing.processes[0].pid, missing.processes[0].gpus) == (321, "3 (NVML 7)")
    assert (dead.kind, dead.count, [process.pid for process in dead.processes]) == ("DEAD", 2, [322, 323])
    assert few.comm_id == "00000000000012ab"
    assert few.ranks == (RasRank(21, "10.0.0.9", 321, 3, missing=True), RasRank(22, missing=True))
    assert [rank.rank for rank in old.ranks] == [21, 22]
    assert (errors.kind, errors.count, errors.ranks[0].pid) == ("ERROR", 3, 44)
    assert "2 ranks reported System error" in errors.text
    assert "Remote process error" in errors.text
    assert (timeouts.kind, timeouts.count) == ("TIMEOUT", 2)


def test_mismatches_with_and_without_names() -> None:
    (found,) = reports((HEAD.format(version="2.27.7") + SUMMARY + ERRORS + WARNINGS).encode())
    status, gather = found.mismatches
    assert (status.topic, status.counts) == ("status", None)
    assert [(value.value, value.ranks_count) for value in status.values] == [("RUNNING", 29), ("ABORT", 1)]
    assert (gather.topic, gather.counts) == ("AllGather", (640, 641, 0))
    assert [[rank.rank for rank in value.listed] for value in gather.values] == [[], [12, 13], [14]]


def test_the_single_counter_of_2_24() -> None:
    text = WARNINGS.replace("AllGather operation", "collective operation")
    (found,) = reports((HEAD.format(version="2.24.3") + SUMMARY + "Errors\n======\n\n" + text).encode())
    assert [mismatch.topic for mismatch in found.mismatches] == ["status", "collective"]


def test_two_reports_in_one_file_are_two() -> None:
    text = (SAMPLES / "host4" / "status.txt").read_bytes()
    assert [found.mismatches[0].counts for found in reports(text + text)] == [(6, 5), (6, 5)]


def test_ranks_missing_in_json() -> None:
    text = (SAMPLES / "host2" / "status.json.txt").read_text()
    absent = (
        '"missing_ranks": [{"rank": 5, "host": "10.0.0.1", "pid": 9, "cuda_dev": 1, "nvml_dev": 2, '
        '"status": {"unresponsive": true, "considered_dead": false}}]'
    )
    changed = (
        text[: text.index('"missing_ranks": [')]
        + absent
        + text[text.index("]", text.index('"missing_ranks": [')) + 1 :]
    )
    (found,) = reports(changed.encode())
    (rank,) = found.comms[0].missing
    assert (rank.rank, rank.missing, rank.pid) == (5, True, 9)


def test_a_stopped_rank_in_json_that_lacks_a_comma() -> None:
    """As NCCL 2.28.9 writes it: strict JSON it is not, and the one rank that matters stands there."""
    found = report("stopped/status.json")
    assert found.complete
    assert {rank.pid for comm in found.comms for rank in comm.missing} == {429}
    assert sorted(len(comm.ranks) for comm in found.comms) == [1, 2, 3]


def test_events_as_text_and_as_json() -> None:
    text = b"OK\n[2026-11-15 00:18:01] PEER_DEAD: Process 9 on node 10.0.0.1 managing GPUs 0,1 unreachable\n"
    (found,) = reports(text)
    (event,) = found.events
    assert (found.form, event.name, event.time) == ("events", "PEER_DEAD", "2026-11-15 00:18:01")
    assert event.process is not None
    assert (event.process.host, event.process.pid) == ("10.0.0.1", 9)
    json = b"""{
  "timestamp": "2026-11-15 00:18:01", "group": "LIFECYCLE", "event": "PEER_DEAD",
  "peer": {"host": "10.0.0.1", "pid": 9, "cuda_devs": [0, 1], "nvml_devs": [0, 1]}, "details": "x"
}
"""
    assert nccl_ras.sniff(json, "events")
    (found,) = reports(json + json)
    assert [(event.name, event.process and event.process.gpus) for event in found.events] == [("PEER_DEAD", "0,1")] * 2


# ---- broken and hostile answers


def test_broken_json_gives_the_ranks_before_the_break() -> None:
    data = (SAMPLES / "host4" / "status.json.txt").read_bytes()
    cut = data[: data.index(b'"rank": 3') + 30]
    reading = nccl_ras.scan(cut, "ras")
    (found,) = reading.records
    assert reading.quality == "partial"
    assert not found.complete
    assert [rank.rank for rank in found.comms[0].ranks] == [0, 1, 2]
    assert found.comms[0].size == 4


def test_text_that_breaks_off_says_so() -> None:
    data = (SAMPLES / "host4" / "status.txt").read_bytes()
    reading = nccl_ras.scan(data[: data.index(b"Warnings")], "ras")
    assert reading.quality == "partial"
    assert reading.records[0].groups[0].errors == ("MISMATCH",)


@pytest.mark.parametrize(
    "data",
    [
        b'{"nccl_version": "1", "communicators": ' + b"[" * 200_000,
        b'{"communicators": 5, "ras": []}',
        b'{"communicators": [{"hash": 5, "ranks": [{"rank": "x", "status": 1.5, "collective_counts": []}]}]}',
        b'{"hash": "0xa", "ranks": [' + b'{"rank": ' * 50_000,
        b"NCCL version 2.28.9 compiled with CUDA 13.0\nWarnings\n" + b"  Rank 1 -- GPU 0 managed" * 50_000,
        b"NCCL version 2.28.9 compiled with CUDA 13.0\nErrors\n#0-0 (a) ERROR\n" + b"  2 ranks reported x\n" * 50_000,
        b"{\n" * 100_000,
        b"NCCL version 2.28.9 compiled with CUDA 13.0\nWarnings\n#0-0 (a) MISMATCH\n"
        b"  Communicator ranks have different status\n" + b"  2 ranks have status INIT\n" * 100_000,
    ],
    ids=range(8),
)
def test_hostile_answers_cost_little(data: bytes) -> None:
    with cost.at_most(4):
        nccl_ras.scan(data, "ras")


def test_a_giant_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ras.txt"
    path.write_bytes(b"SERVER PROTOCOL 2\n")
    with pytest.raises(UnreadableError):
        nccl_ras.read(Item(path, "ras.txt", 1 << 40, 0))


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    names = ["host4/status.txt", "host4/status.json.txt", "missing_rank/ras.txt"]
    source = (SAMPLES / data.draw(st.sampled_from(names))).read_bytes()
    if data.draw(st.booleans()):
        source = (HEAD.format(version="2.27.7") + SUMMARY + ERRORS + WARNINGS).encode()
    text = bytearray(source)
    for _ in range(data.draw(st.integers(1, 15))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 120)))
        text[begin:end] = data.draw(
            st.one_of(st.just(b""), st.binary(max_size=30), st.just(bytes(text[end : end + 60])))
        )
    nccl_ras.scan(bytes(text), "ras")
