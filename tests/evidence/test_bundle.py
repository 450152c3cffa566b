"""Bundles: what is there, what is missing, and what may be shared."""

from __future__ import annotations

import hashlib
import json

import pytest

from whichrank.evidence.bundle import Bundle, load
from whichrank.evidence.collectors import environment, processes
from whichrank.evidence.readers import last_words
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError


def test_the_manifest_tells_all(tmp_path):
    bundle = Bundle(tmp_path / "b")
    assert bundle.add("stacks/rank_1.txt", b"words", "stacks", rank=1, pid=7)
    assert not bundle.add("dumps/rank_2", b"", "flight recorder", rank=2)
    bundle.lacks("gpu state", "there is no nvidia-smi")
    bundle.close({"world_size": 4})
    content = load(tmp_path / "b")
    assert content["schema_version"] == 1
    (file,) = content["files"]
    assert (file["path"], file["rank"], file["pid"]) == ("stacks/rank_1.txt", 1, 7)
    assert file["sha256"] == hashlib.sha256(b"words").hexdigest()
    assert {entry["what"] for entry in content["missing"]} == {"flight recorder", "gpu state"}
    assert content["hosts"][0]["boot_id"]
    assert content["job"] == {"world_size": 4}


def test_a_full_disk_is_told_and_stops_nothing(tmp_path):
    bundle = Bundle(tmp_path / "b")
    (tmp_path / "b" / "stacks").write_text("a file where a folder should be")
    assert not bundle.add("stacks/rank_1.txt", b"words", "stacks", rank=1)
    assert "can't be written" in bundle.manifest.missing[0].why


def test_the_environment_by_allow_list():
    kept = environment.kept({
        "NCCL_DEBUG": "INFO", "RANK": "1", "AWS_SECRET_ACCESS_KEY": "abc", "TORCH_TOKEN": "abc", "HOME": "/home/a",
        "NCCL_SOCKET_IFNAME": "eth0", "TORCHELASTIC_X": "http://user:word@host/", "MASTER_ADDR": "hf_abcdefghijkl",
    })  # fmt: skip
    assert kept["NCCL_DEBUG"] == "INFO"
    assert kept["NCCL_SOCKET_IFNAME"] == "eth0"
    assert {"AWS_SECRET_ACCESS_KEY", "HOME"}.isdisjoint(kept)
    assert kept["TORCH_TOKEN"] == kept["TORCHELASTIC_X"] == kept["MASTER_ADDR"] == environment.REMOVED


def test_how_a_process_ended():
    assert processes.outcome(9) == (None, 9)
    assert processes.outcome(3 << 8) == (3, None)
    assert processes.outcome(0x8B) == (None, 11)


def read(path):
    return last_words.read(Item(path, path.name, path.stat().st_size, 0))


def test_last_words_as_evidence(tmp_path):
    rows = [
        {"rank": 0, "pid": 10, "world_size": 2, "phase": "joined", "alive": True, "started_ns": 5},
        {"rank": 1, "pid": 11, "world_size": 2, "phase": "joined", "alive": False, "signal": 9, "ended_ns": 99,
         "place": "t.py:3 f"},
        {"rank": 7, "alive": False, "exit_code": 0},
        {"rank": 8, "pid": 12, "world_size": 9, "phase": "joining", "alive": True},
        {"rank": "x"}, None,
    ]  # fmt: skip
    path = tmp_path / "last_words.json"
    path.write_text(json.dumps({"whichrank_last_words": 1, "host": "h", "processes": rows}, indent=1))
    assert last_words.sniff(path.read_bytes(), path.name)
    events = read(path).records
    assert [(e.kind, e.rank) for e in events] == [
        ("group_init", 0),
        ("group_init", 1),
        ("process_exit", 1),
        ("comm_init", 8),
    ]
    assert (events[2].signal, events[2].time_ns, events[2].pid) == (9, 99, 11)
    assert "t.py:3 f" in events[2].ref.quote


def test_who_has_been_silent_may_be_elsewhere_by_now(tmp_path):
    """Its interpreter is held, or it is stopped: the operation that it told of is an old one."""
    now = 1_790_000_000_000_000_000
    rows = [
        {"rank": rank, "pid": 10 + rank, "world_size": 4, "phase": "joined", "alive": True, "in": "all_reduce of 0-2",
         "heard_ns": now - silent_s * 10**9}
        for rank, silent_s in enumerate((0, 1, 8))
    ]  # fmt: skip
    path = tmp_path / "last_words.json"
    path.write_text(json.dumps({"whichrank_last_words": 1, "host": "h", "processes": rows}))
    assert [e.rank for e in read(path).records if e.kind == "in_operation"] == [0, 1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"processes": 3}', '{"whichrank_last_words": 1}', "[" * 100_000])
def test_bad_last_words_are_refused(tmp_path, text):
    path = tmp_path / "last_words.json"
    path.write_text(text)
    with pytest.raises(UnreadableError):
        read(path)
