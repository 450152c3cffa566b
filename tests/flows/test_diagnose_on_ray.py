"""Evidence reduced in parts, as nodes of a Ray cluster do it; the cluster itself: tests/preflight/test_gates.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whichrank.flows.diagnose.on_ray import reduce_part

EXAMPLE = Path(__file__).parents[2] / "examples/skipped_collective"


@pytest.mark.parametrize("count", [1, 3, 8])
def test_parts_give_the_same_verdict(whichrank, tmp_path, count):
    files = 0
    for number in range(count):
        data, own = reduce_part([str(EXAMPLE)], number, count)
        files += own
        if own:
            (tmp_path / f"{number}.whichrank").write_bytes(data)
    assert files == 4, "every dump once"
    whole, parts = (
        json.loads(whichrank("diagnose", place, "--format", "json", "--quiet").stdout)["verdict"]
        for place in (EXAMPLE, tmp_path)
    )
    for key in ("category", "cause", "culprits", "victims", "confidence", "summary"):
        assert parts[key] == whole[key]


def test_a_path_that_a_node_does_not_see():
    with pytest.raises(FileNotFoundError, match="not there on this node"):
        reduce_part(["/no/such/folder"], 0, 1)


@pytest.mark.parametrize(("engine", "words"), [("spark://x", "not an engine"), ("ray://", "not an engine")])
def test_other_engines(whichrank, engine, words):
    done = whichrank("diagnose", EXAMPLE, "--engine", engine)
    assert done.returncode == 2
    assert words in done.stderr


def test_standard_input_stays_here(whichrank):
    done = whichrank("diagnose", "-", "--engine", "ray://auto")
    assert done.returncode == 2
    assert "standard input" in done.stderr
