"""What is raised where ranks are about to bring different things to a collective."""

from __future__ import annotations

import pytest

from tests import needs
from whichrank.facts.messages import recognise

torch = needs.package("torch")
strict = needs.later("whichrank.worker.guard.strict")

HERE = "broadcast||4|torch.float32|0"


def told(said):
    return strict.Strict._told(None, "0", 6, {rank: f"0a0b0c0d {text}" for rank, text in said.items()})


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        ("all_reduce|SUM|4|torch.float32|-1", "collective-order"),
        ("broadcast||5|torch.float32|0", "size-mismatch"),
        ("broadcast||4|torch.float64|0", "dtype-mismatch"),
        ("broadcast||4|torch.float32|1", "root-mismatch"),
    ],
)
def test_the_odd_rank_and_what_it_brings_are_told_and_known(other, cause):
    text = told({0: HERE, 1: HERE, 2: other, 3: HERE})
    ((signature, match),) = recognise(f"RefusedError: {text}")
    assert (signature.cause, match.group("culprit")) == (cause, "2")


def test_of_two_nobody_is_named():
    text = told({0: HERE, 1: "broadcast||4|torch.float32|1"})
    assert "ranks differ in the root of call 6" in text
    assert text.endswith(
        "broadcast(4 elements of float32, root 0) on rank 0; broadcast(4 elements of float32, root 1) on rank 1"
    )
