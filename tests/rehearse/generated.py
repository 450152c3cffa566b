"""Small torch programs by class, wrong and right, in the manner of the MPI Bugs Initiative's generators.

The classes are MBI's, as far as torch has the feature: call ordering, call matching, parameter matching, groups
(communicators), message race and local concurrency have no counterpart here. `python -m tests.rehearse.generated` rehearses
them all and prints recall and precision per class.
"""

# ruff: noqa: E501 - programs as one line each

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEAD = """\
import torch
import torch.distributed as dist

dist.init_process_group("{backend}")
rank, world = dist.get_rank(), dist.get_world_size()
value = torch.ones(4)
parts = [torch.empty(4) for _ in range(world)]
whole = torch.empty(4 * world)
for step in range(3):
    dist.all_reduce(torch.ones(2))
{body}
dist.barrier()
dist.destroy_process_group()
"""
CALLS = {
    "all_reduce": "dist.all_reduce(value)",
    "broadcast": "dist.broadcast(value, 0)",
    "reduce": "dist.reduce(value, 0)",
    "all_gather": "dist.all_gather(parts, value)",
    "all_gather_into_tensor": "dist.all_gather_into_tensor(whole, value)",
    "reduce_scatter_tensor": "dist.reduce_scatter_tensor(value, whole)",
    "all_to_all_single": "dist.all_to_all_single(torch.empty(world), torch.ones(world))",
    "barrier": "dist.barrier()",
    "all_gather_object": "dist.all_gather_object([None] * world, rank)",
}
WHO = {
    "rank 0": "rank == 0",
    "the last": "rank == world - 1",
    "odd ranks": "rank % 2",
    "by data": "float(torch.tensor(rank)) > 2",
}


class Program(NamedTuple):
    family: str
    name: str
    text: str
    causes: tuple[str, ...]
    """What a right answer may say; empty for a correct program."""


def programs() -> Iterator[Program]:
    for make in (ordering, matching, parameters, groups, pairs):
        yield from make()


def program(family: str, name: str, body: str, *causes: str, backend: str = "gloo") -> Program:
    lines = "\n".join(body.strip("\n").splitlines())
    return Program(family, name, HEAD.format(backend=backend, body=lines), causes)


def ordering() -> Iterator[Program]:
    """Two calls, in one order here and in the other there."""
    wrong = ("collective-order", "conditional-collective", "collective-desync", "rank0-only-collective")
    names = list(CALLS)
    for index, first in enumerate(names):
        second = names[(index + 2) % len(names)]
        who, test = list(WHO.items())[index % len(WHO)]
        a, b = CALLS[first], CALLS[second]
        same = f"if {test}:\n    {a}\n    {b}\nelse:\n    {a}\n    {b}"
        swapped = f"if {test}:\n    {b}\n    {a}\nelse:\n    {a}\n    {b}"
        yield program("call ordering", f"{first} and {second}, {who}", swapped, *wrong)
        yield program("call ordering", f"{first} and {second}, {who}, right", same)


def matching() -> Iterator[Program]:
    """A call that some ranks don't make."""
    wrong = ("conditional-collective", "rank0-only-collective", "collective-desync", "collective-order")
    for index, (name, call) in enumerate(CALLS.items()):
        who, test = list(WHO.items())[(index + 1) % len(WHO)]
        extra = f"if {test}:\n    {call}\ndist.all_reduce(torch.ones(3))"
        agreed = (
            f"flag = torch.tensor([1.0 if {test} else 0.0])\ndist.all_reduce(flag)\nif flag.item() > 0:\n    {call}"
        )
        yield program("call matching", f"{name} by {who} alone", extra, *wrong)
        yield program("call matching", f"{name} agreed upon, right", agreed)
    other = "if rank == 1:\n    dist.broadcast(value, 0)\nelse:\n    dist.all_reduce(value)"
    yield program("call matching", "broadcast against all_reduce", other, *wrong)
    swallowed = "try:\n    if rank == 2:\n        raise OSError('no file')\n    dist.all_reduce(value)\nexcept OSError:\n    pass\ndist.broadcast(value, 0)"
    yield program("call matching", "swallowed", swallowed, *wrong, "rank-exception")
    loop = "for _ in range(5 + (rank == 1)):\n    dist.all_reduce(value)"
    yield program("call matching", "one round more", loop, *wrong, "uneven-inputs")
    ended = "import sys\nif rank == 3:\n    sys.exit(0)\nfor _ in range(2):\n    dist.all_reduce(value)"
    yield program("call matching", "one leaves", ended, *wrong, "teardown-hang", "uneven-inputs")


