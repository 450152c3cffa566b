"""The loops of a script, and what they say of ranks that part."""

from __future__ import annotations

import ast
import json

import pytest
from msgspec.structs import replace

from tests.timeline.by_hand import Did, dump
from whichrank.evidence.collectors.outline import (
    branches,
    by_rank,
    calls,
    exchanges,
    functions,
    loops,
    names_called,
    of_stacks,
    parsed,
    sorts,
)
from whichrank.records.dump import Frame
from whichrank.records.outline import Loop, Outline
from whichrank.timeline.assemble import build_case

SCRIPT = """\
for epoch in range(3):
    for batch in loader:
        step(batch)
    for batch in loader:
        if batch is None:
            break
while True:
    pass
for x in y:
    for z in x:
        break
"""


def test_loops_and_whether_they_can_be_left():
    assert sorted(loops(ast.parse(SCRIPT))) == [[1, 6, 0], [2, 3, 0], [4, 6, 1], [7, 8, 1], [9, 11, 0], [10, 11, 1]]
    assert parsed("def broken(:") is None


def test_lines_that_are_not_reached_every_time():
    script = "for batch in loader:\n    if bad(batch):\n        continue\n    step(batch)\nreport()\n"
    assert branches(ast.parse(script)) == [[3, 3], [4, 4]]
    script = (
        "def step(x):\n    if x is None:\n        return\n    try:\n        a()\n    except OSError:\n        b()\n"
    )
    assert branches(ast.parse(script)) == [[3, 3], [4, 7], [5, 5], [7, 7]]


def test_the_first_half_of_an_exchange():
    script = (
        "if even:\n    dist.recv(a, src=p)\n    dist.send(b, dst=p)\nelse:\n    dist.send(b, dst=p)\n"
        "    dist.recv(a, src=p)\n"
    )
    assert exchanges(ast.parse(script)) == [2, 5]
    apart = "def pull(p):\n    dist.recv(a, src=p)\n\ndef push(p):\n    dist.send(b, dst=p)\n"
    assert exchanges(ast.parse(apart)) == []


def test_what_a_condition_on_the_rank_decides():
    script = (
        "def log(self):\n    if self.rank == 0:\n        print(1)\n    else:\n        pass\n"
        "def save():\n    if not is_main_process():\n        return\n    write()\n    sync()\n"
        "def other(n):\n    if n > 3:\n        sync()\n"
    )
    assert by_rank(ast.parse(script)) == [[3, 3], [5, 5], [8, 8], [9, 10]]
    assert functions(ast.parse(script)) == [[1, 5], [6, 10], [11, 13]]


def test_conditions_on_what_is_computed_from_the_rank():
    script = "me = dist.get_rank()\nwriter = me % 4 == 0\nmodel = DDP(net, device_ids=[rank])\n"
    script += "if model:\n    a()\nelif writer:\n    b()\nelse:\n    c()\n"
    script += "try:\n    d()\nfinally:\n    if me > 1:\n        e()\n"
    assert by_rank(ast.parse(script)) == [[7, 7], [9, 9], [14, 14]]


def test_lines_that_put_something_in_an_order():
    script = "for a in sorted(b):\n    x(a)\ny = 1\nb.sort()\n"
    script += "def f():\n    return {k: 1 for k in sorted(z,\n        key=n)}\n"
    assert sorts(ast.parse(script)) == [[1, 1], [4, 4], [6, 7]]


def test_calls_of_functions_of_the_same_file():
    script = (
        "def clip(): ...\nclass Head:\n    def step(self):\n        clip()\n        self.share()\n        print()\n"
        "    def share(self): ...\n"
    )
    assert calls(ast.parse(script)) == [[4, 1], [5, 7]]


