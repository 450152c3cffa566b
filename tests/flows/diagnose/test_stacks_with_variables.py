"""Stacks of `py-spy dump --locals`: who the ranks are, and whom their calls name."""

from __future__ import annotations

from pathlib import Path

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

C10D = "torch/distributed/distributed_c10d.py"


def stack(pid: int, call: str, place: str, **values: object) -> str:
    shown = "".join(f"            {name}: {value}\n" for name, value in values.items())
    return (
        f'Process {pid}: python -u job.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n'
        f"    {call} ({C10D}:3151)\n        Arguments:\n            tensor: <Tensor at 0x7f5af8ff5f40>\n{shown}"
        f"    {place}\n    <module> (job.py:53)\n"
    )


def verdict(folder: Path, stacks: list[str], log: str) -> Verdict:
    files = {f"stack.{900 + at}.txt": text for at, text in enumerate(stacks)}
    return diagnose([texts.write(folder, {**files, "job.log": log})], jobs=1).verdict


def members(count: int, word: str = "member") -> str:
    return "".join(f"{word} {n} pid {900 + n} lr 0.{n}\n" for n in range(count)) + "round 1\n"


def test_ranks_that_name_different_roots(tmp_path):
    stacks = [stack(900 + n, "broadcast", "exploit (job.py:44)", src=2 if n == 3 else 3) for n in range(4)]
    found = verdict(tmp_path, stacks, members(4))
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "root-mismatch", (3,))
    same = [stack(900 + n, "broadcast", "exploit (job.py:44)", src=3) for n in range(4)]
    assert verdict(tmp_path, same, members(4)).cause != "root-mismatch"


def test_two_against_two_name_nobody(tmp_path):
    stacks = [stack(900 + n, "broadcast", "exploit (job.py:44)", src=n % 2) for n in range(4)]
    found = verdict(tmp_path, stacks, members(4)).culprits
    assert (found.ranks, found.candidates) == ((), (0, 1, 2, 3))


def test_a_rank_that_went_on_to_a_collective_without_its_message(tmp_path):
    waits = stack(900, "recv", "collect (job.py:48)", src=2, group="None")
    sends = stack(901, "send", "collect (job.py:53)", dst=0, group="None")
    found = verdict(tmp_path, [waits, sends, stack(902, "barrier", "main (job.py:73)")], members(3))
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "p2p-unmatched", (2,))


def test_ranks_that_receive_from_each_other(tmp_path):
    stacks = [stack(900 + n, "recv", "pass_along (job.py:24)", src=(n + 1) % 3) for n in range(3)]
    found = verdict(tmp_path, stacks, members(3, "node"))
    assert (found.cause, found.culprits.ranks) == ("p2p-deadlock", (0, 1, 2))


def test_a_group_under_the_name_of_an_earlier_one(tmp_path):
    stacks = [
        stack(
            900 + n, "_new_process_group_helper", f"new_group ({C10D}:6100)\n    build (job.py:12)",
            global_ranks_in_group=[0, 1, 2, 3], group_name='"1"' if n == 2 else '"2"', global_rank=n,
        )
        for n in range(4)
    ]  # fmt: skip
    found = verdict(tmp_path, stacks, "role trainer\n")
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "conditional-collective", (2,))


def test_stacks_of_a_moment_before_all_ranks_ended_well(tmp_path):
    stacks = [stack(900 + n, "barrier", "main (job.py:72)") for n in (1, 2)]
    stacks.insert(0, stack(900, "evaluate", "evaluate (job.py:50)").replace(C10D, "torch/nn/modules/rnn.py"))
    said = ("step 120/120 loss 6.40", "training finished")
    log = "".join(
        f"[default{n}]:2026-01-19T17:37:0{at}.818 INFO    rank={n} pid={900 + n} {words}\n"
        for at, words in enumerate(said)
        for n in range(3)
    )
    assert verdict(tmp_path, stacks, log).category == "healthy"
