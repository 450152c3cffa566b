"""What a process says of the collective that it is in: the peer or the root that it was called with."""

from __future__ import annotations

import sys
import threading
import types

import pytest

from whichrank.worker.main_thread import MainThread, _posted

FOLDER = "/opt/venv/lib/python3.12/site-packages/torch/distributed"
FILE = f"{FOLDER}/distributed_c10d.py"


def seen_in(definition: str, call: str, file: str = FILE) -> str:
    """The words of another thread about this one, while it is inside a function of that file."""
    inside, seen = threading.Event(), threading.Event()
    words: list[str] = []

    def look() -> None:
        inside.wait(10)
        words.append(MainThread().look(1)["operation"])
        seen.set()

    names = {"inside": inside, "seen": seen}
    exec(compile(f"{definition} inside.set(), seen.wait(10)", file, "exec"), names)
    watcher = threading.Thread(target=look)
    watcher.start()
    exec(compile(call, "/srv/job/train.py", "exec"), names)
    watcher.join()
    return words[0]


@pytest.mark.parametrize(
    ("definition", "call", "said"),
    [
        ("def recv(tensor, src=None, group=None):", "recv(0, 3)", "recv from 3"),
        ("def send(tensor, dst=None, group=None):", "send(0, 12)", "send to 12"),
        ("def broadcast(tensor, src=None, group_src=None):", "broadcast(0, 1)", "broadcast from 1"),
        ("def broadcast(tensor, src=None, group_src=None):", "broadcast(0, group_src=1)", "broadcast"),
        ("def recv(tensor, src=None, group=None):", "recv(0, 'a' * 999)", "recv"),
        ("def all_reduce(tensor):", "all_reduce(0)", "all_reduce"),
    ],
)
def test_whom_a_collective_is_with(definition, call, said):
    assert seen_in(definition, call) == said


def test_what_tensors_on_a_mesh_call():
    """`DTensor.full_tensor()` comes to functional collectives, which take a mesh and the number of its dimension."""
    definition, file = "def all_reduce(self, reduceOp, group, tag=''):", f"{FOLDER}/_functional_collectives.py"
    assert seen_in(definition, "all_reduce(0, 'sum', ([0, 1], 0))", file) == "all_reduce"


class Group:
    """Like a process group: known by itself."""


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((0, 3), "all_reduce of 0,3"),
        ((4, 5, 6, 7), "all_reduce of 4-7"),
        (tuple(range(0, 4096, 2)), "all_reduce"),
        ((), "all_reduce"),
    ],
)
def test_the_group_of_a_collective(ranks, said, monkeypatch):
    group, every = Group(), Group()
    world = types.SimpleNamespace(default_pg=every, pg_group_ranks={group: ranks, every: (0, 1, 2, 3)})
    module = types.SimpleNamespace(_world=world)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", module)
    module.group, module.every = group, every
    name = "__import__('sys').modules['torch.distributed.distributed_c10d']"
    assert seen_in("def all_reduce(tensor, group=None):", f"all_reduce(0, {name}.group)") == said
    assert seen_in("def all_reduce(tensor, group=None):", f"all_reduce(0, {name}.every)") == "all_reduce"
    assert seen_in("def all_reduce(tensor, group=None):", "all_reduce(0, [])") == "all_reduce"


def test_the_messages_that_a_function_has_posted(monkeypatch):
    """`request.wait()` has no frame of its own: the list of messages beside it says whom it is with."""

    class P2POp:
        def __init__(self, peer):
            self.peer = peer

    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", types.SimpleNamespace(P2POp=P2POp))

    def exchange():
        ops = [P2POp(4), P2POp(2), P2POp(4)]
        return sys._getframe(), len(ops)

    assert _posted(exchange()[0]) == "batch_isend_irecv of 2,4"
    assert _posted(sys._getframe()) == ""
