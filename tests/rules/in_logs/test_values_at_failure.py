"""Ranks that all stop on a value that is not finite, and tell which of theirs are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

FILE = "/srv/job/train.py"
ERROR = """Traceback (most recent call last):
  File "/srv/job/train.py", line 96, in main
    progress.add(loss, step)
  File "/srv/job/train.py", line 63, in add
    raise FloatingPointError(f"loss is {mean} at step {step}, stopping")
FloatingPointError: loss is nan at step 127, stopping
"""


def verdict(folder: Path, *of_ranks: dict[str, bool]) -> Verdict:
    (folder / "variables").mkdir()
    (folder / "logs").mkdir()
    for rank, values in enumerate(of_ranks):
        frames = [[FILE, 63, "add", {"finite(mean)": False, "step": 127}], [FILE, 96, "main", values]]
        told = {"whichrank_variables": 1, "rank": rank, "frames": frames}
        (folder / "variables" / f"rank_{rank}.json").write_text(json.dumps(told))
        (folder / "logs" / f"rank_{rank}.error.txt").write_text(ERROR)
    return diagnose([folder], jobs=1).verdict


def test_the_rank_that_had_it_before_the_reduction(tmp_path: Path) -> None:
    good = {"finite(loss)": True, "finite(prices)": True}
    found = verdict(tmp_path, good, good, good, {**good, "finite(loss)": False})
    assert (found.category, found.cause, found.culprits.ranks) == ("crash", "nan-origin", (3,))
    assert found.victims == (0, 1, 2)
    assert "loss in main" in found.summary


def test_of_two_ranks_too(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"finite(loss)": False}, {"finite(loss)": True}).culprits.ranks == (0,)


@pytest.mark.parametrize(
    "of_ranks",
    [
        [{"finite(loss)": False}] * 3,
        [{"finite(loss)": True}] * 3,
        [{"finite(a)": False, "finite(b)": True}, {"finite(a)": True, "finite(b)": False}, {"finite(a)": True}],
    ],
)
def test_nobody_is_named_where_nothing_tells_one_apart(tmp_path: Path, of_ranks: list[dict[str, bool]]) -> None:
    assert verdict(tmp_path, *of_ranks).culprits.ranks == ()


def test_what_was_made_of_it_is_not_the_origin(tmp_path: Path) -> None:
    of_ranks = [{"finite(loss)": True, "finite(mine)": True}, {"finite(loss)": False, "finite(mine)": False}]
    of_ranks.append({"finite(loss)": True, "finite(mine)": False})
    assert verdict(tmp_path, *of_ranks).culprits.ranks == (1,)