def parameters() -> Iterator[Program]:
    """The same call with arguments that don't fit."""
    cases = {
        "root of broadcast": ("dist.broadcast(value, 1 if rank == 2 else 0)", "root-mismatch"),
        "root of reduce": ("dist.reduce(value, rank // 2)", "root-mismatch"),
        "root of gather": ("dist.gather(value, parts if rank == (1 if rank == 1 else 0) else None, dst=1 if rank == 1 else 0)", "root-mismatch"),
        "size of all_reduce": ("dist.all_reduce(torch.ones(4 + (rank == 2)))", "size-mismatch"),
        "size of broadcast": ("dist.broadcast(torch.ones(4 if rank else 8), 0)", "size-mismatch"),
        "size of all_gather": ("x = torch.ones(2 + rank % 2)\ndist.all_gather([torch.empty_like(x) for _ in range(world)], x)", "size-mismatch"),
        "splits": ("s = [1] * world\nif rank == 0:\n    s[1] = 2\ndist.all_to_all_single(torch.empty(sum(s)), torch.ones(sum(s)), s, s)", "size-mismatch"),
        "dtype of all_reduce": ("dist.all_reduce(value.double() if rank == 1 else value)", "dtype-mismatch"),
        "dtype of broadcast": ("dist.broadcast(value.half() if rank == 0 else value, 0)", "dtype-mismatch"),
        "operation": ("dist.all_reduce(value, op=dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)", "reduce-op-mismatch"),
        "operation of reduce": ("dist.reduce(value, 0, op=dist.ReduceOp.MIN if rank % 2 else dist.ReduceOp.SUM)", "reduce-op-mismatch"),
        "root out of range": ("dist.broadcast(value, world if rank == 2 else 0)", "invalid-collective-call"),
    }  # fmt: skip
    for name, (body, cause) in cases.items():
        yield program("parameter matching", name, body, cause)
    for name, body in {
        "same root": "dist.broadcast(value, world - 1)\ndist.reduce(value, 1)",
        "shapes differ, sizes don't": "dist.all_reduce(torch.ones(2, 2) if rank % 2 else torch.ones(4))",
        "uneven but announced": "s = [i + 1 for i in range(world)]\ndist.all_to_all_single(torch.empty(world * (rank + 1)), torch.ones(sum(s)), [rank + 1] * world, s)",
        "padded": "n = torch.tensor(rank + 1)\ndist.all_reduce(n, op=dist.ReduceOp.MAX)\nx = torch.zeros(int(n))\ndist.all_gather([torch.empty_like(x) for _ in range(world)], x)",
        "operation from config": "op = dist.ReduceOp.MAX if world > 2 else dist.ReduceOp.SUM\ndist.all_reduce(value, op=op)",
    }.items():  # fmt: skip
        yield program("parameter matching", f"{name}, right", body)


def groups() -> Iterator[Program]:
    make = "rows = [dist.new_group([i, i + 1]) for i in range(0, world, 2)]\nmine = rows[rank // 2]\n"
    wrong = (
        "process-group-order",
        "conditional-collective",
        "collective-order",
        "collective-desync",
        "rank0-only-collective",
    )
    cases = {
        "two groups crossed": make + "a, b = (None, mine) if rank % 2 else (mine, None)\ndist.all_reduce(value, group=a)\ndist.all_reduce(value, group=b)",
        "sub-group by one": make + "if rank == 0:\n    dist.all_reduce(value, group=mine)",
        "world instead of group": make + "dist.all_reduce(value, group=None if rank == 1 else mine)\ndist.all_reduce(value)",
        "created by members": "if rank < 2:\n    g = dist.new_group([0, 1])\nh = dist.new_group(list(range(world)))\ndist.all_reduce(value, group=h)",
        "created in another order": "sets = [[0, 1], [0, 2]]\nif rank == 2:\n    sets.reverse()\ngs = [dist.new_group(s) for s in sets]\ndist.barrier()",
        "barrier of a group by half": make + "if rank % 2:\n    dist.barrier(group=mine)\ndist.all_reduce(value, group=mine)",
    }  # fmt: skip
    for name, body in cases.items():
        yield program("groups", name, body, *wrong)
    for name, body in {
        "rows then world": make + "dist.all_reduce(value, group=mine)\ndist.all_reduce(value)",
        "only one group works": make + "if rank < 2:\n    dist.all_reduce(value, group=mine)\ndist.barrier()",
        "root of a group": make + "dist.broadcast(value, rank // 2 * 2, group=mine)",
        "different work by group": make + "for _ in range(1 + rank // 2):\n    dist.all_reduce(value, group=mine)",
        "local synchronization": "if rank < 2:\n    g = dist.new_group([0, 1], use_local_synchronization=True)\n    dist.all_reduce(value, group=g)",
    }.items():  # fmt: skip
        yield program("groups", f"{name}, right", body)


