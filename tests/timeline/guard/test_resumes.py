"""A resumed job against the checkpoint that it loaded."""

from __future__ import annotations

from typing import Any

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.compare import compare
from whichrank.timeline.guard.resumes import Resumes

NAMES = ("a", "b", "c", "d")


def note_file(rank: int, attempt: int, *said: dict[str, Any]) -> GuardFile:
    start = {"t": "start", "rank": rank, "world": 2, "source": {}, "versions": {}, "settings": {}}
    units = [[name, "parameter", "0,1", [4], "float32"] for name in NAMES]
    layout = {"t": "layout", "o": 0, "id": "x", "parts": 1, "units": units, "pieces": [[[0, 0]]]}
    notes = [GuardNote(n + 1, s) for n, s in enumerate([start, layout, *said])]
    return GuardFile(f"{attempt}/rank_{rank}", rank, 2, attempt, notes=notes)


def with_state(rank: int, attempt: int, *said: dict[str, Any]) -> GuardFile:
    """As above, with a moment for each of two parameters."""
    made = note_file(rank, attempt, *said)
    kinds = [("a", "parameter"), ("b", "parameter"), ("a", "exp_avg"), ("b", "exp_avg")]
    units = [[name, kind, "0,1", [4], "float32"] for name, kind in kinds]
    made.notes[1] = GuardNote(2, {**made.notes[1].said, "units": units})
    return made


def full(why: str, values: str, path: str = "") -> dict[str, Any]:
    sums = "".join(f"{value:>08}" for value in values)
    return {"t": "full", "o": 0, "s": 0, "l": "x", "why": why, "u": sums, **({"path": path} if path else {})}


def load(path: str) -> dict[str, Any]:
    return {"t": "load", "s": 0, "path": path}


def resumed(saved: str, now: str, path: str = "/c/1.pt"):
    before = [note_file(0, 0, full("save", saved, "/c/1.pt")), note_file(1, 0)]
    after = [note_file(rank, 1, load(path), full("start", now)) for rank in range(2)]
    comparison = compare([*before, *after])
    assert comparison is not None
    return comparison.wrongs()


def test_what_was_saved_came_back():
    assert resumed("1234", "1234") == []


def test_a_tensor_that_did_not_come_back_is_named_on_all_ranks():
    (found,) = resumed("1234", "1294")
    assert (found.kind, found.odd, found.module) == ("resume", (0, 1), "c")
    assert found.detail["path"] == "/c/1.pt"


def test_a_file_for_something_else_is_nobodys_fault():
    assert resumed("1234", "5678") == []


def test_another_file_is_not_compared():
    assert resumed("1234", "1294", "/c/2.pt") == []


def test_a_job_that_was_started_anew_is_compared_with_the_one_that_saved():
    before = [note_file(0, 0, full("save", "1234", "/c/1.pt")), note_file(1, 0)]
    after = [note_file(rank, 0, load("/c/1.pt"), full("start", "1294")) for rank in range(2)]
    (found,) = Resumes.of(before).resumed(after)
    assert (found.odd, found.module) == ((0, 1), "c")
    assert Resumes.of(after).resumed(before) == []


def resumed_with_state(now: str, **saved: Any):
    before = [with_state(0, 0, {**full("save", "1234", "/c/1.pt"), **saved}), with_state(1, 0)]
    after = [with_state(rank, 1, load("/c/1.pt"), full("start", now)) for rank in range(2)]
    for file in after:
        file.notes[-1].said["u"] = file.notes[-1].said["u"].replace("0000000-", "-" * 8)
    comparison = compare([*before, *after])
    assert comparison is not None
    return comparison.wrongs()


def test_state_of_the_optimizer_that_came_back_otherwise():
    assert resumed_with_state("1234") == []
    (found,) = resumed_with_state("1243")
    assert (found.kind, found.odd, found.module, found.tensor) == ("resume", (0, 1), "a", "exp_avg")


def test_state_of_the_optimizer_that_was_left_in_the_file():
    assert resumed_with_state("12--") == []  # nobody knows whether the file has it
    (found,) = resumed_with_state("12--", state=True)
    assert (found.kind, found.odd, found.tensor) == ("resume", (0, 1), "state")
