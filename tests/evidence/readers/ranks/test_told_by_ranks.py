"""What a process tells of itself: the members of its groups, the counts and flags of its training code."""

from __future__ import annotations

import json

import pytest

from tests.timeline.by_hand import Did, dump
from whichrank.evidence.readers.told_by_ranks import read, sniff
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.records.dump import GroupMembers
from whichrank.timeline.assemble import build_case
from whichrank.worker.groups import ranges


def of(tmp_path, document):
    path = tmp_path / "rank_0.json"
    path.write_text(json.dumps(document))
    item = Item(path, path.name, path.stat().st_size, 0)
    assert sniff(item.head(), path.name)
    return read(item).records


def test_ranges_are_written_and_read(tmp_path):
    assert ranges([5, 0, 1, 2]) == "0-2,5"
    (told,) = of(tmp_path, {"whichrank_groups": 1, "rank": 2, "groups": {"0": "0-2,5", "1": ""}})
    assert (told.rank, told.members) == (2, {"0": (0, 1, 2, 5)})


@pytest.mark.parametrize("groups", [{"0": "5-2"}, {"0": "0-99999999999"}, {"0": "x"}, 7])
def test_what_is_not_a_list_of_groups_is_said(tmp_path, groups):
    with pytest.raises(UnreadableError):
        of(tmp_path, {"whichrank_groups": 1, "rank": 0, "groups": groups})


def test_a_second_group_of_all_ranks_that_one_rank_used_has_all_ranks():
    """Gloo's recorder has no members: by what was seen alone, the group would be complete with one rank."""
    steps = [Did("0", "all_reduce", n) for n in range(1, 20)]
    alone = [*steps, Did("1", "all_reduce", 1, done=False, line=25)]
    others = [*steps, Did("0", "all_reduce", 20, done=False)]
    dumps = [dump(r, {"0": None, "1": None}, alone if r == 0 else others) for r in range(4)]
    told = [GroupMembers(r, {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)}) for r in range(4)]
    assert {t.ranks for t in build_case([*dumps, *told]).troubles} == {(0,)}


def variables(tmp_path, frames):
    path = tmp_path / "rank_2.json"
    path.write_text(json.dumps({"whichrank_variables": 1, "rank": 2, "frames": frames}))
    item = Item(path, path.name, path.stat().st_size, 0)
    assert sniff(item.head(), path.name)
    return read(item).records


def test_numbers_are_kept_and_text_is_not(tmp_path):
    (told,) = variables(tmp_path, [["/me/train.py", 12, "fit", {"step": 4, "done": True, "name": "x", "rate": 0.1}]])
    (frame,) = told.frames
    assert (told.rank, frame.line, frame.function) == (2, 12, "fit")
    assert frame.values == {"step": 4, "done": True}


@pytest.mark.parametrize("frames", [7, [["a", 1, "f"]], [["a", "x", "f", {}]], [["a", 1, "f", 3]], [{}]])
def test_what_is_something_else_is_said(tmp_path, frames):
    with pytest.raises(UnreadableError):
        variables(tmp_path, frames)