def pairs() -> Iterator[Program]:
    ring = "left, right = (rank - 1) % world, (rank + 1) % world\nother = torch.empty(4)\n"
    both = ("p2p-deadlock", "p2p-unmatched")
    cases = {
        "all send first": (ring + "dist.send(value, right)\ndist.recv(other, left)", both),
        "all receive first": (ring + "dist.recv(other, left)\ndist.send(value, right)", both),
        "nobody sends": ("if rank == 1:\n    dist.recv(value, 0)", both),
        "nobody receives": ("if rank == 0:\n    dist.send(value, 1)", both),
        "to the wrong one": ("if rank == 0:\n    dist.send(value, 2)\nelif rank == 1:\n    dist.recv(value, 0)", both),
        "other tag": ("if rank == 0:\n    dist.send(value, 1, tag=1)\nelif rank == 1:\n    dist.recv(value, 0, tag=2)", both),
        "other size": ("if rank == 0:\n    dist.send(torch.ones(3), 1)\nelif rank == 1:\n    dist.recv(value, 0)", ("size-mismatch",)),
        "other dtype": ("if rank == 0:\n    dist.send(value.double(), 1)\nelif rank == 1:\n    dist.recv(value, 0)", ("dtype-mismatch",)),
        "wait never ends": ("if rank == 0:\n    dist.irecv(value, 1).wait()", both),
        "send against collective": ("if rank == 0:\n    dist.send(value, 1)\n    dist.all_reduce(value)\nelse:\n    dist.all_reduce(value)\n    if rank == 1:\n        dist.recv(value, 0)", (*both, "conditional-collective", "collective-order", "rank0-only-collective")),
    }  # fmt: skip
    for name, (body, causes) in cases.items():
        yield program("point to point", name, body, *causes)
    for name, body in {
        "parity": ring + "if rank % 2:\n    dist.recv(other, left)\n    dist.send(value, right)\nelse:\n    dist.send(value, right)\n    dist.recv(other, left)",
        "isend": ring + "w = dist.isend(value, right)\ndist.recv(other, left)\nw.wait()",
        "batch": ring + "ops = [dist.P2POp(dist.isend, value, right), dist.P2POp(dist.irecv, other, left)]\nfor w in dist.batch_isend_irecv(ops):\n    w.wait()",
        "any source": "if rank == 0:\n    for _ in range(world - 1):\n        dist.recv(value)\nelse:\n    dist.send(value, 0)",
        "pipeline": "if rank:\n    dist.recv(value, rank - 1)\nif rank < world - 1:\n    dist.send(value, rank + 1)",
        "tags out of order": "if rank == 0:\n    a, b = dist.isend(value, 1, tag=1), dist.isend(value * 2, 1, tag=2)\n    a.wait(), b.wait()\nelif rank == 1:\n    dist.recv(value, 0, tag=2)\n    assert value[0] == 2\n    dist.recv(value, 0, tag=1)",
        "collective between": "if rank == 0:\n    w = dist.isend(value, 1)\ndist.all_reduce(torch.ones(1))\nif rank == 1:\n    dist.recv(value, 0)\nif rank == 0:\n    w.wait()",
    }.items():  # fmt: skip
        yield program("point to point", f"{name}, right", body)


class Score(NamedTuple):
    family: str
    name: str
    expected: tuple[str, ...]
    found: tuple[str, ...]
    followed: bool

    @property
    def right(self) -> bool:
        if not self.expected:
            return self.followed and not self.found
        return any(cause in self.expected for cause in self.found)


def rehearse_all(world: int = 4, limit_s: float = 30.0) -> list[Score]:
    """Every program, one after the other on one stage: torch is imported once."""
    from whichrank.rehearse.judge import judge
    from whichrank.rehearse.rehearse import Options, _setup
    from whichrank.rehearse.stage import Stage

    scores = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "program.py")
        script.write_text("")
        setup = _setup(Options(script, world=world), script, Path(folder), namespaces=True)
        with Stage(setup, sys.executable) as stage:
            for number, one in enumerate(programs()):
                path = Path(folder, f"program{number}.py")
                path.write_text(one.text)
                request = {"launcher": "torchrun", "script": str(path), "limit_s": limit_s, "steps": None}
                judgement = judge(stage.ask(request, limit_s + 30))
                found = tuple(finding.cause for finding in judgement.findings)
                scores.append(Score(one.family, one.name, one.causes, found, judgement.followed))
    return scores


def table(scores: list[Score]) -> str:
    """Recall and precision per class: of wrong programs found, and of programs accused the wrong ones."""
    rows = ["| class | programs | recall | precision | right cause |", "| --- | --- | --- | --- | --- |"]
    by_family: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        by_family[score.family].append(score)
        by_family["all"].append(score)
    for family, members in by_family.items():
        wrong = [one for one in members if one.expected]
        hits = [one for one in wrong if one.found]
        accused = [one for one in members if one.found]
        causes = [one for one in wrong if one.right]
        recall, precision = len(hits) / len(wrong), len(hits) / max(1, len(accused))
        rows.append(f"| {family} | {len(members)} | {recall:.2f} | {precision:.2f} | {len(causes)}/{len(wrong)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    results = rehearse_all()
    for result in results:
        if not result.right:
            sys.stdout.write(json.dumps(result._asdict()) + "\n")
    sys.stdout.write(table(results) + "\n")