def test_scripts_that_stacks_name(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    named = (str(script), "/usr/lib/python3/x.py", "/no/such.py")
    stack = "".join(f'  File "{file}", line 3 in main\n' for file in named)
    assert list(json.loads(of_stacks([stack.encode()]))["loops"]) == [str(script)]
    assert of_stacks([b"nothing"]) == b""
    assert list(json.loads(of_stacks([b'File "train.py", line 3'], tmp_path))["loops"]) == ["train.py"]


def parted(loop):
    """Rank 2 went on to line 30 while the others are at line 12."""
    steps = [Did("0", "all_reduce", n, line=12) for n in range(1, 30)]
    more = [*steps, Did("0", "all_reduce", 30, done=False, line=12)]
    left = [*steps, Did("0", "all_reduce", 30, done=False, line=30, numel=1)]
    dumps = [dump(r, {"0": (0, 1, 2, 3)}, left if r == 2 else more) for r in range(4)]
    (trouble,) = build_case([*dumps, Outline({"/srv/job/train.py": (loop,)})]).troubles
    return trouble.shape


def test_ranks_that_part_at_the_end_of_a_loop():
    assert parted(Loop(10, 20, exits=False)) == "left-loop"
    assert parted(Loop(10, 20, exits=True)) != "left-loop"
    assert parted(Loop(10, 40, exits=False)) != "left-loop"


@pytest.mark.parametrize(
    ("branches", "shape"), [((), "left-loop"), (((11, 13),), "skipped"), (((1, 40),), "left-loop"), (None, "skipped")]
)
def test_who_leaves_a_loop_early_in_a_later_epoch(branches, shape):
    """Rank 2 is behind the loop, as all were after the first epoch: by a round less, or by what a round left out."""
    epoch = [*(Did("0", "all_reduce", n, line=12) for n in range(1, 30)), Did("1", "all_gather", 1, line=30)]
    again = [Did("0", "all_reduce", n, line=12) for n in range(30, 58)]
    more = [*epoch, *again, Did("0", "all_reduce", 58, line=12), Did("0", "all_reduce", 59, done=False, line=12)]
    left = [*epoch, *again, Did("0", "all_reduce", 58, line=12), Did("1", "all_gather", 2, done=False, line=30)]
    groups = {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)}
    dumps = [dump(r, groups, left if r == 2 else more) for r in range(4)]
    loops_of = {"/srv/job/train.py": (Loop(10, 20, exits=False),)}
    known = {} if branches is None else {"/srv/job/train.py": branches}
    (trouble,) = build_case([*dumps, Outline(loops_of, known)]).troubles
    assert (trouble.shape, trouble.ranks) == (shape, (2,))


def test_a_loop_over_what_one_rank_alone_has_is_not_left_by_the_others():
    """Rank 0 calls at line 18, in a loop of its own; the others are back at line 12 and have never been there."""
    steps = [Did("0", "all_reduce", n, line=12) for n in range(1, 30)]
    more = [*steps, Did("0", "all_reduce", 30, done=False, line=12)]
    alone = [*steps, Did("1", "all_gather", 1, done=False, line=18)]
    groups = {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)}
    dumps = [dump(r, groups, alone if r == 0 else more) for r in range(4)]
    loops_of = {"/srv/job/train.py": (Loop(10, 20, exits=False), Loop(17, 18, exits=False))}
    (trouble,) = build_case([*dumps, Outline(loops_of)]).troubles
    assert (trouble.shape != "left-loop", trouble.ranks) == (True, (0,))


def test_two_against_two_at_the_end_of_a_loop():
    """Ranks 2 and 3 are in another group's operation behind the loop in which ranks 0 and 1 still are."""
    steps = [Did("0", "all_reduce", n, line=12) for n in range(1, 30)]
    more = [*steps, Did("0", "all_reduce", 30, done=False, line=12)]
    left = [*steps, Did("1", "all_gather", 1, done=False, line=30)]
    groups = {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)}
    dumps = [dump(r, groups, left if r > 1 else more) for r in range(4)]
    (trouble,) = build_case([*dumps, Outline({"/srv/job/train.py": (Loop(10, 20, exits=False),)})]).troubles
    assert (trouble.shape, trouble.ranks, trouble.victims) == ("left-loop", (2, 3), (0, 1))


def test_a_rank_that_left_the_loop_with_the_others_did_not_leave_it_early():
    """All have made the operation at line 30, behind the loop; then rank 0 made another one at line 34."""
    steps = [Did("0", "all_reduce", n, line=12) for n in range(1, 30)]
    steps.append(Did("0", "all_gather", 30, line=30))
    more = [*steps, Did("0", "all_reduce", 31, done=False, line=12)]
    alone = [*steps, Did("0", "all_gather", 31, done=False, line=34)]
    dumps = [dump(r, {"0": (0, 1, 2)}, alone if r == 0 else more) for r in range(3)]
    (trouble,) = build_case([*dumps, Outline({"/srv/job/train.py": (Loop(10, 20, exits=False),)})]).troubles
    assert trouble.shape != "left-loop"
    assert trouble.ranks == (0,)


