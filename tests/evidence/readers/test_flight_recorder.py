"""Dumps of all versions as columns, held against CPython's Unpickler on trusted files."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from tests.evidence.readers.torchlike import START_NS, dump, entry, frames, torch_pickle
from whichrank.evidence.readers import flight_recorder as reader
from whichrank.evidence.readers.flight_recorder import host_from_name, rank_from_name
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.records.dump import COMPLETED, OTHER_STATE, SCHEDULED, STATES, Frame, GroupStatus, LocalGroup

SAMPLES = Path(__file__).parents[2] / "samples" / "flight_recorder"
SHARED = Path(os.environ.get("WHICHRANK_SHARED", Path(__file__).parents[4] / "shared")) / "cases"
FILES = sorted(SAMPLES.rglob("fr_*")) + sorted(SHARED.glob("*nccl_h200*/*/fr_*"))


def read(tmp_path, data, name="fr_3"):
    path = tmp_path / name
    path.write_bytes(data)
    return reader.read(Item(path, name, len(data), 7))


def one(tmp_path, data, name="fr_3"):
    reading = read(tmp_path, data, name)
    assert len(reading.records) == 1
    return reading.records[0]


def expected_row(made, n):
    """A row of the columns, made from a plainly decoded entry by other means."""
    backend, _, op = made["profiling_name"].rpartition(":")
    pair = made.get("process_group", ("", ""))
    return {
        "record_id": made.get("record_id", n),
        "seq": made.get("collective_seq_id", made.get("seq_id")),
        "p2p_seq": made.get("p2p_seq_id", 0),
        "created_ns": made.get("time_created_ns") or made["time_created_us"] * 1000,
        "completed_ns": made.get("time_discovered_completed_ns") or 0,
        "duration_ms": np.float32(made.get("duration_ms", math.nan)),
        "state": STATES[made["state"]],
        "retired": made["retired"],
        "group": (made["pg_id"], *pair),
        "op": op,
        "backend": backend,
        "sizes": [made["input_sizes"], made["output_sizes"]],
        "dtypes": [made.get("input_dtypes", []), made.get("output_dtypes", [])],
        "stack": [(f["name"], f["filename"], f["line"]) for f in made.get("frames", [])],
        "thread": made.get("thread_name", ""),
        "p2p": made.get("is_p2p", False),
        "timeout_ms": made.get("timeout_ms"),
    }


def actual_row(got, n):
    call, group = got.calls[got.call[n]], got.groups[got.group[n]]
    return {
        **{name: getattr(got, name)[n].item() for name in
           ("record_id", "seq", "p2p_seq", "created_ns", "completed_ns", "state", "retired")},
        "duration_ms": got.duration_ms[n],
        "group": (group.pg_id, group.name, group.desc),
        "op": call.op,
        "backend": call.backend,
        "sizes": [[list(dims) for dims in sizes] for sizes in (call.input_sizes, call.output_sizes)],
        "dtypes": [list(call.input_dtypes), list(call.output_dtypes)],
        "stack": [(f.function, f.file, f.line) for f in call.stack],
        "thread": call.thread,
        "p2p": call.p2p,
        "timeout_ms": call.timeout_ms,
    }  # fmt: skip


def assert_same(got, entries):
    assert len(got) == len(entries)
    for n, made in enumerate(entries):
        left, right = actual_row(got, n), expected_row(made, n)
        assert np.array_equal(left.pop("duration_ms"), right.pop("duration_ms"), equal_nan=True)
        assert left == right


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_recorded_dumps_equal_the_reference(path):
    data = path.read_bytes()
    top = json.loads(data) if path.suffix == ".json" else pickle.loads(data)
    assert reader.sniff(data[:4096], path.name)
    reading = reader.read(Item(path, path.name, len(data), 1))
    assert reading.quality == "complete"
    got = reading.records[0]
    for made in top["entries"]:
        made["process_group"] = tuple(made["process_group"])
    assert_same(got, top["entries"])
    assert got.version == (2, 10)
    assert got.comm_lib == top["comm_lib_version"]
    assert got.has_frames == (path.suffix != ".json")
    assert got.newest_ns == max(
        value or 0 for e in top["entries"] for key, value in e.items() if key.startswith("time_")
    )


def test_a_recorded_nccl_dump_in_detail():
    path = SAMPLES / "nccl_dataloader_stall" / "fr_1"
    got = reader.read(Item(path, "run/fr_1", 0, 5)).records[0]
    assert got.rank == 1
    assert got.mtime_ns == 5
    assert got.groups == [LocalGroup(0, "0", "default_pg", (0, 1, 2, 3))]
    assert got.status[0].enqueued == got.seq[-1]
    assert not got.capacity_wrapped
    assert got.state[-1] == COMPLETED
    assert got.calls[got.call[0]].stack[-1] == Frame("<module>", "/home/user/train/jobs/train_lm.py", 98)


def test_gloo_dumps_do_not_say_who_is_in_a_group():
    path = SAMPLES / "gloo_skip" / "fr_trace_rank_2"
    got = reader.read(Item(path, path.name, 0, 0)).records[0]
    assert {group.name for group in got.groups} == {"0", "2"}
    assert all(group.members is None for group in got.groups)
    assert {call.backend for call in got.calls} == {"gloo"}
    assert set(got.state) == {SCHEDULED}


@pytest.mark.parametrize("writer", ["torch", "protocol2", "protocol4", "json"])
@pytest.mark.parametrize("first", [0, 250, 65_530, 2**31 - 700])
def test_long_dumps_of_every_writer(tmp_path, writer, first):
    top, shared = dump(600, first=first)
    if writer == "json":
        for made in top["entries"]:
            made["process_group"] = list(made["process_group"])
        data = json.dumps(top).encode()
    else:
        data = torch_pickle(top, shared) if writer == "torch" else pickle.dumps(top, int(writer[-1]))
    got = one(tmp_path, data)
    for made in top["entries"]:
        made["process_group"] = tuple(made["process_group"])
    assert_same(got, top["entries"])
    assert got.capacity_wrapped == (first > 0)
    assert got.status == {0: GroupStatus(9, 8, 7)}
    assert {group.name: group.members for group in got.groups} == {"0": (0, 1, 2, 3), "1": (0, 1)}


def test_call_sites_in_random_order(tmp_path):
    rng = random.Random(5)
    stacks = [frames(site, depth=2 + site % 5) for site in range(40)]
    entries = []
    for n in range(1500):
        site = rng.randrange(40)
        entries.append(entry(n, site, stacks[site], rng.choice([3, 300, 70_000]), p2p_seq_id=rng.choice([0, 900])))
    got = one(
        tmp_path,
        torch_pickle({"version": "2.10", "entries": entries}, [f for stack in stacks for f in stack]),
    )
    assert_same(got, entries)
    assert len(got.calls) == 40


def test_torch_2_2_writes_a_bare_list(tmp_path):
    entries = [
        {"pg_id": 0, "seq_id": n + 1, "profiling_name": "nccl:all_reduce",
         "time_created_us": START_NS // 1000 + n, "input_sizes": [[3]], "output_sizes": [[3]],
         "state": "completed", "retired": True, "frames": frames(1)}
        for n in range(40)
    ]  # fmt: skip
    data = torch_pickle(entries)
    assert reader.sniff(data[:4096], "x")
    got = one(tmp_path, data)
    assert_same(got, entries)
    assert got.version == (0, 0)
    assert got.groups == [LocalGroup(0, "", "", None)]
    assert got.created_ns[3] == (START_NS // 1000 + 3) * 1000
    assert not got.capacity_wrapped
    assert one(tmp_path, torch_pickle(entries[7:])).capacity_wrapped


def test_version_1_has_members_by_group_number_behind_the_entries(tmp_path):
    entries = [
        {"record_id": n, "pg_id": n % 2, "seq_id": n // 2, "op_id": n, "profiling_name": "nccl:all_reduce",
         "time_created_ns": START_NS + n, "input_sizes": [[3]], "output_sizes": [[3]], "state": "started",
         "time_discovered_started_ns": START_NS + 2 * n, "time_discovered_completed_ns": None,
         "retired": False, "frames": frames(1)}
        for n in range(40)
    ]  # fmt: skip
    got = one(
        tmp_path,
        torch_pickle({"entries": entries, "version": "1.4", "pg_config": {0: [0, 1, 2], 1: [2, 5], 2: [2]}}),
    )
    assert_same(got, entries)
    assert got.version == (1, 4)
    assert [(group.pg_id, group.members) for group in got.groups] == [(0, (0, 1, 2)), (1, (2, 5)), (2, (2,))]


def test_a_newer_version_with_unknown_keys(tmp_path):
    top, shared = dump(300)
    for n, made in enumerate(top["entries"]):
        made["novel"] = {"n": n % 2}
        made["weight"] = n
    top.update(
        version="3.0",
        surprise=[1, 2],
        pg_config={**top["pg_config"], "9": {"name": "9", "desc": "d", "ranks": "[]"}},
    )
    got = one(tmp_path, torch_pickle(top, shared))
    assert_same(got, top["entries"])
    assert got.version == (3, 0)
    assert got.groups[2] == LocalGroup(-1, "9", "d", None)


def test_without_frames_the_dump_says_so(tmp_path):
    top, _ = dump(30)
    for made in top["entries"]:
        del made["frames"]
    assert not one(tmp_path, torch_pickle(top)).has_frames


def test_entries_are_put_in_order(tmp_path):
    top, shared = dump(30)
    top["entries"].reverse()
    assert one(tmp_path, torch_pickle(top, shared)).record_id.tolist() == list(range(30))


def test_a_name_that_came_back_has_the_members_of_its_newest_group_only(tmp_path):
    entries = [entry(n, 0, [], n, pg_id=n, process_group=("0", "default_pg")) for n in range(2)]
    top = {"entries": entries, "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}}
    assert [group.members for group in one(tmp_path, torch_pickle(top)).groups] == [None, (0, 1)]


@pytest.mark.parametrize(
    ("ranks", "members"),
    [
        ("[0, 1, 2]", (0, 1, 2)), ("[7]", (7,)), ([3, 4], (3, 4)), ("0, 1", (0, 1)), ("[]", None), ("", None),
        ("[0, x]", None), ("[1,,2]", None), ("__import__('os')", None), ("[-1]", None), ([True, "a"], None),
        (None, None),
        (f"[{10**30}]", None), ("[" + "0, " * 3_000_000 + "0]", None), (list(range(100)), tuple(range(100))),
    ],
)  # fmt: skip
def test_ranks_of_pg_config(tmp_path, ranks, members):
    top = {"entries": [], "pg_config": {"0": {"name": "0", "desc": "", "ranks": ranks}}}
    assert [group.members for group in one(tmp_path, pickle.dumps(top, 2)).groups] == [members]


def test_a_truncated_pickle_is_partial(tmp_path):
    top, shared = dump(200)
    data = torch_pickle(top, shared)
    reading = read(tmp_path, data[: len(data) * 2 // 3])
    got = reading.records[0]
    assert reading.quality == "partial"
    assert 100 < len(got) < 200
    assert f"{len(got)} entries" in reading.note
    assert_same(got, top["entries"][: len(got)])


def test_a_truncated_json_is_partial(tmp_path):
    data = (SAMPLES / "nccl_single" / "fr_api_rank0.json").read_bytes()
    reading = read(tmp_path, data[: len(data) // 2], "x.json")
    assert reading.quality == "partial"
    assert 10 < len(reading.records[0]) < 39


def test_json_of_python_programs(tmp_path):
    made = {
        **entry(0, 0, [], 5),
        "duration_ms": math.nan,
        "seq_id": 10**40,
        "time_discovered_completed_ns": 10**30,
    }
    text = json.dumps({"version": "2.10", "entries": [made, 7, None, {"profiling_name": 3}, {}]})
    text = text.replace('"version"', '"version": "1.0", "version"')
    reading = read(tmp_path, text.encode(), "dump.json")
    got = reading.records[0]
    assert reading.quality == "partial"
    assert "3 could not be read" in reading.note
    assert got.version == (2, 10)
    assert got.seq.tolist() == [5, 0]
    assert got.completed_ns.tolist() == [0, 0]
    assert got.state.tolist() == [COMPLETED, OTHER_STATE]


def test_a_json_without_entries_is_complete(tmp_path):
    reading = read(tmp_path, b'{"nccl_comm_state":{},"pg_config":{},"pg_status":{},"version":"2.10"}', "x.json")
    assert reading.quality == "complete"
    assert len(reading.records[0]) == 0


def test_wrong_types_everywhere_are_survived(tmp_path):
    wrong = [None, 1, "x", [], {}, ["a"], [[["a"]]], 1.5, True, b"x", (), -1, 10**15]
    rng = random.Random(3)
    keys = list(entry(0, 0, [], 1))
    entries = [{**entry(n, 0, [], n), rng.choice(keys): rng.choice(wrong)} for n in range(300)]
    entries += [{key: rng.choice(wrong) for key in keys} for _ in range(300)]
    for value in (*wrong, {"0": 1}, {1: {"ranks": 5}}, {"a": {"name": 4}}):
        top = {
            "version": value,
            "entries": entries,
            "pg_config": value,
            "pg_status": value,
            "comm_lib_version": value,
        }
        assert len(one(tmp_path, pickle.dumps(top, 4))) == 600


@pytest.mark.parametrize(
    "data", [pickle.dumps({"a": 1}), pickle.dumps("x"), b"\x80", b"\x80\x02", b"{", b"{}", b"", b"7"]
)
def test_other_files_are_unreadable(tmp_path, data):
    with pytest.raises(UnreadableError):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("head", "name", "claimed"),
    [
        (b"\x80\x02}(X\x07\x00\x00\x00versionq\x00X\x09\x00\x00\x00pg_config", "x", True),
        (
            b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
            "nccl_trace_rank_3",
            True,
        ),
        (b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.", "fr_3", True),
        (b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.", "model.pkl", False),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "trace_rank_0.pt", False),
        (b'{"comm_lib_version":"","entries":[{"collective_seq_id":1,', "x", True),
        (b'\xef\xbb\xbf\n {"pg_config": {}', "x.json", True),
        (
            b'{"schemaVersion": 1, "distributedInfo": {"pg_config": [{"pg_name": "0"}]}',
            "trace_rank0.json",
            False,
        ),
        (b'{"traceEvents": []}', "nccl_trace_rank_0.json", False),
        (b'{"entries": [1, 2]}', "fr_0.json", False),
        (b"NCCL INFO pg_config", "fr_0", False),
        (b"", "fr_0", False),
    ],
)
def test_sniff(head, name, claimed):
    assert reader.sniff(head, name) is claimed


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("fr_3", 3), ("nccl_trace_rank_12.pickle", 12), ("node7_rank_3", 3), ("trace_host-12_5", 5),
        ("comm_lib_trace_rank_0", 0), ("fr_trace_2.10_7", 7), ("fr_trace_2.10", None), ("dump_64gpus", None),
        ("rank3.json.gz", 3), ("rank-3.pkl", 3), ("RANK_4", 4), ("global_rank_5_local_rank_1", 5),
        ("local_rank_1", None), ("fr_api_rank0.json", 0), ("fr_trace_rank_2 (1).json", 2),
        ("fr_20240501", None), ("fr_2024-05-01", None), ("fr_1790000000", None), ("nccl_trace", None),
        ("node7", None), ("host-12", None),
        ("run/rank_3/nccl_trace", 3), ("node7/fr_11", 11), ("rank_2/fr_9", 9), ("7", 7), ("fr_007", 7),
        ("ranks_64_fr_3", 3), ("rank_3_of_8", 3), ("", None), ("rank_" + "9" * 5000, None), ("fr.5", 5),
        ("frank3_x", None),
    ],
)  # fmt: skip
def test_rank_from_name(name, rank):
    assert rank_from_name(name) == rank


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("node7_rank_3", "node7"), ("trace_host-12_5", "host-12"), ("ip-10-0-0-5/fr_3", "ip-10-0-0-5"),
        ("fr_3", None), ("nccl_trace_rank_1", None), ("dgx-a.b.example.org-2/x", "dgx-a.b.example.org-2"),
        ("host-" + "1-" * 3000 + "_3", None), ("nodes_3", None),
    ],
)  # fmt: skip
def test_host_from_name(name, host):
    assert host_from_name(name) == host
