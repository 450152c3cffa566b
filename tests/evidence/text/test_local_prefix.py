"""Which rank the process of a host is, by lines that say both."""

from __future__ import annotations

import pytest

from whichrank.evidence.text.local_prefix import learn_local


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["a1/0: x", "a1/1: [rank1]: y", "a2/0: x", "a2/1: [rank3]: y"], {"a1": 0, "a2": 2}),
        (["a1/1: [rank1]: y", "a2/1: [rank3]: y", "a3/0: x", "a3/1: x"], {"a1": 0, "a2": 2, "a3": 4}),
        (["b/0: [rank4]: y", "a/0: [rank6]: y", "c/1: x"], {"b": 4, "a": 6}),
    ],
)
def test_the_first_rank_of_each_host(lines, first):
    found = learn_local(lines)
    assert found is not None
    assert found[1] == first


@pytest.mark.parametrize(
    "lines",
    [
        ["a1/0: [rank0]: y", "a1/1: [rank5]: y", "a2/1: [rank3]: y"],
        ["a1/3: [rank0]: y", "a2/1: [rank3]: y"],
        ["a1/0: [rank0]: y", "a1/1: [rank1]: y"],
        ["a1/0: x", "a2/0: x"],
    ],
    ids=["contradicts itself", "below rank 0", "one host", "says no rank"],
)
def test_numbers_that_are_no_local_ranks(lines):
    assert learn_local(lines) is None