def test_a_rank_that_came_back_from_the_function_of_the_loop():
    """Others are in the loop of `train_epoch`, one went on to `evaluate`."""
    inside = (Frame("train_epoch", "/srv/job/train.py", 12), Frame("main", "/srv/job/train.py", 40))
    behind = (Frame("evaluate", "/srv/job/train.py", 30), Frame("main", "/srv/job/train.py", 41))
    dumps = []
    for rank in range(4):
        steps = [Did("0", "all_reduce", n, line=12) for n in range(1, 30)]
        last = Did("0", "broadcast" if rank == 2 else "all_reduce", 30, done=False, line=30 if rank == 2 else 12)
        made = dump(rank, {"0": (0, 1, 2, 3)}, [*steps, last])
        made.calls = [replace(c, stack=behind if c.op.endswith("broadcast") else inside) for c in made.calls]
        dumps.append(made)
    loops = (Loop(10, 20, exits=False), Loop(38, 45, exits=False))
    (trouble,) = build_case([*dumps, Outline({"/srv/job/train.py": loops})]).troubles
    assert (trouble.shape, trouble.ranks) == ("left-loop", (2,))


@pytest.mark.parametrize(
    ("by_rank", "shape"), [([(20, 24)], "added"), ([], "swapped"), ([(20, 24), (26, 28)], "swapped")]
)
def test_a_call_of_one_rank_above_the_line_of_the_others(by_rank, shape):
    """Rank 0 gathers at line 22, the others are at the barrier in line 27; nobody had called either before."""
    steps = [Did("0", "all_reduce", n, line=12) for n in range(1, 30)]
    alone = [*steps, Did("0", "all_gather", 30, done=False, line=22)]
    others = [*steps, Did("0", "barrier", 30, done=False, line=27)]
    dumps = [dump(r, {"0": (0, 1, 2, 3)}, others if r else alone) for r in range(4)]
    (trouble,) = build_case([*dumps, Outline({}, by_rank={"/srv/job/train.py": by_rank})]).troubles
    assert (trouble.shape, trouble.ranks) == (shape, (0,))


@pytest.mark.parametrize(("sorted_by_key", "shape"), [([(19, 28)], "swapped"), ([(19, 19)], "skipped")])
def test_two_calls_of_one_loop_over_what_was_sorted_by_a_key(sorted_by_key, shape):
    """A round gathers at line 22 and reduces at line 27, or only reduces; rank 0 took the other task first."""
    both = [Did("0", "all_gather", 1, line=22), Did("0", "all_reduce", 2, line=27), Did("0", "all_reduce", 3, line=27)]
    steps = [replace(did, seq=did.seq + 3 * n) for n in range(9) for did in both]
    others = [*steps, Did("0", "all_reduce", 28, done=False, line=27)]
    first = [*steps, Did("0", "all_gather", 28, done=False, line=22)]
    dumps = [dump(r, {"0": (0, 1, 2, 3)}, others if r else first) for r in range(4)]
    loops_of = {"/srv/job/train.py": (Loop(19, 28, exits=False),)}
    (trouble,) = build_case([*dumps, Outline(loops_of, sorts={"/srv/job/train.py": sorted_by_key})]).troubles
    assert trouble.shape == shape


ARMS = """\
def main():
    if n_bad > 0:
        flush_metrics()
        sync_flags()
    else:
        sync_flags()
        flush_metrics()

def sync_flags():
    dist.all_reduce(flags)

def flush_metrics():
    dist.all_reduce(buf, group=metrics)
"""


@pytest.mark.parametrize(
    ("below", "shape"),
    [
        ("sync_flags()", "crossed"),
        ("dist.all_reduce(flags)", "skipped"),
        ("flush_metrics()", "skipped"),
        ("if late: sync_flags()", "skipped"),
    ],
)
def test_an_arm_that_puts_off_what_the_other_does_first(below, shape):
    """Rank 2 is in the metrics' group from line 3, the others in the job's from line 6."""
    tree = ast.parse(ARMS.replace("sync_flags()", below, 1))
    file = "/srv/job/train.py"
    lines = Outline(
        branches={file: tuple(map(tuple, branches(tree)))},
        functions={file: tuple(map(tuple, functions(tree)))},
        names_called={file: tuple(map(tuple, names_called(tree)))},
    )
    flags = Did("0", "all_reduce", 1, line=10, function="sync_flags", called_from=6)
    metrics = Did("1", "all_reduce", 1, line=13, function="flush_metrics", called_from=7)
    steps = [replace(did, seq=n) for n in range(1, 20) for did in (flags, metrics)]
    others = [*steps, replace(flags, seq=20, done=False)]
    own = [*steps, replace(metrics, seq=20, done=False, called_from=3)]
    groups = {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)}
    dumps = [dump(r, groups, own if r == 2 else others) for r in range(4)]
    (trouble,) = build_case([*dumps, lines]).troubles
    assert (trouble.shape, trouble.ranks) == (shape, (2,))
