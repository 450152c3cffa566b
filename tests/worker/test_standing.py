"""How far the groups are: torch's counters, and what they get wrong now and then."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types

import pytest

from tests.run import watched
from whichrank.worker.standing import BINDING, Standing

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
# Gloo's two threads race for the number of the last operation completed; once in some hundred pauses an old one stays.
STALE = """
import json, time, torch, torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch._C._distributed_c10d import _dump_fr_trace_json
from whichrank.worker.standing import Standing
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
def stale():
    group = json.loads(_dump_fr_trace_json(includeCollectives=False))["pg_status"]["0"]
    return group["last_enqueued_collective"] != group["last_completed_collective"]
x, found = torch.ones(4), None
for _ in range(4000):
    for _ in range(30):
        dist.all_reduce(x)
    time.sleep(0.002)
    if stale() and (time.sleep(0.2) or stale()):
        standing = Standing()
        looks = [standing.look(c10d, second * 10**9, in_collective=False) for second in (1, 2, 9)]
        found = [[look["pending"], look["enqueued"] - look["completed"], look["stuck_ns"]] for look in looks]
        break
print(json.dumps(found))
dist.destroy_process_group()
"""


def test_a_number_that_stays_behind_is_no_wait() -> None:
    environ = watched.environment(TORCH_FR_BUFFER_SIZE="2000")
    done = subprocess.run([sys.executable, "-c", STALE], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    looks = json.loads(done.stdout)
    if looks is None:
        pytest.skip("the race was never lost")
    first, second, last = looks
    assert first[0] == second[0] == 1, "as torch counts"
    assert last == [0, 0, 0], "as its entries say"


C10D = types.SimpleNamespace(
    _world=types.SimpleNamespace(default_pg=types.SimpleNamespace(rank=lambda: 3, size=lambda: 4))
)


class Recorder:
    """NCCL's recorder after sends and receives: it counts them among the completed, with numbers of their own."""

    def __init__(self, entries: list[dict[str, object]]) -> None:
        self.entries, self.asked = entries, 0

    def _dump_nccl_trace_json(self, *, includeCollectives: bool) -> bytes:  # noqa: N803
        self.asked += includeCollectives
        status = {"0": {"last_enqueued_collective": 1, "last_completed_collective": 648}}
        return json.dumps({"pg_status": status, "entries": self.entries if includeCollectives else []}).encode()


@pytest.mark.parametrize(
    ("last", "pending"),
    [
        ({"pg_id": 0, "retired": False, "state": "scheduled"}, 1),
        ({"pg_id": 0, "retired": True, "state": "completed"}, 0),
        ({"pg_id": 0, "retired": False, "state": "completed"}, 0),
    ],
)
def test_messages_that_nccl_counts_apart(monkeypatch, last, pending) -> None:
    # A message of a batch is never retired itself.
    recorder = Recorder([{"pg_id": 0, "retired": False, "state": "scheduled"}, last])
    monkeypatch.setitem(sys.modules, BINDING, recorder)
    standing = Standing()
    looks = [standing.look(C10D, second * 10**9, in_collective=False) for second in (1, 2, 4, 5, 6)]
    assert [look["pending"] for look in looks] == [0, 0, pending, pending, pending]
    assert looks[-1]["stuck_ns"] == (10**9 if pending else 0)
    assert recorder.asked == 1, "it costs milliseconds"


class Answers:
    """A recorder of a job of so many ranks, and how often it was asked."""

    def __init__(self, world: int, **form: tuple[str, str]) -> None:
        self.asked = 0
        counts = {"last_completed_collective": "9", "last_enqueued_collective": "10", "last_started_collective": "-1"}
        config = {"0": {"desc": 'the "pg_status":{ of a group', "name": "0", "ranks": str(list(range(world)))}}
        document = {"pg_config": config, "pg_status": {"0": counts}, "version": "2.10"}
        self.answer = json.dumps(document, **form).encode()

    def __call__(self, *, includeCollectives: bool) -> bytes:  # noqa: N803
        self.asked += not includeCollectives
        return self.answer


@pytest.mark.parametrize("form", [{"separators": (",", ":")}, {}], ids=["as torch writes it", "in another way"])
def test_numbers_are_compared_as_numbers(monkeypatch, form) -> None:
    ask = Answers(8, **form)
    monkeypatch.setitem(sys.modules, BINDING, types.SimpleNamespace(_dump_fr_trace_json=ask))
    standing = Standing()
    look = standing.look(C10D, 10**9, in_collective=False)
    assert (look["enqueued"], look["completed"]) == (10, 9)
    assert standing.pending(), "9 of 10 are done, though '9' > '10'"
    assert not standing.dear


def test_the_recorder_of_a_huge_job_is_asked_rarely(monkeypatch) -> None:
    """It lists the ranks of every group in every answer: milliseconds, in a job of 100,000."""
    ask = Answers(100_000, separators=(",", ":"))
    monkeypatch.setitem(sys.modules, BINDING, types.SimpleNamespace(_dump_fr_trace_json=ask))
    standing = Standing()
    for _ in range(20):
        assert standing.look(C10D, 10**9, in_collective=True)["enqueued"] == 10
    assert ask.asked == 1
    assert standing.dear
