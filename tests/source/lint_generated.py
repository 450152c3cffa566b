"""Programs by the taxonomy of an MPI corpus (MBI): call ordering, call matching, groups, roots and other parameters.

The idea and the classes are the corpus's; the programs are torch's. Every class has wrong and right ones, each
operation in each setting: inline, in a function, in a method, behind a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

CALLS = {
    "all_reduce": "dist.all_reduce(x)",
    "broadcast": "dist.broadcast(x, src=0)",
    "reduce": "dist.reduce(x, dst=0)",
    "all_gather": "dist.all_gather(parts, x)",
    "barrier": "dist.barrier()",
    "gather": "dist.gather_object(1, parts if rank == 0 else None, dst=0)",
}
ROOTED = {
    "broadcast": "dist.broadcast(x, src={root})",
    "reduce": "dist.reduce(x, dst={root})",
    "scatter": "dist.scatter(x, scatter_list=parts if rank == {root} else None, src={root})",
}
HEAD = "import torch\nimport torch.distributed as dist\n\n"
START = (
    "rank, world = dist.get_rank(), dist.get_world_size()\n"
    "x = torch.ones(4)\nparts = [torch.ones(4) for _ in range(world)]\n"
)


@dataclass(frozen=True)
class Generated:
    kind: str
    name: str
    text: str
    causes: frozenset[str]
    """Empty for a right program."""


def programs() -> Iterator[Generated]:
    for kind, name, body, causes in _bodies():
        for setting, text in _settings(body):
            yield Generated(kind, f"{name}-{setting}", text, frozenset(causes.split("|")) - {""})


def _settings(body: str) -> Iterator[tuple[str, str]]:
    end = "dist.destroy_process_group()\n"
    yield "inline", HEAD + 'dist.init_process_group("gloo")\n' + START + body + end
    inner = _indented(START + body)
    main = '\n\nif __name__ == "__main__":\n    dist.init_process_group("gloo")\n'
    yield "function", HEAD + "\ndef step():\n" + inner + main + "    step()\n    " + end
    method = "\nclass Job:\n    def step(self):\n" + _indented(inner)
    yield "method", HEAD + method + main + "    Job().step()\n    " + end
    loop = "\ndef run(turns):\n" + _indented(START) + "    for _ in range(turns):\n" + _indented(_indented(body))
    yield "loop", HEAD + loop + main + "    run(3)\n    " + end


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


def _branch(test: str, one: list[str], other: list[str]) -> str:
    text = f"if {test}:\n" + "".join(f"    {line}\n" for line in one or ["pass"])
    return text + ("else:\n" + "".join(f"    {line}\n" for line in other) if other else "")


def _bodies() -> Iterator[tuple[str, str, str, str]]:
    yield from _ordering()
    yield from _matching()
    yield from _groups()
    yield from _parameters()


def _ordering() -> Iterator[tuple[str, str, str, str]]:
    names = list(CALLS)
    for first, second in zip(names, names[1:] + names[:1], strict=True):
        a, b = CALLS[first], CALLS[second]
        kind, pair = "call ordering", f"{first}-{second}"
        yield kind, f"swapped-{pair}", _branch("rank == 0", [a, b], [b, a]), "collective-order|conditional-collective"
        yield kind, f"other-{pair}", _branch("rank % 2", [a], [b]), "collective-order|conditional-collective"
        yield kind, f"missing-{pair}", _branch("rank == 0", [a], []), "rank0-only-collective"
        yield kind, f"extra-{pair}", _branch("rank != 0", [a, b], [a]), "conditional-collective"
        yield kind, f"same-{pair}", _branch("rank == 0", [a, b], [a, b]), ""
        yield kind, f"around-{pair}", _branch("rank == 0", ["print(rank)"], []) + a + "\n" + b + "\n", ""
        paired = _branch("rank == 0", [a], []) + _branch("rank != 0", [a], [])
        yield kind, f"paired-{pair}", paired, ""


def _matching() -> Iterator[tuple[str, str, str, str]]:
    kind = "call matching"
    send, recv = "dist.send(x, dst={})", "dist.recv(x, src={})"
    pair = [("0", "1"), ("1", "0"), ("2", "3"), ("3", "2")]
    for mine, theirs in pair:
        name = f"{mine}-{theirs}"
        one, other = f"rank == {mine}", f"rank == {theirs}"
        right = _branch(one, [send.format(theirs)], []) + _branch(other, [recv.format(mine)], [])
        yield kind, f"pair-{name}", right, ""
        alone = _branch(one, [recv.format(theirs)], [])
        yield kind, f"no-send-{name}", alone, "p2p-unmatched"
        wrong_way = _branch(one, [send.format(theirs), recv.format(theirs)], [])
        both = wrong_way + _branch(other, [send.format(mine), recv.format(mine)], [])
        yield kind, f"both-send-{name}", both, "p2p-deadlock"
        first = _branch(one, [recv.format(theirs), send.format(theirs)], [])
        yield (
            kind,
            f"both-recv-{name}",
            first + _branch(other, [recv.format(mine), send.format(mine)], []),
            "p2p-deadlock",
        )
        turns = _branch(one, [send.format(theirs), recv.format(theirs)], [])
        yield kind, f"in-turn-{name}", turns + _branch(other, [recv.format(mine), send.format(mine)], []), ""
        free = _branch(one, ["r = dist.isend(x, dst=" + theirs + ")", recv.format(theirs), "r.wait()"], [])
        post = ["r = dist.isend(x, dst=" + mine + ")", recv.format(mine), "r.wait()"]
        yield kind, f"isend-{name}", free + _branch(other, post, []), ""


def _groups() -> Iterator[tuple[str, str, str, str]]:
    kind = "groups"
    makes = "g = dist.new_group([0, 1])\nh = dist.new_group([0, 1, 2, 3])\n"
    for name in ("all_reduce", "broadcast"):
        inner = CALLS[name][:-1] + ", group=g)"
        whole = CALLS[name][:-1] + ", group=h)"
        yield kind, f"members-{name}", makes + _branch("rank < 2", [inner], []), ""
        yield (
            kind,
            f"one-member-{name}",
            makes + _branch("rank == 0", [inner], []),
            "rank0-only-collective|conditional-collective",
        )
        yield kind, f"not-all-{name}", makes + _branch("rank != 3", [whole], []), "conditional-collective"
        yield kind, f"other-group-{name}", makes + _branch("rank < 2", [inner, whole], [whole]), ""
        crossed = _branch("rank == 0", [inner, whole], [whole, inner])
        yield kind, f"crossed-{name}", makes + crossed, "process-group-order"
    made = _branch("rank < 2", ["g = dist.new_group([0, 1])"], [])
    yield kind, "made-by-some", made, "conditional-collective"
    yield (
        kind,
        "made-by-one",
        _branch("rank == 0", ["g = dist.new_group([0, 1])"], []),
        "rank0-only-collective|conditional-collective",
    )
    alike = "for r in range(0, world, 2):\n    g = dist.new_group([r, r + 1])\n"
    alike += "    if rank in (r, r + 1):\n        mine = g\n"
    yield kind, "made-by-all", alike, ""


def _parameters() -> Iterator[tuple[str, str, str, str]]:
    for name, call in ROOTED.items():
        kind = "roots"
        yield kind, f"me-{name}", call.format(root="rank") + "\n", "root-mismatch"
        two = _branch("rank < 2", [call.format(root="0")], [call.format(root="1")])
        yield kind, f"two-{name}", two, "root-mismatch"
        yield kind, f"parity-{name}", call.format(root="rank % 2") + "\n", "root-mismatch"
        same = _branch("rank < 2", [call.format(root="0")], [call.format(root="0")])
        yield kind, f"same-{name}", same, ""
        yield kind, f"last-{name}", call.format(root="world - 1") + "\n", ""
    kind = "other parameters"
    reduce = "dist.all_reduce(x, op=dist.ReduceOp.{})"
    yield kind, "op", _branch("rank == 0", [reduce.format("SUM")], [reduce.format("MAX")]), "reduce-op-mismatch"
    yield kind, "op-same", _branch("rank == 0", [reduce.format("SUM")], [reduce.format("SUM")]), ""
    yield kind, "dtype", "if rank == 0:\n    x = x.double()\ndist.all_reduce(x)\n", "dtype-mismatch"
    yield kind, "dtype-same", "x = x.double()\ndist.all_reduce(x)\n", ""
    yield kind, "size", "y = torch.ones(rank + 1)\ndist.all_reduce(y)\n", "size-mismatch"
    yield kind, "size-same", "y = torch.ones(world + 1)\ndist.all_reduce(y)\n", ""
    yield kind, "turns", "for _ in range(rank):\n    dist.all_reduce(x)\n", "uneven-inputs|conditional-collective"
    yield kind, "turns-same", "for _ in range(world):\n    dist.all_reduce(x)\n", ""
