"""Whether a call stands behind the loop."""

from __future__ import annotations

import pytest

from whichrank.records.dump import Call, Frame
from whichrank.timeline.collectives.compare import is_behind_loop, is_behind_training


def call(*frames: tuple[str, int]) -> Call:
    """From the script inwards."""
    stack = tuple(Frame(function, "/srv/job/train.py", line) for function, line in reversed(frames))
    return Call("all_reduce", "gloo", ((8,),), ((8,),), ("Float",), ("Float",), stack, "main", False, 600_000)


@pytest.mark.parametrize(
    ("loop", "other", "behind", "returned"),
    [
        ([("main", 50), ("train", 20), ("reduce", 7)], [("main", 52)], True, True),
        ([("main", 50), ("Trainer.fit", 20), ("reduce", 7)], [("main", 52)], True, True),
        # A step at a time: the line below may be inside the loop.
        ([("main", 50), ("train_step", 20), ("reduce", 7)], [("main", 52)], True, False),
        ([("main", 50)], [("main", 52)], True, False),
        ([("main", 50), ("train", 20)], [("main", 48)], False, True),
        ([("main", 50), ("train", 20)], [("main", 50), ("train", 18)], False, False),
    ],
)
def test_behind_the_loop(loop, other, behind, returned):
    assert is_behind_loop(call(*other), [call(*loop)]) is behind
    assert is_behind_training(call(*other), [call(*loop)]) is returned
