"""Counts and flags of the training code, as the process tells them."""

from __future__ import annotations

import json

import pytest

from whichrank.evidence.readers.frame_variables import read, sniff
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError


def of(tmp_path, frames):
    path = tmp_path / "rank_2.json"
    path.write_text(json.dumps({"whichrank_variables": 1, "rank": 2, "frames": frames}))
    item = Item(path, path.name, path.stat().st_size, 0)
    assert sniff(item.head(), path.name)
    return read(item).records


def test_numbers_are_kept_and_text_is_not(tmp_path):
    (told,) = of(tmp_path, [["/me/train.py", 12, "fit", {"step": 4, "done": True, "name": "x", "rate": 0.1}]])
    (frame,) = told.frames
    assert (told.rank, frame.line, frame.function) == (2, 12, "fit")
    assert frame.values == {"step": 4, "done": True}


@pytest.mark.parametrize("frames", [7, [["a", 1, "f"]], [["a", "x", "f", {}]], [["a", 1, "f", 3]], [{}]])
def test_what_is_something_else_is_said(tmp_path, frames):
    with pytest.raises(UnreadableError):
        of(tmp_path, frames)
