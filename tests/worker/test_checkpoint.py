"""`whichrank.checkpoint`: whole or not there, whatever happens to those who write."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

import whichrank
from tests.conftest import command_environment
from whichrank import checkpoint
from whichrank.model.errors import UsageError

SPAWN = multiprocessing.get_context("spawn")


def shards(folder, rank, world, step, delay_s=0.0, timeout_s=30.0):
    """One rank of a sharded save, in a process of its own."""
    time.sleep(delay_s)
    checkpoint.save(f"rank {rank} at {step}".encode(), folder, step, sharded=True, rank=rank, world_size=world,
                    timeout_s=timeout_s)  # fmt: skip


def together(world, folder, step, delays=None):
    ranks = [SPAWN.Process(target=shards, args=(folder, rank, world, step, (delays or {}).get(rank, 0.0)))
             for rank in range(world)]  # fmt: skip
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    return [rank.exitcode for rank in ranks]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_importing_it_imports_no_torch():
    code = "import sys, whichrank.checkpoint, whichrank; whichrank.checkpoint.save; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=command_environment(), check=False).returncode == 0
    assert whichrank.checkpoint.save is checkpoint.save


def test_bytes_and_functions(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    path = checkpoint.save(b"one", tmp_path, 1)
    assert path.name == "step-000000000001"
    assert checkpoint.latest(tmp_path).read() == b"one"
    checkpoint.save(lambda stream: stream.write(b"two"), tmp_path, 2)
    found = checkpoint.latest(tmp_path)
    assert (found.step, found.world_size, found.read()) == (2, 1, b"two")
    with open(found, "rb") as stream:  # noqa: PTH123
        assert stream.read() == b"two", "it is usable as a path"


def test_torch_objects(tmp_path):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(3, 2)
    checkpoint.save({"model": layer.state_dict(), "step": 5}, tmp_path, 5)
    found = checkpoint.latest(tmp_path)
    assert torch.equal(found.load()["model"]["weight"], layer.weight)
    assert torch.load(found)["step"] == 5
    checkpoint.save(layer, tmp_path, 6)  # can be called, and is no function that writes
    assert checkpoint.latest(tmp_path).load(weights_only=False).in_features == 3


def test_the_newest_few_are_kept(tmp_path):
    for step in range(6):
        checkpoint.save(b"x", tmp_path, step, keep=2)
    assert names(tmp_path) == ["step-000000000004", "step-000000000005"]
    checkpoint.save(b"again", tmp_path, 3, keep=2)  # the training was taken back to an earlier step
    assert checkpoint.latest(tmp_path).read() == b"again"
    assert names(tmp_path) == ["step-000000000003", "step-000000000005"]
    checkpoint.save(b"once more", tmp_path, 3, keep=2)
    assert checkpoint.latest(tmp_path).read() == b"once more"


def test_damage_is_noticed_and_named(tmp_path):
    for step in (1, 2, 3):
        checkpoint.save(b"content" * 100, tmp_path, step)
    file = tmp_path / "step-000000000003/rank-00000.bin"
    file.write_bytes(b"Content" + file.read_bytes()[7:])
    os.truncate(tmp_path / "step-000000000002/rank-00000.bin", 10)
    with pytest.warns(UserWarning, match="skipped the checkpoint") as told:
        assert checkpoint.latest(tmp_path).step == 1
    assert "checksum differs" in str(told[0].message)
    assert "10 bytes instead of 700" in str(told[1].message)


def test_a_mark_that_leads_outside_is_no_mark(tmp_path):
    checkpoint.save(b"x", tmp_path, 1)
    mark = tmp_path / "step-000000000001/checkpoint.json"
    told = json.loads(mark.read_text())
    told["files"][0]["name"] = "../../secret"
    mark.write_text(json.dumps(told))
    assert checkpoint.latest(tmp_path) is None


def test_a_failing_writer_leaves_nothing(tmp_path):
    checkpoint.save(b"good", tmp_path, 1)

    def fails(stream):
        stream.write(b"half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        checkpoint.save(fails, tmp_path, 2)
    assert names(tmp_path) == ["step-000000000001"]
    with pytest.raises(UsageError):
        checkpoint.save(b"", tmp_path, 1, keep=0)


def test_killed_while_it_writes(tmp_path):
    checkpoint.save(b"good", tmp_path, 1)
    code = (
        "import sys, time\nfrom whichrank import checkpoint\n"
        "def slow(stream):\n"
        "    stream.write(b'half'); stream.flush(); print('writing', flush=True); time.sleep(60)\n"
        "checkpoint.save(slow, sys.argv[1], 2)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, env=command_environment()
    )
    with writer:
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGKILL)
    assert checkpoint.latest(tmp_path).read() == b"good"
    assert len(names(tmp_path)) == 2, "its draft is still there"
    checkpoint.save(b"better", tmp_path, 2)
    assert names(tmp_path) == ["step-000000000001", "step-000000000002"]


def test_one_writes_when_all_call(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert checkpoint.save(b"x", tmp_path, 1) is None
    monkeypatch.setenv("RANK", "0")
    assert checkpoint.save(b"x", tmp_path, 1).name == "step-000000000001"
    assert checkpoint.latest(tmp_path).world_size == 1


def test_every_rank_its_part(tmp_path, monkeypatch):
    assert together(3, tmp_path, 7, {0: 0.5}) == [0, 0, 0]
    assert names(tmp_path) == ["step-000000000007"]
    found = checkpoint.latest(tmp_path)
    assert (found.world_size, found.step) == (3, 7)
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        assert found.read() == f"rank {rank} at 7".encode()


def test_parts_of_an_attempt_that_died_are_not_taken(tmp_path):
    stale = tmp_path / ".step-000000000007.dead.part"
    stale.mkdir()
    row = {"name": "rank-00001.bin", "bytes": 3, "sha256": ""}
    (stale / "rank-00001.bin").write_bytes(b"old")
    (stale / "rank-00001.bin.json").write_text(json.dumps(row))
    assert together(2, tmp_path, 7, {0: 1.0}) == [0, 0], "rank 1 comes first and finds the old place"
    assert names(tmp_path) == ["step-000000000007"]
    assert (tmp_path / "step-000000000007/rank-00001.bin").read_bytes() == b"rank 1 at 7"


def test_a_rank_that_does_not_come_is_named(tmp_path):
    checkpoint.save(b"good", tmp_path, 1)
    with pytest.raises(checkpoint.CheckpointError, match="did not write their part of the checkpoint: 1, 2"):
        shards(tmp_path, 0, 3, 2, timeout_s=0.3)
    with pytest.raises(checkpoint.CheckpointError, match="rank 0 did not commit"):
        shards(tmp_path, 1, 3, 2, timeout_s=0.3)
    assert checkpoint.latest(tmp_path).step == 1
    assert names(tmp_path) == ["step-000000000001"]
